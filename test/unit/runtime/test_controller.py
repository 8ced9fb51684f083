"""Controllers, with requests from a channel and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from cfo.runtime.client.errors import AlreadyExists, Conflict, NotFound, TooManyRequests, TransportError
from cfo.runtime.clock import FakeClock
from cfo.runtime.controller import Controller, ControllerOptions, reconcile_id
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import GVK
from cfo.runtime.reconcile import Request, Result, TerminalError
from cfo.runtime.source import Channel
from cfo.runtime.workqueue import LOW_PRIORITY
from test.support.scheduling import settled

A, B = Request("ns", "a"), Request("ns", "b")


class Scripted:
    """A reconciler that does what the test says, and remembers what it was asked."""

    def __init__(self, script: Callable[[Request], Awaitable[Result]]) -> None:
        self.script = script
        self.seen: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.seen.append(request)
        return await self.script(request)


class Bench:
    """A controller that runs, its clock, and what it counts."""

    def __init__(self, script: Callable[[Request], Awaitable[Result]], **options: Any) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.reconciler = Scripted(script)
        self.channel = Channel()
        self.controller = Controller(
            "mirror",
            self.reconciler,
            kind=GVK("example.com", "v1", "Mirror"),
            options=ControllerOptions(**options),
            metrics=self.metrics,
            clock=self.clock,
        )
        self.controller.watch(self.channel)

    def count(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"controller_runtime_{name}", {"controller": "mirror", **labels})


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: bench.controller.run(task_status=task_status))
        yield bench
        bench.controller.stop()


async def done(_: Request) -> Result:
    return Result()


def raising(*errors: Exception) -> Callable[[Request], Awaitable[Result]]:
    """Raises one error after the other, then succeeds."""
    remaining = list(errors)

    async def script(_: Request) -> Result:
        if remaining:
            raise remaining.pop(0)
        return Result()

    return script


def logged() -> Any:
    return capture_logs(processors=[structlog.contextvars.merge_contextvars])


def error_lines(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["log_level"] in ("warning", "error", "critical")]


async def test_requests_are_reconciled_and_counted() -> None:
    async with running(Bench(done)) as bench:
        bench.channel.enqueue([A, B, A])
        await settled()
        assert bench.reconciler.seen == [A, B]
        assert bench.count("reconcile_total", result="success") == 2
        assert bench.count("reconcile_time_seconds_count") == 2
        assert bench.count("active_workers") == 0


async def test_all_metrics_are_there_before_the_first_reconcile() -> None:
    bench = Bench(done)
    for result in ("success", "error", "requeue", "requeue_after"):
        assert bench.count("reconcile_total", result=result) == 0
    for name in ("reconcile_errors", "terminal_reconcile_errors", "reconcile_panics", "reconcile_timeouts"):
        assert bench.count(f"{name}_total") == 0
    assert bench.count("max_concurrent_reconciles") == 8


async def test_requeue_after_comes_after_that_time() -> None:
    async def script(_: Request) -> Result:
        return Result(requeue_after=30)

    async with running(Bench(script)) as bench:
        bench.channel.enqueue([A])
        await settled()
        bench.clock.advance(29)
        await settled()
        assert bench.reconciler.seen == [A]
        bench.clock.advance(1)
        await settled()
        assert bench.reconciler.seen == [A, A]
        assert bench.count("reconcile_total", result="requeue_after") == 2


async def test_requests_keep_their_priority_when_they_are_requeued() -> None:
    async def script(_: Request) -> Result:
        return Result(requeue_after=1)

    async with running(Bench(script, max_concurrent_reconciles=1)) as bench:
        bench.channel.enqueue([A], priority=LOW_PRIORITY)
        await settled()
        bench.channel.enqueue([B])
        await settled()
        bench.reconciler.script = done
        bench.clock.advance(1)
        await settled()
        assert bench.reconciler.seen == [A, B, B, A]


async def test_an_error_is_retried_with_backoff_and_success_forgets_it() -> None:
    async with running(Bench(raising(TransportError("gone", outcome_unknown=False), NotFound(404)))) as bench:
        bench.channel.enqueue([A])
        await settled()
        assert bench.reconciler.seen == [A]
        bench.clock.advance(0.005)
        await settled()
        assert bench.reconciler.seen == [A, A]
        assert bench.controller.queue.num_requeues(A) == 2
        bench.clock.advance(0.01)
        await settled()
        assert bench.reconciler.seen == [A, A, A]
        assert bench.controller.queue.num_requeues(A) == 0
        assert bench.count("reconcile_errors_total") == 2
        assert bench.count("reconcile_total", result="error") == 2
        assert bench.count("reconcile_panics_total") == 0


async def test_an_error_is_logged_once_with_all_that_identifies_it() -> None:
    with logged() as lines:
        async with running(Bench(raising(ValueError("boom")))) as bench:
            bench.channel.enqueue([A])
            await settled()
    (line,) = error_lines(lines)
    assert line["controller"] == "mirror"
    assert (line["controllerGroup"], line["controllerKind"]) == ("example.com", "Mirror")
    assert (line["namespace"], line["name"]) == ("ns", "a")
    assert len(line["reconcileID"]) == 36
    assert line["error"] == "ValueError: boom"
    assert line["failures"] == 1
    assert isinstance(line["exc_info"], ValueError)


async def test_what_a_reconciler_logs_carries_the_request_and_nothing_of_the_one_before() -> None:
    log = structlog.get_logger("test")
    identities: dict[Request, str] = {}

    async def script(request: Request) -> Result:
        identities[request] = reconcile_id()
        log.info("here")
        return Result()

    with logged() as lines:
        async with running(Bench(script, max_concurrent_reconciles=1)) as bench:
            bench.channel.enqueue([A, B])
            await settled()
    own = [line for line in lines if line["event"] == "here"]
    assert [(line["name"], line["reconcileID"]) for line in own] == [("a", identities[A]), ("b", identities[B])]
    assert identities[A] != identities[B]
    assert reconcile_id() == ""
    assert "reconcileID" not in structlog.contextvars.get_contextvars()


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Conflict(409, {"reason": "Conflict"}), "debug"),
        (ExceptionGroup("two", [Conflict(409), Conflict(409)]), "debug"),
        (AlreadyExists(409, {"reason": "AlreadyExists"}), "error"),
        (Conflict(409, {"details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec"}]}}), "error"),
        (ExceptionGroup("two", [Conflict(409), KeyError("x")]), "error"),
    ],
)
async def test_only_a_lost_race_is_no_error_to_look_at(error: Exception, level: str) -> None:
    with logged() as lines:
        async with running(Bench(raising(error))) as bench:
            bench.channel.enqueue([A])
            await settled()
            bench.clock.advance(0.005)
            await settled()
            assert bench.reconciler.seen == [A, A]
    (line,) = [line for line in lines if "retry_in" in line]
    assert line["log_level"] == level


async def test_expected_errors_are_logged_without_a_stack() -> None:
    with logged() as lines:
        async with running(Bench(raising(NotFound(404, {"message": "no such thing"})))) as bench:
            bench.channel.enqueue([A])
            await settled()
    (line,) = error_lines(lines)
    assert "exc_info" not in line
    assert line["error"] == "NotFound: no such thing"


async def test_an_error_in_the_program_counts_as_a_panic_and_kills_nothing() -> None:
    async with running(Bench(raising(KeyError("x")), max_concurrent_reconciles=1)) as bench:
        bench.channel.enqueue([A, B])
        await settled()
        assert bench.reconciler.seen == [A, B]
        assert bench.count("reconcile_panics_total") == 1


async def test_a_terminal_error_is_not_retried_until_something_changes() -> None:
    with logged() as lines:
        async with running(Bench(raising(TerminalError("spec.x: must be a number")))) as bench:
            bench.channel.enqueue([A])
            await settled()
            bench.clock.advance(3600)
            await settled()
            assert bench.reconciler.seen == [A]
            assert bench.count("terminal_reconcile_errors_total") == 1
            bench.channel.enqueue([A])
            await settled()
            assert bench.reconciler.seen == [A, A]
    assert len(error_lines(lines)) == 1


async def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    async with running(Bench(raising(TooManyRequests(429, retry_after=7.0)))) as bench:
        bench.channel.enqueue([A])
        await settled()
        bench.clock.advance(6.9)
        await settled()
        assert bench.reconciler.seen == [A]
        bench.clock.advance(0.1)
        await settled()
        assert bench.reconciler.seen == [A, A]


async def test_a_reconcile_that_takes_too_long_is_cancelled_and_retried() -> None:
    cleaned: list[Request] = []

    async def script(request: Request) -> Result:
        if cleaned:
            return Result()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(request)
        return Result()

    with logged() as lines:
        async with running(Bench(script, reconcile_timeout=10)) as bench:
            bench.channel.enqueue([A])
            await settled()
            bench.clock.advance(10)
            await settled()
            assert cleaned == [A]
            assert bench.count("reconcile_timeouts_total") == 1
            bench.clock.advance(0.005)
            await settled()
            assert bench.reconciler.seen == [A, A]
            assert bench.clock.timers == 0
    (line,) = error_lines(lines)
    assert "exceeded its timeout of 10 s" in line["error"]


async def test_a_stray_cancellation_inside_a_reconcile_is_an_error_like_others() -> None:
    async def script(request: Request) -> Result:
        if request == B:
            return Result()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return Result()

    async with running(Bench(script, max_concurrent_reconciles=1)) as bench:
        bench.channel.enqueue([A, B])
        await settled()
        assert bench.reconciler.seen == [A, B]
        assert bench.count("reconcile_errors_total") == 1


async def test_a_result_must_be_a_result() -> None:
    async def script(_: Request) -> Result:
        return None  # type: ignore[return-value]

    with logged() as lines:
        async with running(Bench(script)) as bench:
            bench.channel.enqueue([A])
            await settled()
    (line,) = error_lines(lines)
    assert line["error"] == "TypeError: Scripted.reconcile returned None: must be a Result"


async def test_different_requests_run_side_by_side_up_to_the_limit_and_one_never_twice() -> None:
    gate = asyncio.Event()
    active: list[Request] = []
    most = 0

    async def script(request: Request) -> Result:
        nonlocal most
        assert request not in active
        active.append(request)
        most = max(most, len(active))
        await gate.wait()
        active.remove(request)
        return Result()

    requests = [Request("ns", str(number)) for number in range(10)]
    async with running(Bench(script, max_concurrent_reconciles=3)) as bench:
        bench.channel.enqueue(requests)
        await settled()
        assert bench.count("active_workers") == 3
        bench.channel.enqueue(active)
        await settled()
        gate.set()
        await settled()
        assert most == 3
        assert len(bench.reconciler.seen) == 13


async def test_reconciles_that_never_wait_leave_room_for_others() -> None:
    turns = 0

    async def script(_: Request) -> Result:
        return Result()

    async def other() -> None:
        nonlocal turns
        while len(bench.reconciler.seen) < 1000:
            turns += 1
            await asyncio.sleep(0)

    async with running(Bench(script, max_concurrent_reconciles=1)) as bench:
        bench.channel.enqueue(Request("ns", str(number)) for number in range(1000))
        await other()
    assert turns > 100


async def test_stopping_lets_running_reconciles_finish_and_starts_no_more() -> None:
    gate = asyncio.Event()
    finished: list[Request] = []

    async def script(request: Request) -> Result:
        await gate.wait()
        finished.append(request)
        return Result()

    bench = Bench(script, max_concurrent_reconciles=1)
    run = asyncio.create_task(bench.controller.run())
    bench.channel.enqueue([A, B])
    await settled()
    bench.controller.stop()
    await settled()
    assert not run.done()
    gate.set()
    await run
    assert finished == [A]


async def test_cancelling_cancels_running_reconciles() -> None:
    cancelled: list[Request] = []

    async def script(request: Request) -> Result:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            cancelled.append(request)
            raise
        return Result()

    bench = Bench(script)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.controller.run)
        bench.channel.enqueue([A])
        await settled()
        tasks.cancel_scope.cancel()
    assert cancelled == [A]
    assert bench.controller.queue.processing == 0


class Slow(Channel):
    """A source that syncs when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = asyncio.Event()
        self.stopped = False

    async def wait_for_sync(self) -> None:
        await self.synced.wait()

    def stop(self) -> None:
        super().stop()
        self.stopped = True


async def test_no_reconcile_before_all_sources_have_synced() -> None:
    bench = Bench(done)
    slow = Slow()
    bench.controller.watch(slow)
    bench.channel.enqueue([A])
    run = asyncio.create_task(bench.controller.run())
    await settled()
    assert bench.reconciler.seen == []
    slow.synced.set()
    await settled()
    assert bench.reconciler.seen == [A]
    bench.controller.stop()
    await run
    assert slow.stopped


async def test_stopping_does_not_wait_for_a_source_that_never_syncs() -> None:
    bench = Bench(done)
    bench.controller.watch(Slow())
    run = asyncio.create_task(bench.controller.run())
    await settled()
    bench.controller.stop()
    await run
    assert bench.reconciler.seen == []


async def test_a_source_may_be_added_to_a_running_controller() -> None:
    async with running(Bench(done)) as bench:
        late = Channel()
        late.enqueue([B])
        bench.controller.watch(late)
        await settled()
        assert bench.reconciler.seen == [B]


@pytest.mark.parametrize("options", [{"max_concurrent_reconciles": 0}, {"reconcile_timeout": 0}])
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: 0: must be"):
        ControllerOptions(**options)


def test_a_negative_requeue_is_refused() -> None:
    with pytest.raises(ValueError, match="requeue_after: -1"):
        Result(requeue_after=-1)
