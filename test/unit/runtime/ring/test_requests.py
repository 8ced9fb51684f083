"""Which requests the controllers may reconcile, and when a shard is idle."""

from __future__ import annotations

import anyio

from cfo.runtime.controller.reconcile import Request
from cfo.runtime.ring.requests import ShardedRequests
from cfo.runtime.sharding.ranges import Partition
from test.support.scheduling import run_until_idle

ONE, TWO = Request("team-one", "x"), Request("team-three", "x")
SHARDS = 8
SHARD_ONE, SHARD_TWO = (Partition(SHARDS, frozenset()).shard_of(request.namespace, "") for request in (ONE, TWO))
assert SHARD_ONE != SHARD_TWO


class Gate:
    def check(self) -> None:
        """Allow everything."""


class Fixture:
    """The requests of a replica that owns the shards ``owned``; ``idle`` lists the shards reported as idle."""

    def __init__(self) -> None:
        self.owned = {SHARD_ONE, SHARD_TWO}
        self.idle: list[int] = []
        self.gates = [Gate() for _ in range(SHARDS)]
        self.requests = ShardedRequests(
            Partition(SHARDS, frozenset()),
            gate=lambda shard: self.gates[shard],
            may_work_on=lambda shard: shard in self.owned,
            on_idle=self.idle.append,
        )


def test_requests_of_active_shards_are_accepted_with_the_gate_of_their_shard() -> None:
    fixture = Fixture()
    assert not fixture.requests.accepts(ONE)
    assert fixture.requests.begin(ONE) is None

    fixture.requests.activate({SHARD_ONE})

    assert fixture.requests.accepts(ONE)
    assert not fixture.requests.accepts(TWO)
    assert fixture.requests.begin(ONE) is fixture.gates[SHARD_ONE]
    assert fixture.requests.running == 1


def test_request_is_not_started_after_the_deadline_of_the_membership() -> None:
    fixture = Fixture()
    fixture.requests.activate({SHARD_ONE})
    fixture.owned.clear()

    assert fixture.requests.begin(ONE) is None


def test_shard_is_idle_after_its_last_running_request() -> None:
    fixture = Fixture()
    other = ONE._replace(name="y")
    fixture.requests.activate({SHARD_ONE, SHARD_TWO})
    for request in (ONE, other, TWO):
        fixture.requests.begin(request)

    fixture.requests.drain({SHARD_ONE})
    assert fixture.requests.begin(ONE) is None
    assert fixture.requests.active == {SHARD_TWO}
    fixture.requests.end(ONE)
    assert not fixture.idle
    fixture.requests.end(other)

    assert fixture.idle == [SHARD_ONE]
    assert not fixture.requests.draining


def test_shard_without_running_requests_is_idle_at_once() -> None:
    fixture = Fixture()
    fixture.requests.activate({SHARD_ONE})

    fixture.requests.drain({SHARD_ONE})

    assert fixture.idle == [SHARD_ONE]


async def test_only_running_reconciles_of_draining_shards_are_cancelled() -> None:
    fixture = Fixture()
    fixture.requests.activate({SHARD_ONE, SHARD_TWO})
    ended: list[Request] = []

    async def reconcile(request: Request) -> None:
        fixture.requests.begin(request)
        with fixture.requests.cancellable(request):
            await anyio.sleep_forever()
        ended.append(request)
        fixture.requests.end(request)

    async with anyio.create_task_group() as tasks:
        for request in (ONE, TWO):
            tasks.start_soon(reconcile, request)
        await run_until_idle()
        fixture.requests.drain({SHARD_ONE})

        fixture.requests.cancel({SHARD_ONE, SHARD_TWO})

        await run_until_idle()
        assert ended == [ONE]
        assert fixture.idle == [SHARD_ONE]
        tasks.cancel_scope.cancel()


def test_draining_shard_that_is_activated_again_is_not_reported_as_idle() -> None:
    fixture = Fixture()
    fixture.requests.activate({SHARD_ONE})
    fixture.requests.begin(ONE)
    fixture.requests.drain({SHARD_ONE})

    fixture.requests.activate({SHARD_ONE})
    fixture.requests.end(ONE)

    assert not fixture.idle
    assert fixture.requests.begin(ONE) is not None
