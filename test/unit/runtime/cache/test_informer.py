"""Informers: handlers, readers, own writes, and CRDs that are added and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
import structlog
from aiohttp import web

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.discovery import DiscoveryIncomplete, Resource
from cfo.runtime.client.errors import TransportError
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from test.support.clocks import SkippingClock, SleepForeverClock
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedMapper,
    ScriptedServer,
    ScriptedWatch,
    error_response,
    list_response,
    ray_cluster,
    scripted_server,
    wait_until,
)

RAY = GVK("ray.io", "v1", "RayCluster")
RESOURCE = Resource(gvk=RAY, plural="rayclusters", namespaced=True)


@asynccontextmanager
async def running_informer(
    *, mapper: ScriptedMapper | None = None, clock: Any = None, **options: Any
) -> AsyncIterator[tuple[ScriptedServer, Informer]]:
    async with scripted_server() as (server, transport):
        informer = Informer(
            transport,
            mapper or ScriptedMapper(RESOURCE),
            RAY,
            Selection.of(**options),
            clock=clock or SkippingClock(),
        )
        task = asyncio.create_task(informer.run())
        try:
            yield server, informer
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def wait_for_events(informer: Informer, condition: Callable[[], bool]) -> None:
    changed = asyncio.Event()

    def wake(_: Event) -> None:
        changed.set()

    informer.add_handler(wake)
    try:
        while not condition():
            changed.clear()
            await asyncio.wait_for(changed.wait(), TIMEOUT_SECONDS)
    finally:
        informer.remove_handler(wake)


async def wait_for_sync(informer: Informer) -> None:
    await asyncio.wait_for(informer.wait_for_sync(), TIMEOUT_SECONDS)


async def test_handler_receives_all_objects_whenever_it_is_added() -> None:
    early: list[Event] = []
    late: list[Event] = []
    async with running_informer() as (server, informer):
        informer.add_handler(early.append)
        assert not informer.has_synced
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        informer.add_handler(late.append)
        assert early == late
        assert [(event.type, event.key, event.initial) for event in late] == [
            (EventType.ADDED, ("ns", "a"), True)
        ]
        await watch.send("MODIFIED", ray_cluster("a", 10, spec={"x": 1}))
        await wait_for_events(informer, lambda: len(late) == 2)
        assert (early[1].type, early[1].initial) == (EventType.UPDATED, False)
        assert early[1].old is not None
        assert early[1].new is not None
        assert (early[1].old.version, early[1].new.object()["spec"]) == (5, {"x": 1})
        informer.remove_handler(early.append)
        await watch.send("DELETED", ray_cluster("a", 11))
        await wait_for_events(informer, lambda: len(late) == 3)
        assert len(early) == 2


async def test_field_that_is_missing_does_not_end_a_wait() -> None:
    key = NamespacedName("ns", "a")

    def has_x(obj: Object | None) -> bool:
        assert obj is not None
        return bool(obj["spec"]["x"] == 1)

    async with running_informer() as (server, informer):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        message = r"condition not met after 0\.01 s; it raised KeyError: "
        with pytest.raises(TimeoutError, match=message) as caught:
            await informer.wait_for(key, has_x, timeout=0.01)
        assert isinstance(caught.value.__cause__, KeyError)

        waiting = asyncio.create_task(informer.wait_for(key, has_x, timeout=TIMEOUT_SECONDS))
        await watch.send("MODIFIED", ray_cluster("a", 10, spec={"x": 1}))
        assert await waiting is not None


def left_out_version(event: Event) -> str:
    """Return name and version of an object that is left out."""
    assert (event.type, event.new) == (EventType.DELETED, None)
    assert event.left_out is not None
    return f"{event.key.name}@{event.left_out.version}"


def large(name: str, version: int) -> Any:
    return ray_cluster(name, version, spec={"x": "y" * 2000})


async def test_late_handlers_receive_objects_that_are_left_out_after_one_list() -> None:
    """Controllers of a standby start hours after its lists, when it becomes the leader."""
    early: list[Event] = []
    first: list[Event] = []
    second: list[Event] = []
    async with running_informer(max_bytes=1000) as (server, informer):
        informer.add_handler(early.append)
        server.respond_with(list_response(9, ray_cluster("a", 5), large("b", 6)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        server.respond_with(error_response(500, "InternalError", "failed"))
        server.respond_with(list_response(12, ray_cluster("a", 5), large("b", 6), large("c", 11)))
        watch = server.respond_with_watch()
        informer.add_handler(first.append, left_out=True)
        informer.add_handler(second.append, left_out=True)
        await wait_for_events(informer, lambda: len(second) == 3)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        assert first == second
        assert first[0].type is EventType.ADDED
        assert [left_out_version(event) for event in first[1:]] == ["b@6", "c@11"]
        assert all(event.initial for event in first)
        await watch.send("MODIFIED", large("b", 13))
        await wait_for_events(informer, lambda: len(first) == 4)
        assert (left_out_version(first[3]), first[3].initial) == ("b@13", False)
        assert len(server.queries) == 5, "the list that failed was repeated, and nothing else"
        assert [event.key.name for event in early] == ["b", "a", "b", "c", "b"]


async def test_handler_that_is_added_during_a_list_receives_what_its_pages_left_out() -> None:
    late: list[Event] = []
    async with running_informer(max_bytes=1000) as (server, informer):

        def add_late(event: Event) -> None:
            if event.key.name == "b":
                informer.remove_handler(add_late)
                informer.add_handler(late.append, left_out=True)

        informer.add_handler(add_late)
        # the handler is not added before the first object that is left out is known
        listed = (large("a", 5), large("b", 6), large("c", 7))
        server.respond_with(list_response(9, *listed), list_response(9, *listed))
        server.respond_with_watch()
        await wait_for_events(informer, lambda: len(late) == 4)
        assert [event.key.name for event in late] == ["c", "a", "b", "c"]
        assert len(server.queries) <= 3


async def test_late_handler_of_a_complete_store_causes_no_request() -> None:
    events: list[Event] = []
    async with running_informer(max_bytes=1000) as (server, informer):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        informer.add_handler(events.append, left_out=True)
        await watch.send("MODIFIED", ray_cluster("a", 10))
        await wait_for_events(informer, lambda: len(events) == 2)
        assert len(server.queries) == 2


async def test_failing_handler_does_not_affect_other_handlers() -> None:
    def failing_handler(_: Event) -> None:
        raise RuntimeError("broken handler")

    events: list[Event] = []
    with structlog.testing.capture_logs() as logs:
        async with running_informer() as (server, informer):
            informer.add_handler(failing_handler)
            informer.add_handler(events.append)
            server.respond_with(list_response(9, ray_cluster("a", 5), ray_cluster("b", 6)))
            server.respond_with_watch()
            await wait_for_sync(informer)
            assert len(events) == 2
            assert informer.function_errors == 2
    assert len([entry for entry in logs if entry["log_level"] == "error"]) == 2


async def test_unreachable_server_is_logged_once_with_its_address_and_the_error() -> None:
    mapper = ScriptedMapper(RESOURCE)
    mapper.failure = TransportError("connection refused", outcome_unknown=False)
    with structlog.testing.capture_logs() as logs:
        async with running_informer(mapper=mapper) as (server, _):
            await wait_until(lambda: mapper.lookups > 2)
    expected = {
        "event": "Discovery failed, will retry",
        "log_level": "warning",
        "kind": str(RAY),
        "server": server.url,
        "error": "connection refused",
    }
    assert [entry for entry in logs if entry["log_level"] == "warning"] == [expected]


async def test_reader_sends_no_requests_and_returns_copies() -> None:
    async with running_informer() as (server, informer):
        informer.add_index("size", lambda entry: [str(entry.object()["spec"]["size"])])
        server.respond_with(
            list_response(
                9,
                ray_cluster("a", 5, spec={"size": 1}, metadata={"labels": {"app": "x"}}),
                ray_cluster("b", 6, spec={"size": 1}),
                ray_cluster(
                    "a", 7, spec={"size": 2}, metadata={"namespace": "other", "uid": "third"}
                ),
            )
        )
        server.respond_with_watch()
        await wait_for_sync(informer)
        reader, key = informer.reader, NamespacedName("ns", "a")
        await server.wait_for_requests(2)

        copy = reader.get(key)
        assert copy is not None
        copy["spec"]["size"] = 77
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
        assert [
            obj["metadata"]["name"] for obj in reader.list(selector={"matchLabels": {"app": "x"}})
        ] == ["a"]
        assert reader.keys("size", "1") == [("ns", "a"), ("ns", "b")]
        assert [obj["metadata"]["name"] for obj in reader.list("ns", index=("size", "1"))] == [
            "a",
            "b",
        ]
        assert reader.list("other", index=("size", "1")) == []
        with pytest.raises(KeyError):
            reader.keys("color", "red")
        assert len(server.queries) == 2


async def test_own_writes_are_visible_immediately() -> None:
    events: list[Event] = []
    async with running_informer(label_selector="app=x") as (server, informer):
        informer.add_handler(events.append)
        server.respond_with(list_response(9))
        server.respond_with_watch()
        await wait_for_sync(informer)
        informer.record_write(orjson.dumps(ray_cluster("a", 12, metadata={"labels": {"app": "x"}})))
        informer.record_write(orjson.dumps(ray_cluster("b", 13)))
        assert [event.key.name for event in events] == ["a"]
        informer.record_deletion(NamespacedName("ns", "a"), "uid-a")
        assert events[-1].type is EventType.DELETED
        assert len(informer.reader) == 0


async def test_informer_waits_for_missing_crd_until_woken() -> None:
    mapper, clock = ScriptedMapper(), SleepForeverClock()
    async with running_informer(mapper=mapper, clock=clock) as (server, informer):
        await wait_until(lambda: bool(clock.sleeps))
        assert informer.problem == "not served: no matches for RayCluster.v1.ray.io"
        assert not informer.has_synced
        assert server.queries == []
        mapper.resources[RAY] = RESOURCE
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        server.respond_with_watch()
        informer.wake()
        await wait_for_sync(informer)
        assert informer.problem == ""


async def test_missing_crd_is_looked_up_repeatedly() -> None:
    mapper, clock = ScriptedMapper(), SkippingClock()
    async with running_informer(mapper=mapper, clock=clock) as (server, informer):
        await wait_until(lambda: len(clock.sleeps) >= 3)
        mapper.failure = TransportError(
            "connection refused", outcome_unknown=False, verb="get", resource="/apis"
        )
        lookups = mapper.lookups
        await wait_until(lambda: mapper.lookups >= lookups + 3)
        assert "connection refused" in informer.problem
        mapper.resources[RAY], mapper.failure = RESOURCE, None
        server.respond_with(list_response(9))
        server.respond_with_watch()
        await wait_for_sync(informer)


async def test_deleted_crd_removes_its_objects_and_can_be_recreated() -> None:
    mapper, events = ScriptedMapper(RESOURCE), list[Event]()
    async with running_informer(mapper=mapper) as (server, informer):
        informer.add_handler(events.append)
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        mapper.resources.clear()
        await watch.close()
        server.respond_with(error_response(404, "NotFound", "404 page not found"))
        await wait_for_events(informer, lambda: events[-1].type is EventType.DELETED)
        assert events[-1].final_state_unknown
        assert not informer.has_synced
        assert mapper.invalidations == 1
        informer.record_deletion(NamespacedName("ns", "a"), "uid-a")
        mapper.resources[RAY] = RESOURCE
        server.respond_with(list_response(3, ray_cluster("a", 2, metadata={"uid": "new"})))
        server.respond_with_watch()
        await wait_for_sync(informer)
        assert (events[-1].type, events[-1].initial) == (EventType.ADDED, True)
        assert len(informer.reader) == 1


async def test_incomplete_discovery_removes_no_objects() -> None:
    mapper, events = ScriptedMapper(RESOURCE), list[Event]()
    async with running_informer(mapper=mapper) as (server, informer):
        informer.add_handler(events.append)
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await wait_for_sync(informer)
        mapper.failure = DiscoveryIncomplete("ray.io/v1 did not respond")
        await watch.close()
        server.respond_with(error_response(404, "NotFound", "404 page not found"))
        await wait_until(lambda: bool(informer.problem))
        await wait_until(lambda: mapper.lookups >= 5)
        assert informer.has_synced
        assert informer.reader.contains(NamespacedName("ns", "a"))
        mapper.failure = None
        second_watch = server.respond_with_watch()
        await second_watch.send("MODIFIED", ray_cluster("a", 12))
        await wait_for_events(informer, lambda: events[-1].type is EventType.UPDATED)
        assert server.queries[-1]["resourceVersion"] == "9"


async def test_each_namespace_is_listed_and_watched_separately() -> None:
    async with running_informer(namespaces=("one", "two")) as (server, informer):
        server.respond_with(list_response(9), list_response(9))
        server.respond_with_watch()
        server.respond_with_watch()
        await wait_for_sync(informer)
        await server.wait_for_requests(4)
        assert {query["path"] for query in server.queries} == {
            "/apis/ray.io/v1/namespaces/one/rayclusters",
            "/apis/ray.io/v1/namespaces/two/rayclusters",
        }
        assert (informer.watches_namespace("one"), informer.watches_namespace("three")) == (
            True,
            False,
        )


async def test_cluster_scoped_kind_is_watched_without_namespaces() -> None:
    mapper = ScriptedMapper(Resource(gvk=RAY, plural="rayclusters", namespaced=False))
    async with running_informer(mapper=mapper, namespaces=("one", "two")) as (server, informer):
        server.respond_with(list_response(9))
        server.respond_with_watch()
        await wait_for_sync(informer)
        await server.wait_for_requests(2)
        assert {query["path"] for query in server.queries} == {"/apis/ray.io/v1/rayclusters"}
        assert informer.watches_namespace("")


async def test_problem_reports_why_the_list_fails() -> None:
    async with running_informer() as (server, informer):
        server.respond_with(error_response(403, "Forbidden", "access denied"))
        server.respond_with_watch()
        await wait_until(lambda: "access denied" in informer.problem)
        assert informer.problem.startswith("list rayclusters.ray.io")
        assert informer.is_forbidden
        assert informer.missing_rule == (
            '{apiGroups: ["ray.io"], resources: ["rayclusters"], verbs: ["list", "watch"]}'
        )
        await asyncio.wait_for(informer.wait_for_sync(unless_forbidden=True), 1.0)
        assert not informer.has_synced


async def test_namespace_without_permission_is_left_out_until_it_is_listed() -> None:
    """Another failure does not delay the other namespaces, and nothing counts as complete there."""
    async with running_informer(namespaces=("one", "two")) as (server, informer):
        by_namespace = {
            "one": [list_response(9)],
            "two": [
                error_response(403, "Forbidden", "access denied"),
                error_response(500, "InternalError", "broken"),
            ],
        }
        unavailable = informer._unavailable
        granted = asyncio.Event()

        async def respond(request: web.Request) -> web.StreamResponse:
            namespace = request.path.split("/")[-2]
            if "watch" in request.query:
                return await ScriptedWatch()(request)
            if by_namespace[namespace]:
                return await by_namespace[namespace].pop(0)(request)
            await granted.wait()
            return await list_response(9)(request)

        server.respond_with(*[respond] * 6)
        await wait_for_sync(informer)
        await wait_until(lambda: not by_namespace["two"])
        await wait_until(lambda: "broken" in informer.problem)
        assert informer.has_synced
        assert not informer.is_forbidden
        assert informer.missing_rule == ""
        assert list(unavailable) == ["two"]
        assert "configmaps" not in unavailable.missing_rule("two")
        assert unavailable.missing_rule("two").endswith('verbs: ["list", "watch"]}')
        reader = informer.reader
        complete = [reader.is_complete(namespace) for namespace in ("one", "two", "")]
        assert complete == [True, False, False]
        assert reader.may_exist(NamespacedName("two", "a"))
        assert not reader.may_exist(NamespacedName("one", "a"))

        granted.set()
        await wait_until(lambda: "two" not in unavailable)
        assert reader.is_complete("")
        assert not reader.may_exist(NamespacedName("two", "a"))
