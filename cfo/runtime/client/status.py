"""Writes of the status of an object that reach no other object with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from cfo.runtime.client.client import Client, PatchType
from cfo.runtime.client.errors import APIError, is_too_large
from cfo.runtime.objects.unstructured import (
    Object,
    TypedObject,
    TypedT,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
    to_object,
    uid_of,
)
from cfo.runtime.process.arguments import require_type

if TYPE_CHECKING:  # pydantic, which takes 0.1 s
    from cfo.runtime.objects.resource.model import APIModel


@overload
async def apply_status(
    client: Client, obj: Object, status: Mapping[str, Any], *, force: bool = True
) -> Object: ...
@overload
async def apply_status(
    client: Client, obj: TypedT, status: Mapping[str, Any] | APIModel, *, force: bool = True
) -> TypedT: ...


async def apply_status(
    client: Client, obj: Object | TypedObject, status: Any, *, force: bool = True
) -> Object | TypedObject:
    """Apply ``status`` to ``obj``, unless it was deleted or recreated; return it as stored.

    ``status`` is a mapping; with a typed object, it may be an instance of the class that declares its status. Raises
    :class:`~cfo.runtime.objects.InvalidResource` for a status that does not fit this class, and :class:`TypeError` if
    that of a dict is no mapping.
    """
    if not isinstance(obj, TypedObject):
        require_type("apply_status: status", status, Mapping, "a mapping")
        desired = {**identity_of(to_object(obj)), "status": status}
        return await _apply(client, desired, force=force)
    identity = identity_of(obj.to_object())
    content = type(obj).intent(key_of(identity), status=status)
    return type(obj).decode(await _apply(client, {**content, **identity}, force=force))


async def _apply(client: Client, desired: Object, *, force: bool) -> Object:
    """Apply the status in ``desired``; of an object that is too large for that, replace its fields.

    managedFields can fill an object up to the limit of etcd. API servers drop them for any write but an apply.
    """
    try:
        return await client.apply(desired, subresource="status", force=force)
    except APIError as error:
        if not is_too_large(error):
            raise
    return await client.patch(
        gvk_of(desired),
        key_of(desired),
        {"status": desired["status"]},
        uid=uid_of(desired),
        subresource="status",
    )


async def replace_status(client: Client, obj: Object, status: Mapping[str, Any]) -> Object:
    """Replace the whole status of ``obj``, whatever else changes in it; return it as stored.

    For a kind whose status only the operator writes, if its other writes conflict because a user changes the object all
    the time. API servers compare the uid in a JSON patch, also for the status of a custom resource, and repeat the
    patch until it is stored. Raises :class:`~cfo.runtime.client.errors.Invalid` if the object was recreated.
    """
    return await client.patch(
        gvk_of(obj),
        key_of(obj),
        [{"op": "add", "path": "/status", "value": status}],
        patch_type=PatchType.JSON,
        uid=uid_of(obj),
        subresource="status",
    )


def identity_of(obj: Mapping[str, Any] | TypedObject) -> Object:
    """Return kind, namespace, name and uid of ``obj``: a server-side apply of them reaches no other object."""
    metadata = {"name": name_of(obj), "uid": uid_of(obj)}
    if namespace_of(obj):
        metadata["namespace"] = namespace_of(obj)
    gvk = gvk_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
