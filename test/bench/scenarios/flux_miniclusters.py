"""MiniClusters of two pods: from their creation until their brokers are ready, and a restart of the operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import MINICLUSTER
from cfo.runtime import Client
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import FLUX, measure_start, run_operator
from test.support.flux_environment import SCHEDULED, mini_cluster, true_conditions


@asynccontextmanager
async def flux_server() -> AsyncIterator[APIServer]:
    """Run an API server whose controllers run the pods of MiniClusters, with a namespace."""
    async with api_server(
        minicluster_crd(), fluxjob_crd(), fluxsetup_crd(), controllers=SCHEDULED
    ) as server:
        await server.create_all(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}]
        )
        yield server


async def create_and_wait(server: APIServer, count: int) -> None:
    """Create MiniClusters, and wait until the brokers of all are ready."""
    await server.create_all(mini_cluster(f"cluster-{number}") for number in range(count))
    while not await _are_running(server.client, count):  # noqa: ASYNC110 (the state of another process)
        await asyncio.sleep(0.2)


async def _are_running(client: Client, count: int) -> bool:
    found = await client.list(MINICLUSTER)
    return len(found) == count and all(
        "JobRunning" in true_conditions(cluster) for cluster in found
    )


@benchmark(
    title="new MiniClusters of two pods, until their brokers are ready",
    unit="MiniClusters",
    sizes=(50, 300),
    quick=(20,),
    repeat=1,
    goals=[Goal("writes per object", 9, 300)],
)
async def flux_create(case: Case) -> Sample:
    async with flux_server() as server, run_operator(server, case.subject, FLUX) as (process, _):
        await process.wait_until_idle()
        position, cpu, started_at = server.audit_position(), process.cpu(), time.perf_counter()
        await create_and_wait(server, case.size)
        wall = time.perf_counter() - started_at
        await process.wait_until_idle(2.0)
        requests = server.requests_since(position)
        values = {
            "wall s": wall,
            "cpu s": process.cpu() - cpu,
            **process.memory(),
            "writes per object": requests.writes / case.size,
        }
        return Sample(values, requests.by_resource)


@benchmark(
    title="a restart with unchanged MiniClusters whose brokers are ready",
    unit="MiniClusters",
    sizes=(50, 300),
    quick=(20,),
    repeat=1,
    goals=[Goal("writes", 0, 300), Goal("requests", 40, 300)],
)
async def flux_restart(case: Case) -> Sample:
    async with flux_server() as server:
        async with run_operator(server, case.subject, FLUX) as (process, _):
            await create_and_wait(server, case.size)
            await process.wait_until_idle(2.0)
        return await measure_start(server, case.subject, FLUX)
