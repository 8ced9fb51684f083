"""Clocks that a test controls."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cfo.runtime.process.clock import SystemClock, Timer


async def next_second() -> None:
    """Wait for the next second, because creation times of objects have no fractions."""
    second = int(time.time())
    while int(time.time()) == second:  # noqa: ASYNC110 (nothing else reports the time)
        await asyncio.sleep(0.02)


class _FakeTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A clock for tests: time passes only in :meth:`advance` and :meth:`suspend`."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = now
        self._elapsed = 0.0
        self._suspended = 0.0
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Return the sum of all :meth:`advance` calls, in seconds."""
        return self._elapsed

    def boottime(self) -> float:
        """Return the sum of all :meth:`advance` and :meth:`suspend` calls, in seconds."""
        return self._elapsed + self._suspended

    def now(self) -> datetime:
        """Return the current date and time in UTC."""
        return self._start + timedelta(seconds=self._elapsed + self._suspended)

    async def sleep(self, seconds: float) -> None:
        """Sleep until :meth:`advance` has moved the clock by ``seconds``."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        passed = asyncio.Event()
        timer = self.call_later(seconds, passed.set)
        try:
            await passed.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` when :meth:`advance` has moved the clock by ``seconds``."""
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (self._elapsed + seconds, next(self._order), timer))
        return timer

    @property
    def timers(self) -> int:
        """The number of pending callbacks, including sleepers."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def suspend(self, seconds: float) -> None:
        """Simulate a suspended machine: :meth:`boottime` and :meth:`now` advance, timers do not."""
        self._suspended += seconds

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds`` and run the callbacks that become due, in order.

        Sleepers resume when the test next awaits something.
        """
        end = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, due)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._elapsed = end


class SkippingClock(SystemClock):
    """The system clock, except that ``sleep`` returns immediately; ``sleeps`` records the requested seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)


class SleepForeverClock(SkippingClock):
    """The system clock, except that ``sleep`` never returns; ``sleeps`` records the requested seconds."""

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.Event().wait()


class _SteppedTimer:
    """A callback of a :class:`SteppedClock`."""

    __slots__ = ("callback", "due", "handle")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self.callback = None
        if self.handle is not None:
            self.handle.cancel()

    def fire(self) -> None:
        callback = self.callback
        self.cancel()
        if callback is not None:
            callback()


class SteppedClock(SystemClock):
    """The system clock plus an offset, which a test increases instead of waiting for a scheduled callback.

    ``sleep`` sleeps in real time.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._timers: list[_SteppedTimer] = []

    def monotonic(self) -> float:
        return super().monotonic() + self._offset

    def boottime(self) -> float:
        return super().boottime() + self._offset

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._offset)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _SteppedTimer(self.monotonic() + seconds, callback)
        timer.handle = asyncio.get_running_loop().call_later(seconds, timer.fire)
        self._timers = [*(each for each in self._timers if each.callback is not None), timer]
        return timer

    def seconds_to_next_timer(self) -> float:
        """Return the seconds until the next callback, at least 0; 0 if none is scheduled."""
        pending = [timer.due for timer in self._timers if timer.callback is not None]
        return max(0.0, min(pending, default=0.0) - self.monotonic())

    def step(self, seconds: float) -> None:
        """Move the clock forward, and run the callbacks that become due, in order."""
        self._offset += seconds
        now = self.monotonic()
        for timer in sorted(self._timers, key=lambda each: each.due):
            if timer.due <= now:
                timer.fire()
            elif timer.handle is not None and timer.callback is not None:
                timer.handle.cancel()
                timer.handle = asyncio.get_running_loop().call_later(timer.due - now, timer.fire)


class WallClock(SystemClock):
    """The system clock with a date that a test steps; durations and timers are not affected, as of a corrected date."""

    def __init__(self) -> None:
        self._offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self._offset

    def step(self, offset: timedelta) -> None:
        """Move the date."""
        self._offset += offset
