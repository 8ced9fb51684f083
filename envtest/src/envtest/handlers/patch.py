"""PATCH: JSON patch, merge patch, strategic merge patch and server-side apply."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    conflict,
    forbidden,
    internal_error,
    invalid_object,
    not_found,
    plain_error,
    unsupported_media_type,
    unsupported_media_type_here,
)
from envtest.apimachinery.field_errors import invalid
from envtest.apimachinery.objects import Object, full_name
from envtest.apply.json_text import texts_of
from envtest.apply.jsonpatch import json_patch
from envtest.apply.manager import Tracker
from envtest.apply.mergepatch import merge_patch
from envtest.apply.strategic import strategic_merge
from envtest.builtins.normalization import (
    ConversionError,
    DecodeError,
    EmbeddedTypeError,
    WrongTypeError,
    wrap_integers,
)
from envtest.endpoints.decoder import (
    JSONError,
    decode_fields,
    duplicate_fields,
    identity_problem,
    load_json,
    load_untyped,
    load_yaml,
    media_type,
    unparsable_identity,
)
from envtest.endpoints.negotiation import Output
from envtest.endpoints.options import begin_write
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import object_response
from envtest.formats.go_format import go_text, go_type
from envtest.formats.go_json_errors import IDENTITY, json_type
from envtest.handlers.write import check_name
from envtest.registry.object_metadata import check_namespace
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.schema.schema_node import Schema
from envtest.writes.create_update import (
    Transform,
    admit_mutating,
    copy_object,
    dedupe_owners,
    update_object,
)
from envtest.writes.server_core import Core

__all__ = [
    "APPLY",
    "STRATEGIC",
    "PatchFunction",
    "apply_body",
    "check_patch_type",
    "patch",
    "patch_options",
    "read_patch",
    "undecodable",
]

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_CUSTOM_RESOURCE_TYPES = (JSON_PATCH, MERGE, APPLY)

PatchFunction = Callable[[Object], Object]
"""Returns the patched object, given the current one."""


def read_patch(
    media: str, data: bytes, ctx: RequestContext, *, schema: Schema | None
) -> PatchFunction:
    """Return the function that a patch document specifies. Raises StatusError (400)."""
    try:
        # only the results of strategic merge patches are decoded from whole floats
        document = (
            load_untyped(data, ctx)
            if ctx.info.is_crd
            else load_json(data, exact=media != STRATEGIC)
        )
    except JSONError as error:
        raise _undecodable_document(str(error), media, ctx) from None
    if media == JSON_PATCH:
        if not isinstance(document, list):
            message = "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
            raise _undecodable_document(message, media, ctx)
        for operation in document:
            if not isinstance(operation, dict | None):
                problem = f"json: cannot unmarshal {json_type(operation)} into Go value of type jsonpatch.Operation"
                raise _undecodable_document(problem, media, ctx)
        texts = _tested_texts(document, data)
        return lambda obj: _as_object(json_patch(obj, document, texts), ctx)
    if media == STRATEGIC:
        if document is None:  # decodes to an empty map
            document = {}
        if not isinstance(document, dict):
            message = "json: cannot unmarshal into Go value of type map[string]interface {}"
            raise _undecodable_document(message, media, ctx)
        return lambda obj: dict(strategic_merge(schema, obj, document))
    if not isinstance(document, dict | None) and ctx.field_validation != "Ignore":
        message = f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        raise _undecodable_document(message, media, ctx)
    if not isinstance(document, dict | list):
        raise bad_request("Invalid JSON Patch")
    return lambda obj: _as_object(merge_patch(obj, document), ctx)


def _tested_texts(operations: list[Any], data: bytes) -> list[Any]:
    """Return the operations of a JSON patch as the client wrote them if the first one is a test."""
    first = operations[0] if operations else None
    if first is None or first.get("op") != "test":
        return []
    try:
        texts: list[Any] = texts_of(data)
    except RecursionError:  # deeper than any object
        return []
    return texts


def _undecodable_document(message: str, media: str, ctx: RequestContext) -> StatusError:
    # kube-apiserver decodes strategic merge patches with another decoder, which adds no prefix
    if media == STRATEGIC:
        return bad_request(message)
    # without strict decoding, only the patch library reads the document
    if ctx.field_validation == "Ignore":
        return bad_request("Invalid JSON Patch" if media == MERGE else message)
    return bad_request(f"error decoding patch: {message}")


def _as_object(value: Any, ctx: RequestContext) -> Object:
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {json_type(value)} into Go value of type {IDENTITY}"
        raise undecodable(value, f"couldn't get version/kind; json parse error: {problem}")
    return value


def undecodable(value: Any, message: str) -> StatusError:
    """Return the error (422) for a patched document that does not decode."""
    return invalid_object("", "", "", [invalid("patch", orjson.dumps(value).decode(), message)])


def _undecodable_patch(document: Object, message: str) -> StatusError:
    return invalid_object("", "", "", [invalid("patch", go_text(document), message)])


def _decode(
    obj: Object, ctx: RequestContext, duplicates: list[str], document: Object | None
) -> Object:
    """Decode the patched object like a request body: identity, types and unknown fields.

    ``document`` is a strategic merge patch, which is decoded and reported differently, or ``None``.
    """
    if document is not None:
        _replace_identity(obj, ctx, document)
    else:
        _complete_identity(obj, ctx)
        _check_identity(obj, ctx)
    before = copy_object(obj) if ctx.field_validation == "Strict" else {}
    try:
        fields = _decode_converted(obj, ctx) if document is not None else decode_fields(obj, ctx)
        problems = duplicates + fields
    except StatusError as error:
        if error.code != 400:
            raise
        cause = error.__cause__
        if document is not None and isinstance(cause, ConversionError):
            raise plain_error(str(cause)) from None
        if document is not None and isinstance(cause, DecodeError):
            raise _undecodable_patch(document, cause.converted) from None
        message = str(cause) if isinstance(cause, DecodeError) else error.message
        raise undecodable(before or obj, message) from None
    if problems and ctx.field_validation == "Strict":
        message = "strict decoding error: " + ", ".join(problems)
        raise (
            _undecodable_patch(document, message)
            if document is not None
            else undecodable(before, message)
        )
    if ctx.field_validation == "Warn":
        for problem in problems:
            ctx.warn(problem)
    return obj


def _replace_identity(obj: Object, ctx: RequestContext, document: Object) -> None:
    """Set the kind and the version of the result of a strategic merge patch.

    kube-apiserver converts it to the type of the resource, whatever kind it names. Raises StatusError (422).
    """
    for name in ("apiVersion", "kind"):
        if not isinstance(obj.get(name), str | None):
            raise _undecodable_patch(document, f"cannot convert {go_type(obj[name])} to string")
    obj["apiVersion"] = ctx.info.api_version
    obj["kind"] = ctx.info.kind


def _check_identity(obj: Object, ctx: RequestContext) -> None:
    """Check that a patched object has the kind that the resource serves. Raises StatusError (422).

    Custom resources can have any: validation reports another kind or version together with the other errors.
    """
    info = ctx.info
    if info.is_crd:
        problem = unparsable_identity(obj)
        if problem:
            raise undecodable(obj, problem)
    elif obj.get("apiVersion") != info.api_version or obj.get("kind") != info.kind:
        raise undecodable(obj, identity_problem(obj, info))


def _complete_identity(obj: Object, ctx: RequestContext) -> None:
    """Set the kind that a patch removed; without an apiVersion, kube-apiserver decodes no other field of the object.

    Raises StatusError: 400 for built-in kinds, 422 or 500 for custom resources.
    """
    if ctx.info.is_crd:
        if not obj.get("kind"):
            text = orjson.dumps(obj).decode()
            raise undecodable(obj, f"Object 'Kind' is missing in '{text}'")
        if obj.get("apiVersion", "") is None:
            text = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
            raise undecodable(obj, text)
        if not obj.get("apiVersion"):
            raise internal_error(
                "Object 'apiVersion' is missing in 'object has no apiVersion field'"
            )
        return
    if obj.get("kind") in (None, ""):
        obj["kind"] = ctx.info.kind
    if obj.get("apiVersion") not in (None, ""):
        return
    unknown = [f'unknown field "{name}"' for name in sorted(obj.keys() - {"apiVersion", "kind"})]
    if ctx.field_validation == "Strict":
        raise undecodable(obj, "strict decoding error: " + ", ".join(unknown))
    if ctx.field_validation == "Warn":
        for problem in unknown:
            ctx.warn(problem)
    check_name({"metadata": {}}, ctx.name)


def _decode_converted(obj: Object, ctx: RequestContext) -> list[str]:
    """Decode the result of an apply or a strategic merge patch; return the unknown fields, sorted. Raises StatusError.

    kube-apiserver converts it, so that integers with more than 32 bits overflow instead of being an error.
    """
    try:
        return sorted(decode_fields(obj, ctx))
    except StatusError as error:
        cause = error.__cause__
        if not isinstance(cause, WrongTypeError) or not cause.is_overflow:
            raise
    if ctx.info.schema is not None:
        wrap_integers(ctx.info.schema, obj)
    return sorted(decode_fields(obj, ctx))


def _decode_applied(obj: Object, applied: Object, ctx: RequestContext) -> Object:
    """Decode the applied object like a request body.

    A value that the schema allows but the Go type does not is a plain 500.
    """
    try:
        _decode_converted(obj, ctx)
    except StatusError as error:
        if error.code != 400:
            raise
        cause = error.__cause__
        if isinstance(cause, EmbeddedTypeError):  # validation reports it
            return obj
        version = ctx.info.api_version if ctx.info.group else f"/{ctx.info.api_version}"
        kind = f"{version}, Kind={ctx.info.kind}"
        identity = f"{full_name(applied)}; {kind}"
        if isinstance(cause, ConversionError):
            raise plain_error(f"failed to convert to unversioned ({identity}): {cause}") from None
        message = cause.converted if isinstance(cause, DecodeError) else error.message
        if message.startswith("illegal base64 data"):
            message = f"error decoding from json: {message}"
        raise plain_error(
            f"failed to convert new object ({identity}) to proper version: "
            f"unable to convert unstructured object to {kind}: {message}"
        ) from None
    return obj


def check_patch_type(request: Request, info: ResourceInfo) -> str:
    """Return the patch type. Raises StatusError (415), with a different message for custom resources."""
    media = media_type(request)
    if media not in {JSON_PATCH, MERGE, APPLY} and (media != STRATEGIC or info.is_crd):
        raise (
            unsupported_media_type(_CUSTOM_RESOURCE_TYPES)
            if info.is_crd
            else unsupported_media_type_here()
        )
    return media


def apply_body(data: bytes) -> Object:
    """Return the applied configuration. Raises StatusError (400)."""
    try:
        document = _read_json(data) or load_yaml(data)
    except JSONError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
            f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        )
    if document.get("metadata", {}) is None:  # which the name then is missing from
        del document["metadata"]
    return document


_SPECIAL: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbf[\xbe\xbf]")
"""The characters of JSON that YAML rejects or takes for the ends of lines, in UTF-8."""


def _read_json(data: bytes) -> Any:
    """Parse YAML that has the meaning of a JSON object, because that is faster; return ``None`` for other YAML."""
    if not data.startswith(b"{") or _SPECIAL.search(data):
        return None
    try:
        return load_json(data)
    except JSONError:
        return None


def check_duplicate_keys(data: bytes, ctx: RequestContext) -> None:
    """Report duplicate keys of an applied configuration: as warnings, or as StatusError (400) if strict."""
    if ctx.field_validation == "Ignore":
        return
    document = _read_json(data)
    if document is not None and not duplicate_fields(data, document):
        return
    from envtest.formats.duplicate_keys import repeated_keys, unmarshal_errors

    lines = repeated_keys(data)
    if lines and ctx.field_validation == "Strict":
        raise bad_request(
            f"error strict decoding YAML: error converting YAML to JSON: {unmarshal_errors(lines)}"
        )
    for line in lines:
        ctx.warn(line)


def patch_options(request: Request, ctx: RequestContext, *, is_apply: bool) -> None:
    """Read the options of a PATCH into ``ctx``; admission receives them as UpdateOptions."""
    begin_write(request, ctx, "UPDATE", kind="PatchOptions", is_apply=is_apply)
    ctx.force = bool(ctx.options.pop("force", False))
    ctx.options["kind"] = "UpdateOptions"


async def patch(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle PATCH of an object or of its status."""
    media = check_patch_type(request, ctx.info)
    data = await request.body()
    patch_options(request, ctx, is_apply=media == APPLY)
    transform = _apply(core, ctx, data) if media == APPLY else _patch(core, ctx, media, data)
    obj, created = await update_object(core, ctx, transform, create=media == APPLY)
    code = 201 if created else 200
    return object_response(request, ctx.info, output, obj, code)


def _apply(core: Core, ctx: RequestContext, data: bytes) -> Transform:
    """Return the function that applies a configuration to the current object."""
    tracker = core.trackers.of(ctx.info, ctx.subresource)
    applied = apply_body(data)

    async def transform(old: Object | None) -> Object:
        if old is None:
            _check_apply_creates(tracker, applied, ctx)
        current = None if old is None else copy_object(old)
        merged = await tracker.run_with_conversions(
            lambda: tracker.apply(
                current, applied, manager=ctx.field_manager, force=ctx.force, now=ctx.now
            )
        )
        check_duplicate_keys(data, ctx)
        new = _decode_applied(merged, applied, ctx)
        _check_path(new, ctx)
        ctx.info.strategy.default_applied(new)
        dedupe_owners(new, ctx)
        return await admit_mutating(core, ctx, new, old)

    return transform


def _patch(core: Core, ctx: RequestContext, media: str, data: bytes) -> Transform:
    """Return the function that patches the current object."""
    tracker = core.trackers.of(ctx.info, ctx.subresource)

    async def transform(old: Object | None) -> Object:
        if old is None:
            raise not_found(ctx.info.resource, ctx.name)
        change = read_patch(media, data, ctx, schema=ctx.info.schema)
        document = load_json(data) if media != JSON_PATCH else None
        duplicates = [] if document is None else duplicate_fields(data, document)
        strategic = (document or {}) if media == STRATEGIC else None
        new = _decode(change(copy_object(old)), ctx, duplicates, strategic)
        _check_path(new, ctx)
        ctx.info.strategy.default(new)
        dedupe_owners(new, ctx)
        await tracker.run_with_conversions(
            lambda: tracker.track(old, new, manager=ctx.field_manager, now=ctx.now, sent=ctx.sent)
        )
        return await admit_mutating(core, ctx, new, old)

    return transform


def _check_path(new: Object, ctx: RequestContext) -> None:
    check_namespace(new, ctx)
    check_name(new, ctx.name)


def _check_apply_creates(tracker: Tracker, applied: Object, ctx: RequestContext) -> None:
    tracker.check_kind(applied)
    metadata = applied.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if uid:
        message = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(ctx.info.resource, ctx.name, message)
    if ctx.info.terminating:
        message = "create not allowed while custom resource definition is terminating"
        raise forbidden(ctx.info.resource, ctx.name, message)
