"""Where the dashboard's informers come from: a cache of its own, which exists only while objects are watched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import anyio

from cfo.console.dashboard.feed import Source
from cfo.console.summaries import KindView, Overview, related_kinds
from cfo.runtime import POD, Cache, Informer, Manager, RESTMapper, Transport
from cfo.runtime.objects import CORE_EVENT


def client_source(transport: Transport, views: Collection[KindView], namespace: str) -> Source:
    """Return the source of a process that only shows objects, of ``namespace`` (empty: of all namespaces)."""

    @asynccontextmanager
    async def watch() -> AsyncIterator[Overview]:
        cache = Cache(transport, RESTMapper(transport), namespaces=(namespace,) if namespace else None)
        overview = Overview(cache, views, related=related_kinds(views))
        async with _running(cache, overview):
            yield overview

    return watch


def manager_source(manager: Manager, views: Collection[KindView]) -> Source:
    """Return the source of a process with controllers: their informers are shared, and no other pods are read."""

    @asynccontextmanager
    async def watch() -> AsyncIterator[Overview]:
        extension = _CacheExtension(manager)
        known = {informer.gvk for informer in manager.cache.informers}
        related = [gvk for gvk in related_kinds(views) if gvk == CORE_EVENT or (gvk in known and gvk != POD)]
        overview = Overview(extension, views, related=related)
        async with _running(extension.cache, overview):
            yield overview

    return watch


class _CacheExtension:
    """The informers of a manager, and a cache for others, which can be stopped without consequences for controllers."""

    def __init__(self, manager: Manager) -> None:
        self._shared = manager.cache
        options = manager.options
        self.cache = Cache(
            manager.transport,
            manager.mapper,
            namespaces=options.namespaces,
            selectors=options.selectors,
            clock=manager.clock,
        )
        self.informer = self.cache.informer

    @property
    def informers(self) -> Collection[Informer]:
        return [*self._shared.informers, *self.cache.informers]

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self._shared.namespaces


@asynccontextmanager
async def _running(cache: Cache, overview: Overview) -> AsyncIterator[None]:
    """Run the informers of ``cache`` in the block, and close ``overview`` at its end."""
    async with anyio.create_task_group() as tasks:
        try:
            await tasks.start(cache.run)
            yield
        finally:
            overview.close()
            tasks.cancel_scope.cancel()
