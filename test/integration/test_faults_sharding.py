"""A fault at each step of a handover between two replicas: a crash, a lost connection, or a lost answer.

The fault hits the replica that joins, or the one that gives shards away, after a write of the Lease was stored and
before its answer arrives. In every case no object is reconciled by two replicas at once, and none is without a replica
for longer than the lease.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import anyio
import pytest

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.leaderelection import LeadershipLost
from test.support.planes import new_plane
from test.support.raycluster_environment import eventually
from test.support.shard_replicas import LEASE_SECONDS, RETRY_SECONDS, Replica, ReplicaGroup, new_client, run_group

_ROUND_SECONDS = 1.0
"""A reconcile that waits for its next turn, and the requests of a renewal."""


@dataclass(frozen=True)
class _Fault:
    """``kind`` hits the replica ``victim`` at its write of the Lease with the number ``step``."""

    kind: str
    victim: str
    step: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.victim}-{self.step}"

    async def inject(self, replica: Replica, number: int, injected: asyncio.Event) -> None:
        if number != self.step:
            return
        injected.set()
        if self.kind == "crash":
            replica.crash()
            await asyncio.sleep(0)
        elif self.kind == "disconnect":
            replica.disconnect()
        raise TransportError("no answer", outcome_unknown=True)


_FAULTS = [
    *(_Fault("crash", victim, step) for victim in ("joining", "giving") for step in (1, 2)),
    *(_Fault("disconnect", victim, step) for victim in ("joining", "giving") for step in (1, 2)),
    *(_Fault("lose-answer", victim, 2) for victim in ("joining", "giving")),
]


async def _hand_over(group: ReplicaGroup, fault: _Fault) -> None:
    requests = await group.create_objects(6)
    giving = await group.start()
    await group.wait_until_divided_among(giving)
    await group.wait_for_reconciles(requests)
    joining = await group.start()
    victim, other = (joining, giving) if fault.victim == "joining" else (giving, joining)
    injected = asyncio.Event()
    victim.intercept(lambda number: fault.inject(victim, number, injected))
    with anyio.fail_after(20):
        await injected.wait()

    if fault.kind == "lose-answer":
        await group.wait_until_divided_among(giving, joining)
    else:
        await eventually(lambda: _has_removed_others(other), f"{fault.name}: the other replica removes the victim")
        await group.wait_until_divided_among(other)
    await group.wait_for_reconciles(requests)

    if victim is giving and fault.kind == "disconnect":
        assert victim.error is not None
        assert isinstance(victim.error.__cause__, LeadershipLost), fault.name
    assert other.error is None, fault.name
    group.log.check(LEASE_SECONDS + 2 * RETRY_SECONDS + _ROUND_SECONDS)


async def _has_removed_others(replica: Replica) -> bool:
    return set(replica.sharding.elector.membership.record.members) == {replica.name}


@pytest.mark.embedded(reason="many replicas run at once")
async def test_fault_at_each_step_of_a_handover_leaves_each_shard_one_owner() -> None:
    async with (
        new_plane((), embedded=True) as plane,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
        anyio.create_task_group() as tasks,
    ):
        client = new_client(transport)

        async def run(fault: _Fault) -> None:
            async with run_group(plane, client, fault.name) as group:
                await _hand_over(group, fault)

        for fault in _FAULTS:
            tasks.start_soon(run, fault)
