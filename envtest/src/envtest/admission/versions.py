"""An object in another served version of its resource, for hooks and policies whose rules name that one."""

from __future__ import annotations

from envtest.objects import Object
from envtest.registry import ResourceInfo

__all__ = ["converted"]


async def converted(source: ResourceInfo, target: ResourceInfo, obj: Object) -> Object:
    """``obj``, which is of ``source``, in the version of ``target``; itself where the two are the same.

    Raises StatusError where a conversion webhook fails.
    """
    if source is target or not obj:
        return obj
    if target.convert is not None:
        return (await target.convert([obj], target.api_version))[0]
    return {**obj, "apiVersion": target.api_version, "kind": target.kind}
