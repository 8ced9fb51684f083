"""The fake clock, the system clock, and the formats of times."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cfo.runtime.process.clock import SystemClock, first_of, micro_time, rfc3339, sleep_unless
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle


async def test_sleep_returns_when_the_time_has_passed() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await run_until_idle()
    clock.advance(9.5)
    await run_until_idle()
    assert not task.done()
    clock.advance(0.5)
    await task
    assert clock.timers == 0


async def test_cancelled_sleep_leaves_no_timer() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await run_until_idle()
    task.cancel()
    await run_until_idle()
    assert clock.timers == 0


def test_callbacks_run_in_order_at_their_scheduled_time() -> None:
    clock = FakeClock()
    calls: list[tuple[str, float]] = []

    def record(name: str) -> None:
        calls.append((name, clock.monotonic()))

    clock.call_later(3, lambda: record("third"))
    clock.call_later(1, lambda: (record("first"), clock.call_later(1, lambda: record("second")))[0])
    clock.call_later(2.5, lambda: record("never")).cancel()
    clock.advance(5)
    assert calls == [("first", 1), ("second", 2), ("third", 3)]
    assert clock.monotonic() == 5


def test_wall_clock_advances_with_the_fake_clock() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    clock.advance(90)
    assert rfc3339(clock.now()) == "2026-05-01T00:01:30Z"


def test_times_are_formatted_in_utc() -> None:
    moment = datetime(2026, 5, 1, 12, 0, 0, 1500, tzinfo=timezone(timedelta(hours=2)))
    assert rfc3339(moment) == "2026-05-01T10:00:00Z"
    assert micro_time(moment) == "2026-05-01T10:00:00.001500Z"


async def test_system_clock_is_monotonic() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    called = asyncio.Event()
    clock.call_later(0, called.set)
    await called.wait()
    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC


def test_suspend_advances_time_without_firing_timers() -> None:
    clock = FakeClock()
    called: list[float] = []
    clock.call_later(10, lambda: called.append(clock.boottime()))
    clock.suspend(100)
    assert (clock.monotonic(), clock.boottime()) == (0, 100)
    assert (clock.now() - FakeClock().now()).total_seconds() == 100
    assert called == []
    clock.advance(10)
    assert called == [110]


def test_system_boottime_is_monotonic() -> None:
    clock = SystemClock()
    first = clock.boottime()
    assert clock.boottime() >= first >= 0


async def test_first_of_returns_with_the_first_function_and_cancels_the_others() -> None:
    first, cancelled = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(first_of(first.wait, endless))
    await run_until_idle()
    assert not task.done()
    first.set()
    await task
    assert cancelled.is_set()


async def test_first_of_raises_the_error_of_a_function() -> None:
    async def failing() -> None:
        raise ValueError("broken")

    with pytest.raises(ExceptionGroup) as raised:
        await first_of(asyncio.Event().wait, failing)
    assert [str(error) for error in raised.value.exceptions] == ["broken"]


async def test_sleep_unless_returns_whether_the_event_is_set() -> None:
    clock, event = FakeClock(), asyncio.Event()
    task = asyncio.create_task(sleep_unless(clock, 10, event))
    await run_until_idle()
    clock.advance(10)
    assert await task is False
    event.set()
    assert await sleep_unless(clock, 10, event) is True
    assert clock.timers == 0
