"""Conversion of custom resources to another version, without and with a webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from envtest.admission.webhook_client import CallFailed, ServiceEndpoints, WebhookClient
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.crd.conversion import Conversions
from envtest.storage import Store


class FakeWebhookClient(WebhookClient):
    """A webhook client without network: responds with the result of ``respond``, and records the reviews."""

    def __init__(self, respond: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(ServiceEndpoints(Store()))
        self._respond = respond
        self.reviews: list[dict[str, Any]] = []

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: int) -> bytes:
        review = orjson.loads(body)
        self.reviews.append(review)
        response = self._respond(review)
        return response if isinstance(response, bytes) else orjson.dumps(response)


def responding(
    change: Callable[[Object], Object], **response: Any
) -> Callable[[dict[str, Any]], Any]:
    def respond(review: dict[str, Any]) -> Any:
        request = review["request"]
        objects = [
            change({**obj, "apiVersion": request["desiredAPIVersion"]})
            for obj in request["objects"]
        ]
        full_response = {
            "uid": request["uid"],
            "result": {"status": "Success"},
            "convertedObjects": objects,
            **response,
        }
        return {
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": full_response,
        }

    return respond


def build_crd(*, webhook: bool = True) -> Object:
    def version(name: str, field: str) -> Object:
        spec = {"type": "object", "properties": {field: {"type": "string"}}}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
        }

    by_webhook = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}}
    by_webhook["webhook"] |= {"conversionReviewVersions": ["v9", "v1"]}  # type: ignore[operator]
    return {
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing"},
            "versions": [version("v1", "new"), version("v1beta1", "old")],
            "conversion": by_webhook if webhook else {"strategy": "None"},
        }
    }


def thing(version: str = "v1beta1", **spec: Any) -> Object:
    metadata = {"name": "a", "namespace": "n", "uid": "u", "labels": {"l": "1"}, "generation": 3}
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Thing",
        "metadata": metadata,
        "spec": spec,
    }


async def convert_objects(
    client: WebhookClient, *objects: Object, to: str = "v1", webhook: bool = True
) -> list[Object]:
    convert = Conversions(client).converter(build_crd(webhook=webhook))
    assert convert is not None
    return await convert(objects, f"example.com/{to}")


def rename(obj: Object) -> Object:
    return {
        **obj,
        "spec": {"new": obj["spec"]["old"]},
        "metadata": {**obj["metadata"], "labels": {"l": "2"}},
    }


async def test_conversion_without_webhook_sets_version_and_prunes() -> None:
    (obj,) = await convert_objects(
        FakeWebhookClient(lambda review: b""), thing(old="x", new="y"), webhook=False
    )
    assert obj["apiVersion"] == "example.com/v1"
    assert obj["spec"] == {"new": "y"}


async def test_crd_with_one_version_has_no_converter() -> None:
    crd = build_crd(webhook=False)
    del crd["spec"]["versions"][1]
    assert Conversions(FakeWebhookClient(lambda review: b"")).converter(crd) is None


async def test_webhook_gets_a_review_version_that_both_support() -> None:
    client = FakeWebhookClient(responding(rename))
    as_is, changed = await convert_objects(client, thing("v1", new="as is"), thing(old="x"))
    (review,) = client.reviews
    assert review["apiVersion"] == "apiextensions.k8s.io/v1"
    assert review["request"]["desiredAPIVersion"] == "example.com/v1"
    assert len(review["request"]["objects"]) == 1, (
        "objects that are already in the desired version are not sent"
    )
    assert as_is == thing("v1", new="as is")
    assert changed["spec"] == {"new": "x"}


async def test_webhook_can_only_change_labels_and_annotations_of_metadata() -> None:
    def change_metadata(obj: Object) -> Object:
        metadata = {**obj["metadata"], "generation": 99, "annotations": {"a": "b"}}
        del metadata["labels"]
        return {**obj, "metadata": metadata}

    (obj,) = await convert_objects(FakeWebhookClient(responding(change_metadata)), thing(old="x"))
    assert obj["metadata"]["generation"] == 3
    assert obj["metadata"]["annotations"] == {"a": "b"}
    assert "labels" not in obj["metadata"]


PREFIX = "conversion webhook for example.com/v1beta1, Kind=Thing "


def unreachable(review: Any) -> Any:
    raise CallFailed("Post: refused")


@pytest.mark.parametrize(
    ("converted", "message"),
    [
        (5, "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        (None, "unexpected end of JSON input"),
        ({}, "Object 'Kind' is missing in '{}'"),
    ],
)
async def test_converted_object_must_be_an_object_with_a_kind(converted: Any, message: str) -> None:
    client = FakeWebhookClient(responding(rename, convertedObjects=[converted]))
    with pytest.raises(StatusError) as caught:
        await convert_objects(client, thing(old="x"))
    assert (caught.value.code, str(caught.value)) == (500, message)


async def test_converted_object_without_a_name_needs_metadata() -> None:
    unnamed = {**thing(old="x"), "metadata": {"generateName": "a-"}}
    client = FakeWebhookClient(responding(lambda obj: {**obj, "metadata": 5}))
    with pytest.raises(StatusError, match="invalid metadata of type int64 in converted object"):
        await convert_objects(client, unnamed)


@pytest.mark.parametrize(
    ("respond", "message"),
    [
        (unreachable, "failed: Post: refused"),
        (responding(rename, uid="other"), "failed: expected response.uid="),
        (responding(rename, result={"status": "Failure", "message": "cannot"}), "failed: cannot"),
        (responding(rename, result={}), "failed: response.result.status was '', not 'Success'"),
        (responding(rename, convertedObjects=[]), "returned 0 objects, expected 1"),
        (lambda review: {**review, "response": None}, "failed: no response provided"),
        (
            lambda review: {},
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        ),
        (lambda review: {"kind": "Other"}, 'failed: no kind "Other" is registered for version'),
        (
            responding(rename, result="Success"),
            "failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.result of type",
        ),
        (
            responding(rename, convertedObjects="x"),
            "failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.convertedObjects",
        ),
        (lambda review: b"no json", "failed: "),
        (
            responding(lambda obj: {**obj, "apiVersion": "example.com/v7"}),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received e",
        ),
        (
            responding(lambda obj: {**obj, "metadata": {**obj["metadata"], "name": "b"}}),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            responding(
                lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": {"l": "no good"}}}
            ),
            "returned invalid metadata: metadata.labels: Invalid value",
        ),
        (
            responding(lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": {"l": 1}}}),
            "returned invalid metadata: metadata.labels[l] must be a string, but is int64 in converted object",
        ),
        (
            responding(lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": "x"}}),
            "returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
    ],
)
async def test_invalid_webhook_response_is_an_error(
    respond: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        await convert_objects(FakeWebhookClient(respond), thing(old="x"))
    assert caught.value.code == 500
    assert f"{PREFIX}{message}" in str(caught.value)
