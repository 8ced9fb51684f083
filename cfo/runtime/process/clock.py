"""Clocks and waiting. Code that measures time, sleeps or times out takes a :class:`Clock`, so that tests control time.

:func:`first_of` and :func:`sleep_unless` wait for the first of several events.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import anyio

__all__ = ["Clock", "FakeClock", "SystemClock", "Timer", "first_of", "micro_time", "rfc3339", "sleep_unless"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; do nothing if it has already run."""
        ...


class Clock(Protocol):
    """Reads the time, sleeps and schedules callbacks."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary fixed point; never goes backwards."""
        ...

    def boottime(self) -> float:
        """Return monotonic seconds that include the time of machine suspends, if the OS supports it."""
        ...

    def now(self) -> datetime:
        """Return the current date and time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` in the running event loop after ``seconds``."""
        ...


class SystemClock:
    """The clock of the operating system."""

    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        """Return seconds since boot, including suspended time (``CLOCK_BOOTTIME``, Linux; else ``CLOCK_MONOTONIC``)."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """Return the current date and time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` in the running event loop after ``seconds``."""
        return asyncio.get_running_loop().call_later(seconds, callback)


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


async def first_of(*functions: Callable[[], Awaitable[object]]) -> None:
    """Run ``functions`` concurrently until the first one returns, then cancel the others.

    An exception of one of them also cancels the others, and is raised in an :class:`ExceptionGroup`.
    """
    async with anyio.create_task_group() as tasks:

        async def run(function: Callable[[], Awaitable[object]]) -> None:
            await function()
            tasks.cancel_scope.cancel()

        for function in functions:
            tasks.start_soon(run, function)


async def sleep_unless(clock: Clock, seconds: float, event: asyncio.Event | anyio.Event) -> bool:
    """Sleep for ``seconds`` or until ``event`` is set; return whether it is set."""
    await first_of(partial(clock.sleep, seconds), event.wait)
    return event.is_set()


def rfc3339(moment: datetime) -> str:
    """Format ``moment`` as ``metav1.Time``: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Format ``moment`` as ``metav1.MicroTime``: UTC, microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
