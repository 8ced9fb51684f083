"""The member of a ring on its Lease, with a fake clock: joining, other holders, deleted and edited Leases, leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest

from cfo.runtime.client.write_gate import WriteRejected
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, LeaderElector, LeadershipLost
from cfo.runtime.process.clock import FakeClock
from cfo.runtime.ring.elector import ShardElector, ShardGate
from cfo.runtime.ring.options import ShardingOptions
from cfo.runtime.sharding.record import ANNOTATION
from test.support.scheduling import run_until_idle
from test.unit.runtime.manager.test_leaderelection import FakeLock


def _options(identity: str) -> LeaderElectionOptions:
    return LeaderElectionOptions(name="lock", namespace="ns", identity=identity)


class Member:
    """A member with its outcome; it frees surplus shards as soon as it knows them."""

    def __init__(self, lock: FakeLock, identity: str, clock: FakeClock, shards: int = 4) -> None:
        self.elector = ShardElector(
            lock, _options(identity), ShardingOptions(shards=shards), clock=clock, random=lambda: 0.0
        )
        self.error: LeadershipLost | None = None
        self.ended = False

    async def run(self) -> None:
        try:
            await self.elector.run()
        except LeadershipLost as error:
            self.error = error
        self.ended = True

    @property
    def owned(self) -> list[int]:
        return [shard for shard in range(4) if self.elector.may_work_on(shard)]

    def free_surplus(self) -> None:
        for shard in self.elector.membership.owned - self.elector.membership.wanted:
            self.elector.release(shard)


@asynccontextmanager
async def running(*members: Member | LeaderElector) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        for member in members:
            tasks.start_soon(member.run)
            await run_until_idle()
        yield
        tasks.cancel_scope.cancel()


async def advance(clock: FakeClock, seconds: float, *members: Member) -> None:
    for _ in range(round(seconds / 0.5)):
        clock.advance(0.5)
        await run_until_idle()
        for member in members:
            member.free_surplus()
            await run_until_idle()


def record(lock: FakeLock) -> dict[str, list[int]]:
    """Return the shards of each member in the stored Lease."""
    assert lock.lease is not None
    members = orjson.loads(lock.lease["metadata"]["annotations"][ANNOTATION])["members"]
    return {identity: member["shards"] for identity, member in members.items()}


def released(lock: FakeLock) -> None:
    """Store a Lease that no one holds."""
    lock._store({"metadata": {}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})


async def test_first_member_takes_all_shards_of_a_released_lease() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    member = Member(lock, "a", clock)
    async with running(member):
        assert member.owned == [0, 1, 2, 3]
        assert member.elector.is_leader
        assert member.elector.leader == "a"
        assert member.elector.lease_seconds == 10.0
        assert lock.spec["holderIdentity"] == "ring:4"
        assert lock.spec["leaseDurationSeconds"] == 15
        assert lock.spec["leaseTransitions"] == 1
        assert record(lock) == {"a": [0, 1, 2, 3]}


async def test_missing_lease_is_created_and_its_shards_are_taken_after_the_lease_duration() -> None:
    """It may have been deleted while other replicas were working."""
    lock, clock = FakeLock(), FakeClock()
    member = Member(lock, "a", clock)
    async with running(member):
        await advance(clock, 14.0)
        assert member.owned == []
        await advance(clock, 2.0)
        assert member.owned == [0, 1, 2, 3]


async def test_members_share_the_shards_and_one_of_them_is_the_leader() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one, two = Member(lock, "a", clock), Member(lock, "b", clock)
    async with running(one, two):
        await advance(clock, 5.0, one, two)
        assert sorted(one.owned + two.owned) == [0, 1, 2, 3]
        assert len(one.owned) == 2
        assert (one.elector.is_leader, two.elector.is_leader) == (True, False)
        with pytest.raises(WriteRejected, match="does not own shard 0 of ring:4 in Lease ns/lock"):
            two.elector.check()
        ShardGate(two.elector, two.owned[0]).check()


async def test_leaving_member_frees_its_shards_at_once() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one, two = Member(lock, "a", clock), Member(lock, "b", clock)
    async with running(one, two):
        await advance(clock, 5.0, one, two)
        one.elector.stop()
        await run_until_idle()
        assert one.ended
        assert set(record(lock)) == {"b"}
        await advance(clock, 2.5, two)
        assert two.owned == [0, 1, 2, 3]
        two.elector.stop()
        await run_until_idle()
        assert lock.spec["holderIdentity"] == ""
        assert record(lock) == {}


async def test_ring_and_replica_without_sharding_wait_for_each_other() -> None:
    lock, clock = FakeLock(), FakeClock()
    old = LeaderElector(lock, _options("old"), clock=clock, metrics=Metrics(), random=lambda: 0.0)
    member = Member(lock, "a", clock)
    async with running(old, member):
        await advance(clock, 40.0)
        assert old.is_leader
        assert member.owned == []
        assert member.elector.leader == "old"
        old.stop()
        await run_until_idle()
        await advance(clock, 2.5)
        assert member.owned == [0, 1, 2, 3]

        late = LeaderElector(lock, _options("late"), clock=clock, metrics=Metrics(), random=lambda: 0.0)
        async with running(late):
            await advance(clock, 40.0)
            assert not late.is_leader
            assert late.leader == "ring:4"


async def test_ring_takes_a_lease_that_a_replica_without_sharding_does_not_renew() -> None:
    lock, clock = FakeLock(), FakeClock()
    lock._store({"metadata": {}, "spec": {"holderIdentity": "old", "leaseDurationSeconds": 15}})
    member = Member(lock, "a", clock)
    async with running(member):
        await advance(clock, 14.5)
        assert member.owned == []
        await advance(clock, 4.5)
        assert member.owned == [0, 1, 2, 3]


async def test_rings_with_different_numbers_of_shards_wait_for_each_other() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one, other = Member(lock, "a", clock), Member(lock, "b", clock, shards=8)
    async with running(one, other):
        await advance(clock, 40.0)
        assert other.owned == []
        one.elector.stop()
        await run_until_idle()
        await advance(clock, 2.5)
        assert other.elector.is_leader


async def test_member_that_cannot_renew_ends_at_its_deadline() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    member = Member(lock, "a", clock)
    async with running(member):
        lock.down = True
        await advance(clock, 9.5)
        assert member.owned
        await advance(clock, 1.0)
        assert member.owned == []
        assert "was not renewed for 10" in str(member.error)


async def test_members_write_less_often_while_another_one_is_late() -> None:
    """It may be on a busy machine, where each of their writes makes its own fail."""
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one, two = Member(lock, "a", clock), Member(lock, "b", clock)
    async with running(one, two):
        await advance(clock, 6.0, one, two)
        await advance(clock, 10.0, one, two)
        usual = lock.updates
        await advance(clock, 10.0, one, two)
        usual = (lock.updates - usual) // 2
        two.elector._lock = FakeLock()  # it no longer reaches the Lease
        two.elector._lock.down = True
        await advance(clock, 5.5, one, two)
        before = lock.updates
        await advance(clock, 6.0, one, two)
        assert lock.updates - before <= 2 < usual


async def test_suspended_member_may_not_write_when_it_continues() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    member = Member(lock, "a", clock)
    async with running(member):
        clock.suspend(60.0)
        assert member.owned == []


async def test_member_without_shards_waits_for_the_server_and_continues() -> None:
    lock, clock = FakeLock(), FakeClock()
    member = Member(lock, "a", clock)  # all shards belong to the unknown member of the new Lease
    async with running(member):
        lock.down = True
        await advance(clock, 12.0)
        assert member.error is None
        lock.down = False
        await advance(clock, 20.0)
        assert member.owned == [0, 1, 2, 3]


async def test_members_of_a_deleted_lease_keep_their_shards() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one, two = Member(lock, "a", clock), Member(lock, "b", clock)
    async with running(one, two):
        await advance(clock, 5.0, one, two)
        before = one.owned, two.owned
        lock.lease = None
        await advance(clock, 5.0, one, two)
        assert (one.owned, two.owned) == before
        assert (one.error, two.error) == (None, None)


@pytest.mark.parametrize("annotation", [None, "", "{", '{"members": {"a": 1}}'])
async def test_edited_record_does_not_give_a_shard_two_owners(annotation: str | None) -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one = Member(lock, "a", clock)
    async with running(one):
        assert lock.lease is not None
        edited: dict[str, Any] = {**lock.lease, "metadata": {**lock.lease["metadata"], "annotations": {}}}
        if annotation is not None:
            edited["metadata"]["annotations"][ANNOTATION] = annotation
        lock._store(edited)
        two = Member(lock, "b", clock)
        async with running(two):
            assert two.owned == []
            await advance(clock, 5.0, one, two)
            assert one.error is None
            assert sorted(one.owned + two.owned) == [0, 1, 2, 3]


@pytest.mark.parametrize("shards", [4, 8])
async def test_cleared_holder_does_not_give_a_shard_two_owners(shards: int) -> None:
    """``kubectl edit`` can clear the holder while the members of the ring, or of another one, are working."""
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    one = Member(lock, "a", clock)
    async with running(one):
        assert lock.lease is not None
        lock._store({**lock.lease, "spec": {**lock.spec, "holderIdentity": ""}})
        two = Member(lock, "b", clock, shards=shards)
        async with running(two):
            assert one.owned == [0, 1, 2, 3]
            assert two.owned == []
            for _ in range(40):
                await advance(clock, 0.5, one, two)
                assert not (one.owned and two.owned) or not {*one.owned} & {*two.owned}
            assert (one.owned == []) == (shards != 4)
            assert two.owned


async def test_lost_membership_ends_the_process() -> None:
    lock, clock = FakeLock(), FakeClock()
    released(lock)
    member = Member(lock, "a", clock)
    async with running(member):
        lock._store({"metadata": {}, "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}})
        await advance(clock, 2.5)
        assert "was acquired by thief" in str(member.error)


async def test_labels_and_unknown_fields_of_the_lease_are_kept() -> None:
    lock, clock = FakeLock(), FakeClock()
    metadata = {"labels": {"a": "b"}, "annotations": {"note": "kept"}}
    lock._store({"metadata": metadata, "spec": {"holderIdentity": "", "preferredHolder": "x"}})
    async with running(Member(lock, "a", clock)):
        assert lock.lease is not None
        assert lock.lease["metadata"]["labels"] == {"a": "b"}
        assert lock.lease["metadata"]["annotations"]["note"] == "kept"
        assert lock.spec["preferredHolder"] == "x"


def test_reserved_identity_is_rejected() -> None:
    with pytest.raises(ValueError, match="'unknown': is reserved"):
        Member(FakeLock(), "unknown", FakeClock())


@pytest.mark.parametrize("shards", [0, 1, 257])
def test_number_of_shards_is_limited(shards: int) -> None:
    with pytest.raises(ValueError, match=f"shards: {shards}: must be between 2 and 256"):
        ShardingOptions(shards=shards)
