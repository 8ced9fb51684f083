"""Conversion of an object to another served version, for hooks and policies whose rules name that version."""

from __future__ import annotations

from envtest.objects import Object
from envtest.registry import ResourceInfo

__all__ = ["convert"]


async def convert(source: ResourceInfo, target: ResourceInfo, obj: Object) -> Object:
    """Return ``obj``, an object of ``source``, in the version of ``target``; unchanged when both are the same.

    Raises StatusError when a conversion webhook fails.
    """
    if source is target or not obj:
        return obj
    if target.convert is not None:
        return (await target.convert([obj], target.api_version))[0]
    return {**obj, "apiVersion": target.api_version, "kind": target.kind}
