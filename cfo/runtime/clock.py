"""Time, as something that is handed in, so that tests own it.

Everything in the library that measures, waits or times out does it through a :class:`Clock`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import anyio

__all__ = ["Clock", "FakeClock", "SystemClock", "Timer", "micro_time", "rfc3339", "sleep_unless"]


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """The callback is not called any more; nothing happens when it was called already."""
        ...


class Clock(Protocol):
    """What time it is, and waiting for it to pass."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def boottime(self) -> float:
        """Like :meth:`monotonic`, but it goes on while the machine is suspended, where the system can tell."""
        ...

    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after ``seconds``."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls ``callback`` in the running event loop after ``seconds``."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds since the machine was started, suspended or not (``CLOCK_BOOTTIME``, which Linux has)."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Returns after ``seconds``."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls ``callback`` in the running event loop after ``seconds``."""
        return asyncio.get_running_loop().call_later(seconds, callback)


class _FakeTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A clock for tests: time passes when :meth:`advance` says so."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = now
        self._elapsed = 0.0
        self._suspended = 0.0
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds that :meth:`advance` was asked for since the clock was made."""
        return self._elapsed

    def boottime(self) -> float:
        """:meth:`monotonic`, and the seconds that :meth:`suspend` was asked for."""
        return self._elapsed + self._suspended

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return self._start + timedelta(seconds=self._elapsed + self._suspended)

    async def sleep(self, seconds: float) -> None:
        """Returns after :meth:`advance` has gone ``seconds`` further."""
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
        """Calls ``callback`` when :meth:`advance` has gone ``seconds`` further."""
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (self._elapsed + seconds, next(self._order), timer))
        return timer

    @property
    def timers(self) -> int:
        """How many callbacks and sleepers wait."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def suspend(self, seconds: float) -> None:
        """Suspends the machine for ``seconds``: time passes, but no timer comes nearer."""
        self._suspended += seconds

    def advance(self, seconds: float) -> None:
        """Lets ``seconds`` pass and calls what is due, in its order.

        Sleepers run when the test next awaits something.
        """
        end = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, due)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._elapsed = end


async def sleep_unless(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Sleeps ``seconds``, or until ``event`` is set; whether it is."""
    over = asyncio.Event()
    timer = clock.call_later(seconds, over.set)
    try:
        async with anyio.create_task_group() as tasks:

            async def first(awaited: asyncio.Event) -> None:
                await awaited.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(first, over)
            tasks.start_soon(first, event)
    finally:
        timer.cancel()
    return event.is_set()


def rfc3339(moment: datetime) -> str:
    """A ``metav1.Time``: whole seconds, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """A ``metav1.MicroTime``: microseconds, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
