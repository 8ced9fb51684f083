"""Lists that are streamed as events of the watch, and the servers that require pages instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from cfo.runtime.cache import reflector as reflector_module
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.watch_list import MAX_STREAM_FAILURES, WatchListSupport
from cfo.runtime.objects.unstructured import Object
from test.support.reflectors import EXPIRED, RAY, Harness, running_reflector
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedServer,
    ScriptedWatch,
    error_response,
    list_response,
    ray_cluster,
    status,
)

REFUSAL = (
    'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: '
    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
)
OLD_REFUSAL = (
    'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
    "resourceVersionMatch is forbidden for watch"
)


@asynccontextmanager
async def streaming_reflector(
    support: WatchListSupport | None = None, **options: Any
) -> AsyncIterator[tuple[ScriptedServer, Harness]]:
    async with running_reflector(watch_list=support or WatchListSupport(), **options) as pair:
        yield pair


async def end_initial_events(watch: ScriptedWatch, version: object) -> None:
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    await watch.send("BOOKMARK", {"kind": "RayCluster", "metadata": metadata})


async def stream(watch: ScriptedWatch, version: object, *items: Object) -> None:
    """Send the initial events of a list with these items."""
    for item in items:
        await watch.send("ADDED", item)
    await end_initial_events(watch, version)


async def synced(harness: Harness) -> None:
    await harness.wait_until(lambda: harness.feed.synced)


async def opened(watch: ScriptedWatch) -> None:
    await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)


def is_streamed(query: Mapping[str, str]) -> bool:
    return query.get("sendInitialEvents") == "true"


async def test_one_request_lists_and_watches() -> None:
    async with streaming_reflector(label_selector="app=x") as (server, harness):
        watch = server.respond_with_watch()
        await watch.send("ADDED", ray_cluster("a", 5))
        await watch.send("ADDED", ray_cluster("b", 6))
        assert harness.events == []
        await end_initial_events(watch, 9)
        await synced(harness)
        assert [(event.key.name, event.initial) for event in harness.events] == [("a", True), ("b", True)]
        await watch.send("MODIFIED", ray_cluster("a", 10))
        await harness.wait_for_version("a", 10)
        (query,) = server.queries
        assert query.pop("timeoutSeconds")
        assert query == {
            "path": "/apis/ray.io/v1/rayclusters",
            "labelSelector": "app=x",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": "",
        }


async def test_watch_that_ends_continues_without_initial_events() -> None:
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        await stream(watch, 9, ray_cluster("a", 5))
        await synced(harness)
        again = server.respond_with_watch()
        await watch.close()
        await opened(again)
        assert server.queries[1]["resourceVersion"] == "9"
        assert not is_streamed(server.queries[1])


async def test_object_deleted_during_the_initial_events_is_not_stored() -> None:
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        await watch.send("ADDED", ray_cluster("a", 5))
        await watch.send("ADDED", ray_cluster("b", 6))
        await watch.send("DELETED", ray_cluster("a", 7))
        await watch.send("MODIFIED", ray_cluster("b", 8))
        await end_initial_events(watch, 9)
        await synced(harness)
        assert (harness.version("a"), harness.version("b")) == (None, "8")


async def test_expired_watch_streams_again_not_older_than_known_and_keeps_own_writes() -> None:
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        await stream(watch, 9, ray_cluster("a", 5), ray_cluster("b", 6))
        await synced(harness)
        harness.feed.record_write(EntryDecoder(RAY).decode(orjson.dumps(ray_cluster("a", 11))))
        again = server.respond_with_watch()
        await watch.send("ERROR", EXPIRED)
        await opened(again)
        harness.feed.record_write(EntryDecoder(RAY).decode(orjson.dumps(ray_cluster("a", 30))))
        await stream(again, 20, ray_cluster("a", 11))
        await harness.wait_for_version("b", None)
        assert server.queries[1]["resourceVersion"] == "11"
        assert harness.version("a") == "30"


@pytest.mark.parametrize("message", [REFUSAL, OLD_REFUSAL])
@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (400, "BadRequest")])
async def test_refusal_is_remembered_and_pages_are_requested(message: str, code: int, reason: str) -> None:
    support = WatchListSupport()
    async with streaming_reflector(support) as (server, harness):
        server.respond_with(error_response(code, reason, message), list_response(9, ray_cluster("a", 5)))
        watch = server.respond_with_watch()
        await synced(harness)
        server.respond_with(list_response(12))
        await watch.send("ERROR", EXPIRED)
        await harness.wait_for_version("a", None)
        assert [is_streamed(query) for query in server.queries[:4]] == [True, False, False, False]
        assert harness.clock.sleeps == []
    async with streaming_reflector(support) as (server, harness):
        server.respond_with(list_response(9))
        await synced(harness)
        assert not is_streamed(server.queries[0])


async def test_other_rejections_are_not_a_refusal() -> None:
    support = WatchListSupport()
    async with streaming_reflector(support) as (server, harness):
        server.respond_with(
            error_response(422, "Invalid", "fieldSelector: invalid"), error_response(429, "TooManyRequests")
        )
        await stream(server.respond_with_watch(), 9)
        await synced(harness)
        assert all(map(is_streamed, server.queries))
        assert len(harness.clock.sleeps) == 2
        assert support.is_supported("ray.io")


async def test_server_that_ignores_the_parameter_is_recognized_by_its_bookmark() -> None:
    support = WatchListSupport()
    async with streaming_reflector(support) as (server, harness):
        watch = server.respond_with_watch()
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        await watch.send("ADDED", ray_cluster("b", 5))
        await watch.bookmark(9)
        await synced(harness)
        assert not support.is_supported("ray.io")
        assert [event.key.name for event in harness.events] == ["a"]


async def test_server_that_sends_nothing_is_given_up_after_a_bounded_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "INITIAL_EVENTS_SECONDS", 0.05)
    support = WatchListSupport()
    async with streaming_reflector(support) as (server, harness):
        watch = server.respond_with_watch()  # a server that ignores the parameter, or a proxy that buffers
        await watch.send("ADDED", ray_cluster("a", 5))
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        await synced(harness)
        assert not support.is_supported("ray.io")


async def test_stream_that_ends_within_the_initial_events_is_replaced_by_pages_once() -> None:
    support = WatchListSupport()
    async with streaming_reflector(support) as (server, harness):
        first = server.respond_with_watch()
        await first.send("ADDED", ray_cluster("b", 5))
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        await first.close()
        await synced(harness)
        assert [event.key.name for event in harness.events] == ["a"]
        watch = server.respond_with_watch()
        again = server.respond_with_watch()
        await watch.send("ERROR", EXPIRED)
        await stream(again, 20)
        await harness.wait_for_version("a", None)
        assert [is_streamed(query) for query in server.queries] == [True, False, False, True]


async def test_broken_streams_are_retried_and_then_replaced_by_pages() -> None:
    async with streaming_reflector() as (server, harness):
        for _ in range(MAX_STREAM_FAILURES):
            watch = server.respond_with_watch()
            await watch.send("ADDED", ray_cluster("b", 5))
            await watch.abort()
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        await synced(harness)
        assert [is_streamed(query) for query in server.queries[:4]] == [True] * MAX_STREAM_FAILURES + [False]
        assert [event.key.name for event in harness.events] == ["a"]


async def test_lagging_server_is_asked_for_a_quorum_stream() -> None:
    too_large = status(
        504,
        "Timeout",
        "Too large resource version: 9, current: 5",
        details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
    )
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        await stream(watch, 9, ray_cluster("a", 5))
        await synced(harness)
        lagging, quorum = server.respond_with_watch(), server.respond_with_watch()
        await watch.send("ERROR", EXPIRED)
        await lagging.send("ERROR", too_large)
        await stream(quorum, 12, ray_cluster("a", 11))
        await harness.wait_for_version("a", 11)
        assert [query["resourceVersion"] for query in server.queries] == ["", "9", ""]


async def test_restored_database_rebuilds_the_store_from_a_quorum_stream() -> None:
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        await stream(watch, 9, ray_cluster("a", 8), ray_cluster("b", 9))
        await synced(harness)
        older, quorum = server.respond_with_watch(), server.respond_with_watch()
        await watch.send("ERROR", EXPIRED)
        await end_initial_events(older, 4)
        await stream(quorum, 4, ray_cluster("a", 3))
        await harness.wait_for_version("a", 3)
        assert harness.version("b") is None
        assert server.queries[2]["resourceVersion"] == ""


async def test_metadata_only_streams_partial_objects() -> None:
    async with streaming_reflector(metadata_only=True) as (server, harness):
        watch = server.respond_with_watch()
        nested = ray_cluster("a", 5, spec=None)
        await stream(watch, 9, nested)
        await synced(harness)
        assert server.requests[0].headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")
        assert harness.version("a") == "5"


async def test_object_that_is_nested_too_deeply_is_skipped() -> None:
    async with streaming_reflector() as (server, harness):
        watch = server.respond_with_watch()
        deep = b'{"a":' * 1500 + b"1" + b"}" * 1500
        line = b'{"type":"ADDED","object":%s}\n' % orjson.dumps(ray_cluster("a", 5, spec="?")).replace(b'"?"', deep)
        await watch.send_raw(line)
        await stream(watch, 9, ray_cluster("b", 6))
        await synced(harness)
        assert [event.key.name for event in harness.events] == ["b"]
