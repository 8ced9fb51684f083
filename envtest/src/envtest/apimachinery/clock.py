"""The clock of a control plane: real time plus an offset that tests increase.

Everything in the plane that depends on time asks this clock: timestamps, tokens, certificates, the TTL of Events, fault
rules, and the timers of controllers. It never goes backwards, not even if the system's clock does.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import Any, Final

from envtest.apimachinery.objects import format_time

__all__ = ["MAX_OFFSET", "Clock", "Timer"]

MAX_OFFSET: Final = 100 * 365 * 86400.0
"""The most seconds that a clock can be ahead of real time: 100 years."""

_MAX_FIRINGS: Final = 100_000
"""The most timers that one advance fires; more means that a timer starts itself again without a delay."""

_MIN_PURGE: Final = 64


class Timer:
    """A callback that is due at ``when`` (seconds since the epoch, of the plane's clock)."""

    __slots__ = ("_callback", "when")

    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self.when = when
        self._callback: Callable[[], Any] | None = callback

    @property
    def active(self) -> bool:
        """Whether the timer has neither fired nor been cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Do not call the callback."""
        self._callback = None

    def fire(self) -> None:
        """Call the callback, once."""
        callback = self._callback
        self._callback = None
        if callback is not None:
            callback()


class Clock:
    """The time of one control plane. ``offset`` is the number of seconds that it starts ahead of real time.

    Timers belong to the event loop that runs when the first one is started. Each of the
    ``settlers`` waits until some controllers have nothing to do at the current time; :meth:`advance` calls them after
    each timer. ``moved`` callbacks receive the
    offset after each advance. ``wall`` returns real time in seconds since the epoch.
    """

    def __init__(self, offset: float = 0.0, *, wall: Callable[[], float] = time.time) -> None:
        self._offset = checked_offset(offset)
        self._wall = wall
        self._last = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._started = 0
        self._handle: asyncio.TimerHandle | None = None
        self._advancing = asyncio.Lock()
        self.settlers: list[Callable[[], Awaitable[None]]] = []
        self.moved: list[Callable[[float], None]] = []

    @property
    def offset(self) -> float:
        """The number of seconds that the clock is ahead of real time."""
        return self._offset

    def time(self) -> float:
        """Return the time in seconds since the epoch."""
        self._last = max(self._last, self._wall() + self._offset)
        return self._last

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def timestamp(self) -> str:
        """Return the time in the format of object metadata: RFC 3339, whole seconds, UTC."""
        return format_time(self.now())

    def fork(self) -> Clock:
        """Return a clock that shows the same time and continues independently, without timers."""
        copy = Clock(self._offset, wall=self._wall)
        copy._last = self._last
        return copy

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> Timer:
        """Call ``callback`` on the running event loop after ``seconds`` of this clock."""
        timer = Timer(self.time() + max(0.0, seconds), callback)
        if (
            len(self._heap) > _MIN_PURGE
            and sum(not each[2].active for each in self._heap[:_MIN_PURGE]) == _MIN_PURGE
        ):
            self._heap = [each for each in self._heap if each[2].active]
            heapify(self._heap)
        self._started += 1
        heappush(self._heap, (timer.when, self._started, timer))
        self._schedule()
        return timer

    def close(self) -> None:
        """Cancel all timers."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self) -> None:
        """Wake up when the next timer is due."""
        while self._heap and not self._heap[0][2].active:
            heappop(self._heap)
        if not self._heap:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, self._heap[0][0] - self.time())
        if self._handle is not None:
            if not self._handle.cancelled() and self._handle.when() <= due:
                return
            self._handle.cancel()
        self._handle = loop.call_at(due, self._wake, context=Context())

    def _wake(self) -> None:
        self._handle = None
        if not self._advancing.locked():  # an advance fires them itself, in order
            now = self.time()
            due = []
            while (timer := self._pop(now)) is not None:
                due.append(timer)
            for timer in due:  # a timer that one of them starts waits for the next turn of the loop
                timer.fire()
        self._schedule()

    def _pop(self, until: float) -> Timer | None:
        """Remove and return the first timer that is due at ``until``."""
        while self._heap and (self._heap[0][0] <= until or not self._heap[0][2].active):
            timer = heappop(self._heap)[2]
            if timer.active:
                return timer
        return None

    def _move_to(self, moment: float) -> None:
        self._offset += max(0.0, moment - self.time())

    async def settle(self) -> None:
        """Wait until no controller has anything to do at the current time."""
        for settler in [*self.settlers]:
            await settler()

    async def advance(self, seconds: float) -> datetime:
        """Move the clock forward by ``seconds``, and return the new time.

        Timers that are due in between fire in order, each at its own time, and the controllers finish the work that
        each of them causes before the next one fires. Raises ValueError if ``seconds`` is negative, not finite or leads
        further ahead of real time than :data:`MAX_OFFSET`, TypeError if it is not a number, and RuntimeError if timers
        start each other endlessly.
        """
        if not isinstance(seconds, int | float) or isinstance(seconds, bool):
            raise TypeError(f"seconds: {seconds!r}: must be a number of seconds, such as 3600")
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(
                f"seconds: {seconds}: must be a finite number of at least 0, time does not go backwards"
            )
        async with self._advancing:
            offset = checked_offset(self._offset + seconds)
            target = self.time() + seconds
            try:
                await self._fire_until(target)
                self._offset = offset
                await self.settle()
            finally:
                for callback in self.moved:
                    callback(self._offset)
        self._reschedule()
        return self.now()

    async def _fire_until(self, target: float) -> None:
        for _ in range(_MAX_FIRINGS):
            await self.settle()
            timer = self._pop(target)
            if timer is None:
                return
            self._move_to(timer.when)
            timer.fire()
        raise RuntimeError(
            f"more than {_MAX_FIRINGS} timers fired: a controller starts a timer again without a delay"
        )

    def _reschedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._schedule()


def checked_offset(offset: float) -> float:
    """Return ``offset``. Raises ValueError if it is not between 0 and :data:`MAX_OFFSET` seconds."""
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(
            f"the clock cannot be {offset:g} seconds ahead: must be from 0 to {MAX_OFFSET:g}"
        )
    return offset
