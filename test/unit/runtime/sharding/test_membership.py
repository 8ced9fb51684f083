"""The rules of one member: when it may work, what it writes, and when it has been removed."""

from __future__ import annotations

import pytest

from cfo.runtime.sharding.membership import Membership, MembershipLost
from cfo.runtime.sharding.record import MAX_MEMBERS, Member, RingRecord


def _member(identity: str = "a", shards: int = 4) -> Membership:
    return Membership(identity, shards, lease_seconds=15, renew_deadline=10.0)


def _record(owners: str, **renewals: int) -> RingRecord:
    """Return a record with one letter for the owner of each shard (``-``: free), and the renewals of its members."""
    members = {identity: Member(count, 15) for identity, count in renewals.items()}
    return RingRecord(tuple("" if owner == "-" else owner for owner in owners), members)


def _renew(member: Membership, record: RingRecord, now: float) -> RingRecord:
    """Let ``member`` read and write ``record``; return the written record."""
    member.observe(record, now)
    proposed = member.propose(now)
    assert proposed is not None
    member.confirm(proposed, now)
    return proposed


def test_first_member_takes_all_shards() -> None:
    member = _member()

    assert _renew(member, RingRecord.free(4), 100.0) == _record("aaaa", a=1)
    assert member.owned == member.wanted == frozenset(range(4))


def test_member_may_work_until_its_deadline_after_the_start_of_its_last_renewal() -> None:
    member = _member()
    member.observe(RingRecord.free(4), 100.0)
    proposed = member.propose(100.5)
    assert proposed is not None
    assert not member.may_work_on(0, 101.0), "the write has no answer yet"

    member.confirm(proposed, started_at=101.0)

    assert member.may_work_on(0, 110.9)
    assert not member.may_work_on(0, 111.0)


def test_second_member_waits_until_the_first_has_freed_shards() -> None:
    one, two = _member("a"), _member("b")
    record = _renew(one, RingRecord.free(4), 0.0)
    record = _renew(two, record, 1.0)
    assert record == _record("aaaa", a=1, b=1)
    assert not two.owned

    record = _renew(one, record, 2.0)
    surplus = one.owned - one.wanted
    assert len(surplus) == 2
    assert one.may_work_on(min(surplus), 2.0), "it works on the shards until it releases them"
    one.release(surplus)
    assert not one.may_work_on(min(surplus), 2.0)
    record = _renew(one, record, 2.1)
    assert record.owned_by("a") == frozenset(range(4)) - surplus
    record = _renew(two, record, 3.0)

    assert two.owned == surplus


def test_member_is_removed_after_its_lease_seconds_without_renewal() -> None:
    survivor = _member("b")
    record = _renew(survivor, _record("aa--", a=7), 0.0)
    assert record == _record("aabb", a=7, b=1)
    record = _renew(survivor, record, 14.9)
    assert record == _record("aabb", a=7, b=2)
    assert survivor.expires_at() == 15.0

    assert _renew(survivor, record, 15.0) == _record("bbbb", b=3)


def test_renewal_of_another_member_extends_its_lease() -> None:
    survivor = _member("b")
    record = _renew(survivor, _record("aa--", a=7), 0.0)
    record = _renew(survivor, RingRecord(record.owners, {**record.members, "a": Member(8, 15)}), 14.0)

    assert _renew(survivor, record, 28.9).owned_by("a") == {0, 1}


def test_member_with_a_longer_lease_is_removed_later() -> None:
    survivor = _member("b")
    record = RingRecord(("a", "a", "", ""), {"a": Member(7, 60)})
    record = _renew(survivor, record, 0.0)

    record = _renew(survivor, record, 59.9)
    assert record.owned_by("a") == {0, 1}
    assert record.lease_seconds == 60


def test_removed_member_finds_out_when_it_reads_the_record() -> None:
    member = _member()
    _renew(member, RingRecord.free(4), 0.0)

    with pytest.raises(MembershipLost, match="lost the shards 0, 1, 2, 3"):
        member.observe(_record("bbbb", b=1), 1.0)
    assert not member.owned


def test_removed_member_without_shards_joins_again() -> None:
    member = _member("c")
    _renew(member, _record("aabb", a=1, b=1), 0.0)

    record = _renew(member, _record("aabb", a=9, b=9), 30.0)

    assert record.members["c"] == Member(2, 15)


def test_each_write_has_another_number_whatever_its_outcome() -> None:
    """Otherwise a renewal could look like the one before it, and the member would be removed too early."""
    member = _member()
    numbers = []
    for now in (0.0, 2.0, 4.0):
        member.observe(RingRecord.free(4), now)
        proposed = member.propose(now)
        assert proposed is not None
        numbers.append(proposed.members["a"].renewals)

    assert numbers == [1, 2, 3]


def test_shards_taken_by_a_write_of_unknown_outcome_are_confirmed_first() -> None:
    member = _member()
    member.observe(RingRecord.free(4), 0.0)
    stored = member.propose(0.0)
    assert stored is not None

    member.observe(stored, 2.0)
    assert not member.owned

    _renew(member, stored, 2.0)
    assert member.owned == frozenset(range(4))


def test_released_shard_is_not_worked_on_until_a_later_write_keeps_it() -> None:
    """The write that frees it may be stored after a read that still lists it."""
    member = _member()
    record = _renew(member, RingRecord.free(4), 0.0)
    with_joined = RingRecord(record.owners, {**record.members, "b": Member(1, 15)})
    record = _renew(member, with_joined, 2.0)
    surplus = member.owned - member.wanted
    member.release(surplus)
    member.propose(3.0)  # its answer is lost

    member.observe(record, 4.0)
    assert not any(member.may_work_on(shard, 4.0) for shard in surplus)

    record = _renew(member, RingRecord(record.owners, {"a": record.members["a"]}), 5.0)  # b has left
    assert all(member.may_work_on(shard, 5.0) for shard in surplus)


def test_shard_released_while_a_renewal_is_in_flight_is_freed_by_the_next_one() -> None:
    member = _member()
    record = _renew(member, RingRecord.free(4), 0.0)
    record = _renew(member, RingRecord(record.owners, {**record.members, "b": Member(1, 15)}), 2.0)
    surplus = member.owned - member.wanted
    member.observe(record, 4.0)
    proposed = member.propose(4.0)
    assert proposed is not None
    member.release(surplus)
    member.confirm(proposed, 4.0)

    assert not member.owned & surplus
    assert _renew(member, proposed, 4.1).owned_by("a") == member.owned


def test_shards_of_a_new_lease_are_taken_after_the_lease_duration() -> None:
    member = _member()
    record = _renew(member, RingRecord.unknown(4, 15, 1), 0.0)
    assert not member.owned

    assert _renew(member, record, 15.0).owned_by("a") == frozenset(range(4))


def test_members_of_a_deleted_lease_keep_their_shards_until_their_deadline() -> None:
    member = _member()
    record = _renew(member, _record("--bb", b=3), 0.0)
    assert record.owned_by("a") == {0, 1}

    record = _renew(member, RingRecord.unknown(4, 15, 1), 9.0)

    assert record.owners == ("a", "a", "unknown", "unknown")
    assert member.owned == {0, 1}
    with pytest.raises(MembershipLost):
        member.observe(RingRecord.unknown(4, 15, 1), 19.0)


def test_time_of_a_new_lease_begins_again_when_it_is_deleted_again() -> None:
    member = _member()
    _renew(member, RingRecord.unknown(4, 15, 1), 0.0)

    record = _renew(member, RingRecord.unknown(4, 15, 2), 14.0)

    assert not _renew(member, record, 28.0).owned_by("a")


def test_leaving_member_frees_its_shards() -> None:
    member = _member()
    record = _renew(member, _record("--bb", b=3), 0.0)
    assert record.owned_by("a") == {0, 1}

    assert member.propose_leave(1.0) == _record("--bb", b=3)
    assert not member.may_work_on(0, 1.0)


def test_member_without_renewal_for_half_of_the_deadline_is_late() -> None:
    member = _member("b")
    record = _renew(member, _record("aa--", a=7), 0.0)
    record = _renew(member, record, 4.9)
    assert not member.has_late_member(5.0)
    assert member.has_late_member(5.1)

    _renew(member, RingRecord(record.owners, {**record.members, "a": Member(8, 15)}), 5.2)
    assert not member.has_late_member(5.3)


def test_full_ring_has_no_place_for_another_member() -> None:
    member = _member()
    others = {f"m{number}": Member(1, 15) for number in range(MAX_MEMBERS)}
    member.observe(RingRecord(("m0",) * 4, others), 0.0)

    assert member.propose(1.0) is None
    assert member.propose(15.0) is not None, "the others are removed"
