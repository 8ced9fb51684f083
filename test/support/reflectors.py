"""Reflectors of a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.feed import Feeds
from cfo.runtime.cache.reflector import Reflector, ReflectorOptions
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, LeftOut, Store
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.discovery import Resource
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedServer,
    ScriptedWatch,
    scripted_server,
    status,
)

RAY = GVK("ray.io", "v1", "RayCluster")
RESOURCE = Resource(gvk=RAY, plural="rayclusters", namespaced=True)
EXPIRED = status(410, "Expired", "too old resource version: 1 (9)")


class Harness:
    """A reflector of a scripted server, and the store that it fills."""

    def __init__(
        self,
        server: ScriptedServer,
        transport: Any,
        namespace: str = "",
        *,
        idle_seconds: float = 75.0,
        page_size: int = 2,
        clock: SkippingClock | None = None,
        unavailable: UnavailableNamespaces | None = None,
        **options: Any,
    ) -> None:
        self.server = server
        self.clock = clock or SkippingClock()
        self.restores = 0
        self.events: list[Event] = []
        self.left_out: list[LeftOut] = []
        self._changed = asyncio.Event()
        selection = Selection.of(**options)
        self.store = Store(
            deliver=self._emit, clock=self.clock, selection=selection, report=self.left_out.append
        )
        self.feeds = Feeds(self.store)
        self.feeds.open([namespace])
        self.feed = self.feeds[namespace]
        self.reflector = Reflector(
            transport,
            RESOURCE,
            self.feed,
            EntryDecoder(RAY),
            selection,
            clock=self.clock,
            options=ReflectorOptions(
                page_size=page_size,
                idle_seconds=idle_seconds,
                random=lambda: 0.0,
            ),
            on_change=self._changed.set,
            on_restore=self._rebuild,
            unavailable=unavailable,
        )

    def _rebuild(self) -> None:
        self.restores += 1
        self.reflector.rebuild()

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async def met() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(met(), TIMEOUT_SECONDS)

    async def wait_for_version(self, name: str, version: object | None) -> None:
        await self.wait_until(
            lambda: self.version(name) == (None if version is None else str(version))
        )

    def version(self, name: str) -> str | None:
        entry = self.store.get(NamespacedName("ns", name))
        return entry.meta.resource_version if entry else None


@asynccontextmanager
async def running_reflector(
    namespace: str = "", **options: Any
) -> AsyncIterator[tuple[ScriptedServer, Harness]]:
    """Run a reflector of a new scripted server."""
    async with scripted_server() as (server, transport):
        harness = Harness(server, transport, namespace, **options)
        task = asyncio.create_task(harness.reflector.run())
        try:
            yield server, harness
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def start_watch(server: ScriptedServer, harness: Harness) -> ScriptedWatch:
    """Wait until the list is complete and the reflector has opened a watch; return the watch."""
    watch = server.respond_with_watch()
    await harness.wait_until(lambda: harness.feed.synced)
    await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
    return watch
