"""Clocks that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from cfo.runtime.process.clock import SystemClock, Timer


class SkippingClock(SystemClock):
    """The system clock, except that ``sleep`` returns immediately; ``sleeps`` records the requested seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)


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
