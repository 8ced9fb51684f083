"""Starts the shards that this replica gains, and ends the work on those that it should give away.

A gained shard is started after the cache holds its objects: then its requests are accepted, and the objects are
enqueued, as after a start. A shard that another member should own is drained, then freed by the next renewal of the
membership, and only then removed from the cache.

Neither waits longer than a lease: reconciles that are still running then are cancelled, as at the end of the grace
period of a stop. If a kind cannot be listed in this time, the gained shards are started without it, and only the
controllers that need it wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.process.clock import Clock, first_of
from cfo.runtime.ring.elector import ShardElector
from cfo.runtime.ring.metrics import ShardingMetrics
from cfo.runtime.ring.requests import ShardedRequests
from cfo.runtime.sharding.assignment import LEADER_SHARD
from cfo.runtime.sharding.ranges import Partition

__all__ = ["ShardHandover"]

_log = structlog.get_logger(__name__)


class ShardHandover:
    """Lets the work of this replica follow its membership; a runnable.

    ``enqueue`` enqueues the cached objects of a partition; ``on_leader`` is called once, when shard 0 is started.
    """

    name = "shard handover"

    def __init__(
        self,
        elector: ShardElector,
        requests: ShardedRequests,
        cache: Cache,
        metrics: ShardingMetrics,
        *,
        clock: Clock,
        partition: Callable[[frozenset[int]], Partition],
        enqueue: Callable[[Partition], Awaitable[None]],
        on_leader: Callable[[], None],
    ) -> None:
        self._elector = elector
        self._requests = requests
        self._cache = cache
        self._metrics = metrics
        self._clock = clock
        self._partition = partition
        self._enqueue = enqueue
        self._on_leader = on_leader
        self._is_leading = False
        self._patience = elector.options.lease_duration
        self._caching_since: float | None = None
        self._draining_since: dict[int, float] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the membership until cancelled."""
        task_status.started()
        while True:
            changed = self._elector.changed
            await self._follow(changed)
            await changed.wait()

    async def _follow(self, changed: anyio.Event) -> None:
        requests, membership = self._requests, self._elector.membership
        wanted = membership.wanted
        surplus = requests.active - wanted
        if surplus:
            _log.info("Giving shards away", shards=sorted(surplus), running=requests.running)
            requests.drain(surplus)
        self._cancel_late()
        gained = wanted - requests.active
        cached = self._partition(requests.active | requests.draining | gained)
        began = self._clock.monotonic() if self._caching_since is None else self._caching_since
        if cached != self._cache.partition or self._caching_since is not None:
            self._caching_since = began
            # A kind that cannot be listed must not keep this replica from giving shards away.
            await first_of(partial(self._update_cache, cached), changed.wait)
            if self._caching_since is not None and self._clock.monotonic() - began < self._patience:
                return
        requests.is_cached = self._cache.holds_partition
        gained &= membership.owned
        if gained:
            requests.activate(gained)
            await self._enqueue(self._partition(gained))
            self._metrics.gained(len(gained), self._clock.monotonic() - began)
            _log.info("Started shards", shards=sorted(gained), cached=requests.is_cached)
        self._metrics.observe(len(requests.active), len(membership.record.members))
        if LEADER_SHARD in requests.active and not self._is_leading:
            self._is_leading = True
            self._on_leader()

    async def _update_cache(self, partition: Partition) -> None:
        if partition != self._cache.partition:
            await self._cache.set_partition(partition)
        else:
            await self._cache.wait_for_partition()
        self._caching_since = None

    def _cancel_late(self) -> None:
        """Cancel the reconciles in shards that have been draining for longer than a lease."""
        now = self._clock.monotonic()
        draining = self._requests.draining
        self._draining_since = {shard: self._draining_since.get(shard, now) for shard in draining}
        late = {shard for shard, since in self._draining_since.items() if now - since > self._patience}
        if late:
            _log.warning("Cancelling the running reconciles of shards to give away", shards=sorted(late))
            self._requests.cancel(late)
