"""Reflectors: list and watch, and recovery from each way in which they can fail."""

from __future__ import annotations

import asyncio
import json

import pytest
import structlog

from cfo.runtime.cache import feed as feed_module
from cfo.runtime.cache import reflector as reflector_module
from cfo.runtime.cache import wire
from cfo.runtime.cache.reflector import ReflectorState
from cfo.runtime.cache.selectors import MAX_BYTES, MAX_OBJECTS
from cfo.runtime.cache.store import MAX_LEFT_OUT, LeftOutNumber
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.ratelimit import Backoff
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.clocks import FakeClock, SleepForeverClock
from test.support.reflectors import EXPIRED, Harness, running_reflector, start_watch
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedServer,
    error_response,
    list_response,
    raw_response,
    ray_cluster,
    scripted_server,
    status,
    wait_until,
    watch_line,
)


async def test_list_is_paged_and_watch_starts_at_its_version() -> None:
    async with running_reflector(
        label_selector="app=x", field_selector="metadata.namespace=ns"
    ) as (server, harness):
        server.respond_with(
            list_response(9, ray_cluster("a", 5), ray_cluster("b", 6), token="more"),
            list_response(9, ray_cluster("c", 7)),
        )
        watch = await start_watch(server, harness)
        assert [event.key.name for event in harness.events] == ["a", "b", "c"]
        first, second, third = server.queries
        selectors = {"labelSelector": "app=x", "fieldSelector": "metadata.namespace=ns"}
        path = {"path": "/apis/ray.io/v1/rayclusters"}
        assert first == path | selectors | {"limit": "2"}
        assert second == path | selectors | {"limit": "2", "continue": "more"}
        seconds = int(third.pop("timeoutSeconds"))
        assert 300 <= seconds <= 600
        assert third == path | selectors | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "9",
        }
        assert "gzip" in server.requests[0].headers["Accept-Encoding"]
        await watch.send("ADDED", ray_cluster("d", 10))
        await harness.wait_for_version("d", 10)
        await watch.send("MODIFIED", ray_cluster("d", 11))
        await harness.wait_for_version("d", 11)
        await watch.send("DELETED", ray_cluster("d", 12))
        await harness.wait_for_version("d", None)
        assert harness.reflector.state is ReflectorState.WATCHING


async def test_namespace_is_part_of_the_request_path() -> None:
    async with running_reflector(namespace="ns") as (server, harness):
        server.respond_with(list_response(9))
        await start_watch(server, harness)
        assert server.queries[0]["path"] == "/apis/ray.io/v1/namespaces/ns/rayclusters"


async def test_metadata_only_is_requested_by_media_type() -> None:
    async with running_reflector(metadata_only=True) as (server, harness):
        server.respond_with(list_response(9))
        await start_watch(server, harness)
        assert (
            server.requests[0]
            .headers["Accept"]
            .startswith("application/json;as=PartialObjectMetadataList;")
        )
        assert (
            server.requests[1]
            .headers["Accept"]
            .startswith("application/json;as=PartialObjectMetadata;")
        )


async def test_objects_that_are_too_large_are_left_out_and_reported_once() -> None:
    large = {"content": "x" * 1000}
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        server.respond_with(
            list_response(9, ray_cluster("a", 5), {**ray_cluster("large", 6), **large})
        )
        watch = await start_watch(server, harness)
        assert (harness.version("a"), harness.version("large")) == ("5", None)
        assert not harness.store.is_complete("ns")
        assert harness.store.is_complete("other")
        await watch.send("MODIFIED", {**ray_cluster("a", 10), **large})
        await harness.wait_for_version("a", None)
        assert harness.events[-1].type == "DELETED"
        await watch.send("MODIFIED", {**ray_cluster("large", 11), **large})
        await watch.send("MODIFIED", ray_cluster("a", 12))
        await harness.wait_for_version("a", 12)
        assert harness.version("large") is None
        await watch.send("MODIFIED", {**ray_cluster("a", 13), **large})
        await watch.send("DELETED", {**ray_cluster("large", 14), **large})
        await watch.send("MODIFIED", ray_cluster("a", 15))
        await harness.wait_until(lambda: harness.store.is_complete("ns"))
        assert [event.key.name for event in harness.events[-3:]] == ["a", "large", "a"]
    assert [(found.key.name, found.uid) for found in harness.left_out] == [
        ("large", "uid-large"),
        ("a", "uid-a"),
    ]
    assert "bytes, and at most 1000 are allowed" in harness.left_out[0].message


async def test_objects_of_a_namespace_that_has_too_many_are_left_out_until_there_is_room() -> None:
    many = [ray_cluster(f"n{number:05}", 5) for number in range(MAX_OBJECTS + 2)]
    other = ray_cluster("a", 6, metadata={"namespace": "other"})
    async with running_reflector(max_bytes=1000, page_size=20_000) as (server, harness):
        server.respond_with(list_response(9, *many, other))
        watch = await start_watch(server, harness)
        assert (len(harness.store), harness.version("n00000"), harness.version("n10001")) == (
            MAX_OBJECTS + 1,
            "5",
            None,
        )
        assert (harness.store.is_complete("ns"), harness.store.is_complete("other")) == (
            False,
            True,
        )
        await watch.send("ADDED", ray_cluster("late", 10))
        await watch.send("MODIFIED", ray_cluster("n00000", 11))
        await watch.send("ADDED", ray_cluster("b", 12, metadata={"namespace": "other"}))
        await harness.wait_until(lambda: NamespacedName("other", "b") in harness.store)
        assert (harness.version("late"), harness.version("n00000")) == (None, "11")
        for number in range(3):
            await watch.send("DELETED", ray_cluster(f"n{number:05}", 13 + number))
        await harness.wait_for_version("n00002", None)
        assert not harness.store.is_complete("ns"), "which ones were left out is not known"
        server.respond_with(list_response(20, *many[3:], ray_cluster("late", 10), other))
        await watch.close()
        await harness.wait_for_version("late", 10)
        assert (harness.version("n10001"), len(harness.store)) == ("5", MAX_OBJECTS + 1)
        assert harness.store.is_complete("ns")
    assert [found.reason for found in harness.left_out] == ["TooManyObjects"]


async def test_very_many_objects_that_are_too_large_cause_no_list() -> None:
    """Their names are not remembered any more, so that the namespace stays incomplete until the next list."""
    large = [ray_cluster(f"n{number}", 5, content="x" * 1000) for number in range(MAX_LEFT_OUT + 1)]
    async with running_reflector(max_bytes=1000, page_size=2000) as (server, harness):
        server.respond_with(list_response(9, *large))
        watch = await start_watch(server, harness)
        assert len(harness.left_out) == MAX_LEFT_OUT + 1
        for number, obj in enumerate(large):
            await watch.send(
                "DELETED",
                {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(10 + number)}},
            )
        await watch.send("ADDED", ray_cluster("a", 5000))
        await harness.wait_for_version("a", 5000)
        assert not harness.store.is_complete("ns")
        second = server.respond_with_watch()
        await watch.close()
        await asyncio.wait_for(second.opened.wait(), TIMEOUT_SECONDS)
        assert server.queries[-1]["watch"] == "true"


async def test_objects_of_a_kind_without_a_limit_of_size_are_never_left_out() -> None:
    async with running_reflector(page_size=20_000) as (server, harness):
        server.respond_with(
            list_response(9, *(ray_cluster(f"n{number}", 5) for number in range(MAX_OBJECTS + 2)))
        )
        await start_watch(server, harness)
        assert len(harness.store) == MAX_OBJECTS + 2


async def test_page_that_is_too_large_is_not_read_and_smaller_pages_are_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 2000)
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        large = {**ray_cluster("large", 6), "content": "x" * 3000}
        for _ in range(2):
            server.respond_with(list_response(9, ray_cluster("a", 5), large))
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        await start_watch(server, harness)
        assert [query["limit"] for query in server.queries[:3]] == ["500", "50", "10"]
        assert harness.version("a") == "5"


async def test_only_the_pages_around_a_large_object_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 2000)
    monkeypatch.setattr(reflector_module, "_MAX_PAGE_BYTES", 4000)
    large = {**ray_cluster("large", 6), "content": "x" * 3000}
    usual = [[ray_cluster(f"n{number}", 5)] for number in range(31)]
    # The second page is too large with 500, 50 and 10 objects.
    pages = [usual[0], *[[large, large]] * 3, [large], *usual[1:]]
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        server.probe_response = None  # pages can have one object as well
        for number, page in enumerate(pages):
            token = f"page {number}" if number < len(pages) - 1 else ""
            server.respond_with(list_response(9, *page, token=token))
        await start_watch(server, harness)
        limits = [int(query["limit"]) for query in server.queries[: len(pages)]]
        tokens = [query.get("continue", "") for query in server.queries[:5]]
        assert len(harness.store) == 31
    assert tokens == ["", "page 0", "page 0", "page 0", "page 0"]
    assert limits == [500, 500, 50, 10, *[1] * 10, *[10] * 10, *[50] * 10, 500]


LARGE = {"content": "x" * 3000}


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two objects of :data:`LARGE` be too many for a page, and for the first list of a namespace."""
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 2000)
    monkeypatch.setattr(reflector_module, "_MAX_PAGE_BYTES", 4000)
    monkeypatch.setattr(feed_module, "NAMESPACE_UNSTORED", 5000)


def respond_with_large_objects(server: ScriptedServer, number: int) -> None:
    """Respond with pages of one large object, after three pages that are too large; a further page follows."""
    server.probe_response = None  # pages can have one object as well
    large = [ray_cluster(f"large{at}", 5, **LARGE) for at in range(number)]
    server.respond_with(*[list_response(9, *large)] * 3)
    server.respond_with(
        *(list_response(9, obj, token=f"after {at}") for at, obj in enumerate(large))
    )


@pytest.mark.usefixtures("small_limits")
async def test_first_list_skips_namespaces_with_many_large_objects_and_the_next_one_has_all() -> (
    None
):
    other = ray_cluster("a", 6, metadata={"namespace": "other"})
    rest = [ray_cluster("large2", 5, **LARGE), ray_cluster("small", 7)]
    async with running_reflector(max_bytes=1000, page_size=500, field_selector="spec.x=y") as (
        server,
        harness,
    ):
        respond_with_large_objects(server, 2)
        server.respond_with(list_response(9, other))
        await harness.wait_until(lambda: harness.feed.synced)
        store = harness.store
        assert NamespacedName("other", "a") in store
        assert (store.is_complete("other"), store.is_complete("ns"), store.is_complete("")) == (
            True,
            False,
            False,
        )
        assert (store.has_all_left_out_keys("ns"), store.has_all_left_out_keys("")) == (
            False,
            False,
        )
        assert store.may_exist(NamespacedName("ns", "small")), "it has not been read"
        assert not store.may_exist(NamespacedName("other", "small"))
        assert store.left_out_numbers() == {"ns": LeftOutNumber(3, is_exact=False)}
        server.respond_with(
            *[list_response(12, *rest)] * 3,
            list_response(12, rest[0], token="more"),
            list_response(12, rest[1], other),
        )
        watch = server.respond_with_watch()
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        assert harness.version("small") == "7"
        assert store.left_out_keys("") == [NamespacedName("ns", "large2")]
        assert store.has_all_left_out_keys("")
        assert not store.may_exist(NamespacedName("ns", "large0")), "it was deleted"
    selectors = [query["fieldSelector"] for query in server.queries]
    assert selectors == [*["spec.x=y"] * 5, "metadata.namespace!=ns,spec.x=y", *["spec.x=y"] * 6]
    assert server.queries[5]["continue"] == "after 1"


@pytest.mark.usefixtures("small_limits")
async def test_first_list_counts_what_is_read_of_an_object_and_not_stored() -> None:
    managers = [{"manager": "other", "fieldsV1": {"f:x" * 1000: {}}}]
    large = [ray_cluster(f"large{at}", 5, metadata={"managedFields": managers}) for at in range(2)]
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        server.probe_response = None
        server.respond_with(
            *[list_response(9, *large)] * 3,
            *(list_response(9, obj, token="more") for obj in large),
            list_response(9),
        )
        await harness.wait_until(lambda: harness.feed.synced)
        assert (harness.version("large0"), harness.version("large1")) == ("5", "5")
        assert not harness.store.has_all_left_out_keys("ns")


async def test_first_list_counts_objects_of_which_a_page_has_fifty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 2000)
    monkeypatch.setattr(feed_module, "NAMESPACE_UNSTORED", 2000)
    large = [ray_cluster(f"large{at}", 5, content="x" * 1500) for at in range(2)]
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        server.respond_with(
            list_response(9, *large),
            *(list_response(9, obj, token="more") for obj in large),
            list_response(9),
        )
        await harness.wait_until(lambda: harness.feed.synced)
        assert not harness.store.has_all_left_out_keys("ns")
    assert [query["limit"] for query in server.queries[:4]] == ["500", "50", "50", "50"]


@pytest.mark.usefixtures("small_limits")
async def test_first_list_of_one_namespace_ends_after_many_large_objects() -> None:
    async with running_reflector("ns", max_bytes=1000, page_size=500) as (server, harness):
        respond_with_large_objects(server, 2)
        await harness.wait_until(lambda: harness.feed.synced)
        assert not harness.store.has_all_left_out_keys("ns")
        server.respond_with(list_response(12, ray_cluster("small", 7)))
        watch = server.respond_with_watch()
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        assert harness.version("small") == "7"
        assert harness.store.is_complete("ns")


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("max_bytes", "has_index"), [(1000, True), (MAX_BYTES, False)], ids=["index", "no limit"]
)
async def test_first_list_has_all_objects_of_kinds_that_need_them(
    max_bytes: int, has_index: bool
) -> None:
    async with running_reflector(max_bytes=max_bytes, page_size=500) as (server, harness):
        harness.store.budget.max_bytes = 1000
        harness.store.add_index("name", lambda entry: [entry.name], left_out=has_index)
        respond_with_large_objects(server, 4)
        server.respond_with(list_response(9, ray_cluster("small", 7)))
        await start_watch(server, harness)
        assert len(harness.store.left_out_keys("ns")) == 4
        assert harness.version("small") == "7"
    assert not any("fieldSelector" in query for query in server.queries)


async def test_only_one_list_at_a_time_has_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 2000)
    async with running_reflector(max_bytes=1000, page_size=500) as (server, harness):
        await harness.store.budget.large_lists.acquire()
        large = {**ray_cluster("large", 6), "content": "x" * 3000}
        for _ in range(2):
            server.respond_with(list_response(9, ray_cluster("a", 5), large))
        await wait_until(lambda: len(server.queries) == 2)
        await asyncio.sleep(0.05)
        assert len(server.queries) == 2, "the smallest page is not requested"
        server.respond_with(list_response(9, ray_cluster("a", 5), large))
        harness.store.budget.large_lists.release()
        await start_watch(server, harness)
        assert server.queries[2]["limit"] == "10"
        assert not harness.store.budget.large_lists.locked()


async def test_objects_that_the_budget_left_out_are_found_when_there_is_room() -> None:
    async with running_reflector(page_size=500) as (server, harness):
        harness.store.budget.max_bytes = 5000
        many = [ray_cluster(name, 5, content="x" * 2000) for name in "abc"]
        server.respond_with(list_response(9, *many))
        watch = await start_watch(server, harness)
        assert [found.reason for found in harness.left_out] == ["NamespaceTooLarge"]
        assert (harness.version("b"), harness.version("c")) == ("5", None)
        await watch.send("DELETED", ray_cluster("a", 10))
        await harness.wait_for_version("a", None)
        server.respond_with(list_response(11, *many[1:]))
        await watch.close()
        await harness.wait_for_version("c", 5)
        assert harness.store.is_complete("ns")


async def test_list_that_fails_holds_no_budget() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(
            list_response(9, ray_cluster("a", 5), token="more"),
            error_response(500, "InternalError", "failed"),
            list_response(9, ray_cluster("a", 5)),
        )
        await start_watch(server, harness)
        assert harness.store.budget.held("ns") == harness.store.bytes_of("ns") > 0


async def test_next_watch_continues_from_the_last_version_seen() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = await start_watch(server, harness)
        await watch.send("MODIFIED", ray_cluster("a", 12))
        await harness.wait_for_version("a", 12)
        await watch.close()
        second = server.respond_with_watch()
        await second.bookmark(20)
        await second.close()
        third = server.respond_with_watch()
        await asyncio.wait_for(third.opened.wait(), TIMEOUT_SECONDS)
        assert [query.get("resourceVersion") for query in server.queries] == [None, "9", "12", "20"]
        assert harness.feed.high_water_mark == 20
        assert harness.clock.sleeps == []


async def test_watch_line_of_several_megabytes_in_many_chunks_is_decoded() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        body = watch_line(
            "ADDED", ray_cluster("a", 10, spec={"text": "x" * 2_500_000})
        ) + watch_line("ADDED", ray_cluster("b", 11))
        for start in range(0, len(body), 700_001):
            await watch.send_raw(body[start : start + 700_001])
        await harness.wait_for_version("b", 11)
        entry = harness.store.get(NamespacedName("ns", "a"))
        assert entry is not None
        assert len(entry.object()["spec"]["text"]) == 2_500_000


async def test_watch_line_over_the_size_limit_restarts_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 1000)
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        second_watch = server.respond_with_watch()
        await watch.send_raw(b"x" * 2000)
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        assert server.queries[-1]["resourceVersion"] == "9"


@pytest.mark.parametrize("ending", ["abort", "close"])
async def test_watch_that_ends_within_a_line_resumes_before_that_line(ending: str) -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        await watch.send("ADDED", ray_cluster("a", 10))
        await watch.send_raw(watch_line("MODIFIED", ray_cluster("a", 11))[:60])
        await harness.wait_for_version("a", 10)
        await getattr(watch, ending)()
        second_watch = server.respond_with_watch()
        await second_watch.send("MODIFIED", ray_cluster("a", 11))
        await harness.wait_for_version("a", 11)
        assert server.queries[-1]["resourceVersion"] == "10"


async def test_blank_lines_and_unknown_event_types_are_ignored() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        await watch.send_raw(
            b"\n \n" + watch_line("NEWS", {"x": 1}) + watch_line("ADDED", ray_cluster("a", 10))
        )
        await harness.wait_for_version("a", 10)


async def test_undecodable_object_is_logged_once_and_skipped() -> None:
    broken = ray_cluster("x", 7, metadata={"labels": {"a": 1}})
    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(list_response(9, broken, ray_cluster("a", 5)))
            watch = await start_watch(server, harness)
            await watch.send("ADDED", broken)
            await watch.send("ADDED", ray_cluster("b", 10))
            await harness.wait_for_version("b", 10)
            assert harness.version("a") == "5"
    (error,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert error["resource"] == "rayclusters.ray.io"
    assert "labels" in error["error"]


INVALID_OBJECTS = [b"null", b"[]", b'"x"', b"{}", b'{"\xff": 1, "metadata": {"name": "x"}}']


@pytest.mark.parametrize("invalid", INVALID_OBJECTS)
async def test_invalid_object_does_not_affect_the_others(invalid: bytes) -> None:
    items = b",".join(
        [
            json.dumps(ray_cluster("a", 5)).encode(),
            invalid,
            json.dumps(ray_cluster("b", 6)).encode(),
        ]
    )
    page = b'{"metadata": {"resourceVersion": "9"}, "items": [' + items + b"]}"
    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(raw_response(page))
            watch = await start_watch(server, harness)
            assert (harness.version("a"), harness.version("b")) == ("5", "6")
            await watch.send_raw(b'{"type": "MODIFIED", "object": ' + invalid + b"}\n")
            await watch.send_raw(b'{"type": "NEWS", "object": ' + invalid + b"}\n")
            await watch.send("ADDED", ray_cluster("c", 10))
            await harness.wait_for_version("c", 10)
            assert harness.clock.sleeps == []
    assert {entry["event"] for entry in logs if entry["log_level"] == "error"} == {
        "Failed to decode object, skipping it"
    }


async def test_expired_watch_relists_not_older_than_the_last_version_seen() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = await start_watch(server, harness)
        await watch.send("MODIFIED", ray_cluster("a", 12))
        await harness.wait_for_version("a", 12)
        server.respond_with(list_response(30, ray_cluster("a", 25)))
        await watch.send("ERROR", EXPIRED)
        second_watch = server.respond_with_watch()
        await harness.wait_for_version("a", 25)
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        relist = server.queries[2]
        assert (relist["resourceVersion"], relist["resourceVersionMatch"]) == ("12", "NotOlderThan")
        assert server.queries[3]["resourceVersion"] == "30"
        assert harness.clock.sleeps == []


async def test_watch_response_410_relists_and_backs_off_when_repeated() -> None:
    async with running_reflector() as (server, harness):
        expired = error_response(410, "Expired", "too old")
        server.respond_with(
            list_response(9),
            expired,
            list_response(10),
            expired,
            list_response(11, ray_cluster("a", 11)),
        )
        await harness.wait_for_version("a", 11)
        assert harness.clock.sleeps == [1.6]


async def test_restarted_server_is_listed_without_the_long_back_off_of_its_absence() -> None:
    """While it starts, it denies everything until it has read the roles; then the old version is too old."""
    async with running_reflector() as (server, harness):
        unavailable = error_response(503, "ServiceUnavailable", "the server is shutting down")
        forbidden = error_response(403, "Forbidden", "rayclusters is forbidden")
        server.respond_with(
            list_response(9),
            unavailable,
            unavailable,
            unavailable,
            forbidden,
            error_response(410, "Expired", "too old"),
            list_response(30, ray_cluster("a", 25)),
        )
        await harness.wait_for_version("a", 25)
        assert harness.clock.sleeps == [0.8, 1.6, 3.2, 0.8]


async def test_other_error_event_relists_after_backoff() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        server.respond_with(list_response(20, ray_cluster("a", 15)))
        await watch.send(
            "ERROR", status(500, "InternalError", "etcd event received with PrevKv=nil")
        )
        await harness.wait_for_version("a", 15)
        assert harness.clock.sleeps == [0.8]


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"type": "ADD\n', b"<html>\n", b'{"type":"ADDED"}\n', b'{"type":3,"object":{}}\n'),
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":10}}}\n',
        b'{"type":"ERROR","object":{"message":"\xff"}}\n',
    ],
)
async def test_invalid_watch_line_relists_after_backoff(line: bytes) -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        watch = await start_watch(server, harness)
        server.respond_with(list_response(20, ray_cluster("a", 15)))
        await watch.send_raw(line)
        await harness.wait_for_version("a", 15)
        assert harness.clock.sleeps == [0.8]


async def test_rejected_watch_is_retried_with_backoff_and_without_a_list() -> None:
    async with running_reflector() as (server, harness):
        forbidden = error_response(403, "Forbidden", "rayclusters is forbidden")
        server.respond_with(
            list_response(9), forbidden, error_response(500, "InternalError"), forbidden
        )
        second_watch = server.respond_with_watch()
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        assert harness.clock.sleeps == [0.8, 1.6, 3.2]
        assert [query.get("watch") for query in server.queries] == [
            None,
            "true",
            "true",
            "true",
            "true",
        ]
        await harness.wait_until(lambda: harness.reflector.error == "")


async def test_retry_after_is_the_minimum_delay() -> None:
    async with running_reflector() as (server, harness):
        overloaded = error_response(500, "ServerTimeout", details={"retryAfterSeconds": 17})
        server.respond_with(list_response(9), overloaded)
        second_watch = server.respond_with_watch()
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        assert harness.clock.sleeps == [17.0]


async def test_failed_list_is_retried_and_logs_verb_resource_and_cause() -> None:
    with structlog.testing.capture_logs() as logs:
        async with running_reflector(namespace="ns") as (server, harness):
            message = 'rayclusters.ray.io is forbidden: User "cfo" cannot list resource'
            server.respond_with(error_response(403, "Forbidden", message))
            await harness.wait_until(lambda: message in harness.reflector.error)
            assert harness.reflector.error.startswith("list rayclusters.ray.io")
            server.respond_with(list_response(9))
            await start_watch(server, harness)
            assert harness.reflector.error == ""
    warning = next(entry for entry in logs if entry["log_level"] == "warning")
    assert (warning["verb"], warning["resource"]) == ("list", "rayclusters.ray.io in ns")
    assert message in warning["error"]
    assert (
        warning["missing_rule"]
        == '{apiGroups: ["ray.io"], resources: ["rayclusters"], verbs: ["list", "watch"]}'
    )
    assert warning["retry_in_seconds"] == 0.8


async def test_repeated_missing_permission_is_logged_once() -> None:
    """Another failure in between does not show that the permission was granted."""
    forbidden = error_response(403, "Forbidden", "access denied")
    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(
                forbidden,
                forbidden,
                error_response(500, "InternalError"),
                forbidden,
                forbidden,
                list_response(9),
            )
            await start_watch(server, harness)
            assert not harness.reflector.forbidden
            assert harness.clock.sleeps == [0.8, 1.6, 3.2, 6.4, 12.8]
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert ["missing_rule" in entry for entry in warnings] == [True, False]


async def test_nothing_is_requested_in_a_namespace_that_does_not_exist() -> None:
    unavailable = UnavailableNamespaces()
    async with running_reflector("ns", unavailable=unavailable) as (server, harness):
        unavailable.set_exists("ns", exists=False)
        server.respond_with(error_response(403, "Forbidden", "access denied"))
        await harness.wait_until(lambda: harness.reflector.forbidden)
        server.respond_with(list_response(9))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await server.wait_for_requests(2)
        assert not harness.feed.synced

        unavailable.set_exists("ns", exists=True)
        await start_watch(server, harness)
        assert not harness.reflector.forbidden


async def test_response_that_is_not_a_list_is_retried() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(
            raw_response(b"<html>a proxy</html>"), list_response(9, ray_cluster("a", 5))
        )
        await harness.wait_for_version("a", 5)
        assert harness.clock.sleeps == [0.8]


async def test_watch_that_ends_immediately_is_retried_with_backoff() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9))
        for _ in range(3):
            await server.respond_with_watch().close()
        last = server.respond_with_watch()
        await asyncio.wait_for(last.opened.wait(), TIMEOUT_SECONDS)
        assert harness.clock.sleeps == [0.8, 1.6, 3.2]


async def test_expired_continue_token_restarts_the_list_and_then_disables_paging() -> None:
    async with running_reflector() as (server, harness):
        expired = error_response(410, "Expired", "The provided continue parameter is too old")
        for version in (9, 10):
            server.respond_with(
                list_response(
                    version, ray_cluster("old", 1), ray_cluster("b", 2), token=f"t{version}"
                ),
                expired,
            )
        server.respond_with(
            list_response(11, ray_cluster("a", 5), ray_cluster("b", 6), ray_cluster("c", 7))
        )
        await harness.wait_for_version("c", 7)
        assert harness.version("old") is None
        assert [(query.get("limit"), query.get("continue")) for query in server.queries[:5]] == [
            ("2", None),
            ("2", "t9"),
            ("2", None),
            ("2", "t10"),
            (None, None),
        ]


async def test_not_found_ends_the_run_of_the_reflector() -> None:
    async with scripted_server() as (server, transport):
        harness = Harness(server, transport)
        server.respond_with(error_response(404, "NotFound", "404 page not found"))
        await asyncio.wait_for(harness.reflector.run(), TIMEOUT_SECONDS)
        assert harness.clock.sleeps == [0.8]
        server.respond_with(list_response(9), error_response(404, "NotFound", "404 page not found"))
        await asyncio.wait_for(harness.reflector.run(), TIMEOUT_SECONDS)
        assert harness.reflector.state is ReflectorState.WATCHING


# Several API servers, and an etcd restored from a backup.


async def test_quorum_list_is_requested_from_a_lagging_server() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = await start_watch(server, harness)
        server.respond_with(
            error_response(
                504,
                "Timeout",
                "Timeout: Too large resource version: 9, current: 8",
                details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
            ),
            list_response(12, ray_cluster("a", 11)),
        )
        await watch.send("ERROR", EXPIRED)
        await harness.wait_for_version("a", 11)
        assert "resourceVersion" in server.queries[2]
        assert "resourceVersion" not in server.queries[3]
        assert not any(event.final_state_unknown for event in harness.events)


async def test_list_older_than_requested_is_discarded() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = await start_watch(server, harness)
        server.respond_with(list_response(4), list_response(12, ray_cluster("a", 11)))
        await watch.send("ERROR", EXPIRED)
        await harness.wait_for_version("a", 11)
        assert "resourceVersion" not in server.queries[3]
        assert harness.version("a") == "11"
        assert len(harness.events) == 2


async def test_etcd_restore_is_detected_by_lower_versions_and_replaces_all_state() -> None:
    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(list_response(900, ray_cluster("a", 800), ray_cluster("b", 850)))
            watch = await start_watch(server, harness)
            server.respond_with(
                error_response(
                    504, "Timeout", "Timeout: Too large resource version: 900, current: 500"
                )
            )
            server.respond_with(list_response(500, ray_cluster("a", 400)))
            await watch.send("ERROR", EXPIRED)
            second_watch = server.respond_with_watch()
            await harness.wait_for_version("a", 400)
            assert harness.version("b") is None
            await second_watch.send("MODIFIED", ray_cluster("a", 501))
            await harness.wait_for_version("a", 501)
            assert server.queries[-1]["resourceVersion"] == "500"
    assert any("went back" in entry["event"] for entry in logs)


@pytest.mark.parametrize("name", ["a", "b"])
async def test_restore_that_another_reflector_noticed_ends_the_watch(name: str) -> None:
    """The position of the server has passed the last known version, so this reflector alone cannot notice it."""
    async with running_reflector() as (server, harness):
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        await start_watch(server, harness)
        server.respond_with(list_response(950, ray_cluster(name, 400)))
        harness.reflector.rebuild()
        await harness.wait_for_version(name, 400)
        assert "resourceVersion" not in server.queries[2]
        assert len(harness.store) == 1
    assert harness.restores == 0


async def test_restore_that_another_reflector_noticed_ends_a_back_off() -> None:
    async with running_reflector(clock=SleepForeverClock()) as (server, harness):
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        watch = await start_watch(server, harness)
        await watch.abort()
        await harness.wait_until(lambda: bool(harness.reflector.error))
        server.respond_with(list_response(950, ray_cluster("a", 400)))
        harness.reflector.rebuild()
        await harness.wait_for_version("a", 400)


async def test_restore_is_reported_once_even_if_the_list_fails() -> None:
    async with running_reflector() as (server, harness):
        server.probe_response = list_response(500, token="rest")
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        watch = await start_watch(server, harness)
        server.respond_with(
            list_response(500, token="more"),
            error_response(500, "InternalError"),
            list_response(500, ray_cluster("a", 400)),
        )
        await watch.abort()
        await harness.wait_for_version("a", 400)
    assert harness.restores == 1


async def test_etcd_restore_is_detected_during_a_silent_watch() -> None:
    async with running_reflector(idle_seconds=1.0) as (server, harness):
        server.probe_response = None
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        await start_watch(server, harness)
        server.respond_with(
            list_response(500, token="rest"), list_response(500, ray_cluster("a", 400))
        )
        await harness.wait_for_version("a", 400)
        assert server.queries[2]["limit"] == "1"
        assert "watch" not in server.queries[3]
        assert "resourceVersion" not in server.queries[3]


async def test_silent_watch_of_a_healthy_server_is_reopened_without_a_list() -> None:
    async with running_reflector(idle_seconds=1.0) as (server, harness):
        server.probe_response = None
        server.respond_with(list_response(9, ray_cluster("a", 5)))
        watch = await start_watch(server, harness)
        server.respond_with(list_response(15, token="rest"))
        second_watch = server.respond_with_watch()
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        await second_watch.send("MODIFIED", ray_cluster("a", 12))
        await harness.wait_for_version("a", 12)
        assert server.queries[3]["resourceVersion"] == "9"
        assert server.queries[2]["limit"] == "1"
        await watch.close()


@pytest.mark.parametrize("end", ["abort", "close"])
async def test_etcd_restore_is_detected_when_the_watch_reconnects(end: str) -> None:
    async with running_reflector() as (server, harness):
        server.probe_response = list_response(500, token="rest")
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        watch = await start_watch(server, harness)
        server.respond_with(list_response(500, ray_cluster("a", 400)))
        await getattr(watch, end)()
        await harness.wait_for_version("a", 400)
        assert server.probes == 1
        assert "watch" not in server.queries[2]
        assert "resourceVersion" not in server.queries[2]


async def test_version_probe_is_retried_until_the_server_responds() -> None:
    async with running_reflector() as (server, harness):
        server.probe_response = None
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        watch = await start_watch(server, harness)
        server.respond_with(
            error_response(503, "ServiceUnavailable"),
            list_response(500, token="rest"),
            list_response(500, ray_cluster("a", 400)),
        )
        await watch.abort()
        await harness.wait_for_version("a", 400)
        assert ["watch" in query for query in server.queries] == [False, True, False, False, False]


async def test_non_numeric_versions_are_not_compared() -> None:
    async with running_reflector() as (server, harness):
        server.respond_with(list_response("x1", ray_cluster("a", "w")))
        watch = await start_watch(server, harness)
        server.respond_with(list_response("x2", ray_cluster("a", "v")))
        await watch.send("ERROR", EXPIRED)
        second_watch = server.respond_with_watch()
        await harness.wait_for_version("a", "v")
        await asyncio.wait_for(second_watch.opened.wait(), TIMEOUT_SECONDS)
        assert "resourceVersion" not in server.queries[2]
        assert server.queries[3]["resourceVersion"] == "x2"


# Backoff.


def test_backoff_grows_to_its_maximum_and_resets_after_recovery() -> None:
    clock = FakeClock()
    backoff = Backoff(clock, random=lambda: 0.0)
    delays = []
    for _ in range(8):
        backoff.record_failure()
        delays.append(backoff.delay())
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    clock.advance(120)
    backoff.record_failure()
    assert backoff.delay() == 30.0
    clock.advance(121)
    assert backoff.has_recovered
    backoff.record_failure()
    assert backoff.delay() == 0.8
    assert backoff.delay(at_least=5.0) == 5.0
    assert Backoff(clock, random=lambda: 0.5).has_recovered


def test_backoff_adds_jitter() -> None:
    backoff = Backoff(FakeClock(), random=lambda: 0.5)
    backoff.record_failure()
    assert backoff.delay() == pytest.approx(1.2)
