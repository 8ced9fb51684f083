"""The clock of a plane: advances, the order of timers, and limits."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from envtest.apimachinery.clock import MAX_OFFSET, Clock


class Wall:
    """A system clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def clock(wall: Wall) -> Clock:
    return Clock(wall=wall)


async def test_advance_moves_the_time(clock: Clock, wall: Wall) -> None:
    assert clock.timestamp() == "1970-01-12T13:46:40Z"
    assert (await clock.advance(3600)).isoformat() == "1970-01-12T14:46:40+00:00"
    wall.seconds += 5
    assert clock.time() == 1_003_605
    assert clock.offset == 3600


def test_time_does_not_go_backwards_with_the_system_clock(clock: Clock, wall: Wall) -> None:
    assert clock.time() == 1_000_000
    wall.seconds -= 60
    assert clock.time() == 1_000_000


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan"), float("inf"), MAX_OFFSET + 1])
async def test_invalid_advance_changes_nothing(clock: Clock, seconds: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        await clock.advance(seconds)
    assert clock.offset == 0


@pytest.mark.parametrize("seconds", ["1h", True, None])
async def test_advance_needs_a_number(clock: Clock, seconds: Any) -> None:
    with pytest.raises(TypeError, match="must be a number of seconds, such as 3600"):
        await clock.advance(seconds)
    assert clock.offset == 0


@pytest.mark.parametrize("offset", [-1.0, MAX_OFFSET + 1, float("nan")])
def test_invalid_offset_is_rejected(offset: float) -> None:
    with pytest.raises(ValueError, match="seconds ahead"):
        Clock(offset)


async def test_timers_fire_in_order_each_at_its_own_time(clock: Clock) -> None:
    fired: list[tuple[str, float]] = []

    def record(name: str) -> Callable[[], None]:
        return lambda: fired.append((name, clock.time() - 1_000_000))

    clock.call_later(30, record("late"))
    clock.call_later(10, record("early"))
    clock.call_later(20, record("cancelled")).cancel()
    clock.call_later(10, lambda: clock.call_later(5, record("started by a timer")))
    clock.call_later(61, record("not due"))
    await clock.advance(60)
    assert fired == [("early", 10), ("started by a timer", 15), ("late", 30)]
    await clock.advance(1)
    assert fired[-1] == ("not due", 61)


async def test_controllers_settle_between_timers(clock: Clock) -> None:
    events: list[str] = []

    async def settle() -> None:
        await asyncio.sleep(0)
        events.append(f"settled at {clock.time() - 1_000_000:g}")

    clock.settlers.append(settle)
    clock.call_later(1, lambda: events.append("first"))
    clock.call_later(2, lambda: events.append("second"))
    await clock.advance(5)
    assert events == [
        "settled at 0",
        "first",
        "settled at 1",
        "second",
        "settled at 2",
        "settled at 5",
    ]


async def test_timer_fires_without_an_advance() -> None:
    clock, fired = Clock(), asyncio.Event()
    clock.call_later(3600, lambda: None)
    clock.call_later(0.01, fired.set)
    await asyncio.wait_for(fired.wait(), 120)


async def test_later_timer_fires_earlier_after_an_advance() -> None:
    clock, fired = Clock(), asyncio.Event()
    clock.call_later(100.02, fired.set)
    await clock.advance(100)
    assert not fired.is_set()
    await asyncio.wait_for(fired.wait(), 120)


async def test_timer_does_not_run_in_the_context_that_started_it() -> None:
    clock, fired = Clock(), asyncio.Event()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    seen: list[str] = []
    variable.set("request")
    clock.call_later(0.01, lambda: (seen.append(variable.get()), fired.set()))
    await asyncio.wait_for(fired.wait(), 120)
    assert seen == [""]


async def test_endless_timers_are_an_error(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envtest.apimachinery.clock._MAX_FIRINGS", 100)

    def again() -> None:
        clock.call_later(0, again)

    again()
    with pytest.raises(RuntimeError, match="more than 100 timers"):
        await clock.advance(1)


async def test_concurrent_advances_add_up(clock: Clock) -> None:
    await asyncio.gather(clock.advance(10), clock.advance(20))
    assert clock.offset == 30


async def test_cancelled_timers_do_not_accumulate(clock: Clock) -> None:
    for _ in range(10_000):
        clock.call_later(10, lambda: None).cancel()
    assert len(clock._heap) < 1000


async def test_fork_continues_independently(clock: Clock) -> None:
    await clock.advance(10)
    copy = clock.fork()
    await copy.advance(5)
    assert (clock.offset, copy.offset) == (10, 15)
