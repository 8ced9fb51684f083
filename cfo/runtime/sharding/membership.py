"""One member's view of a ring: what it may do now, and what it should write next. No I/O, no timers.

A member repeats: read the record, :meth:`Membership.observe` it, write what :meth:`Membership.propose` returns under
the condition that the record is unchanged (compare-and-swap), and on success :meth:`Membership.confirm` it. The rules
that keep a shard from two members at once:

* A member works on a shard only if its own last successful write lists it as the owner, until ``renew_deadline`` after
  the *start* of that write. A write of unknown outcome changes nothing.
* Only the owner of a shard frees it, after :meth:`Membership.release`: no work on the shard is running.
* Another member frees the shards of a member only after observing for the lease duration of that member, which is
  longer than its ``renew_deadline``, that its counter of renewals did not change. Removing the member and freeing its
  shards is one write; if the member renews meanwhile, that write fails.
* A member that is missing in a record, or lost a shard there, has been removed: :class:`MembershipLost`.
* The first record of a Lease lists an unknown member, which owns all shards until its lease ends: the Lease may have
  been deleted while members were working. These keep their shards, each by its next renewal before its deadline.

All times are of the member's own clock, in seconds; only the rates of the clocks of two members must agree, to better
than the ratio of lease duration and ``renew_deadline`` (1.5 with the defaults).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from cfo.runtime.sharding.assignment import FREE, target_owners
from cfo.runtime.sharding.record import MAX_MEMBERS, UNKNOWN_MEMBER, Member, RingRecord

__all__ = ["Membership", "MembershipLost"]


class MembershipLost(Exception):
    """Raised when another member has taken the shards of this one."""


class Membership:
    """The state of the member ``identity`` in a ring of ``shards``.

    It may work until ``renew_deadline`` seconds after its last renewal; the others wait ``lease_seconds``.
    """

    def __init__(self, identity: str, shards: int, *, lease_seconds: int, renew_deadline: float) -> None:
        self.identity = identity
        self.renew_deadline = renew_deadline
        self.record = RingRecord.free(shards)
        """The record that was read or written last."""
        self._lease_seconds = lease_seconds
        self._renewals = 0
        self._renewed_at = -inf
        self._owned: frozenset[int] = frozenset()
        self._released: frozenset[int] = frozenset()
        self._proposed_release: frozenset[int] = frozenset()
        self._observed: dict[str, tuple[int, float]] = {}

    @property
    def is_member(self) -> bool:
        """Whether the last record lists this member."""
        return self.identity in self.record.members

    @property
    def owned(self) -> frozenset[int]:
        """The shards that this member may work on before its deadline."""
        return self._owned - self._released

    @property
    def wanted(self) -> frozenset[int]:
        """The owned shards that should stay with this member; it should finish its work on the others."""
        target = _target(self.record.members, self.record.owners)
        return frozenset(shard for shard in self.owned if target[shard] == self.identity)

    def remaining(self, now: float) -> float:
        """Return the seconds until the deadline; negative after it."""
        return self._renewed_at + self.renew_deadline - now

    def may_work_on(self, shard: int, now: float) -> bool:
        """Return whether this member may write for objects in ``shard`` at this moment."""
        return shard in self._owned and shard not in self._released and self.remaining(now) > 0

    def release(self, shards: Iterable[int]) -> None:
        """Stop working on ``shards``, on which no work is running; the next write frees them.

        If the shards should stay with this member by then, it keeps them and may work on them again.
        """
        self._released |= self._owned.intersection(shards)

    def observe(self, record: RingRecord, now: float) -> None:
        """Take note of a record that was read; ``now`` is the time of the answer.

        Raises :class:`MembershipLost` if the record does not list the shards that this member works on.
        """
        self.record = record
        known = self._observed
        self._observed = {
            identity: seen
            if (seen := known.get(identity)) is not None and seen[0] == member.renewals
            else (member.renewals, now)
            for identity, member in record.members.items()
        }
        listed = record.owned_by(self.identity)
        if self.remaining(now) > 0:
            listed |= record.owned_by(UNKNOWN_MEMBER)
        lost = self.owned - listed
        self._owned &= listed
        self._released &= listed
        if lost:
            raise MembershipLost(f"lost the shards {', '.join(map(str, sorted(lost)))} to another member")

    def expires_at(self) -> float:
        """Return the time at which the first other member can be removed; infinity if there is none."""
        return min((self._expiry(identity) for identity in self.record.members), default=inf)

    def has_late_member(self, now: float) -> bool:
        """Return whether another member has not renewed for half of the deadline, perhaps because we write too often.

        Writes conflict with each other. A member on a busy machine needs long from its read to its write.
        """
        return any(
            now - seen_at > self.renew_deadline / 2
            for identity, (_, seen_at) in self._observed.items()
            if identity not in (self.identity, UNKNOWN_MEMBER)
        )

    def propose(self, now: float) -> RingRecord | None:
        """Return the record to write in place of the observed one; ``None`` if the ring is full.

        It renews this member, removes expired members, frees released shards, and takes free shards that this member
        should own.
        """
        members = {identity: member for identity, member in self.record.members.items() if self._expiry(identity) > now}
        if self.identity not in members and len(members) >= MAX_MEMBERS:
            return None
        self._renewals += 1  # also if the outcome is unknown: no two writes of a member may have the same number
        members[self.identity] = Member(self._renewals, self._lease_seconds)
        held = self.owned
        self._proposed_release = self._released
        owners = tuple(
            self.identity if shard in held else owner if owner in members and owner != self.identity else FREE
            for shard, owner in enumerate(self.record.owners)
        )
        target = _target(members, owners)
        taken = tuple(
            self.identity if owner == FREE and target[shard] == self.identity else owner
            for shard, owner in enumerate(owners)
        )
        return RingRecord(taken, members)

    def propose_leave(self, now: float) -> RingRecord:
        """Return the record without this member, which must not be working on any shard any more."""
        self.release(self._owned)
        members = {
            identity: member
            for identity, member in self.record.members.items()
            if identity != self.identity and self._expiry(identity) > now
        }
        return RingRecord(tuple(owner if owner in members else FREE for owner in self.record.owners), members)

    def confirm(self, record: RingRecord, started_at: float) -> None:
        """Take note that ``record``, which this member proposed, was written by a request sent at ``started_at``."""
        self.record = record
        self._renewed_at = started_at
        self._owned = record.owned_by(self.identity)
        # Shards that were released while the request was in flight are freed by the next write.
        self._released = (self._released - self._proposed_release) & self._owned

    def _expiry(self, identity: str) -> float:
        member = self.record.members[identity]
        seen = self._observed.get(identity)
        if identity == self.identity or seen is None or seen[0] != member.renewals:
            return inf
        return seen[1] + member.lease_seconds


def _target(members: Iterable[str], owners: tuple[str, ...]) -> tuple[str, ...]:
    """Return the owners to aim at; the unknown member gets no shard, and keeps its own until its lease ends."""
    return target_owners(frozenset(members) - {UNKNOWN_MEMBER}, owners)
