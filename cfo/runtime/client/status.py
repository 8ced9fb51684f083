"""Writes of the status of an object that reach no other object with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from cfo.runtime.client.client import Client, TypedT
from cfo.runtime.objects.unstructured import (
    Object,
    TypedObject,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
    to_object,
    uid_of,
)


@overload
async def apply_status(
    client: Client, obj: Object, status: Mapping[str, Any], *, force: bool = True
) -> Object: ...
@overload
async def apply_status(
    client: Client, obj: TypedT, status: object, *, force: bool = True
) -> TypedT: ...


async def apply_status(
    client: Client, obj: Object | TypedObject, status: Any, *, force: bool = True
) -> Object | TypedObject:
    """Apply ``status`` to ``obj``, unless it was deleted or recreated; return it as stored.

    ``status`` is a mapping; with a typed object, it may be an instance of the class that declares its status. Raises
    :class:`~cfo.runtime.objects.InvalidResource` for a status that does not fit this class.
    """
    if not isinstance(obj, TypedObject):
        desired = {**identity_of(to_object(obj)), "status": status}
        return await client.apply(desired, subresource="status", force=force)
    identity = identity_of(obj.to_object())
    content = type(obj).intent(key_of(identity), status=status)
    stored = await client.apply({**content, **identity}, subresource="status", force=force)
    return type(obj).decode(stored)


def identity_of(obj: Mapping[str, Any]) -> Object:
    """Return kind, namespace, name and uid of ``obj``: a server-side apply of them reaches no other object."""
    metadata = {"name": name_of(obj), "uid": uid_of(obj)}
    if namespace_of(obj):
        metadata["namespace"] = namespace_of(obj)
    gvk = gvk_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
