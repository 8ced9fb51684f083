"""Several active replicas on a control plane: they share the objects, hand shards over, and replace each other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import CONFIG_MAP
from envtest import ControlPlane
from test.support.planes import new_plane
from test.support.shard_replicas import LEASE_SECONDS, RETRY_SECONDS, new_client, run_group


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with new_plane(()) as running:
        yield running


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        yield new_client(transport)


async def test_replicas_share_the_objects_and_replace_each_other(plane: ControlPlane, client: Client) -> None:
    async with run_group(plane, client, "a") as group:
        requests = await group.create_objects(12)
        first = await group.start()
        await group.wait_until_divided_among(first)
        await group.wait_for_reconciles(requests)
        assert first.manager.is_leader

        second, third = await group.start(), await group.start()
        joined = await group.wait_until_divided_among(first, second, third)
        assert joined < LEASE_SECONDS + group.log.stalled, "no lease has to end when a replica joins"
        await group.wait_for_reconciles(requests)
        assert [replica.manager.is_leader for replica in group.replicas] == [True, False, False]
        for request in requests:
            copy = await client.get(CONFIG_MAP, request._replace(name="source-copy"))
            assert copy is not None
            assert copy["data"]["writer"] == group.log.last[request][0]
        cached = [sum(len(informer.reader) for informer in item.manager.cache.informers) for item in group.replicas]
        assert sum(cached) == 12
        assert max(cached) < 12, cached

        report = {row["member"]: row for row in second.sharding.report()}
        assert [report[replica.name]["self"] for replica in group.replicas] == [False, True, False]
        assert sorted(",".join(row["shards"] for row in report.values()).split(",")) == list("012345")
        sample = second.manager.metrics.registry.get_sample_value
        assert (sample("cfo_sharding_owned_shards"), sample("cfo_sharding_members")) == (2, 3)

        first.manager.stop()
        await first.ended.wait()
        left = await group.wait_until_divided_among(second, third)
        assert left < LEASE_SECONDS + group.log.stalled, "a replica that stops gives its shards away"
        await group.wait_for_reconciles(requests)
        assert first.error is None
        assert second.manager.is_leader is not third.manager.is_leader
        group.log.check(LEASE_SECONDS)

        second.crash()
        await group.wait_until_divided_among(third)
        await group.wait_for_reconciles(requests)
        assert third.manager.is_leader
        group.log.check(LEASE_SECONDS + 2 * RETRY_SECONDS + 1.0)
