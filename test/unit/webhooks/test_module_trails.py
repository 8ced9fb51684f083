"""How many modules a reader has to follow for one review: those whose functions run from the server to the response.

A module with a pass-through function, or one that is asked for the same fact from many places, makes this trail longer.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any
from unittest.mock import AsyncMock, Mock

import orjson
import pytest
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.webhook.metrics import WebhookMetrics
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.review import read_review
from cfo.runtime.webhook.server import WebhookServer
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import Images, InjectionSettings
from cfo.webhooks.raycluster.webhook import RayClusterWebhook, setup
from hack.generate.drawings import REVIEW
from test.support.ray_clusters import ray_cluster, worker

MAX_MODULES = 26
"""The maximum number from the bytes of a request to those of the response; ten are the server half of the library."""

MAX_MODULES_OF_HANDLER = 20
"""The maximum number from the handler that the server calls to its response."""

MUTATE = "/mutate-ray-io-v1-raycluster"
VALIDATE = "/validate-ray-io-v1-raycluster"


@contextmanager
def entered_modules() -> Iterator[set[str]]:
    """Collect the modules of ``cfo`` whose functions this thread enters."""
    modules: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("cfo."):
            modules.add(name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield modules
    finally:
        sys.setprofile(before)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> WebhookServer:
    """A server with the webhooks of RayClusters, which runs without a socket."""
    config = KubeRayConfiguration.from_document(
        {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}
    )
    manager = Manager(Transport(ClientConfig(server="https://127.0.0.1:6443", token="t")))
    monkeypatch.setattr(manager.mapper, "serves_group", AsyncMock(return_value=True))
    environment = ClusterEnvironment.detect(manager, config)
    webhook = RayClusterWebhook(
        version="v1",
        images=Images(),
        settings_of=lambda namespace: environment.profiles.settings(manager.client, namespace),
        has_oauth_server=environment.platform.has_oauth_server,
        ingress_domain=lambda: environment.domain.read(manager.client),
    )
    webhooks = Webhooks()
    setup(Mock(webhooks=webhooks), webhook)
    server = WebhookServer(webhooks, Mock(), WebhookMetrics(CollectorRegistry()))
    server._listener = Mock(protected=lambda request: nullcontext())
    return server


def encoded(request: Object) -> bytes:
    """Return the body of a review."""
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "name": "rc", "namespace": "ns", **request},
        }
    )


async def trail(server: WebhookServer, path: str, body: bytes) -> tuple[set[str], Any]:
    """Return the modules that a review enters, and its response."""
    payload = StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
    payload.feed_data(body)
    payload.feed_eof()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    sent = make_mocked_request("POST", f"{path}?timeout=10s", headers=headers, payload=payload)
    with entered_modules() as modules:
        response = await server._handle(sent)
    assert isinstance(response.body, bytes)
    return modules, orjson.loads(response.body)["response"]


async def handler_trail(server: WebhookServer, path: str, body: bytes) -> set[str]:
    """Return the modules that the handler of a review enters."""
    webhook = server._webhooks.get(path)
    assert webhook is not None
    review = read_review(body)
    with entered_modules() as modules:
        await webhook.handler.handle(review)
    return modules


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_review_of_a_raycluster_enters_few_modules_and_builds_no_path(
    server: WebhookServer, path: str, operation: str
) -> None:
    new = ray_cluster(worker())
    new["metadata"]["namespace"] = "ns"
    settings = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")
    stored = default(new, None, settings).cluster
    changed = copy.deepcopy(stored)
    changed["metadata"]["labels"] = {"changed": "true"}
    if operation == "UPDATE":
        request = {"object": changed, "oldObject": stored}
    elif path == MUTATE:
        request = {"object": new}
    else:
        request = {"object": stored}
    body = encoded({"operation": operation, **request})
    await trail(server, path, body)
    modules, response = await trail(server, path, body)
    assert response["allowed"], response
    if operation == "CREATE" and path == MUTATE:
        assert orjson.loads(b64decode(response["patch"]))
    assert len(modules) <= MAX_MODULES, " ".join(sorted(modules))
    handler_modules = await handler_trail(server, path, body)
    assert len(handler_modules) <= MAX_MODULES_OF_HANDLER, " ".join(sorted(handler_modules))
    assert "cfo.runtime.objects.field" not in modules, "no field is wrong"
    drawn = REVIEW[1:]  # the listener has accepted the connection before
    not_entered = [step for step in drawn if not any(map(step.contains, modules))]
    assert not_entered == [], "docs/images/ways.svg"
