"""The subresource ``scale`` of built-in kinds and custom resources.

A write to the Scale is a write to the scaled object, but admission receives the Scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    conflict,
    internal_error,
    invalid_object,
    not_acceptable,
    not_found,
    plain_error,
)
from envtest.apimachinery.field_errors import go_quote, invalid
from envtest.apimachinery.objects import Object, full_name
from envtest.apply.fieldset import Path
from envtest.apply.scale_ownership import from_scale, to_scale
from envtest.builtins.catalog import schema_of
from envtest.builtins.normalization import DecodeError, decode, wrap_integers
from envtest.endpoints.decoder import (
    check_strict,
    duplicate_fields,
    in_document_order,
    load_json,
    media_type,
    parse_typed,
)
from envtest.endpoints.negotiation import Output
from envtest.endpoints.options import begin_write
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encode_as, object_response
from envtest.handlers.patch import (
    APPLY,
    STRATEGIC,
    PatchFunction,
    apply_body,
    check_patch_type,
    patch_options,
    read_patch,
    undecodable,
)
from envtest.handlers.read import requested_revision
from envtest.handlers.write import check_name
from envtest.registry.object_metadata import check_namespace, validate_metadata
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy
from envtest.registry.storage_version import from_storage
from envtest.writes.create_update import copy_object, update_object
from envtest.writes.server_core import Core

__all__ = ["scale", "scale_of", "set_replicas"]

_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_UNSET = -(1 << 31)
"""The replicas of a custom resource without the field, while a write is applied."""
_BUILTIN = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def _settings(info: ResourceInfo) -> Mapping[str, Any]:
    return info.subresources["scale"].settings if info.is_crd else _BUILTIN


def _get_path(obj: Any, path: str) -> Any:
    for name in path.removeprefix(".").split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _set_path(obj: Object, path: str, value: Any) -> None:
    *parents, last = path.removeprefix(".").split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = value


def _format_selector(selector: Any) -> str:
    """Format a label selector as a string, ``a=b,c in (d,e)``."""
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        labels = selector
        expressions: list[dict[str, Any]] = []
    else:
        labels = selector.get("matchLabels") or {}
        expressions = selector.get("matchExpressions") or []
    terms = {key: f"{key}={value}" for key, value in labels.items() if isinstance(value, str)}
    out = [terms[key] for key in sorted(terms)]
    for expression in sorted(expressions, key=lambda each: str(each.get("key", ""))):
        key = expression.get("key", "")
        operator = expression.get("operator", "")
        values = ",".join(sorted(expression.get("values") or ()))
        terms_by_operator = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        out.append(terms_by_operator.get(operator, ""))
    return ",".join(out)


def scale_of(info: ResourceInfo, obj: Object, *, missing: int | None = None) -> Object:
    """Return the Scale of an object.

    A custom resource without the replicas field has ``missing`` replicas; if ``None``, raises StatusError (500).
    """
    settings = _settings(info)
    replicas = _get_path(obj, settings["specReplicasPath"])
    if replicas is None and info.is_crd:
        replicas = missing
    if replicas is None and info.is_crd:
        raise internal_error(
            f'the spec replicas field "{settings["specReplicasPath"]}" does not exist'
        )
    status: dict[str, Any] = {"replicas": _get_path(obj, settings["statusReplicasPath"]) or 0}
    if info.is_crd:
        selector = (
            _get_path(obj, settings["labelSelectorPath"])
            if settings.get("labelSelectorPath")
            else None
        )
    else:
        selector = _format_selector(_get_path(obj, ".spec.selector"))
    if selector:
        status["selector"] = selector
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: obj["metadata"][name] for name in names if name in obj["metadata"]}
    spec = {"replicas": replicas} if replicas else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def set_replicas(info: ResourceInfo, obj: Object, replicas: Any) -> None:
    """Set the desired replicas in a scaled object."""
    _set_path(obj, _settings(info)["specReplicasPath"], replicas)


def _replicas_paths(core: Core, info: ResourceInfo) -> dict[str, Path]:
    """Return the path of the replicas in each version; it is empty in a version without ``scale``."""
    paths = {info.api_version: _replicas_path(info)}
    for api_version in info.versions:
        group, _, version = api_version.rpartition("/")
        other = core.registry.by_kind(group, version, info.kind)
        has_scale = other is not None and "scale" in other.subresources
        paths[api_version] = _replicas_path(other) if other is not None and has_scale else ()
    return paths


def _replicas_path(info: ResourceInfo) -> Path:
    names = _settings(info)["specReplicasPath"].removeprefix(".").split(".")
    return tuple(f"f:{name}" for name in names)


_UNREGISTERED: Final = (
    'no kind is registered for the type v1.Scale in scheme "k8s.io/apiextensions-apiserver/pkg/apiserver/'
    'customresource_handler.go:781"'
)
"""The answer of kube-apiserver to a Scale of a custom resource that cannot be decoded."""


def _decode_scale(
    obj: Object,
    ctx: RequestContext,
    duplicates: list[str],
    data: bytes | None = None,
    *,
    is_converted: bool = False,
) -> Object:
    """Decode a Scale; ``data`` is the JSON of the whole object, unless it results from a patch.

    ``is_converted`` is true for the result of a strategic merge patch, which kube-apiserver converts.
    """
    try:
        scale, unknown = decode(_SCALE, obj)
    except DecodeError as error:
        if ctx.verb == "patch":
            raise undecodable(obj, error.converted if is_converted else str(error)) from None
        if ctx.info.is_crd:
            raise bad_request(_UNREGISTERED) from None
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from None
    problems = [f"unknown field {go_quote(path)}" for path in unknown]
    problems = (
        duplicates + problems if data is None else in_document_order(data, duplicates, problems)
    )
    check_strict(problems, ctx, kind="Scale", version="v1")
    result: Object = scale
    return result


async def scale(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle GET, PUT and PATCH of a Scale."""
    info = ctx.info
    if ctx.verb == "get":
        requested_revision(request, ctx)
        record = core.store.get(info.storage, ctx.namespace, ctx.name)
        if record is None:
            raise not_found(info.resource, ctx.name)
        return _response(request, ctx, scale_of(info, await from_storage(info, record)), output)
    change = await (
        _put_body(request, ctx) if ctx.verb == "update" else _patch_change(core, request, ctx)
    )
    paths = _replicas_paths(core, info)
    tracker = core.trackers.scale

    async def transform(old: Object | None) -> Object:
        if old is None:
            raise not_found(info.resource, ctx.name)
        before = scale_of(info, old, missing=_UNSET)
        owners = to_scale(old["metadata"].get("managedFields") or (), paths)
        if owners:
            before["metadata"]["managedFields"] = owners
        after = change(copy_object(before))
        check_namespace(after, ctx)
        check_name(after, ctx.name)
        if ctx.verb != "patch" or media_type(request) != APPLY:
            tracker.track(before, after, manager=ctx.field_manager, now=ctx.now)
        after_owners = after["metadata"].get("managedFields") or []
        admitted = copy_object(after)
        for each in (admitted, before):
            each["metadata"].pop("managedFields", None)
        after = await core.admission.mutate(ctx, admitted, before)
        _check_scale(after, old, ctx)
        set_replicas(info, old, (after.get("spec") or {}).get("replicas", 0))
        # without it, the update is unconditional for every kind
        if after["metadata"].get("resourceVersion"):
            old["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"]
        entries = from_scale(
            old["metadata"].get("managedFields") or (), after_owners, info.api_version, paths
        )
        if entries:
            old["metadata"]["managedFields"] = entries
        else:
            old["metadata"].pop("managedFields", None)
        return old

    obj, _ = await update_object(
        core, ctx, transform, admission_view=lambda each: scale_of(info, each, missing=0)
    )
    return _response(request, ctx, scale_of(info, obj), output)


def _response(request: Request, ctx: RequestContext, obj: Object, output: Output) -> Response:
    if (ctx.info.is_crd and ctx.verb != "get") or not output.as_kind:
        return Response(encode_as(obj, output), 200, output.content_type)
    if ctx.info.is_crd and output.as_kind == "PartialObjectMetadataList":
        raise not_acceptable(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*v1.Scale)"
        )
    return object_response(request, _scale_info(is_crd=ctx.info.is_crd), output, obj)


_CUSTOM_COLUMNS: Final = (
    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Available", "type": "integer", "jsonPath": ".status.replicas"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


@cache
def _scale_info(*, is_crd: bool) -> ResourceInfo:
    """Return a description of Scale, which is not a resource of its own, for its columns in a Table.

    Those of custom resources have the columns of a custom resource.
    """
    return ResourceInfo(
        group="autoscaling",
        version="v1",
        plural="scales",
        singular="scale",
        kind="Scale",
        namespaced=True,
        strategy=Strategy(),
        is_crd=is_crd,
        columns=_CUSTOM_COLUMNS,
    )


def _check_scale(scale: Object, parent: Object, ctx: RequestContext) -> None:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas == _UNSET and ctx.info.is_crd:
        path = _settings(ctx.info)["specReplicasPath"]
        raise bad_request(f'the spec replicas field "{path}" cannot be empty')
    if not ctx.info.is_crd:  # custom resources are validated themselves
        errors = validate_metadata(scale, _scale_info(is_crd=False))
        if replicas < 0:
            errors.append(invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
        if errors:
            raise invalid_object("autoscaling", "Scale", ctx.name, errors)
    uid = scale["metadata"].get("uid")
    if uid and uid != parent["metadata"].get("uid"):
        raise _uid_mismatch(ctx, uid, parent["metadata"].get("uid", ""))


def _uid_mismatch(ctx: RequestContext, expected: str, actual: str) -> StatusError:
    message = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}"
    resource = ctx.info.resource._replace(resource=f"{ctx.info.plural}/scale")
    return conflict(resource, ctx.name, message)


_NO_VERSION: Final = (
    "(/; autoscaling/v1, Kind=Scale) to proper version: "
    "request to convert CR to an invalid group/version: autoscaling/v1"
)
_UNMANAGED: Final = "failed to create manager for existing fields: failed to convert live object "


def _unconvertible(applied: Object) -> StatusError:
    """Return the error with which kube-apiserver answers every apply to the scale of a custom resource."""
    return plain_error(
        f"failed to convert new object ({full_name(applied)}; autoscaling/v1, Kind=Scale) to proper version: "
        "request to convert CR to an invalid group/version: autoscaling/v1"
    )


async def _put_body(request: Request, ctx: RequestContext) -> PatchFunction:
    begin_write(request, ctx, "UPDATE")
    try:
        obj, data = await parse_typed(request, group="autoscaling", version="v1", kind="Scale")
    except StatusError as error:
        if error.code == 400 and ctx.info.is_crd:
            raise bad_request(_UNREGISTERED) from None
        raise
    body = _decode_scale(obj, ctx, duplicate_fields(data, obj), data)
    return lambda _: copy_object(body)


async def _patch_change(core: Core, request: Request, ctx: RequestContext) -> PatchFunction:
    media = check_patch_type(request, ctx.info)
    data = await request.body()
    patch_options(request, ctx, is_apply=media == APPLY)
    if media == APPLY:
        applied = apply_body(data)
        tracker = core.trackers.scale

        def merge(old: Object) -> Object:
            if ctx.info.is_crd and not old["metadata"].get("managedFields"):
                raise plain_error(f"{_UNMANAGED}{_NO_VERSION}")
            new = tracker.apply(
                old, applied, manager=ctx.field_manager, force=ctx.force, now=ctx.now
            )
            if ctx.info.is_crd:
                raise _unconvertible(applied)
            return _decode_converted(new, ctx, [])

        return merge
    function = read_patch(media, data, ctx, schema=None)
    duplicates = duplicate_fields(data, load_json(data))
    if media == STRATEGIC:
        return lambda old: _decode_converted(function(old), ctx, duplicates)
    return lambda old: _decode_scale(function(old), ctx, duplicates)


def _decode_converted(obj: Object, ctx: RequestContext, duplicates: list[str]) -> Object:
    """Decode the result of an apply or a strategic merge patch, whose integers overflow in kube-apiserver."""
    scale_schema = schema_of(_SCALE)
    return _decode_scale(wrap_integers(scale_schema, obj), ctx, duplicates, is_converted=True)
