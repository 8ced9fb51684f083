"""Measures how long the event loop is blocked, and logs the stack of the code that blocks it.

Everything in a process shares one event loop: the renewal of the Lease, ``/healthz``, webhooks and reconciles. Code
that computes or waits without ``await`` delays them all.

A thread schedules a callback in the event loop four times a second. Its lag is the time until the loop calls it, which
is at most :data:`INTERVAL` shorter than the block that delays it. If it was not called after an interval, the thread
takes the stack of the loop's thread: always if the block takes two intervals, and often if it takes one. A call into C
that keeps the GIL also stops this thread: its lag is measured, but its stack can be missing. To measure each iteration
of the loop its selector would have to be wrapped, which was tried: it is exact, but depends on internals of asyncio.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from time import monotonic
from types import FrameType
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus
from prometheus_client import Histogram

INTERVAL: Final = 0.25
"""The time in seconds between two measurements, and the lag above which the stack is logged."""

_LONG: Final = 5.0
"""Seconds after which a block is logged before it has ended, because it may never end."""

_REMEDY: Final = "await what waits; run a function that blocks in a thread: ThreadPool.run of cfo.runtime.process"
_LOG_INTERVAL: Final = 10.0
_INNER_FRAMES: Final = 4
_OUTER_FRAMES: Final = 2

_log = structlog.get_logger(__name__)


class EventLoopWatchdog:
    """Reports the lag of the event loop that it runs in to ``lag``, and logs what blocks the loop.

    One line is logged for each block, at its end or after 5 seconds, with its duration, a remedy and both ends of the
    stack: file, line and function, no values. At most one line is logged in 10 seconds; it contains the number of
    blocks in between.
    """

    name = "event loop watchdog"

    def __init__(self, lag: Histogram) -> None:
        self._lag = lag
        self._scheduled = 0.0
        self._called = 0.0
        self._next_log = 0.0
        self._suppressed = 0

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Measure until cancelled."""
        task_status.started()
        stop = threading.Event()
        arguments = (asyncio.get_running_loop(), threading.get_ident(), stop)
        threading.Thread(
            target=self._watch, args=arguments, name="event-loop-watchdog", daemon=True
        ).start()
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    def _watch(
        self, loop: asyncio.AbstractEventLoop, loop_thread: int, stop: threading.Event
    ) -> None:
        stack: tuple[str, ...] | None = None
        reported = False
        while not stop.wait(INTERVAL):
            ended = self._was_called()
            if not ended and stack is None:
                stack = _stack(loop_thread)
                if self._was_called():
                    stack = ()  # the block has just ended, so the stack may be of other code
            end = self._called if ended else monotonic()
            seconds = end - self._scheduled
            if stack is not None and not reported and (ended or seconds >= _LONG):
                self._report(stack, seconds, ended=ended)
                reported = True
            if ended:
                stack = None
                reported = False
                self._scheduled = monotonic()
                try:
                    loop.call_soon_threadsafe(self._call)
                except RuntimeError:  # the loop is closed
                    return

    def _was_called(self) -> bool:
        return self._called >= self._scheduled

    def _call(self) -> None:
        self._called = monotonic()
        self._lag.observe(self._called - self._scheduled)

    def _report(self, stack: tuple[str, ...], seconds: float, *, ended: bool) -> None:
        now = monotonic()
        if now < self._next_log:
            self._suppressed += 1
            return
        message = "Event loop was blocked" if ended else "Event loop is blocked"
        function = stack[0] if stack else "unknown"
        _log.warning(
            message,
            seconds=round(seconds, 3),
            function=function,
            frames=list(stack),
            suppressed=self._suppressed,
            remedy=_REMEDY,
        )
        self._suppressed = 0
        self._next_log = now + _LOG_INTERVAL


def _stack(thread: int) -> tuple[str, ...]:
    """Return ``file:line function`` of the innermost and the outermost frames of a thread, innermost first.

    The innermost ones block, and the outermost ones belong to the reconciler or handler. The frames of the event loop
    are left out.
    """
    frame = sys._current_frames().get(thread)
    inner: list[FrameType] = []
    outer: deque[FrameType] = deque(maxlen=_OUTER_FRAMES)
    omitted = 0
    while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
        if len(inner) < _INNER_FRAMES:
            inner.append(frame)
        else:
            if len(outer) == _OUTER_FRAMES:
                omitted += 1
            outer.append(frame)
        frame = frame.f_back
    described = [_described(each) for each in inner]
    if omitted:
        described.append(f"{omitted} more")
    described += [_described(each) for each in outer]
    return tuple(described)


def _described(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
