"""What a reflector does when lists and watches go well, and in every way that they do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog

from cfo.runtime.cache import reflector as module
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.reflector import Reflector, ReflectorOptions, State
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, Store
from cfo.runtime.clock import FakeClock
from cfo.runtime.discovery import Resource
from cfo.runtime.objects import GVK, NamespacedName
from cfo.runtime.ratelimit import Backoff
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    PATIENCE,
    ScriptedServer,
    Watch,
    a_list,
    a_status,
    line,
    make,
    scripted,
    status,
    text,
)

RAY = GVK("ray.io", "v1", "RayCluster")
RESOURCE = Resource(gvk=RAY, plural="rayclusters", namespaced=True)
EXPIRED = status(410, "Expired", "too old resource version: 1 (9)")


class Bench:
    """A reflector on a scripted server, with the store it writes."""

    def __init__(
        self, server: ScriptedServer, transport: Any, namespace: str = "", *, idle_seconds: float = 75.0, **options: Any
    ) -> None:
        self.server = server
        self.clock = SkippingClock()
        self.events: list[Event] = []
        self._changed = asyncio.Event()
        self.store = Store(deliver=self._emit, clock=self.clock)
        self.store.open([namespace])
        self.feed = self.store.feeds[namespace]
        self.reflector = Reflector(
            transport,
            RESOURCE,
            self.feed,
            EntryDecoder(RAY),
            Selection.of(**options),
            clock=self.clock,
            options=ReflectorOptions(page_size=2, idle_seconds=idle_seconds, random=lambda: 0.0),
            on_change=self._changed.set,
        )

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async def met() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(met(), PATIENCE)

    async def until_version(self, name: str, version: object | None) -> None:
        await self.until(lambda: self.version(name) == (None if version is None else str(version)))

    def version(self, name: str) -> str | None:
        entry = self.store.get(NamespacedName("ns", name))
        return entry.meta.resource_version if entry else None


@asynccontextmanager
async def bench(namespace: str = "", **options: Any) -> AsyncIterator[tuple[ScriptedServer, Bench]]:
    async with scripted() as (server, transport):
        running = Bench(server, transport, namespace, **options)
        task = asyncio.create_task(running.reflector.run())
        try:
            yield server, running
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def watching(server: ScriptedServer, running: Bench) -> Watch:
    """Lists a@5 as of version 9 and watches."""
    watch = server.will_watch()
    await running.until(lambda: running.feed.synced)
    await asyncio.wait_for(watch.opened.wait(), PATIENCE)
    return watch


async def test_lists_page_by_page_and_watches_from_there() -> None:
    async with bench(label_selector="app=x", field_selector="metadata.namespace=ns") as (server, running):
        server.will(a_list(9, make("a", 5), make("b", 6), token="more"), a_list(9, make("c", 7)))
        watch = await watching(server, running)
        assert [event.key.name for event in running.events] == ["a", "b", "c"]
        first, second, third = server.asked
        selectors = {"labelSelector": "app=x", "fieldSelector": "metadata.namespace=ns"}
        path = {"path": "/apis/ray.io/v1/rayclusters"}
        assert first == path | selectors | {"limit": "2"}
        assert second == path | selectors | {"limit": "2", "continue": "more"}
        seconds = int(third.pop("timeoutSeconds"))
        assert 300 <= seconds <= 600
        assert third == path | selectors | {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "9"}
        assert "gzip" in server.requests[0].headers["Accept-Encoding"]
        await watch.send("ADDED", make("d", 10))
        await running.until_version("d", 10)
        await watch.send("MODIFIED", make("d", 11))
        await running.until_version("d", 11)
        await watch.send("DELETED", make("d", 12))
        await running.until_version("d", None)
        assert running.reflector.state is State.WATCHING


async def test_one_namespace_is_asked_for_by_its_path() -> None:
    async with bench(namespace="ns") as (server, running):
        server.will(a_list(9))
        await watching(server, running)
        assert server.asked[0]["path"] == "/apis/ray.io/v1/namespaces/ns/rayclusters"


async def test_metadata_alone_is_asked_for_by_its_media_type() -> None:
    async with bench(metadata_only=True) as (server, running):
        server.will(a_list(9))
        await watching(server, running)
        assert server.requests[0].headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;")
        assert server.requests[1].headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")


async def test_the_next_watch_goes_on_from_the_last_version_seen() -> None:
    async with bench() as (server, running):
        server.will(a_list(9, make("a", 5)))
        watch = await watching(server, running)
        await watch.send("MODIFIED", make("a", 12))
        await running.until_version("a", 12)
        await watch.close()
        second = server.will_watch()
        await second.bookmark(20)
        await second.close()
        third = server.will_watch()
        await asyncio.wait_for(third.opened.wait(), PATIENCE)
        assert [asked.get("resourceVersion") for asked in server.asked] == [None, "9", "12", "20"]
        assert running.feed.high_water_mark == 20
        assert running.clock.slept == []


async def test_a_line_of_several_megabytes_in_many_pieces() -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        body = line("ADDED", make("a", 10, spec={"text": "x" * 5_000_000})) + line("ADDED", make("b", 11))
        for start in range(0, len(body), 700_001):
            await watch.raw(body[start : start + 700_001])
        await running.until_version("b", 11)
        entry = running.store.get(NamespacedName("ns", "a"))
        assert entry is not None
        assert len(entry.object()["spec"]["text"]) == 5_000_000


async def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        again = server.will_watch()
        await watch.raw(b"x" * 2000)
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        assert server.asked[-1]["resourceVersion"] == "9"


@pytest.mark.parametrize("ending", ["cut", "close"])
async def test_a_stream_that_ends_in_the_middle_of_a_line_is_taken_up_before_it(ending: str) -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        await watch.send("ADDED", make("a", 10))
        await watch.raw(line("MODIFIED", make("a", 11))[:60])
        await running.until_version("a", 10)
        await getattr(watch, ending)()
        again = server.will_watch()
        await again.send("MODIFIED", make("a", 11))
        await running.until_version("a", 11)
        assert server.asked[-1]["resourceVersion"] == "10"


async def test_blank_lines_and_unknown_types_are_passed_over() -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        await watch.raw(b"\n \n" + line("NEWS", {"x": 1}) + line("ADDED", make("a", 10)))
        await running.until_version("a", 10)


async def test_an_object_that_cannot_be_read_stops_no_other() -> None:
    broken = make("x", 7, metadata={"labels": {"a": 1}})
    with structlog.testing.capture_logs() as logs:
        async with bench() as (server, running):
            server.will(a_list(9, broken, make("a", 5)))
            watch = await watching(server, running)
            await watch.send("ADDED", broken)
            await watch.send("ADDED", make("b", 10))
            await running.until_version("b", 10)
            assert running.version("a") == "5"
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == 2
    assert errors[0]["resource"] == "rayclusters.ray.io"
    assert "labels" in errors[0]["cause"]


async def test_an_expired_watch_is_listed_anew_not_older_than_what_was_seen() -> None:
    async with bench() as (server, running):
        server.will(a_list(9, make("a", 5)))
        watch = await watching(server, running)
        await watch.send("MODIFIED", make("a", 12))
        await running.until_version("a", 12)
        server.will(a_list(30, make("a", 25)))
        await watch.send("ERROR", EXPIRED)
        again = server.will_watch()
        await running.until_version("a", 25)
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        relist = server.asked[2]
        assert (relist["resourceVersion"], relist["resourceVersionMatch"]) == ("12", "NotOlderThan")
        assert server.asked[3]["resourceVersion"] == "30"
        assert running.clock.slept == []


async def test_gone_as_an_answer_is_the_same_and_backs_off_when_it_repeats() -> None:
    async with bench() as (server, running):
        gone = a_status(410, "Expired", "too old")
        server.will(a_list(9), gone, a_list(10), gone, a_list(11, make("a", 11)))
        await running.until_version("a", 11)
        assert running.clock.slept == [1.6]


async def test_another_error_event_lists_anew_after_a_backoff() -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        server.will(a_list(20, make("a", 15)))
        await watch.send("ERROR", status(500, "InternalError", "etcd event received with PrevKv=nil"))
        await running.until_version("a", 15)
        assert running.clock.slept == [0.8]


@pytest.mark.parametrize("garbage", [b'{"type": "ADD\n', b"<html>\n", b'{"type":"ADDED"}\n'])
async def test_a_line_that_is_no_event_lists_anew(garbage: bytes) -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        watch = await watching(server, running)
        server.will(a_list(20, make("a", 15)))
        await watch.raw(garbage)
        await running.until_version("a", 15)
        assert running.clock.slept == [0.8]


async def test_a_refused_watch_is_asked_for_again_with_backoff_and_without_a_list() -> None:
    async with bench() as (server, running):
        refused = a_status(403, "Forbidden", "rayclusters is forbidden")
        server.will(a_list(9), refused, a_status(500, "InternalError"), refused)
        again = server.will_watch()
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        assert running.clock.slept == [0.8, 1.6, 3.2]
        assert [asked.get("watch") for asked in server.asked] == [None, "true", "true", "true", "true"]
        await running.until(lambda: running.reflector.error == "")


async def test_retry_after_is_the_least_to_wait() -> None:
    async with bench() as (server, running):
        overloaded = a_status(500, "ServerTimeout", details={"retryAfterSeconds": 17})
        server.will(a_list(9), overloaded)
        again = server.will_watch()
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        assert running.clock.slept == [17.0]


async def test_a_list_that_fails_says_which_verb_on_which_resource_and_why_and_goes_on() -> None:
    with structlog.testing.capture_logs() as logs:
        async with bench(namespace="ns") as (server, running):
            refusal = 'rayclusters.ray.io is forbidden: User "cfo" cannot list resource'
            server.will(a_status(403, "Forbidden", refusal))
            await running.until(lambda: refusal in running.reflector.error)
            assert running.reflector.error.startswith("list rayclusters.ray.io")
            server.will(a_list(9))
            await watching(server, running)
            assert running.reflector.error == ""
    warning = next(entry for entry in logs if entry["log_level"] == "warning")
    assert (warning["verb"], warning["resource"]) == ("list", "rayclusters.ray.io in ns")
    assert refusal in warning["cause"]
    assert warning["missing_rule"] == '{apiGroups: ["ray.io"], resources: ["rayclusters"], verbs: ["list", "watch"]}'
    assert warning["retry_in_seconds"] == 0.8


async def test_a_missing_right_is_told_once_and_again_when_it_was_there() -> None:
    refused = a_status(403, "Forbidden", "you may not")
    with structlog.testing.capture_logs() as logs:
        async with bench() as (server, running):
            server.will(refused, refused, a_status(500, "InternalError"), refused, refused, a_list(9))
            await watching(server, running)
            assert not running.reflector.forbidden
            assert running.clock.slept == [0.8, 1.6, 3.2, 6.4, 12.8]
    told = [entry for entry in logs if entry["log_level"] == "warning"]
    assert ["missing_rule" in entry for entry in told] == [True, False, True]


async def test_an_answer_that_is_no_list_is_asked_for_again() -> None:
    async with bench() as (server, running):
        server.will(text(b"<html>a proxy</html>"), a_list(9, make("a", 5)))
        await running.until_version("a", 5)
        assert running.clock.slept == [0.8]


async def test_a_watch_that_ends_at_once_does_not_spin() -> None:
    async with bench() as (server, running):
        server.will(a_list(9))
        for _ in range(3):
            await server.will_watch().close()
        last = server.will_watch()
        await asyncio.wait_for(last.opened.wait(), PATIENCE)
        assert running.clock.slept == [0.8, 1.6, 3.2]


async def test_a_continue_token_that_expires_starts_the_list_anew_and_then_in_one_piece() -> None:
    async with bench() as (server, running):
        expired = a_status(410, "Expired", "The provided continue parameter is too old")
        for version in (9, 10):
            server.will(a_list(version, make("old", 1), make("b", 2), token=f"t{version}"), expired)
        server.will(a_list(11, make("a", 5), make("b", 6), make("c", 7)))
        await running.until_version("c", 7)
        assert running.version("old") is None
        assert [(asked.get("limit"), asked.get("continue")) for asked in server.asked[:5]] == [
            ("2", None),
            ("2", "t9"),
            ("2", None),
            ("2", "t10"),
            (None, None),
        ]


async def test_not_found_hands_back_to_whoever_runs_it() -> None:
    async with scripted() as (server, transport):
        running = Bench(server, transport)
        server.will(a_status(404, "NotFound", "404 page not found"))
        await asyncio.wait_for(running.reflector.run(), PATIENCE)
        assert running.clock.slept == [0.8]
        server.will(a_list(9), a_status(404, "NotFound", "404 page not found"))
        await asyncio.wait_for(running.reflector.run(), PATIENCE)
        assert running.reflector.state is State.WATCHING


# Several API servers, and a restored database.


async def test_a_server_that_lags_is_asked_for_a_quorum_list() -> None:
    async with bench() as (server, running):
        server.will(a_list(9, make("a", 5)))
        watch = await watching(server, running)
        server.will(
            a_status(
                504,
                "Timeout",
                "Timeout: Too large resource version: 9, current: 8",
                details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
            ),
            a_list(12, make("a", 11)),
        )
        await watch.send("ERROR", EXPIRED)
        await running.until_version("a", 11)
        assert "resourceVersion" in server.asked[2]
        assert "resourceVersion" not in server.asked[3]
        assert not any(event.final_state_unknown for event in running.events)


async def test_a_list_older_than_was_asked_for_is_not_believed() -> None:
    async with bench() as (server, running):
        server.will(a_list(9, make("a", 5)))
        watch = await watching(server, running)
        server.will(a_list(4), a_list(12, make("a", 11)))
        await watch.send("ERROR", EXPIRED)
        await running.until_version("a", 11)
        assert "resourceVersion" not in server.asked[3]
        assert running.version("a") == "11"
        assert len(running.events) == 2


async def test_a_restored_database_is_found_by_its_numbers_and_starts_anew() -> None:
    with structlog.testing.capture_logs() as logs:
        async with bench() as (server, running):
            server.will(a_list(900, make("a", 800), make("b", 850)))
            watch = await watching(server, running)
            server.will(a_status(504, "Timeout", "Timeout: Too large resource version: 900, current: 500"))
            server.will(a_list(500, make("a", 400)))
            await watch.send("ERROR", EXPIRED)
            again = server.will_watch()
            await running.until_version("a", 400)
            assert running.version("b") is None
            await again.send("MODIFIED", make("a", 501))
            await running.until_version("a", 501)
            assert server.asked[-1]["resourceVersion"] == "500"
    assert any("went back" in entry["event"] for entry in logs)


async def test_a_silent_watch_on_a_restored_database_is_noticed() -> None:
    async with bench(idle_seconds=0.05) as (server, running):
        server.where = None
        server.will(a_list(900, make("a", 800)))
        await watching(server, running)
        server.will(a_list(500, token="rest"), a_list(500, make("a", 400)))
        await running.until_version("a", 400)
        assert server.asked[2]["limit"] == "1"
        assert "watch" not in server.asked[3]
        assert "resourceVersion" not in server.asked[3]


async def test_a_silent_watch_on_a_healthy_server_is_opened_anew_without_a_list() -> None:
    async with bench(idle_seconds=0.05) as (server, running):
        server.where = None
        server.will(a_list(9, make("a", 5)))
        watch = await watching(server, running)
        server.will(a_list(15, token="rest"))
        again = server.will_watch()
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        await again.send("MODIFIED", make("a", 12))
        await running.until_version("a", 12)
        assert server.asked[3]["resourceVersion"] == "9"
        assert server.asked[2]["limit"] == "1"
        await watch.close()


@pytest.mark.parametrize("end", ["cut", "close"])
async def test_a_restored_database_is_noticed_as_soon_as_the_server_is_back(end: str) -> None:
    async with bench() as (server, running):
        server.where = a_list(500, token="rest")
        server.will(a_list(900, make("a", 800)))
        watch = await watching(server, running)
        server.will(a_list(500, make("a", 400)))
        await getattr(watch, end)()
        await running.until_version("a", 400)
        assert server.asked_where == 1
        assert "watch" not in server.asked[2]
        assert "resourceVersion" not in server.asked[2]


async def test_a_server_that_is_not_back_yet_is_asked_until_it_says_where_it_is() -> None:
    async with bench() as (server, running):
        server.where = None
        server.will(a_list(900, make("a", 800)))
        watch = await watching(server, running)
        server.will(a_status(503, "ServiceUnavailable"), a_list(500, token="rest"), a_list(500, make("a", 400)))
        await watch.cut()
        await running.until_version("a", 400)
        assert ["watch" in asked for asked in server.asked] == [False, True, False, False, False]


async def test_versions_that_are_no_numbers_work_without_comparisons() -> None:
    async with bench() as (server, running):
        server.will(a_list("x1", make("a", "w")))
        watch = await watching(server, running)
        server.will(a_list("x2", make("a", "v")))
        await watch.send("ERROR", EXPIRED)
        again = server.will_watch()
        await running.until_version("a", "v")
        await asyncio.wait_for(again.opened.wait(), PATIENCE)
        assert "resourceVersion" not in server.asked[2]
        assert server.asked[3]["resourceVersion"] == "x2"


# Backoff.


def test_the_backoff_grows_is_spread_and_starts_anew() -> None:
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


def test_jitter_is_added() -> None:
    backoff = Backoff(FakeClock(), random=lambda: 0.5)
    backoff.record_failure()
    assert backoff.delay() == pytest.approx(1.2)
