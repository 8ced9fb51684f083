"""The ring as a model: random schedules of faults, in which no shard may have two members or stay without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cfo.runtime.sharding.membership import Membership
from cfo.runtime.sharding.record import RingRecord
from test.unit.runtime.sharding.simulation import (
    DEADLINE,
    LEASE,
    MAX_SKEW,
    RETRY,
    SHARDS,
    DoubleOwner,
    Simulation,
    new_membership,
)

SCHEDULES = 1200
_ROUND = RETRY + 0.5
"""A renewal with its delays, after the last fault."""


class _TakesTooEarly(Membership):
    """Removes a member after half of its renew deadline."""

    def _expiry(self, identity: str) -> float:
        return super()._expiry(identity) - LEASE + DEADLINE / 2


class _CountsFromAnswer(Membership):
    """Extends its deadline from the answer of a renewal, not from its start."""

    answered_at = 0.0

    def observe(self, record: RingRecord, now: float) -> None:
        super().observe(record, now)
        self.answered_at = now + 9.0

    def confirm(self, record: RingRecord, started_at: float) -> None:
        super().confirm(record, self.answered_at)


class _FreesWhileWorking(Membership):
    """Frees the surplus at once, without waiting for the end of its work."""

    def propose(self, now: float) -> RingRecord | None:
        surplus = self.owned - self.wanted
        proposed = super().propose(now)
        assert proposed is not None
        owners = tuple("" if shard in surplus else owner for shard, owner in enumerate(proposed.owners))
        return RingRecord(owners, proposed.members)

    def confirm(self, record: RingRecord, started_at: float) -> None:
        owned = self._owned
        super().confirm(record, started_at)
        self._owned |= owned


def _mutant(kind: type[Membership]) -> Callable[[str], Membership]:
    return lambda identity: kind(identity, SHARDS, lease_seconds=LEASE, renew_deadline=DEADLINE)


def test_no_shard_has_two_members_and_the_ring_recovers_in_random_schedules() -> None:
    unbalanced = []
    for seed in range(SCHEDULES):
        simulation = Simulation(seed)
        simulation.run(until=simulation.calm_at)
        # All processes come back after at most 40 s of pause, and wait for the leases of the dead at most once.
        if not simulation.run_until_balanced(simulation.calm_at + 40.0 + 12.0 + LEASE * MAX_SKEW + 6 * _ROUND):
            unbalanced.append((seed, simulation.now, simulation.lease.record))

    assert not unbalanced


@pytest.mark.parametrize("mutant", [_TakesTooEarly, _CountsFromAnswer, _FreesWhileWorking])
def test_model_detects_a_broken_rule(mutant: type[Membership]) -> None:
    def run_all() -> None:
        for seed in range(SCHEDULES):
            Simulation(seed, new_member=_mutant(mutant)).run(until=60.0)

    with pytest.raises(DoubleOwner):
        run_all()


@pytest.mark.parametrize("seed", range(20))
def test_shards_of_a_killed_member_are_taken_within_the_lease_and_one_retry(seed: int) -> None:
    simulation = Simulation(seed, faults=0.0)
    simulation.run(until=30.0)
    assert simulation.is_balanced
    simulation.run(until=30.0 + simulation.random.random() * RETRY)
    victim = simulation.random.choice(simulation.replicas)
    killed_at = simulation.now
    simulation.kill(victim)

    simulation.run(until=killed_at + LEASE * MAX_SKEW + 2 * _ROUND)

    assert all(simulation.owners())
    assert simulation.is_balanced


def test_new_member_gets_its_share_without_a_lease_duration() -> None:
    simulation = Simulation(7, replicas=2, faults=0.0)
    simulation.run(until=20.0)
    simulation.replicas.append(simulation._start("r2"))

    simulation.run(until=simulation.now + 5.0 + 3.0 + 3 * _ROUND)

    assert sorted(simulation.owners().count(f"r{number}") for number in range(3)) == [1, 1, 2]
    assert simulation.is_balanced


def test_membership_of_the_simulation_has_the_times_of_the_defaults() -> None:
    assert new_membership("a").renew_deadline == DEADLINE < LEASE
