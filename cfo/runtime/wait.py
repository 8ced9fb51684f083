"""Wait until an object meets a condition, without polling."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.client.client import Client
from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["wait_for"]


async def wait_for(
    client: Client,
    gvk: GVK,
    key: NamespacedName,
    condition: Callable[[Object | None], bool],
    *,
    timeout: float | None,
) -> Object | None:
    """Wait until ``condition`` accepts the object (``None``: it does not exist), and return the object.

    Uses an informer of the client's cache if it holds the object, and else lists and watches this one object; the
    latter needs the permissions to list and watch. Raises :class:`TimeoutError` after ``timeout`` seconds (``None``:
    waits forever), and the exceptions of ``condition``. Do not wait in a reconciler: return, and let the event of the
    object queue the next reconcile.
    """
    cache = client.cache
    informer = cache.covering_informer(gvk, key.namespace) if isinstance(cache, Cache) else None
    if informer is not None:
        return await informer.wait_for(key, condition, timeout=timeout)
    selection = Selection.of(field_selector=f"metadata.name={key.name}", namespaces=(key.namespace,))
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
