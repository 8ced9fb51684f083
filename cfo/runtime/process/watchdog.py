"""Measures how long the event loop is blocked, and logs the stack of the code that blocks it.

Everything in a process shares one event loop: the renewal of the Lease, ``/healthz``, webhooks and reconciles. Code
that computes or waits without ``await`` delays them all. The lag of an iteration of the loop is the time from when it
could have started (a timer was due, or an event was received) to when the loop waits for the next event; no other work
starts in between.

The watchdog wraps the ``select`` method of the loop's selector, so that it measures every iteration exactly and never
wakes up the loop; this costs about one microsecond for each iteration. A thread checks four times a second whether the
current iteration takes too long, and takes the stack :data:`THRESHOLD` seconds after its start. A call into C that
keeps the GIL also stops this thread: such an iteration is counted, but its stack can be missing.

Only asyncio's own event loops have a selector. Others (uvloop) are not measured, which is logged once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate
from time import monotonic
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

import anyio
import structlog
from anyio.abc import TaskStatus
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["THRESHOLD", "EventLoopLag", "EventLoopWatchdog"]

THRESHOLD: Final = 0.25
"""The duration of an iteration in seconds above which its stack is logged."""

_LONG: Final = 5.0  # seconds after which an iteration is logged before it has ended, because it may never end
_LOG_INTERVAL: Final = 10.0
_INNER_FRAMES: Final = 4
_OUTER_FRAMES: Final = 2
_TIMER_RESOLUTION: Final = 0.001  # selectors round timeouts up to milliseconds
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_log = structlog.get_logger(__name__)


class EventLoopLag(Collector):
    """The histogram ``cfo_event_loop_lag_seconds``.

    :class:`prometheus_client.Histogram` takes ten times as long for each observation. Only for use in one thread.
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count an iteration of the event loop that delayed other code for ``seconds``."""
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram."""
        yield HistogramMetricFamily(
            "cfo_event_loop_lag_seconds",
            "How long an iteration of the event loop delayed all other work of the process.",
            buckets=list(zip((*map(str, _BUCKETS), "+Inf"), accumulate(self._counts), strict=True)),
            sum_value=self._sum,
        )


class _Selector(Protocol):
    select: Callable[[float | None], Any]


class _SelectorProbe:
    """Replaces the ``select`` method of a selector while there are observers. Shared by the watchdogs of one loop."""

    def __init__(self, selector: _Selector) -> None:
        self._selector = selector
        self._select = selector.select
        self._observers: tuple[Callable[[float], None], ...] = ()
        self._late = 0.0
        self.since: float | None = monotonic()
        """The start of the current iteration; ``None`` while the loop waits."""
        self.last_block = (0.0, 0.0)
        """Start and duration in seconds of the last iteration that exceeded :data:`THRESHOLD`."""
        selector.select = self.select

    @staticmethod
    def of(selector: _Selector) -> _SelectorProbe:
        """Return the probe of the selector, which is installed if there is none."""
        installed = getattr(selector.select, "__self__", None)
        return installed if isinstance(installed, _SelectorProbe) else _SelectorProbe(selector)

    def select(self, timeout: float | None = None) -> Any:
        """Wait for events, like the method that it replaces."""
        entered = monotonic()
        if self.since is not None:
            seconds = entered - self.since
            if seconds >= THRESHOLD:
                self.last_block = self.since, seconds
            self.since = None
            for observe in self._observers:
                observe(seconds + self._late)
        events = self._select(timeout)
        self.since = now = monotonic()
        self._late = max(0.0, now - entered - timeout - _TIMER_RESOLUTION) if timeout and not events else 0.0
        return events

    def add(self, observe: Callable[[float], None]) -> None:
        """Call ``observe`` with the lag of each iteration, in seconds."""
        self._observers = (*self._observers, observe)

    def remove(self, observe: Callable[[float], None]) -> None:
        """Stop calling ``observe``; without observers the selector's own method is restored."""
        self._observers = tuple(other for other in self._observers if other != observe)
        if not self._observers and self._selector.select == self.select:
            del self._selector.select


class _Block(NamedTuple):
    """An iteration that exceeded the threshold: its start, and its stack, innermost function first."""

    since: float
    stack: tuple[str, ...]


class EventLoopWatchdog:
    """Reports the lag of the event loop that it runs in to ``lag``, and logs what blocks the loop.

    One line is logged for each block, at its end or after 5 seconds, with its duration and both ends of the stack:
    file, line and function, no values. At most one line is logged in 10 seconds; it contains the number of blocks in
    between.
    """

    name = "event loop watchdog"
    needs_leader = False

    def __init__(self, lag: EventLoopLag) -> None:
        self._observe = lag.observe
        self._next_log = 0.0
        self._suppressed = 0

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Measure until cancelled."""
        task_status.started()
        loop = asyncio.get_running_loop()
        selector = getattr(loop, "_selector", None)
        if selector is None:
            _log.info("Event loop has no selector, not measuring its lag", loop=type(loop).__qualname__)
            return
        probe, stop = _SelectorProbe.of(selector), threading.Event()
        probe.add(self._observe)
        thread = threading.Thread(
            target=self._watch, args=(probe, threading.get_ident(), stop), name="event-loop-watchdog", daemon=True
        )
        thread.start()
        try:
            await anyio.sleep_forever()
        finally:
            probe.remove(self._observe)
            stop.set()

    def _watch(self, probe: _SelectorProbe, loop_thread: int, stop: threading.Event) -> None:
        block: _Block | None = None
        last_since, wait = 0.0, THRESHOLD
        while not stop.wait(wait):
            since, now, wait = probe.since, monotonic(), THRESHOLD
            if block is not None and (since != block.since or now - block.since >= _LONG):
                ended = since != block.since
                exact = probe.last_block[0] == block.since
                self._report(block, probe.last_block[1] if exact else now - block.since, ended=ended)
                block = None
            if since is None or since == last_since:
                continue
            if now - since < THRESHOLD:
                wait = THRESHOLD - (now - since)
                continue
            stack = _stack(loop_thread)
            block, last_since = _Block(since, stack if probe.since == since else ()), since

    def _report(self, block: _Block, seconds: float, *, ended: bool) -> None:
        now = monotonic()
        if now < self._next_log:
            self._suppressed += 1
            return
        _log.warning(
            "Event loop was blocked" if ended else "Event loop is blocked",
            seconds=round(seconds, 3),
            function=block.stack[0] if block.stack else "unknown",
            frames=list(block.stack),
            suppressed=self._suppressed,
        )
        self._suppressed, self._next_log = 0, now + _LOG_INTERVAL


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
            omitted += len(outer) == _OUTER_FRAMES
            outer.append(frame)
        frame = frame.f_back
    gap = [f"{omitted} more"] if omitted else []
    return (*map(_described, inner), *gap, *map(_described, outer))


def _described(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
