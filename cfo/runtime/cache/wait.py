"""Wait until an object meets a condition, without polling."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import anyio

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer, WaitTimeoutError, require_wait_arguments
from cfo.runtime.cache.last_state import last_state
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.client.recorded_requests import cache_key
from cfo.runtime.objects.kinds import CORE_EVENT, POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    ObjectKind,
    require_kind,
)

T = TypeVar("T")

_NOT_RUNNING: Final = "status.phase!=Running,status.phase!=Succeeded"
_LIST_SECONDS: Final = 2.0


async def wait_for(
    client: Client,
    kind: ObjectKind[T],
    key: NamespacedName,
    condition: Callable[[T | None], bool],
    *,
    timeout: float | None,
) -> T | None:
    """Wait until ``condition`` accepts the object (``None``: it does not exist), and return the object.

    Uses an informer of the client's cache if it holds the object, and else lists and watches this one object; the
    latter needs the permissions to list and watch. Raises :class:`TimeoutError` after ``timeout`` seconds (``None``:
    waits forever), and the exceptions of ``condition``, except a :class:`LookupError`, which means that it is not met:
    fields are missing until they are written. The timeout's message contains this error, the object's conditions, pods
    in its namespace that do not run, and the newest Warning Events there, if the user is allowed to list them. Do not
    wait in a reconciler: return, and let the event of the object queue the next reconcile.
    """

    def decode(obj: Object | None) -> T | None:
        return kind.decode(obj) if obj is not None else None

    def is_met(obj: Object | None) -> bool:
        return condition(decode(obj))

    gvk = require_kind("wait_for", kind)
    require_wait_arguments(key, condition, timeout)
    cache = client.cache
    key = cache_key(client.mapper, gvk, key)
    informer: Informer | None = None
    if isinstance(cache, Cache):
        informer = cache.covering_informer(gvk, key.namespace)
    try:
        if informer is not None:
            obj = await informer.wait_for(key, is_met, timeout=timeout)
        else:
            obj = await _watch_object(client, gvk, key, is_met, timeout)
    except WaitTimeoutError as error:
        pods = await _listed(client, POD, key.namespace, _NOT_RUNNING)
        warnings = await _listed(client, CORE_EVENT, key.namespace, "type=Warning")
        message = f"{error.summary}{last_state(error.last, pods, warnings)}"
        raise TimeoutError(message) from error.__cause__
    return decode(obj)


async def _listed(client: Client, gvk: GVK, namespace: str, field_selector: str) -> list[Object]:
    """Return objects of a namespace; none if that is not possible within two seconds, or ``namespace`` is empty."""
    found: list[Object] = []
    if not namespace:
        return found
    with anyio.move_on_after(_LIST_SECONDS), suppress(APIError, TransportError, LookupError):
        found = await client.list(
            gvk, namespace=namespace, field_selector=field_selector, live=True
        )
    return found


async def _watch_object(
    client: Client,
    gvk: GVK,
    key: NamespacedName,
    condition: Callable[[Object | None], bool],
    timeout: float | None,
) -> Object | None:
    """Wait with an informer of only this object, which ends with the call."""
    selection = Selection.of(
        field_selector=f"metadata.name={key.name}", namespaces=(key.namespace,)
    )
    informer = Informer(client.transport, client.mapper, gvk, selection)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            obj = await informer.wait_for(key, condition, timeout=timeout)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
    return obj
