"""The handover of shards with a fake clock: a kind that cannot be listed, and reconciles that do not end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from prometheus_client import CollectorRegistry

from cfo.runtime.controller.reconcile import Request
from cfo.runtime.process.clock import FakeClock
from cfo.runtime.ring.elector import ShardGate
from cfo.runtime.ring.handover import ShardHandover
from cfo.runtime.ring.metrics import ShardingMetrics
from cfo.runtime.ring.requests import ShardedRequests
from cfo.runtime.sharding.ranges import Partition
from test.support.scheduling import run_until_idle
from test.unit.runtime.manager.test_leaderelection import FakeLock
from test.unit.runtime.ring.test_elector import Member, advance, released, running

SHARDS = 4
LEASE_SECONDS = 15.0


def partition(owned: frozenset[int]) -> Partition:
    return Partition(SHARDS, owned)


class StuckCache:
    """A cache in which a kind cannot be listed until :attr:`listed` is set."""

    def __init__(self) -> None:
        self.partition = partition(frozenset())
        self.listed = anyio.Event()
        self.changes: list[set[int]] = []

    @property
    def holds_partition(self) -> bool:
        return self.listed.is_set()

    async def set_partition(self, changed: Partition) -> None:
        self.partition = changed
        self.changes.append({*changed.owned})
        await self.wait_for_partition()

    async def wait_for_partition(self) -> None:
        await self.listed.wait()


class Replica(Member):
    """A member whose handover follows its membership."""

    def __init__(self, lock: FakeLock, identity: str, clock: FakeClock) -> None:
        super().__init__(lock, identity, clock)
        self.cache = StuckCache()
        self.enqueued: list[set[int]] = []
        self.requests = ShardedRequests(
            partition(frozenset()),
            gate=lambda shard: ShardGate(self.elector, shard),
            may_work_on=self.elector.may_work_on,
            on_idle=self.elector.release,
        )
        self.handover = ShardHandover(
            self.elector,
            self.requests,
            cast("Any", self.cache),
            ShardingMetrics(CollectorRegistry()),
            clock=clock,
            partition=partition,
            enqueue=self._enqueue,
            on_leader=lambda: None,
        )

    async def _enqueue(self, gained: Partition) -> None:
        self.enqueued.append({*gained.owned})

    def free_surplus(self) -> None:
        """Do nothing: this is what the handover does."""

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.handover.run)
            await super().run()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def replicas(*identities: str) -> AsyncIterator[tuple[FakeClock, list[Replica]]]:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    created = [Replica(lock, identity, clock) for identity in identities]
    async with running(*created[:1]):
        yield clock, created


async def test_kind_that_cannot_be_listed_delays_the_start_of_shards_for_one_lease_at_most() -> None:
    async with replicas("a") as (clock, (one,)):
        await advance(clock, LEASE_SECONDS - 3, one)
        assert one.requests.active == frozenset()
        await advance(clock, 6, one)
        assert one.requests.active == {0, 1, 2, 3}
        assert one.enqueued == [{0, 1, 2, 3}]
        assert not one.requests.is_cached, "controllers that need the kind wait"
        assert one.cache.changes == [{0, 1, 2, 3}], "the kinds are not listed again and again"

        one.cache.listed.set()
        await advance(clock, 3, one)
        assert one.requests.is_cached


async def test_kind_that_cannot_be_listed_does_not_keep_a_replica_from_giving_shards_away() -> None:
    async with replicas("a", "b") as (clock, (one, two)):
        one.cache.listed.set()
        await advance(clock, 3, one)
        assert len(one.requests.active) == 4
        one.cache.listed = anyio.Event()
        one.cache.partition = partition(frozenset())  # the next change waits
        two.cache.listed.set()
        async with running(two):
            await advance(clock, 8, one, two)
            assert len(two.requests.active) == 2
            others = [Replica(cast("Any", one.elector._lock), identity, clock) for identity in ("c", "d")]
            for other in others:
                other.cache.listed.set()
            async with running(*others):
                await advance(clock, 8, one, two, *others)
                assert [len(replica.requests.active) for replica in (one, two, *others)] == [1, 1, 1, 1]


@pytest.mark.parametrize("hangs", [False, True])
async def test_reconcile_that_hangs_delays_its_shard_for_one_lease_at_most(hangs: bool) -> None:
    requests = [Request(f"team-{number}", "x") for number in range(40)]
    everything = partition(frozenset(range(SHARDS)))
    assert {everything.shard_of(request.namespace, "") for request in requests} == everything.owned
    async with replicas("a", "b") as (clock, (one, two)), anyio.create_task_group() as tasks:
        one.cache.listed.set()
        two.cache.listed.set()
        await advance(clock, 3, one)

        async def reconcile(request: Request) -> None:
            one.requests.begin(request)
            try:
                with one.requests.cancellable(request):
                    await anyio.sleep_forever()
            finally:
                one.requests.end(request)

        for request in requests if hangs else ():
            tasks.start_soon(reconcile, request)
        await run_until_idle()
        async with running(two):
            await advance(clock, LEASE_SECONDS - 2, one, two)
            assert len(two.requests.active) == (0 if hangs else 2)
            await advance(clock, 8, one, two)
            assert len(two.requests.active) == 2
            assert not one.requests.draining
        tasks.cancel_scope.cancel()
