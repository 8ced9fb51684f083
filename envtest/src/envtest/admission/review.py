"""AdmissionReview: builds the request for a webhook, and validates its response.

Follows ``k8s.io/apiserver/pkg/admission/plugin/webhook/request`` and ``.../errors``.
"""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from envtest.admission.matching import object_name, request_namespace
from envtest.admission.review_decoder import decode_review, shown_kind
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import user_info
from envtest.endpoints.decoder import JSONError, load_json
from envtest.formats.go_json_errors import json_type
from envtest.registry.resource import RequestContext, ResourceInfo

__all__ = ["AdmissionResponse", "InvalidResponse", "Review", "admission_request", "rejection"]

_KIND = "AdmissionReview"
_GROUP = "admission.k8s.io"


class InvalidResponse(Exception):
    """Raised if a webhook's response is invalid; the message is kube-apiserver's."""


def _invalid(why: str) -> InvalidResponse:
    return InvalidResponse(f"received invalid webhook response: {why}")


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """The decision of a webhook. ``patch`` is a JSON Patch, empty when there is none."""

    allowed: bool
    status: Mapping[str, Any] | None = None
    patch: list[Any] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)


def admission_request(
    ctx: RequestContext, obj: Object, old: Object | None, info: ResourceInfo | None = None
) -> dict[str, Any]:
    """Return the ``request`` of a review, without its uid; ``info`` is the resource that a rule of the hook matched."""
    info = info or ctx.info
    request: dict[str, Any] = {"kind": _kind(ctx, info), "resource": _resource(info)}
    if ctx.subresource:
        request["subResource"] = ctx.subresource
    request["requestKind"] = _kind(ctx, ctx.info)
    request["requestResource"] = _resource(ctx.info)
    if ctx.subresource:
        request["requestSubResource"] = ctx.subresource
    name = object_name(ctx, obj)
    if name:
        request["name"] = name
    namespace = request_namespace(ctx, obj)
    if namespace:
        request["namespace"] = namespace
    request["operation"] = ctx.operation
    request["userInfo"] = user_info(ctx.user)
    request["object"] = obj or None
    request["oldObject"] = old or None
    request["dryRun"] = ctx.dry_run
    request["options"] = _options(ctx)
    return request


def _options(ctx: RequestContext) -> dict[str, Any] | None:
    """Return the options in the type of the admission operation: a PATCH has CreateOptions or UpdateOptions."""
    if not ctx.options:
        return None
    options = {key: value for key, value in ctx.options.items() if key != "force"}
    return {**options, "kind": f"{ctx.operation.capitalize()}Options"}


def _kind(ctx: RequestContext, info: ResourceInfo) -> dict[str, str]:
    subresource = info.subresources.get(ctx.subresource)
    if subresource is not None and subresource.kind and subresource.kind != info.kind:
        group = subresource.group
        version = subresource.version
        if not version:
            group = info.group
            version = info.version
        return {"group": group, "version": version, "kind": subresource.kind}
    return {"group": info.group, "version": info.version, "kind": info.kind}


def _resource(info: ResourceInfo) -> dict[str, str]:
    return {"group": info.group, "version": info.version, "resource": info.plural}


class Review:
    """One request to one webhook, in the first review version that both support (``v1`` or ``v1beta1``)."""

    def __init__(self, request: Mapping[str, Any], versions: tuple[str, ...] = ("v1",)) -> None:
        self.uid = str(uuid.uuid4())
        self.version = next((version for version in versions if version in ("v1", "v1beta1")), "v1")
        self._request = request

    def body(self) -> bytes:
        """Return the JSON document to post."""
        document = {
            "kind": _KIND,
            "apiVersion": f"{_GROUP}/{self.version}",
            "request": {"uid": self.uid, **self._request},
        }
        return orjson.dumps(document)

    def parse_response(self, body: bytes, *, mutating: bool) -> AdmissionResponse:
        """Parse a response with code 200.

        Raises ValueError when it cannot be decoded as an AdmissionReview; InvalidResponse when it is not a valid
        response to this review.
        """
        review = decode_review(body, _GROUP, self.version, _KIND)
        response = review.get("response")
        if response is None:
            raise _invalid("webhook response was absent")
        if self.version == "v1":
            if (review["apiVersion"], review["kind"]) != (f"{_GROUP}/v1", _KIND):
                raise _invalid(
                    f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got {shown_kind(review)}"
                )
            if response.get("uid") != self.uid:
                raise _invalid(
                    f"expected response.uid={go_quote(self.uid)}, got {go_quote(response.get('uid') or '')}"
                )
        patch = self._patch(response, mutating=mutating)
        return AdmissionResponse(
            allowed=response.get("allowed") is True,
            status=response.get("status"),
            patch=patch,
            warnings=tuple(response.get("warnings") or ()),
            audit=response.get("auditAnnotations") or {},
        )

    def _patch(self, response: Mapping[str, Any], *, mutating: bool) -> list[Any]:
        encoded = response.get("patch") or ""
        patch_type = response.get("patchType")
        if not mutating:
            if self.version == "v1" and encoded:
                raise _invalid("validating webhook may not return response.patch")
            if self.version == "v1" and patch_type is not None:
                raise _invalid("validating webhook may not return response.patchType")
            return []
        if self.version == "v1":
            if encoded and patch_type is None:
                raise _invalid("webhook returned response.patch but not response.patchType")
            if not encoded and patch_type is not None:
                raise _invalid("webhook returned response.patchType but not response.patch")
        if not encoded:
            return []
        patch = _decode_patch(b64decode(encoded))
        if patch and self.version == "v1" and patch_type != "JSONPatch":
            raise InvalidResponse(f"unsupported patch type {go_quote(patch_type or '')}")
        return patch


def _decode_patch(document: bytes) -> list[Any]:
    undecodable = "received undecodable patch in webhook response: "
    try:
        patch = load_json(document)
    except JSONError as error:
        raise InvalidResponse(f"{undecodable}{error}") from error
    if patch is None:
        return []
    if not isinstance(patch, list):
        problem = f"json: cannot unmarshal {json_type(patch)} into Go value of type jsonpatch.Patch"
        raise InvalidResponse(f"{undecodable}{problem}")
    for position, operation in enumerate(patch):
        if not isinstance(operation, dict | None):
            problem = (
                f"json: cannot unmarshal {json_type(operation)} into Patch.{position} of type "
                "jsonpatch.Operation"
            )
            raise InvalidResponse(f"{undecodable}{problem}")
    return patch


def rejection(webhook: str, status: Mapping[str, Any] | None) -> StatusError:
    """Return the error for the client when ``webhook`` denied the request with ``status`` (or without one)."""
    status = status or {}
    code = status.get("code") or 0
    denied = f"admission webhook {go_quote(webhook)} denied the request"
    why = status.get("message") or status.get("reason")
    message = f"{denied}: {why}" if why else f"{denied} without explanation"
    details = status.get("details")
    seconds = (details or {}).get("retryAfterSeconds")
    headers = {"Retry-After": str(seconds)} if seconds else None
    return StatusError(
        max(code, 400), status.get("reason") or "", message, details, headers=headers
    )
