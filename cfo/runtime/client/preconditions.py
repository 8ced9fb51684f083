"""Checks of a client before a write, which no API server makes.

When the cache of an owner lags, its objects that the garbage collector deletes look like objects that must be repaired.
Therefore an object that another client deleted is recreated only after its controller was read from the API server. An
object from a cache that removes some of its fields must not be written back.
"""

from __future__ import annotations

import copy
from typing import Any

import orjson

from cfo.runtime.client.errors import Forbidden, OwnerDeleted, UnknownKind
from cfo.runtime.client.partial_objects import PartialObjectError, removed_field
from cfo.runtime.client.reads import Reads
from cfo.runtime.client.recorded_requests import RecordedRequests
from cfo.runtime.client.request_target import RequestTarget, cache_key
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    gvk_of,
    is_deleting,
    resource_version_of,
    uid_of,
)

__all__ = ["require_controller", "require_whole"]


async def require_controller(requests: RecordedRequests, reads: Reads, target: RequestTarget, obj: Object) -> None:
    """If another client deleted ``obj``, raise :class:`OwnerDeleted` unless its controller still exists.

    The controller is read from the API server, and its state is stored in the cache. If reading it is forbidden, it
    counts as existing, and so does a controller that is being deleted if the cache contains this already.
    """
    controller = controller_of(obj)
    if controller is None or requests.cache.controller_of_deleted(target.gvk, target.key) != controller["uid"]:
        return
    gvk = GVK.parse(controller["apiVersion"], controller["kind"])
    key = cache_key(requests.mapper, gvk, NamespacedName(target.key.namespace, controller["name"]))
    stored = requests.cache.stored(gvk, key)
    try:
        found = await reads.get(gvk, key, live=True)
    except Forbidden:
        return
    except UnknownKind:
        found = None
    if found is None or uid_of(found) != controller["uid"]:
        state = "was deleted"
    elif is_deleting(found) and stored is not None and not is_deleting(orjson.loads(stored.object)):
        state = "is being deleted"
    else:
        return
    if found is not None:
        requests.cache.record_write(gvk, orjson.dumps(found))
    raise OwnerDeleted(f"{target.label} {target.key}: not recreated, because {gvk.kind} {key} {state}")


async def require_whole(
    requests: RecordedRequests, reads: Reads, target: RequestTarget, obj: Object, subresource: str
) -> None:
    """Raise :class:`PartialObjectError` if ``obj`` comes from a cache that removes some of its fields."""
    transform = requests.cache.transform_of(target.gvk)
    if transform is None or gvk_of(obj) != target.gvk:
        return
    whole = await reads.get(target.gvk, target.key, live=True)
    version = resource_version_of(obj)
    if whole is None or (version and version != resource_version_of(whole)):
        return  # the API server responds with NotFound or Conflict
    whole["metadata"].pop("managedFields", None)  # the cache never contains it, and the server keeps it
    try:
        transformed: Any = transform(copy.deepcopy(whole))
    except Exception:  # noqa: BLE001 - user code; the cache keeps such an object whole
        return
    if not isinstance(transformed, dict):
        return
    if subresource:  # only the field of that name is written
        whole, transformed = (
            {subresource: each[subresource]} if subresource in each else {} for each in (whole, transformed)
        )
    missing = removed_field(whole, transformed, obj)
    if missing:
        raise PartialObjectError(
            f"{target.gvk} {target.key}: {missing} is missing because a transform removes it from the cache; "
            "read the object with live=True, or use patch or apply"
        )
