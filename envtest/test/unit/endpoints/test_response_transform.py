"""Lists that are assembled from stored bytes."""

from __future__ import annotations

import orjson
from aiohttp.test_utils import make_mocked_request

from envtest.endpoints.negotiation import Output
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encoded_list
from envtest.storage.record import encode
from test.support.admission import CONFIG_MAPS


def body_of(response: Response) -> bytes:
    body = response.body
    return body if isinstance(body, bytes) else b"".join(body)


def test_list_is_valid_with_an_item_of_another_kind() -> None:
    items = [
        encode({"apiVersion": version, "kind": kind, "metadata": {"name": kind}})
        for version, kind in (("v1", "ConfigMap"), ("v1", "Secret"), ("apps/v1", "ConfigMap"))
    ]
    request = Request(make_mocked_request("GET", "/api/v1/configmaps"))
    response = encoded_list(request, CONFIG_MAPS, Output(), items, {"resourceVersion": "1"})
    assert orjson.loads(body_of(response))["items"] == [
        {"metadata": {"name": name}} for name in ("ConfigMap", "Secret", "ConfigMap")
    ]
