"""An informer: handlers, readers, and a kind that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
import structlog

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.errors import TransportError
from cfo.runtime.discovery import DiscoveryIncomplete, Resource
from cfo.runtime.objects import GVK, NamespacedName
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    PATIENCE,
    ScriptedMapper,
    ScriptedServer,
    a_list,
    a_status,
    eventually,
    make,
    scripted,
)

RAY = GVK("ray.io", "v1", "RayCluster")
RESOURCE = Resource(gvk=RAY, plural="rayclusters", namespaced=True)


class PatientClock(SkippingClock):
    """Waits for ever, until it is woken some other way."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.Event().wait()


@asynccontextmanager
async def running(
    *, mapper: ScriptedMapper | None = None, clock: Any = None, **options: Any
) -> AsyncIterator[tuple[ScriptedServer, Informer]]:
    async with scripted() as (server, transport):
        informer = Informer(
            transport, mapper or ScriptedMapper(RESOURCE), RAY, Selection.of(**options), clock=clock or SkippingClock()
        )
        task = asyncio.create_task(informer.run())
        try:
            yield server, informer
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(informer: Informer, condition: Callable[[], bool]) -> None:
    changed = asyncio.Event()

    def wake(_: Event) -> None:
        changed.set()

    informer.add_handler(wake)
    try:
        while not condition():
            changed.clear()
            await asyncio.wait_for(changed.wait(), PATIENCE)
    finally:
        informer.remove_handler(wake)


async def synced(informer: Informer) -> None:
    await asyncio.wait_for(informer.wait_for_sync(), PATIENCE)


async def test_handlers_are_told_whenever_they_come() -> None:
    early: list[Event] = []
    late: list[Event] = []
    async with running() as (server, informer):
        informer.add_handler(early.append)
        assert not informer.has_synced
        server.will(a_list(9, make("a", 5)))
        watch = server.will_watch()
        await synced(informer)
        informer.add_handler(late.append)
        assert early == late
        assert [(event.type, event.key, event.initial) for event in late] == [(EventType.ADDED, ("ns", "a"), True)]
        await watch.send("MODIFIED", make("a", 10, spec={"x": 1}))
        await until(informer, lambda: len(late) == 2)
        assert (early[1].type, early[1].initial) == (EventType.UPDATED, False)
        assert early[1].old is not None
        assert early[1].new is not None
        assert (early[1].old.version, early[1].new.object()["spec"]) == (5, {"x": 1})
        informer.remove_handler(early.append)
        await watch.send("DELETED", make("a", 11))
        await until(informer, lambda: len(late) == 3)
        assert len(early) == 2


async def test_a_handler_that_fails_stops_nobody() -> None:
    def fails(_: Event) -> None:
        raise RuntimeError("broken handler")

    told: list[Event] = []
    with structlog.testing.capture_logs() as logs:
        async with running() as (server, informer):
            informer.add_handler(fails)
            informer.add_handler(told.append)
            server.will(a_list(9, make("a", 5), make("b", 6)))
            server.will_watch()
            await synced(informer)
            assert len(told) == 2
    assert len([entry for entry in logs if entry["log_level"] == "error"]) == 2


async def test_a_reader_reads_without_requests_and_gives_copies() -> None:
    async with running() as (server, informer):
        informer.add_index("size", lambda entry: [str(entry.object()["spec"]["size"])])
        server.will(
            a_list(
                9,
                make("a", 5, spec={"size": 1}, metadata={"labels": {"app": "x"}}),
                make("b", 6, spec={"size": 1}),
                make("a", 7, spec={"size": 2}, metadata={"namespace": "other", "uid": "third"}),
            )
        )
        server.will_watch()
        await synced(informer)
        reader, key = informer.reader, NamespacedName("ns", "a")
        await server.asked_times(2)

        got = reader.get(key)
        assert got is not None
        got["spec"]["size"] = 77
        assert (reader.get(key) or {})["spec"]["size"] == 1
        meta = reader.meta(key)
        assert meta is not None
        assert meta.labels == {"app": "x"}
        assert (reader.contains(key), reader.contains(NamespacedName("ns", "z"))) == (True, False)
        assert reader.get(NamespacedName("ns", "z")) is None
        assert reader.meta(NamespacedName("ns", "z")) is None
        assert len(reader) == 3
        assert len(reader.list()) == 3
        assert [obj["metadata"]["uid"] for obj in reader.list("other")] == ["third"]
        assert [obj["metadata"]["name"] for obj in reader.list("ns", "app=x")] == ["a"]
        assert [obj["metadata"]["name"] for obj in reader.list(selector={"matchLabels": {"app": "x"}})] == ["a"]
        assert reader.keys("size", "1") == [("ns", "a"), ("ns", "b")]
        assert [obj["metadata"]["name"] for obj in reader.list("ns", index=("size", "1"))] == ["a", "b"]
        assert reader.list("other", index=("size", "1")) == []
        with pytest.raises(KeyError):
            reader.keys("color", "red")
        assert len(server.asked) == 2


async def test_own_writes_are_read_at_once() -> None:
    told: list[Event] = []
    async with running(label_selector="app=x") as (server, informer):
        informer.add_handler(told.append)
        server.will(a_list(9))
        server.will_watch()
        await synced(informer)
        informer.record_write(orjson.dumps(make("a", 12, metadata={"labels": {"app": "x"}})))
        informer.record_write(orjson.dumps(make("b", 13)))
        assert [event.key.name for event in told] == ["a"]
        informer.record_deletion(NamespacedName("ns", "a"), "uid-a")
        assert told[-1].type is EventType.DELETED
        assert len(informer.reader) == 0


async def test_a_crd_that_is_not_there_yet_is_waited_for() -> None:
    mapper, clock = ScriptedMapper(), PatientClock()
    async with running(mapper=mapper, clock=clock) as (server, informer):
        await eventually(lambda: bool(clock.slept))
        assert informer.problem == "RayCluster.v1.ray.io is not served"
        assert not informer.has_synced
        assert server.asked == []
        mapper.resources[RAY] = RESOURCE
        server.will(a_list(9, make("a", 5)))
        server.will_watch()
        informer.wake()
        await synced(informer)
        assert informer.problem == ""


async def test_a_crd_that_is_not_there_yet_is_asked_for_again() -> None:
    mapper, clock = ScriptedMapper(), SkippingClock()
    async with running(mapper=mapper, clock=clock) as (server, informer):
        await eventually(lambda: len(clock.slept) >= 3)
        mapper.failure = TransportError("connection refused", outcome_unknown=False, verb="get", resource="/apis")
        asked = mapper.asked
        await eventually(lambda: mapper.asked >= asked + 3)
        assert "connection refused" in informer.problem
        mapper.resources[RAY], mapper.failure = RESOURCE, None
        server.will(a_list(9))
        server.will_watch()
        await synced(informer)


async def test_a_crd_that_goes_takes_its_objects_and_may_come_back() -> None:
    mapper, told = ScriptedMapper(RESOURCE), list[Event]()
    async with running(mapper=mapper) as (server, informer):
        informer.add_handler(told.append)
        server.will(a_list(9, make("a", 5)))
        watch = server.will_watch()
        await synced(informer)
        mapper.resources.clear()
        await watch.close()
        server.will(a_status(404, "NotFound", "404 page not found"))
        await until(informer, lambda: told[-1].type is EventType.DELETED)
        assert told[-1].final_state_unknown
        assert not informer.has_synced
        assert mapper.invalidated == 1
        informer.record_deletion(NamespacedName("ns", "a"), "uid-a")
        mapper.resources[RAY] = RESOURCE
        server.will(a_list(3, make("a", 2, metadata={"uid": "new"})))
        server.will_watch()
        await synced(informer)
        assert (told[-1].type, told[-1].initial) == (EventType.ADDED, True)
        assert len(informer.reader) == 1


async def test_discovery_that_is_incomplete_proves_nothing() -> None:
    mapper, told = ScriptedMapper(RESOURCE), list[Event]()
    async with running(mapper=mapper) as (server, informer):
        informer.add_handler(told.append)
        server.will(a_list(9, make("a", 5)))
        watch = server.will_watch()
        await synced(informer)
        mapper.failure = DiscoveryIncomplete("ray.io/v1 did not answer")
        await watch.close()
        server.will(a_status(404, "NotFound", "404 page not found"))
        await eventually(lambda: bool(informer.problem))
        await eventually(lambda: mapper.asked >= 5)
        assert informer.has_synced
        assert informer.reader.contains(NamespacedName("ns", "a"))
        mapper.failure = None
        again = server.will_watch()
        await again.send("MODIFIED", make("a", 12))
        await until(informer, lambda: told[-1].type is EventType.UPDATED)
        assert server.asked[-1]["resourceVersion"] == "9"


async def test_namespaces_are_followed_one_by_one() -> None:
    async with running(namespaces=("one", "two")) as (server, informer):
        server.will(a_list(9), a_list(9))
        server.will_watch()
        server.will_watch()
        await synced(informer)
        await server.asked_times(4)
        assert {asked["path"] for asked in server.asked} == {
            "/apis/ray.io/v1/namespaces/one/rayclusters",
            "/apis/ray.io/v1/namespaces/two/rayclusters",
        }
        assert (informer.watches_namespace("one"), informer.watches_namespace("three")) == (True, False)


async def test_cluster_scoped_kinds_know_no_namespaces() -> None:
    mapper = ScriptedMapper(Resource(gvk=RAY, plural="rayclusters", namespaced=False))
    async with running(mapper=mapper, namespaces=("one", "two")) as (server, informer):
        server.will(a_list(9))
        server.will_watch()
        await synced(informer)
        await server.asked_times(2)
        assert {asked["path"] for asked in server.asked} == {"/apis/ray.io/v1/rayclusters"}
        assert informer.watches_namespace("")


async def test_what_keeps_it_from_following_is_said() -> None:
    async with running() as (server, informer):
        server.will(a_status(403, "Forbidden", "you may not"))
        server.will_watch()
        await eventually(lambda: "you may not" in informer.problem)
        assert informer.problem.startswith("list rayclusters.ray.io")
        assert informer.is_forbidden
        await asyncio.wait_for(informer.wait_for_sync(unless_forbidden=True), 1.0)
        assert not informer.has_synced
