"""Objects of hooks and policies: conversion to the version that a rule names, and decoding after a patch."""

from __future__ import annotations

from envtest.apimachinery.errors import StatusError, internal_error
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext, ResourceInfo

__all__ = ["convert", "decode_patched"]


async def convert(source: ResourceInfo, target: ResourceInfo, obj: Object) -> Object:
    """Return ``obj``, an object of ``source``, in the version of ``target``; unchanged when both are the same.

    Raises StatusError when a conversion webhook fails.
    """
    if source is target or not obj:
        return obj
    if target.convert is not None:
        return (await target.convert([obj], target.api_version))[0]
    return {**obj, "apiVersion": target.api_version, "kind": target.kind}


def decode_patched(ctx: RequestContext, info: ResourceInfo, patched: Object) -> list[str]:
    """Decode a patched object and set its defaults, in place; return the errors of unknown fields.

    The body of a subresource of another kind stays as it is. Raises StatusError (500), as kube-apiserver does.
    """
    subresource = info.subresources.get(ctx.subresource)
    if subresource is not None and subresource.kind not in ("", info.kind):
        return []
    try:
        unknown = info.strategy.decode(patched, ctx)
    except StatusError as error:
        _, found, decoder = error.message.partition("json: ")
        message = f"json: {decoder}" if found else error.message
        raise internal_error(message) from error
    info.strategy.default(patched)
    return unknown
