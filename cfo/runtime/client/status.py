"""Writes of the status of an object that reach no other object with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from cfo.runtime.client.client import Client, PatchType
from cfo.runtime.client.errors import APIError, Conflict, Invalid, is_too_large
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

    If others change the object all the time, its fields are replaced instead, also those of lists of maps.
    ``status`` is a mapping; with a typed object, it may be an instance of the class that declares its status. Raises
    :class:`~cfo.runtime.objects.InvalidResource` for a status that does not fit this class.
    """
    if not isinstance(obj, TypedObject):
        current = to_object(obj)
        desired = {**identity_of(current), "status": status}
        return await _apply(client, current, desired, force=force)
    current = obj.to_object()
    identity = identity_of(current)
    content = type(obj).intent(key_of(identity), status=status)
    return type(obj).decode(await _apply(client, current, {**content, **identity}, force=force))


async def _apply(client: Client, current: Object, desired: Object, *, force: bool) -> Object:
    """Apply the status in ``desired`` to the object ``current``, or replace its fields if that is not possible.

    managedFields can fill an object up to the limit of etcd. API servers drop them for any write but an apply.
    """
    try:
        return await client.apply(desired, subresource="status", force=force)
    except Conflict as error:
        if error.causes:
            raise  # another field manager owns a field
        return await _replace_fields(client, current, desired, error)
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


async def _replace_fields(
    client: Client, current: Object, desired: Object, conflict: Conflict
) -> Object:
    """Replace fields of the status without the resourceVersion. Raises ``conflict`` if the object was recreated.

    The resourceVersion is what lets an apply reach no other object. A user who changes the object all the time would
    otherwise keep its status from ever being written. API servers compare the uid in a JSON patch, also for the status
    of a custom resource, and repeat the patch until it is stored.
    """
    status = desired["status"]
    operations = [
        {"op": "add", "path": f"/status/{_escaped(name)}", "value": value}
        for name, value in status.items()
    ]
    if not isinstance(current.get("status"), Mapping):
        operations = [{"op": "add", "path": "/status", "value": status}]
    try:
        return await client.patch(
            gvk_of(desired),
            key_of(desired),
            operations,
            patch_type=PatchType.JSON,
            uid=uid_of(desired),
            subresource="status",
        )
    except Invalid:
        raise conflict from None


def _escaped(name: str) -> str:
    """Return a field's name as a JSON pointer has it."""
    return name.replace("~", "~0").replace("/", "~1")


def identity_of(obj: Mapping[str, Any] | TypedObject) -> Object:
    """Return kind, namespace, name and uid of ``obj``: a server-side apply of them reaches no other object."""
    metadata = {"name": name_of(obj), "uid": uid_of(obj)}
    if namespace_of(obj):
        metadata["namespace"] = namespace_of(obj)
    gvk = gvk_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
