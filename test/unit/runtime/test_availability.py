"""Kinds that come later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest

from cfo.runtime.availability import Availability, is_served
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.errors import TransportError, UnknownKind
from cfo.runtime.clock import FakeClock
from cfo.runtime.discovery import DiscoveryIncomplete, Resource
from cfo.runtime.kinds import CUSTOM_RESOURCE_DEFINITION
from cfo.runtime.objects import GVK, NamespacedName
from test.support.scheduling import settled

MIRROR = GVK("example.com", "v1", "Mirror")
LENS = GVK("example.com", "v1", "Lens")
ROUTE = GVK("route.openshift.io", "v1", "Route")


class Mapper:
    """Discovery: what it serves, and what it does not say (an error that is raised ``times`` times)."""

    def __init__(self, *served: GVK) -> None:
        self.served = set(served)
        self.errors: dict[GVK, list[Exception]] = {}
        self.asked = 0

    def invalidate(self) -> None:
        pass

    async def resource(self, gvk: GVK) -> Resource:
        self.asked += 1
        if self.errors.get(gvk):
            raise self.errors[gvk].pop(0)
        if gvk not in self.served:
            raise UnknownKind(str(gvk))
        return Resource(gvk=gvk, plural="x", namespaced=True)


class Definitions:
    """The informer of CustomResourceDefinitions, and the cache that makes it."""

    def __init__(self) -> None:
        self.handlers: list[Callable[[Event], None]] = []

    def informer(self, gvk: GVK, *, metadata_only: bool) -> Definitions:
        assert gvk == CUSTOM_RESOURCE_DEFINITION
        assert metadata_only
        return self

    def add_handler(self, handler: Callable[[Event], None]) -> None:
        self.handlers.append(handler)

    def came(self, name: str) -> None:
        raw = orjson.dumps({"metadata": {"name": name}})
        entry = EntryDecoder(CUSTOM_RESOURCE_DEFINITION, metadata_only=True).decode(raw)
        for handler in self.handlers:
            handler(Event(EventType.ADDED, NamespacedName("", name), None, entry))


class Bench:
    def __init__(self, *served: GVK) -> None:
        self.clock = FakeClock()
        self.mapper = Mapper(*served)
        self.definitions = Definitions()
        self.availability = Availability(self.mapper, self.definitions, clock=self.clock)  # type: ignore[arg-type]
        self.calls: list[GVK] = []

    def wait_for(self, *kinds: GVK) -> None:
        for gvk in kinds:
            self.availability.when_available(gvk, lambda gvk=gvk: self.calls.append(gvk))  # type: ignore[misc]


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: bench.availability.run(task_status=task_status))
        yield bench
        tasks.cancel_scope.cancel()


async def test_what_is_served_is_set_up_before_the_start_and_nothing_is_watched() -> None:
    bench = Bench(MIRROR)
    bench.wait_for(MIRROR)
    async with running(bench):
        assert bench.calls == [MIRROR]
        await settled()
        assert bench.definitions.handlers == []
        assert bench.mapper.asked == 1


async def test_what_comes_later_is_set_up_when_its_definition_came_and_discovery_follows() -> None:
    bench = Bench()
    bench.wait_for(MIRROR)
    async with running(bench):
        await settled()
        assert bench.calls == []
        bench.definitions.came("mirrors.example.com")
        await settled()
        bench.clock.advance(0.1)
        await settled()
        assert bench.calls == []
        bench.mapper.served.add(MIRROR)
        bench.clock.advance(0.2)
        await settled()
        assert bench.calls == [MIRROR]
        bench.definitions.came("mirrors.example.com")
        await settled()
        assert bench.calls == [MIRROR]
        assert bench.clock.timers == 0


async def test_other_groups_cost_no_question_and_nothing_is_polled() -> None:
    bench = Bench()
    bench.wait_for(MIRROR)
    async with running(bench):
        await settled()
        before = bench.mapper.asked
        bench.definitions.came("things.example.org")
        bench.clock.advance(3600)
        await settled()
        assert bench.mapper.asked == before


async def test_a_definition_that_is_never_established_is_not_asked_for_forever() -> None:
    bench = Bench(LENS)
    bench.wait_for(MIRROR, LENS)
    async with running(bench):
        assert bench.calls == [LENS]
        bench.definitions.came("lenses.example.com")
        for _ in range(100):
            await settled()
            bench.clock.advance(1)
        asked = bench.mapper.asked
        bench.clock.advance(3600)
        await settled()
        assert bench.mapper.asked == asked
        assert bench.availability.pending == (MIRROR,)


async def test_a_kind_that_is_asked_for_while_running_is_set_up_at_once() -> None:
    bench = Bench(MIRROR)
    async with running(bench):
        bench.wait_for(MIRROR)
        await settled()
        assert bench.calls == [MIRROR]


async def test_an_api_server_that_is_down_at_the_start_is_waited_for() -> None:
    bench = Bench(MIRROR)
    bench.mapper.errors[MIRROR] = [TransportError("refused", outcome_unknown=False)] * 2
    bench.wait_for(MIRROR)
    async with anyio.create_task_group() as tasks:
        started = asyncio.Event()

        async def run() -> None:
            await tasks.start(lambda *, task_status: bench.availability.run(task_status=task_status))
            started.set()

        tasks.start_soon(run)
        await settled()
        bench.clock.advance(0.5)
        await settled()
        assert not started.is_set()
        bench.clock.advance(1)
        await settled()
        assert started.is_set()
        assert bench.calls == [MIRROR]
        tasks.cancel_scope.cancel()


async def test_a_group_that_does_not_answer_keeps_no_other_waiting_and_is_asked_again() -> None:
    bench = Bench(MIRROR, ROUTE)
    bench.mapper.errors[ROUTE] = [DiscoveryIncomplete("down")] * 2
    bench.wait_for(ROUTE, MIRROR)
    async with running(bench):
        assert bench.calls == [MIRROR]
        await settled()
        bench.clock.advance(0.5)
        await settled()
        assert bench.calls == [MIRROR]
        bench.clock.advance(1)
        await settled()
        assert bench.calls == [MIRROR, ROUTE]


async def test_a_setup_may_wait_and_its_error_is_the_runnables() -> None:
    bench = Bench(MIRROR)

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ValueError("cannot set up")

    bench.availability.when_available(MIRROR, broken)
    with pytest.raises(ValueError, match="cannot set up"):
        await bench.availability.run()


async def test_no_answer_is_not_no() -> None:
    clock, mapper = FakeClock(), Mapper()
    mapper.errors[MIRROR] = [DiscoveryIncomplete("down"), TransportError("refused", outcome_unknown=False)]
    asking = asyncio.create_task(is_served(mapper, MIRROR, clock))  # type: ignore[arg-type]
    for _ in range(2):
        await settled()
        assert not asking.done()
        clock.advance(0.5)
    assert await asking is False
