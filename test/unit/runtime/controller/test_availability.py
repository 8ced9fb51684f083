"""Setup of kinds that may become available later: discovery, CRD events, retries and back-off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest
from structlog.testing import capture_logs

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.discovery import DiscoveryIncomplete, DiscoveryPosition, Resource
from cfo.runtime.client.errors import TransportError, UnknownKind
from cfo.runtime.controller.availability import Availability, is_served
from cfo.runtime.objects.kinds import CUSTOM_RESOURCE_DEFINITION
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle

MIRROR = GVK("example.com", "v1", "Mirror")
LENS = GVK("example.com", "v1", "Lens")
ROUTE = GVK("route.openshift.io", "v1", "Route")
PLURALS = {MIRROR: "mirrors", LENS: "lenses"}


class Mapper:
    """A RESTMapper that serves the given kinds; ``errors`` of a kind are raised, in order, by its first lookups."""

    def __init__(self, *served: GVK) -> None:
        self.served = set(served)
        self.errors: dict[GVK, list[Exception]] = {}
        self.lookups = 0

    def invalidate(self, *, groups_only: bool = False) -> None:
        pass

    def position(self) -> DiscoveryPosition:
        return DiscoveryPosition(0, 0)

    async def resource(self, gvk: GVK, *, since: DiscoveryPosition | None = None) -> Resource:
        self.lookups += 1
        if self.errors.get(gvk):
            raise self.errors[gvk].pop(0)
        if gvk not in self.served:
            raise UnknownKind(str(gvk))
        return Resource(gvk=gvk, plural=PLURALS.get(gvk, "x"), namespaced=True)


class CRDInformer:
    """The informer of CustomResourceDefinitions, and the cache that creates it."""

    def __init__(self) -> None:
        self.handlers: list[Callable[[Event], None]] = []
        self.state_handlers: list[Callable[[], None]] = []
        self.names: set[str] = set()
        self.has_synced = False
        self.reader = self

    def informer(self, gvk: GVK, *, metadata_only: bool) -> CRDInformer:
        assert gvk == CUSTOM_RESOURCE_DEFINITION
        assert metadata_only
        return self

    def add_handler(self, handler: Callable[[Event], None]) -> None:
        self.handlers.append(handler)

    def add_state_handler(self, handler: Callable[[], None]) -> None:
        self.state_handlers.append(handler)

    def remove_state_handler(self, handler: Callable[[], None]) -> None:
        self.state_handlers.remove(handler)

    def contains(self, key: NamespacedName) -> bool:
        return key.name in self.names

    def sync(self, *names: str) -> None:
        """Complete the first list, which contains these CRDs."""
        self.names.update(names)
        self.has_synced = True
        for handler in list(self.state_handlers):
            handler()

    def add(self, name: str) -> None:
        """Emit the event of a new CRD."""
        self._emit(Event(EventType.ADDED, NamespacedName("", name), None, crd_entry(name)))

    def change(self, name: str, *, generation: int = 1) -> None:
        """Emit the event of a CRD that changed; the first state has generation 1."""
        key = NamespacedName("", name)
        self._emit(Event(EventType.UPDATED, key, crd_entry(name), crd_entry(name, generation)))

    def delete(self, name: str) -> None:
        """Emit the event of a deleted CRD."""
        self._emit(Event(EventType.DELETED, NamespacedName("", name), crd_entry(name), None))

    def _emit(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)


def crd_entry(name: str, generation: int = 1) -> Entry:
    raw = orjson.dumps({"metadata": {"name": name, "generation": generation}})
    return EntryDecoder(CUSTOM_RESOURCE_DEFINITION, metadata_only=True).decode(raw)


class Harness:
    """An Availability with its fake clock, RESTMapper and CRDs; ``calls`` records the kinds that were set up."""

    def __init__(self, *served: GVK) -> None:
        self.clock = FakeClock()
        self.mapper = Mapper(*served)
        self.crds = CRDInformer()
        self.availability = Availability(self.mapper, self.crds, clock=self.clock)  # type: ignore[arg-type]
        self.calls: list[GVK] = []

    def register(self, *kinds: GVK) -> None:
        for gvk in kinds:
            self.availability.when_available(gvk, lambda gvk=gvk: self.calls.append(gvk))  # type: ignore[misc]


@asynccontextmanager
async def running(harness: Harness) -> AsyncIterator[Harness]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: harness.availability.run(task_status=task_status))
        yield harness
        tasks.cancel_scope.cancel()


async def test_served_kind_is_set_up_during_start_without_watching_crds() -> None:
    harness = Harness(MIRROR)
    harness.register(MIRROR)
    async with running(harness):
        assert harness.calls == [MIRROR]
        await run_until_idle()
        assert harness.crds.handlers == []
        assert harness.mapper.lookups == 1


async def test_kind_is_set_up_when_its_crd_is_added_and_discovery_serves_it() -> None:
    harness = Harness()
    harness.register(MIRROR)
    async with running(harness):
        await run_until_idle()
        assert harness.calls == []
        harness.crds.add("mirrors.example.com")
        await run_until_idle()
        harness.clock.advance(0.1)
        await run_until_idle()
        assert harness.calls == []
        harness.mapper.served.add(MIRROR)
        harness.clock.advance(0.2)
        await run_until_idle()
        assert harness.calls == [MIRROR]
        harness.crds.add("mirrors.example.com")
        await run_until_idle()
        assert harness.calls == [MIRROR]
        assert harness.clock.timers == 0


async def test_available_kind_is_logged_once_for_all_that_wait_for_it() -> None:
    harness = Harness(MIRROR)
    harness.register(MIRROR)
    harness.register(MIRROR)
    with capture_logs() as entries:
        async with running(harness):
            assert harness.calls == [MIRROR, MIRROR]
    assert [entry["event"] for entry in entries] == ["Kind is available"]


async def test_missing_kind_with_a_hint_is_logged_once() -> None:
    harness = Harness()
    harness.availability.when_available(MIRROR, lambda: None, hint="install the mirrors")
    harness.register(LENS)
    with capture_logs() as entries:
        async with running(harness):
            await run_until_idle()
            harness.crds.add("mirrors.example.com")
            await run_until_idle()
            harness.clock.advance(0.1)
            await run_until_idle()
    logged = [(entry["kind"], entry["hint"]) for entry in entries if entry["log_level"] == "info"]
    assert logged == [(str(MIRROR), "install the mirrors")]


async def test_crds_of_other_groups_cause_no_lookup_and_discovery_is_not_polled() -> None:
    harness = Harness()
    harness.register(MIRROR)
    async with running(harness):
        await run_until_idle()
        before = harness.mapper.lookups
        harness.crds.add("things.example.org")
        harness.clock.advance(3600)
        await run_until_idle()
        assert harness.mapper.lookups == before


async def test_lookups_stop_for_a_crd_that_is_never_established() -> None:
    harness = Harness(LENS)
    harness.register(MIRROR, LENS)
    async with running(harness):
        assert harness.calls == [LENS]
        harness.crds.add("lenses.example.com")
        for _ in range(100):
            await run_until_idle()
            harness.clock.advance(1)
        lookups = harness.mapper.lookups
        harness.clock.advance(3600)
        await run_until_idle()
        assert harness.mapper.lookups == lookups
        assert harness.availability.pending == (MIRROR,)


async def test_served_kind_registered_while_running_is_set_up_immediately() -> None:
    harness = Harness(MIRROR)
    async with running(harness):
        harness.register(MIRROR)
        await run_until_idle()
        assert harness.calls == [MIRROR]


async def test_start_waits_for_an_unavailable_api_server() -> None:
    harness = Harness(MIRROR)
    harness.mapper.errors[MIRROR] = [TransportError("refused", outcome_unknown=False)] * 2
    harness.register(MIRROR)
    async with anyio.create_task_group() as tasks:
        started = asyncio.Event()

        async def run() -> None:
            await tasks.start(
                lambda *, task_status: harness.availability.run(task_status=task_status)
            )
            started.set()

        tasks.start_soon(run)
        await run_until_idle()
        harness.clock.advance(0.5)
        await run_until_idle()
        assert not started.is_set()
        harness.clock.advance(1)
        await run_until_idle()
        assert started.is_set()
        assert harness.calls == [MIRROR]
        tasks.cancel_scope.cancel()


async def test_unavailable_api_group_is_retried_without_delaying_other_kinds() -> None:
    harness = Harness(MIRROR, ROUTE)
    harness.mapper.errors[ROUTE] = [DiscoveryIncomplete("down")] * 2
    harness.register(ROUTE, MIRROR)
    async with running(harness):
        assert harness.calls == [MIRROR]
        await run_until_idle()
        harness.clock.advance(0.5)
        await run_until_idle()
        assert harness.calls == [MIRROR]
        harness.clock.advance(1)
        await run_until_idle()
        assert harness.calls == [MIRROR, ROUTE]


async def test_setup_function_can_be_async_and_its_error_ends_the_run() -> None:
    harness = Harness(MIRROR)

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("cannot set up")

    harness.availability.when_available(MIRROR, broken)
    with pytest.raises(ValueError, match="cannot set up"):
        await harness.availability.run()


async def test_is_served_retries_until_discovery_succeeds() -> None:
    clock, mapper = FakeClock(), Mapper()
    mapper.errors[MIRROR] = [
        DiscoveryIncomplete("down"),
        TransportError("refused", outcome_unknown=False),
    ]
    lookup = asyncio.create_task(is_served(mapper, MIRROR, clock))  # type: ignore[arg-type]
    for _ in range(2):
        await run_until_idle()
        assert not lookup.done()
        clock.advance(0.5)
    assert await lookup is False
