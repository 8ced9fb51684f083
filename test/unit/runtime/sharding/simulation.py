"""A simulated ring: members with clocks of different rates, and random faults at each step of each renewal.

A member runs :class:`Membership` as the elector does: it reads the Lease, and writes under the condition that it is
unchanged. Between these steps it can be paused; it can be killed or disconnected; a write can fail, be stored without
an answer, or be stored long after it timed out. All randomness comes from one seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from cfo.runtime.sharding.assignment import target_owners
from cfo.runtime.sharding.membership import Membership, MembershipLost
from cfo.runtime.sharding.record import RingRecord

LEASE, DEADLINE, RETRY = 15, 10.0, 2.0
SHARDS = 4
MAX_SKEW = 1.15
"""The clocks run between 1/1.15 and 1.15 times as fast as the real time: their ratio stays below 15/10."""


class DoubleOwner(AssertionError):
    """Two members may work on the same shard."""


@dataclass
class Replica:
    """A process with its clock; ``member`` is replaced when it restarts."""

    name: str
    member: Membership
    rate: float
    incarnation: int = 0
    alive: bool = True
    disconnected_until: float = 0.0
    draining: frozenset[int] = frozenset()

    def clock(self, now: float) -> float:
        return 1000.0 + now * self.rate


@dataclass
class Lease:
    """The stored record."""

    record: RingRecord = field(default_factory=lambda: RingRecord.free(SHARDS))
    version: int = 0

    def store(self, record: RingRecord, version: int) -> bool:
        if version != self.version:
            return False
        self.record, self.version = record, version + 1
        return True

    def delete(self) -> None:
        """Delete the Lease; the next reader creates another one."""
        self.record, self.version = RingRecord.unknown(SHARDS, LEASE, self.version), self.version + 1


class Simulation:
    """Runs ``replicas`` members from one seed; raises :class:`DoubleOwner`.

    ``faults`` is the probability of a fault at each step until the time ``calm_at``; ``new_member`` creates members.
    """

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        faults: float = 0.06,
        calm_at: float = 45.0,
        new_member: Callable[[str], Membership] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.lease = Lease()
        self.faults = faults
        self.calm_at = calm_at
        self._new_member = new_member or new_membership
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = 0
        self.replicas = [self._start(f"r{number}") for number in range(replicas)]

    def run(self, until: float) -> None:
        """Run until the real time ``until``."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    def run_until_balanced(self, deadline: float) -> bool:
        """Run until :attr:`is_balanced`, at most until ``deadline``; return whether it is."""
        while not self.is_balanced and self.now < deadline:
            self.run(min(self.now + 2.0, deadline))
        return self.is_balanced

    def kill(self, replica: Replica) -> None:
        """End the process; it does not come back."""
        replica.alive = False

    def owners(self) -> list[str]:
        """Return the name of the replica that may work on each shard at this moment; empty: no replica."""
        return [
            next((replica.name for replica in self.replicas if self._may_work(replica, shard)), "")
            for shard in range(SHARDS)
        ]

    @property
    def is_balanced(self) -> bool:
        """Whether the stored owners are the target, and all of them may work."""
        alive = {replica.member.identity for replica in self.replicas if replica.alive}
        record = self.lease.record
        return (
            set(record.members) == alive
            and target_owners(frozenset(record.members), record.owners) == record.owners
            and all(self.owners())
        )

    def _check(self) -> None:
        """Raise :class:`DoubleOwner` if two members may work on a shard; called whenever a member may work on more.

        A paused process counts: it may continue at any moment, and checks its deadline then.
        """
        working: set[int] = set()
        for replica in self.replicas:
            if replica.alive and replica.member.remaining(replica.clock(self.now)) > 0:
                owned = replica.member.owned
                if not working.isdisjoint(owned):
                    raise DoubleOwner(f"{self.now:.1f} s: {replica.name} and another one work on {sorted(owned)}")
                working |= owned

    def _may_work(self, replica: Replica, shard: int) -> bool:
        return replica.alive and replica.member.may_work_on(shard, replica.clock(self.now))

    def _start(self, name: str) -> Replica:
        random = self.random
        rate = random.uniform(1 / MAX_SKEW, MAX_SKEW)
        replica = Replica(name, self._new_member(f"{name}.0"), rate)
        self._at(random.uniform(0, 5), lambda: self._read(replica, 0))
        return replica

    def _at(self, delay: float, action: Callable[[], object]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + delay, self._order, action))

    def _faulty(self) -> bool:
        return self.now < self.calm_at and self.random.random() < self.faults

    def _delay(self) -> float:
        """Return the seconds of a step: milliseconds, or a pause."""
        return self.random.choice((1.0, 4.0, 9.0, 20.0, 40.0)) if self._faulty() else 0.01 * self.random.random()

    def _step(self, delay: float, replica: Replica, incarnation: int, action: Callable[[], None]) -> None:
        def run() -> None:
            if replica.alive and replica.incarnation == incarnation:
                action()

        self._at(delay, run)

    def _restart(self, replica: Replica) -> None:
        """End the process; start it again, with a new identity, after some seconds."""
        replica.incarnation += 1
        replica.alive = False
        replica.draining = frozenset()

        def start() -> None:
            replica.alive = True
            replica.member = self._new_member(f"{replica.name}.{replica.incarnation}")
            self._read(replica, replica.incarnation)

        self._at(self.random.choice((0.5, 3.0, 12.0)), start)

    def _read(self, replica: Replica, incarnation: int) -> None:
        member = replica.member
        if self._faulty():
            fault = self.random.choice(("crash", "disconnect", "delete"))
            if fault == "delete" and self.random.random() < 0.3:
                self.lease.delete()
            if fault == "crash":
                self._restart(replica)
                return
            replica.disconnected_until = self.now + self.random.choice((3.0, 8.0, 14.0, 30.0))
        if member.owned and member.remaining(replica.clock(self.now)) <= 0:
            self._restart(replica)  # the elector stops the process
            return
        if replica.disconnected_until > self.now:
            self._step(RETRY, replica, incarnation, lambda: self._read(replica, incarnation))
            return
        record, version = self.lease.record, self.lease.version

        def received() -> None:
            try:
                member.observe(record, replica.clock(self.now))
            except MembershipLost:
                self._restart(replica)
                return
            self._check()
            proposed = member.propose(replica.clock(self.now))
            assert proposed is not None
            started_at = replica.clock(self.now)
            self._step(
                self._delay(),
                replica,
                incarnation,
                lambda: self._write(replica, incarnation, proposed, version, started_at),
            )

        self._step(self._delay(), replica, incarnation, received)

    def _write(self, replica: Replica, incarnation: int, proposed: RingRecord, version: int, started_at: float) -> None:
        if replica.disconnected_until > self.now or self._faulty():
            if self.random.random() < 0.5:  # the API server stores it, at once or after the client gave up
                late = self.random.choice((0.0, 0.0, 1.5, 6.0, 12.0))
                self._at(late, partial(self.lease.store, proposed, version))
            self._step(RETRY, replica, incarnation, lambda: self._read(replica, incarnation))
            return
        if not self.lease.store(proposed, version):
            self._step(0.2 * self.random.random(), replica, incarnation, lambda: self._read(replica, incarnation))
            return

        def answered() -> None:
            replica.member.confirm(proposed, started_at)
            self._check()
            self._drain(replica, incarnation)
            self._step(RETRY, replica, incarnation, lambda: self._read(replica, incarnation))

        self._step(self._delay(), replica, incarnation, answered)

    def _drain(self, replica: Replica, incarnation: int) -> None:
        surplus = replica.member.owned - replica.member.wanted - replica.draining
        if surplus:
            replica.draining |= surplus

            def drained() -> None:
                replica.draining -= surplus
                replica.member.release(surplus - replica.member.wanted)

            self._step(self.random.choice((0.01, 0.5, 3.0)), replica, incarnation, drained)


def new_membership(identity: str) -> Membership:
    """Return a member with the default times."""
    return Membership(identity, SHARDS, lease_seconds=LEASE, renew_deadline=DEADLINE)
