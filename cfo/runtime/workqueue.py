"""The queue between events and reconciles: client-go's contract, with controller-runtime's priorities.

An item is queued once, however often it is added. While it is worked on it is not handed out a second
time: added meanwhile, it waits until :meth:`WorkQueue.done`. So one object is never reconciled twice at
once, and no change is lost. Items may come later (``after``) or after a backoff that grows with
each failure (``rate_limited``); of several adds of one item the earliest time and the highest
priority count. Higher priorities go first, equal ones in the order in which they became ready.

The queue belongs to one event loop and takes no locks; only :meth:`WorkQueue.get` and
:meth:`WorkQueue.shut_down_with_drain` wait.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from cfo.runtime.clock import Clock, SystemClock, Timer
from cfo.runtime.metrics import QueueMetrics
from cfo.runtime.ratelimit import (
    BucketRateLimiter,
    ExponentialRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    default_rate_limiter,
)

__all__ = [
    "LOW_PRIORITY",
    "BucketRateLimiter",
    "ExponentialRateLimiter",
    "MaxOfRateLimiter",
    "QueueShutDown",
    "RateLimiter",
    "WorkQueue",
    "default_rate_limiter",
]

LOW_PRIORITY = -100
"""The priority of objects from a first list and from resyncs (controller-runtime's ``LowPriority``)."""

_STALE_KEPT = 64

Item = TypeVar("Item", bound=Hashable)


class QueueShutDown(Exception):
    """The queue hands out nothing any more."""


class _Entry(Generic[Item]):
    """A queued item. ``ready_at`` is None once it may be handed out; ``stale`` once another entry replaced it."""

    __slots__ = ("item", "order", "priority", "queued_at", "ready_at", "stale")

    def __init__(self, item: Item, priority: int, order: int, ready_at: float | None, queued_at: float) -> None:
        self.item = item
        self.priority = priority
        self.order = order
        self.ready_at = ready_at
        self.queued_at = queued_at
        self.stale = False


class WorkQueue(Generic[Item]):
    """A queue of hashable items for one controller."""

    def __init__(
        self,
        *,
        rate_limiter: RateLimiter | None = None,
        clock: Clock | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limiter = rate_limiter or default_rate_limiter(self._clock)
        self._metrics = metrics
        self._entries: dict[Item, _Entry[Item]] = {}
        self._ready: list[tuple[int, int, _Entry[Item]]] = []
        self._waiting: list[tuple[float, int, _Entry[Item]]] = []
        self._ready_count = 0
        self._stale_count = 0
        self._processing: dict[Item, float] = {}
        self._order = 0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._shut_down = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        if metrics:
            metrics.observe_running(self._ages)

    def __len__(self) -> int:
        """How many items are ready, those that wait for their :meth:`done` included, later ones not."""
        return self._ready_count

    @property
    def waiting(self) -> int:
        """How many items wait for their time."""
        return len(self._entries) - self._ready_count

    @property
    def processing(self) -> int:
        """How many items are worked on."""
        return len(self._processing)

    @property
    def shutting_down(self) -> bool:
        """Whether :meth:`shut_down` was called."""
        return self._shut_down

    def add(self, item: Item, *, priority: int = 0, after: float = 0.0, rate_limited: bool = False) -> None:
        """Queues ``item``: now, ``after`` seconds, or when the rate limiter says (the earlier of both).

        Adding is without effect after :meth:`shut_down`.
        """
        if self._shut_down:
            return
        if rate_limited:
            limited = self._limiter.when(item)
            after = min(after, limited) if after > 0 else limited
        now = self._clock.monotonic()
        ready_at = now + after if after > 0 else None
        if ready_at is not None and self._metrics:
            self._metrics.retries.inc()
        entry = self._entries.get(item)
        if entry is None:
            self._insert(item, priority, ready_at, now)
        elif entry.ready_at is None:
            if priority > entry.priority:
                self._raise_priority(entry, priority)
        elif ready_at is None or ready_at < entry.ready_at or priority > entry.priority:
            self._make_stale(entry)
            earliest = None if ready_at is None else min(ready_at, entry.ready_at)
            self._insert(item, max(priority, entry.priority), earliest, now)

    def add_after(self, item: Item, seconds: float, *, priority: int = 0) -> None:
        """Queues ``item`` after ``seconds``."""
        self.add(item, priority=priority, after=seconds)

    def add_rate_limited(self, item: Item, *, priority: int = 0) -> None:
        """Counts a failure of ``item`` and queues it when the rate limiter allows."""
        self.add(item, priority=priority, rate_limited=True)

    def backoff(self, item: Item) -> float:
        """Counts a failure of ``item`` and returns the seconds to wait, without queueing it."""
        return self._limiter.when(item)

    def forget(self, item: Item) -> None:
        """The item succeeded, or is given up: its failures do not count any more."""
        self._limiter.forget(item)

    def num_requeues(self, item: Item) -> int:
        """How many failures of ``item`` are counted."""
        return self._limiter.num_requeues(item)

    async def get(self) -> tuple[Item, int]:
        """The next item and its priority; waits for one. :meth:`done` must follow.

        Raises :class:`QueueShutDown` as soon as the queue is shut down, whatever it still holds: what
        is left undone is found again by the next start.
        """
        while True:
            if self._shut_down:
                raise QueueShutDown
            entry = self._take()
            if entry is not None:
                return entry.item, entry.priority
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake(1)
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise

    def done(self, item: Item) -> None:
        """``item``, which :meth:`get` handed out, is finished; it may be handed out again."""
        started = self._processing.pop(item, None)
        if started is None:
            return
        if self._metrics:
            self._metrics.work_seconds.observe(self._clock.monotonic() - started)
        entry = self._entries.get(item)
        if entry is not None and entry.ready_at is None:
            heapq.heappush(self._ready, (-entry.priority, entry.order, entry))
            self._wake(1)
        if not self._processing:
            self._idle.set()

    def shut_down(self) -> None:
        """Takes nothing more and hands out nothing more; those who wait in :meth:`get` are told."""
        self._shut_down = True
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._wake(len(self._getters))

    async def shut_down_with_drain(self) -> None:
        """:meth:`shut_down`, then waits until all that was handed out is :meth:`done`."""
        self.shut_down()
        await self._idle.wait()

    def _insert(self, item: Item, priority: int, ready_at: float | None, now: float) -> None:
        self._order += 1
        entry = _Entry(item, priority, self._order, ready_at, now)
        self._entries[item] = entry
        if ready_at is None:
            self._make_ready(entry)
        else:
            heapq.heappush(self._waiting, (ready_at, entry.order, entry))
            self._set_timer()

    def _make_stale(self, entry: _Entry[Item]) -> None:
        """Leaves a waiting entry to be passed over; where most are, they go: their time may be days away."""
        entry.stale = True
        self._stale_count += 1
        if self._stale_count > max(_STALE_KEPT, len(self._waiting) // 2):
            self._waiting = [waiting for waiting in self._waiting if not waiting[2].stale]
            heapq.heapify(self._waiting)
            self._stale_count = 0

    def _make_ready(self, entry: _Entry[Item]) -> None:
        self._ready_count += 1
        if self._metrics:
            self._metrics.adds.inc()
            self._metrics.depth(entry.priority).inc()
        if entry.item not in self._processing:
            heapq.heappush(self._ready, (-entry.priority, entry.order, entry))
            self._wake(1)

    def _raise_priority(self, entry: _Entry[Item], priority: int) -> None:
        if self._metrics:
            self._metrics.depth(entry.priority).dec()
            self._metrics.depth(priority).inc()
        entry.stale = True
        self._order += 1
        raised = _Entry(entry.item, priority, self._order, None, entry.queued_at)
        self._entries[entry.item] = raised
        if entry.item not in self._processing:
            heapq.heappush(self._ready, (-priority, raised.order, raised))

    def _take(self) -> _Entry[Item] | None:
        while self._ready:
            _, _, entry = heapq.heappop(self._ready)
            if entry.stale:
                continue
            del self._entries[entry.item]
            self._ready_count -= 1
            now = self._clock.monotonic()
            self._processing[entry.item] = now
            self._idle.clear()
            if self._metrics:
                self._metrics.depth(entry.priority).dec()
                self._metrics.queued_seconds.observe(now - entry.queued_at)
            return entry
        return None

    def _wake(self, count: int) -> None:
        while count and self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                count -= 1

    def _set_timer(self) -> None:
        while self._waiting and self._waiting[0][2].stale:
            self._pop_waiting()
        if not self._waiting:
            return
        first = self._waiting[0][0]
        if self._timer:
            if self._timer_at <= first:
                return
            self._timer.cancel()
        self._timer_at = first
        self._timer = self._clock.call_later(max(0.0, first - self._clock.monotonic()), self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._waiting and (self._waiting[0][0] <= now or self._waiting[0][2].stale):
            entry = self._pop_waiting()
            if not entry.stale:
                self._order += 1
                entry.order, entry.ready_at, entry.queued_at = self._order, None, now
                self._make_ready(entry)
        self._set_timer()

    def _pop_waiting(self) -> _Entry[Item]:
        _, _, entry = heapq.heappop(self._waiting)
        self._stale_count -= entry.stale
        return entry

    def _ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - started for started in self._processing.values()]
