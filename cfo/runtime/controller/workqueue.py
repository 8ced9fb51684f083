"""The work queue between event handlers and workers: client-go's contract with controller-runtime's priorities.

An item is in the queue at most once, no matter how often it is added. While a worker processes an item, the queue does
not hand it out again: if it is added meanwhile, it waits until :meth:`WorkQueue.done`. Therefore two workers never
reconcile the same object at the same time, and no change is lost. An item can be added with a delay
(``after``), which :meth:`WorkQueue.backoff` returns for a failed item; if an item is added several times, the earliest
time and the highest priority apply. Items with a higher priority are handed out first; but every 16th item is one of
the lowest priority, so that items that keep coming cannot hold back those of the first list after a restart.

Items of equal priority are handed out fairly: their *shares* (the namespaces, in a controller) take turns, and within a
share, items are handed out in the order in which they became ready. So an item waits for at most one item of each other
share, however many items these have. While several shares wait, none of them gets more than ``max_share`` workers. The
exception are items that are added with ``first``: they are handed out before all others, without these limits.

Each entry has the causes that queued it (:mod:`.cause`). To compare the states of an updated object, a cause
refers to both; a queue holds at most 4 MiB of such states and records later causes without them.

A queue belongs to one event loop and uses no locks; only :meth:`WorkQueue.get` waits.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from cfo.runtime.client.ratelimit import DefaultRateLimiter, ExponentialRateLimiter
from cfo.runtime.controller.cause import Cause, Causes, CauseType
from cfo.runtime.controller.metrics import QueueMetrics
from cfo.runtime.process.clock import Clock, SystemClock, Timer

LOW_PRIORITY = -100
"""The priority of objects of an initial list (controller-runtime's ``LowPriority``)."""

_MAX_STALE: Final = 64
"""The number of stale entries that are never too many; see :meth:`WorkQueue._make_stale`."""

_MAX_LEVELS: Final = 16
"""The number of priorities from which on those without ready items are forgotten."""

_LOWEST_EVERY: Final = 16
"""Each item of this number is one of the lowest priority."""

_FIRST_LEVEL: Final = sys.maxsize
"""The level of the items that are handed out first; all others have that of their priority."""

_MAX_HELD: Final = 4 * 1024 * 1024
"""The maximum number of bytes of JSON to which the causes in a queue refer."""

_NO_CAUSES: Final = Causes()
_GENERIC: Final = Cause(CauseType.GENERIC)

Item = TypeVar("Item", bound=Hashable)


class QueueShutDown(Exception):
    """Raised by :meth:`WorkQueue.get` after the queue was shut down."""


class _Entry(Generic[Item]):
    """A queued or running item.

    ``ready_at`` is None when it can be handed out; ``since`` is when it was queued or taken; ``first``: before all
    others; ``stale`` means that another entry replaced it. The ready entries of one share and level are a ring:
    ``next`` of the last one is the first one.
    """

    __slots__ = (
        "causes",
        "first",
        "item",
        "next",
        "order",
        "priority",
        "ready_at",
        "since",
        "stale",
    )

    def __init__(
        self,
        item: Item,
        priority: int,
        order: int,
        ready_at: float | None,
        since: float,
        causes: Causes,
        *,
        first: bool,
    ) -> None:
        self.item = item
        self.priority = priority
        self.order = order
        self.ready_at = ready_at
        self.since = since
        self.causes = causes
        self.first = first
        self.stale = False
        self.next: _Entry[Item] | None = None

    @property
    def level(self) -> int:
        return _FIRST_LEVEL if self.first else self.priority


_Level = OrderedDict[Hashable, _Entry[Item]]
"""The last ready entry of each share, for one level; the next share to be served is the first."""


def _only_share(_: object) -> Hashable:
    return None


class QueuedItem(NamedTuple, Generic[Item]):
    """An item of a queue, for reports.

    ``running``: a worker processes it. ``seconds``: how long it has been running or ready, or, negative, until it
    becomes ready.
    """

    item: Item
    running: bool
    priority: int
    seconds: float
    causes: Causes


class WorkQueue(Generic[Item]):
    """A queue of hashable items for one controller.

    ``share_of`` returns the share of an item (``None``: all items have the same). While several shares have ready
    items, at most ``max_share`` items of each are processed at a time (0: no limit).
    """

    def __init__(
        self,
        *,
        rate_limiter: ExponentialRateLimiter | None = None,
        clock: Clock | None = None,
        metrics: QueueMetrics | None = None,
        share_of: Callable[[Item], Hashable] | None = None,
        max_share: int = 0,
    ) -> None:
        self._share_of = share_of or _only_share
        self._max_share = max_share or sys.maxsize
        self._clock = clock or SystemClock()
        self._limiter = rate_limiter or DefaultRateLimiter(self._clock)
        self._metrics = metrics
        self._entries: dict[Item, _Entry[Item]] = {}
        self._levels: dict[int, _Level[Item]] = {}
        self._waiting: list[tuple[float, int, _Entry[Item]]] = []
        self._ready_count = 0
        self._stale_count = 0
        self._processing: dict[Item, _Entry[Item]] = {}
        self._held = 0
        self._order = 0
        self._taken = 0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._shut_down = False
        if metrics:
            metrics.observe_running(self._ages)

    def __len__(self) -> int:
        """Return the number of ready items, including those that wait for :meth:`done`, without delayed items."""
        return self._ready_count

    @property
    def waiting(self) -> int:
        """The number of delayed items."""
        return len(self._entries) - self._ready_count

    @property
    def processing(self) -> int:
        """The number of items that workers are processing."""
        return len(self._processing)

    def causes(self, item: Item) -> Causes:
        """Return the causes of ``item`` while a worker processes it, else no causes."""
        running = self._processing.get(item)
        return running.causes if running is not None else _NO_CAUSES

    def items(self) -> Iterator[QueuedItem[Item]]:
        """Yield the items that are running, ready and delayed. Use it at once: changes of the queue invalidate it."""
        now = self._clock.monotonic()
        for item, running in self._processing.items():
            yield QueuedItem(item, True, 0, now - running.since, running.causes)
        for item, entry in self._entries.items():
            since = entry.since if entry.ready_at is None else entry.ready_at
            yield QueuedItem(item, False, entry.priority, now - since, entry.causes)

    def add(
        self,
        item: Item,
        *,
        priority: int = 0,
        after: float = 0.0,
        cause: Cause = _GENERIC,
        first: bool = False,
    ) -> None:
        """Add ``item`` now, or after ``after`` seconds; with ``first``, it is handed out before all others.

        ``cause`` is merged with the causes of an item that is ready already. For a delayed item, the causes are those
        of its earliest time. Has no effect after :meth:`shut_down`.
        """
        if self._shut_down:
            return  # the next process reconciles all objects after its start
        now = self._clock.monotonic()
        ready_at = now + after if after > 0 else None
        if ready_at is not None and self._metrics:
            self._metrics.retries.inc()
        entry = self._entries.get(item)
        if entry is None:
            causes = self._hold(Causes.of(cause))
            self._insert(item, priority, ready_at, now, causes, first=first)
            return
        if entry.ready_at is None:
            if ready_at is None:  # a delayed addition is covered by the entry that is ready
                self._held -= entry.causes.held
                entry.causes = self._hold(entry.causes.followed_by(cause))
            if priority > entry.priority or (first and not entry.first):
                self._raise(entry, max(priority, entry.priority), first=first or entry.first)
            return
        is_earlier = ready_at is None or ready_at < entry.ready_at
        is_first = first or entry.first
        if not is_earlier and priority <= entry.priority and is_first == entry.first:
            return
        self._make_stale(entry)  # an entry within a heap cannot change its order
        causes = entry.causes
        earliest: float | None = entry.ready_at
        if is_earlier:
            self._held -= causes.held
            causes = self._hold(Causes.of(cause))
            earliest = ready_at
        highest = max(priority, entry.priority)
        self._insert(item, highest, earliest, now, causes, first=is_first)

    def add_after(
        self, item: Item, seconds: float, *, priority: int = 0, cause: Cause = _GENERIC
    ) -> None:
        """Add ``item`` after ``seconds``."""
        self.add(item, priority=priority, after=seconds, cause=cause)

    def backoff(self, item: Item) -> float:
        """Count a failure of ``item`` and return the seconds to wait, without adding it."""
        return self._limiter.when(item)

    def forget(self, item: Item) -> None:
        """Reset the failures of ``item``, because it succeeded or is not retried."""
        self._limiter.forget(item)

    def num_requeues(self, item: Item) -> int:
        """Return the number of failures of ``item``."""
        return self._limiter.num_requeues(item)

    async def get(self) -> tuple[Item, int]:
        """Wait for the next item and return it with its priority. The caller must call :meth:`done` afterwards.

        Raises :class:`QueueShutDown` as soon as the queue is shut down, even if it still holds items: the next process
        reconciles all objects after its start.
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
                    self._wake(1)  # this getter was woken for an item, which another one must take
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise

    def done(self, item: Item) -> None:
        """Mark ``item``, which :meth:`get` returned, as finished, so that it can be handed out again."""
        running = self._processing.pop(item, None)
        if running is None:
            return  # as in client-go, a second call is ignored
        if self._metrics:
            self._metrics.work_seconds.observe(self._clock.monotonic() - running.since)
        entry = self._entries.get(item)
        if entry is not None and entry.ready_at is None:  # added while it was processed
            self._push(entry)
            self._wake(1)

    def shut_down(self) -> None:
        """Accept and hand out no more items; callers that wait in :meth:`get` get :class:`QueueShutDown`."""
        self._shut_down = True
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._wake(len(self._getters))

    def _hold(self, causes: Causes) -> Causes:
        """Count the states that ``causes`` refer to, or return the causes without states if they are too many."""
        held = causes.held
        if held and self._held + held > _MAX_HELD:
            return causes.without_states()
        self._held += held
        return causes

    def _insert(
        self,
        item: Item,
        priority: int,
        ready_at: float | None,
        now: float,
        causes: Causes,
        *,
        first: bool,
    ) -> None:
        self._order += 1
        entry = _Entry(item, priority, self._order, ready_at, now, causes, first=first)
        self._entries[item] = entry
        if ready_at is None:
            self._make_ready(entry)
        else:
            heapq.heappush(self._waiting, (ready_at, entry.order, entry))
            self._set_timer()

    def _make_stale(self, entry: _Entry[Item]) -> None:
        """Mark a delayed entry to be skipped.

        Stale entries are removed when they are more than half of all, because they may not be due for days.
        """
        entry.stale = True
        self._stale_count += 1
        if self._stale_count > max(_MAX_STALE, len(self._waiting) // 2):
            self._waiting = [waiting for waiting in self._waiting if not waiting[2].stale]
            heapq.heapify(self._waiting)
            self._stale_count = 0

    def _make_ready(self, entry: _Entry[Item]) -> None:
        self._ready_count += 1
        if self._metrics:
            self._metrics.adds.inc()
            self._metrics.depth[entry.priority].inc()
        if entry.item in self._processing:
            return  # done() pushes it, because no object is reconciled twice at a time
        self._push(entry)
        if self._getters:
            self._wake(1)

    def _push(self, entry: _Entry[Item]) -> None:
        """Append an entry to those of its level and share."""
        level = self._levels.get(entry.level)
        if level is None:
            level = self._add_level(entry.level)
        share = self._share_of(entry.item)
        last = level.get(share)
        if last is None:
            entry.next = entry
        else:
            entry.next = last.next
            last.next = entry
        level[share] = entry

    def _add_level(self, number: int) -> _Level[Item]:
        """Add a level, so that the highest one stays first, and forget empty levels if there are many."""
        levels = self._levels
        if len(levels) >= _MAX_LEVELS:
            levels = {known: level for known, level in levels.items() if level}
        added: _Level[Item] = OrderedDict()
        self._levels = dict(sorted({**levels, number: added}.items(), reverse=True))
        return added

    def _level_of_free_share(self, levels: Iterable[_Level[Item]]) -> _Level[Item] | None:
        """Return the first level with a share that has fewer than ``max_share`` workers, and move that share first."""
        running = Counter(map(self._share_of, self._processing))
        full = [share for share, count in running.items() if count >= self._max_share]
        for level in levels:
            full_here = [share for share in full if share in level]
            if len(full_here) == len(level):
                continue
            first = next(iter(level))
            while first in full:
                level.move_to_end(first)
                first = next(iter(level))
            return level
        return None

    def _raise(self, entry: _Entry[Item], priority: int, *, first: bool) -> None:
        """Replace a ready entry by one of a higher level; :meth:`_take` skips the stale one."""
        if self._metrics:
            self._metrics.depth[entry.priority].dec()
            self._metrics.depth[priority].inc()
        entry.stale = True
        self._order += 1
        raised = _Entry(
            entry.item, priority, self._order, None, entry.since, entry.causes, first=first
        )
        self._entries[entry.item] = raised
        if entry.item not in self._processing:
            self._push(raised)

    def _take(self) -> _Entry[Item] | None:
        """Remove the next entry, and move its share behind the others."""
        levels: Collection[_Level[Item]] = self._levels.values()
        if self._taken % _LOWEST_EVERY == _LOWEST_EVERY - 1:
            levels = list(levels)[::-1]
        while True:
            level = next(filter(None, levels), None)  # the first one that is not empty
            if level is None:
                return None
            is_limited = level is not self._levels.get(_FIRST_LEVEL)
            if is_limited and len(self._processing) >= self._max_share:
                level = self._level_of_free_share(levels) or level
            share, last = level.popitem(last=False)
            entry = last.next or last  # the first of the ring
            if entry is not last:
                last.next = entry.next
                level[share] = last  # at the end of the level: the other shares are next
            entry.next = None
            if entry.stale:
                continue  # its replacement has a higher level
            item = entry.item
            del self._entries[item]
            self._ready_count -= 1
            self._taken += 1
            now = self._clock.monotonic()
            self._held -= entry.causes.held
            self._processing[item] = entry
            if self._metrics:
                self._metrics.depth[entry.priority].dec()
                self._metrics.queued_seconds.observe(now - entry.since)
            entry.since = now
            return entry

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
                return  # the timer sets the next one
            self._timer.cancel()
        self._timer_at = first
        delay = max(0.0, first - self._clock.monotonic())
        self._timer = self._clock.call_later(delay, self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._waiting:
            ready_at, _, first = self._waiting[0]
            if ready_at > now and not first.stale:
                break
            entry = self._pop_waiting()
            if entry.stale:
                continue
            self._order += 1
            entry.order = self._order
            entry.ready_at = None
            entry.since = now
            self._make_ready(entry)
        self._set_timer()

    def _pop_waiting(self) -> _Entry[Item]:
        _, _, entry = heapq.heappop(self._waiting)
        if entry.stale:
            self._stale_count -= 1
        return entry

    def _ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - running.since for running in self._processing.values()]
