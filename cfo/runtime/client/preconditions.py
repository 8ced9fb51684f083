"""Checks of a client before a write, which no API server makes.

When the cache of an owner lags, its objects that the garbage collector deletes look like objects that must be repaired.
Therefore an object that another client deleted is recreated only after its controller was read from the API server.
"""

from __future__ import annotations

import orjson

from cfo.runtime.client.errors import Forbidden, OwnerDeleted, UnknownKind
from cfo.runtime.client.reads import Reads
from cfo.runtime.client.recorded_requests import RecordedRequests
from cfo.runtime.client.request_target import RequestTarget, cache_key
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    is_deleting,
    uid_of,
)

__all__ = ["require_controller"]


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
