"""Starts the shards that this replica gains, and ends the work on those that it should give away.

A gained shard is started after the cache holds its objects: then its requests are accepted, and the objects are
enqueued, as after a start. A shard that another member should own is drained, then freed by the next renewal of the
membership, and only then removed from the cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.clock import Clock
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

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the membership until cancelled."""
        task_status.started()
        while True:
            changed = self._elector.changed
            await self._follow()
            await changed.wait()

    async def _follow(self) -> None:
        requests, membership = self._requests, self._elector.membership
        started_at = self._clock.monotonic()
        wanted = membership.wanted
        surplus = requests.active - wanted
        if surplus:
            _log.info("Giving shards away", shards=sorted(surplus), running=requests.running)
            requests.drain(surplus)
        gained = wanted - requests.active
        cached = self._partition(requests.active | requests.draining | gained)
        if cached != self._cache.partition:
            await self._cache.set_partition(cached)
        gained &= membership.owned
        if gained:
            requests.activate(gained)
            await self._enqueue(self._partition(gained))
            self._metrics.gained(len(gained), self._clock.monotonic() - started_at)
            _log.info("Started shards", shards=sorted(gained))
        self._metrics.observe(len(requests.active), len(membership.record.members))
        if LEADER_SHARD in requests.active and not self._is_leading:
            self._is_leading = True
            self._on_leader()
