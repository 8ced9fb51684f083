"""Converts custom resources between versions: by changing only the apiVersion, or by webhook.

The messages equal those in apiextensions' ``webhookConverter``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from envtest.admission.review_decoder import decode_review, shown_kind
from envtest.admission.webhook_client import CallFailed, WebhookClient
from envtest.apimachinery.errors import plain_error
from envtest.apimachinery.field_errors import FieldError, aggregate, go_quote, invalid
from envtest.apimachinery.name_rules import label_value, qualified_name
from envtest.apimachinery.objects import Object
from envtest.formats.go_format import go_type
from envtest.formats.go_json_errors import json_type
from envtest.registry.resource import Converter
from envtest.schema.schema_node import Schema
from envtest.schema.shaping import compile_pruner, copy_json

__all__ = ["Conversions"]

_GROUP = "apiextensions.k8s.io"
_SECONDS = 30
_REVIEWS = ("v1", "v1beta1")


class Conversions:
    """Creates the converters of CRDs; ``webhooks`` calls conversion webhooks."""

    def __init__(self, webhooks: WebhookClient) -> None:
        self._webhooks = webhooks

    def converter(self, crd: Mapping[str, Any]) -> Converter | None:
        """Return the converter of a CRD, or ``None`` if it has only one version."""
        conversion = crd["spec"].get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return None if len(crd["spec"]["versions"]) == 1 else _renaming(crd)
        webhook = conversion["webhook"]
        kind = crd["spec"]["names"]["kind"]

        async def convert(objects: Sequence[Object], api_version: str) -> list[Object]:
            changing = [obj for obj in objects if obj.get("apiVersion") != api_version]
            if not changing:
                return list(objects)
            prefix = f"conversion webhook for {changing[0].get('apiVersion')}, Kind={kind}"
            try:
                converted = await self._call(webhook, changing, api_version)
            except (CallFailed, _MalformedResponse) as error:
                raise plain_error(f"{prefix} failed: {error}") from None
            if len(converted) != len(changing):
                raise plain_error(
                    f"{prefix} returned {len(converted)} objects, expected {len(changing)}"
                )
            rest = iter(_checked(changing, converted, api_version, kind, prefix))
            return [obj if obj.get("apiVersion") == api_version else next(rest) for obj in objects]

        return convert

    async def _call(
        self, webhook: Mapping[str, Any], objects: Sequence[Object], api_version: str
    ) -> list[Any]:
        """Return the objects that the webhook converted. Raises CallFailed or _MalformedResponse."""
        versions = webhook.get("conversionReviewVersions") or ()
        version = next((each for each in versions if each in _REVIEWS), None)
        if version is None:
            raise _MalformedResponse("no supported conversion review versions")
        review = _new_review(version, objects, api_version)
        body = await self._webhooks.post(
            webhook["clientConfig"], orjson.dumps(review), seconds=_SECONDS
        )
        try:
            reviewed = decode_review(body, _GROUP, version, "ConversionReview")
        except ValueError as error:
            raise _MalformedResponse(str(error)) from None
        response = _response_to(review, reviewed)
        return [_converted_object(each) for each in response.get("convertedObjects") or ()]


def _new_review(version: str, objects: Sequence[Object], api_version: str) -> Object:
    """Return the request to convert objects to ``api_version``."""
    return {
        "kind": "ConversionReview",
        "apiVersion": f"{_GROUP}/{version}",
        "request": {
            "uid": str(uuid.uuid4()),
            "desiredAPIVersion": api_version,
            "objects": list(objects),
        },
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }


def _response_to(review: Object, reviewed: Object) -> Object:
    """Return the response in a review that a webhook returned. Raises _MalformedResponse."""
    is_strict = review["apiVersion"] == f"{_GROUP}/v1"
    same_kind = all(reviewed.get(name) == review[name] for name in ("apiVersion", "kind"))
    if is_strict and not same_kind:
        raise _MalformedResponse(
            f"expected webhook response of {shown_kind(review)}, got {shown_kind(reviewed)}"
        )
    response: Object | None = reviewed.get("response")
    if response is None:
        raise _MalformedResponse("no response provided")
    sent_uid = review["request"]["uid"]
    uid = response.get("uid") or ""
    if is_strict and uid != sent_uid:
        raise _MalformedResponse(f"expected response.uid={go_quote(sent_uid)}, got {go_quote(uid)}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        text = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
        raise _MalformedResponse(result.get("message") or text)
    return response


def _converted_object(value: Any) -> Object:
    """Return an object that a webhook converted. Raises StatusError (500) if it is not an object with a kind."""
    if value is None:
        raise plain_error("unexpected end of JSON input")
    if not isinstance(value, dict):
        raise plain_error(
            f"json: cannot unmarshal {json_type(value)} into Go value of type map[string]interface {{}}"
        )
    if not value.get("kind") or not isinstance(value["kind"], str):
        raise plain_error(f"Object 'Kind' is missing in '{orjson.dumps(value).decode()}'")
    return value


class _MalformedResponse(Exception):
    """Raised when the webhook responded but did not convert the objects."""


def _renaming(crd: Mapping[str, Any]) -> Converter:
    """Return the converter of strategy ``None``: set the apiVersion and drop fields that are not in the new schema."""
    group = crd["spec"]["group"]
    pruners = {
        f"{group}/{version['name']}": compile_pruner(
            Schema((version.get("schema") or {}).get("openAPIV3Schema") or {}), resource_root=True
        )
        for version in crd["spec"]["versions"]
    }

    async def convert(objects: Sequence[Object], api_version: str) -> list[Object]:
        prune = pruners[api_version]
        converted: list[Object] = []
        for obj in objects:
            new = (
                obj
                if obj.get("apiVersion") == api_version
                else {**copy_json(obj), "apiVersion": api_version}
            )
            prune(new, "", [])
            converted.append(new)
        return converted

    return convert


def _checked(
    before: Sequence[Object], after: Sequence[Any], api_version: str, kind: str, prefix: str
) -> list[Object]:
    """Return the converted objects, with the metadata restored that a conversion must not change.

    Raises StatusError (500). kube-apiserver converts each object of a list in its own call, so the position in the list
    is always 0.
    """
    out: list[Object] = []
    for old, new in zip(before, after, strict=True):
        wrong = _kind_problem(new, api_version, kind)
        if wrong:
            raise plain_error(f"{prefix} returned invalid object at index 0: {wrong}")
        wrong = _identity_problem(old, new)
        if wrong:
            raise plain_error(f"{prefix} returned invalid object: {wrong}")
        wrong = _metadata_problem(new)
        if wrong:
            raise plain_error(f"{prefix} returned invalid metadata: {wrong}")
        metadata = copy_json(old["metadata"])
        for name in ("labels", "annotations"):
            metadata.pop(name, None)
            if new["metadata"].get(name) is not None:
                metadata[name] = new["metadata"][name]
        new["metadata"] = metadata
        out.append(new)
    return out


def _kind_problem(new: Any, api_version: str, kind: str) -> str:
    """Return why ``new`` is not an object of the kind and the version, or an empty string."""
    if not isinstance(new, dict):
        return "not an object"
    version = new.get("apiVersion") or ""
    if version != api_version:
        return f"invalid groupVersion (expected {api_version}, received {version})"
    if new.get("kind") != kind:
        return f"invalid kind (expected {kind}, received {new.get('kind') or ''})"
    return ""


def _identity_problem(old: Object, new: Object) -> str:
    """Return why ``new`` is not ``old`` in another version, or an empty string."""
    metadata = new.get("metadata") if isinstance(new.get("metadata"), dict) else {}
    assert metadata is not None
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        had = old["metadata"].get(name) or ""
        has = metadata.get(name) or ""
        if had != has:
            return f"must have the same {shown}: {had} != {has}"
    return ""


def _metadata_problem(new: Object) -> str:
    """Return the error in the labels and annotations that a webhook returned, or an empty string."""
    errors: list[FieldError] = []
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        return f"invalid metadata of type {go_type(metadata)} in converted object"
    for name in ("labels", "annotations"):
        texts = new["metadata"].get(name)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            return f"invalid metadata.{name} of type {go_type(texts)} in converted object"
        for word, text in texts.items():
            if not isinstance(text, str):
                return f"metadata.{name}[{word}] must be a string, but is {go_type(text)} in converted object"
        if name == "labels":
            errors += _label_errors(texts)
        else:
            errors += _annotation_errors(texts)
    return aggregate(errors) if errors else ""


def _label_errors(labels: Mapping[str, str]) -> Iterator[FieldError]:
    for name, value in labels.items():
        for problem in qualified_name(name):
            yield invalid("metadata.labels", name, problem)
        for problem in label_value(value):
            yield invalid("metadata.labels", value, problem)


def _annotation_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    for name in annotations:
        for problem in qualified_name(name.lower()):
            yield invalid("metadata.annotation", name, problem)
