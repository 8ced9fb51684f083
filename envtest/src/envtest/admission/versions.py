"""Objects of hooks and policies: conversion to the version that a rule names, and decoding after a patch."""

from __future__ import annotations

from typing import Any

import orjson

from envtest.apimachinery.errors import StatusError, internal_error
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import OBJECT_META, resource_of_kind
from envtest.builtins.normalization import DecodeError, decode
from envtest.endpoints.decoder import (
    identity_problem,
    is_registered,
    unparsable_identity,
    whole_object_problem,
)
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy
from envtest.registry.storage_version import removed_version

__all__ = ["Unconvertible", "convert", "decode_patched"]


class Unconvertible(Exception):
    """Raised if a patch made an object of another kind; the message is kube-apiserver's."""


async def convert(source: ResourceInfo, target: ResourceInfo, obj: Object) -> Object:
    """Return ``obj``, an object of ``source``, in the version of ``target``; unchanged when both are the same.

    Raises StatusError when a conversion webhook fails.
    """
    if source is target or not obj:
        return obj
    if target.convert is not None:
        return (await target.convert([obj], target.api_version))[0]
    return {**obj, "apiVersion": target.api_version, "kind": target.kind}


async def decode_patched(
    ctx: RequestContext, info: ResourceInfo, patched: Any
) -> tuple[Object, list[str]]:
    """Return a patched object, decoded and with its defaults, and the errors of unknown fields.

    A patch can change ``apiVersion`` and ``kind``, too. As in kube-apiserver, the result must have the requested kind,
    in any version that can be converted to the version of ``info``; other kinds of custom resources are
    rejected by validation. Raises StatusError (500) and Unconvertible.
    """
    problem = whole_object_problem(patched) or unparsable_identity(patched)
    if problem:
        raise internal_error(problem)
    if ctx.operation == "CONNECT":  # the options of a connection, which are not stored
        return patched, []
    if info.is_crd and not _body_kind(ctx, info):
        _check_custom_identity(info, patched)
        _drop_wrong_metadata(ctx, patched)
    else:
        body = _described_body(ctx, info)
        _check_builtin_identity(body, patched)
        if body is not info:
            return _decode_body(body, patched)
    return await _decode_object(ctx, info, patched)


async def _decode_object(
    ctx: RequestContext, info: ResourceInfo, patched: Object
) -> tuple[Object, list[str]]:
    api_version = patched["apiVersion"]
    lost: list[str] = []
    if api_version != info.api_version and not info.is_crd:
        patched, lost = _decoded(api_version, info.kind, patched)
        if info.convert is not None:
            patched = (await info.convert([patched], info.api_version))[0]
        patched["apiVersion"] = info.api_version
    try:
        unknown = lost + info.strategy.decode(patched, ctx)
    except StatusError as error:
        _, found, decoder = error.message.partition("json: ")
        message = f"json: {decoder}" if found else error.message
        raise internal_error(message) from error
    info.strategy.default(patched)
    if api_version != info.api_version and info.is_crd and info.convert is not None:
        patched = (await info.convert([patched], info.api_version))[0]
    return patched, unknown


def _check_custom_identity(info: ResourceInfo, patched: Object) -> None:
    """Check that a custom resource can be converted to the version of ``info``.

    Raises StatusError (500) and Unconvertible.
    """
    kind = patched.get("kind") or ""
    if not kind:
        text = orjson.dumps(patched, option=orjson.OPT_SORT_KEYS).decode()
        raise internal_error(f"Object 'Kind' is missing in '{text}'")
    api_version = patched.get("apiVersion") or ""
    group, _, version = api_version.rpartition("/")
    if group != info.group:
        raise Unconvertible(
            f"{group}/{version}, Kind={kind} is unstructured and is not suitable for converting to "
            f'"{info.api_version}"'
        )
    if api_version not in info.versions:
        raise Unconvertible(removed_version(api_version))


def _drop_wrong_metadata(ctx: RequestContext, patched: Object) -> None:
    """Drop the metadata of a custom resource with wrong types, as kube-apiserver does. Raises StatusError (500)."""
    metadata = patched.get("metadata")
    if isinstance(metadata, dict):
        patched["metadata"] = {
            name: value for name, value in metadata.items() if _is_metadata(name, value)
        }
        return
    if "metadata" in patched and ctx.operation == "CREATE":
        raise internal_error("system metadata was not initialized")
    patched["metadata"] = {}


def _is_metadata(name: str, value: Any) -> bool:
    """Return whether the value has the type of the field ``name`` of metadata; unknown fields can have any."""
    try:
        decode(OBJECT_META, {name: value})
    except DecodeError:
        return False
    return True


def _check_builtin_identity(info: ResourceInfo, patched: Object) -> None:
    """Set a missing ``apiVersion`` or kind; check that the object can be converted to that of ``info``.

    Raises StatusError (500) and Unconvertible.
    """
    patched["apiVersion"] = patched.get("apiVersion") or info.api_version
    patched["kind"] = patched.get("kind") or info.kind
    api_version = patched["apiVersion"]
    kind = patched["kind"]
    if (api_version, kind) == (info.api_version, info.kind):
        return
    if not is_registered(api_version, kind, info):
        raise internal_error(identity_problem(patched, info))
    group = api_version.rpartition("/")[0]
    if kind == info.kind and (group == info.group or kind == "Event"):
        return
    _decoded(api_version, kind, patched)  # whose error comes first
    raise Unconvertible(identity_problem(patched, info))


def _decoded(api_version: str, kind: str, obj: Object) -> tuple[Object, list[str]]:
    """Return an object decoded as the kind that it names, and its unknown fields. Raises StatusError (500)."""
    resource = resource_of_kind(api_version, kind)
    if resource is None:  # a list, or options
        return obj, []
    return _decode_type(resource.type, obj)


def _decode_body(body: ResourceInfo, patched: Object) -> tuple[Object, list[str]]:
    return _decode_type(f"io.k8s.api.{body.go_package}.{body.version}.{body.kind}", patched)


def _decode_type(type_name: str, obj: Object) -> tuple[Object, list[str]]:
    try:
        decoded, unknown = decode(type_name, obj)
    except DecodeError as error:
        raise internal_error(str(error)) from error
    return decoded, [f"unknown field {go_quote(path)}" for path in unknown]


def _body_kind(ctx: RequestContext, info: ResourceInfo) -> str:
    """Return the kind of a subresource if its body has another kind than the object, or an empty string."""
    subresource = info.subresources.get(ctx.subresource)
    if subresource is None or subresource.kind == info.kind:
        return ""
    return subresource.kind


def _described_body(ctx: RequestContext, info: ResourceInfo) -> ResourceInfo:
    """Return ``info``, or a description of the body of a subresource that has another kind."""
    kind = _body_kind(ctx, info)
    if not kind:
        return info
    subresource = info.subresources[ctx.subresource]
    group = subresource.group
    version = subresource.version
    if not version:
        group = info.group
        version = info.version
    return ResourceInfo(group, version, "", "", kind, info.namespaced, Strategy())
