"""Sharding: three replicas that share RayClusters, compared with one replica that reconciles all of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import orjson

from cfo.config import LeaderElection
from cfo.runtime.objects.kinds import LEASE
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.sharding.record import ANNOTATION
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Sample, benchmark
from test.bench.operators import NAMESPACE, run_operator
from test.bench.processes import IDLE_SECONDS, MeasuredProcess
from test.bench.raycluster_objects import namespaces, raycluster

REPLICAS = 3
SHARDS = 16
SECTIONS: dict[str, Any] = {"sharding": {"shards": SHARDS}}


@benchmark(
    title="three replicas that share RayClusters without mTLS, of which one is killed and replaced, and one alone",
    unit="clusters",
    subjects=("cfo",),
    sizes=(10_000, 30_000),
    quick=(200,),
    repeat=1,
)
async def sharding(case: Case) -> Sample:
    async with api_server() as server, AsyncExitStack() as stack:
        await server.create_all(namespaces())
        async with run_operator(server, mTLSEnabled=False) as (process, _):
            await server.create_all(raycluster(number) for number in range(case.size))
            await server.wait_until_idle()
            await process.wait_until_idle()
        async with run_operator(server, mTLSEnabled=False) as (single, _):
            await single.wait_until_idle()
            values = {"one cpu s": single.cpu(), "one rss MB": single.rss(), "one peak MB": single.peak()}

        async def start() -> MeasuredProcess:
            process, _ = await stack.enter_async_context(run_operator(server, sections=SECTIONS, mTLSEnabled=False))
            return process

        started_at = time.perf_counter()
        replicas = [await start() for _ in range(REPLICAS)]
        values["divided s"] = await _divided(server, REPLICAS, replicas, started_at)
        for number, process in enumerate(replicas, 1):
            values |= {f"{number} cpu s": process.cpu(), f"{number} rss MB": process.rss()}
        values["peak MB"] = max(process.peak() for process in replicas)

        victim, *survivors = replicas
        started_at = time.perf_counter()
        victim.process.kill()
        await victim.process.wait()
        values["after kill s"] = await _divided(server, REPLICAS - 1, survivors, started_at)
        started_at = time.perf_counter()
        joined = await start()
        values["after join s"] = await _divided(server, REPLICAS, [*survivors, joined], started_at)
        return Sample(values)


async def _divided(server: APIServer, members: int, replicas: list[MeasuredProcess], started_at: float) -> float:
    """Wait until ``members`` members own all shards evenly and are idle; return the seconds since ``started_at``."""
    share = SHARDS // members
    while True:
        counts = await _shares(server)
        if len(counts) == members and sum(counts) == SHARDS and min(counts) >= share:
            break
        await asyncio.sleep(0.1)
        for process in replicas:
            process.check_running()
    await asyncio.gather(*(process.wait_until_idle(2 * IDLE_SECONDS) for process in replicas))
    return time.perf_counter() - started_at - 2 * IDLE_SECONDS


async def _shares(server: APIServer) -> list[int]:
    """Return the number of shards of each member of the ring."""
    key = NamespacedName(NAMESPACE, LeaderElection().resource_name)
    lease = await server.client.get(LEASE, key) or {}
    annotation = ((lease.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    members = orjson.loads(annotation)["members"] if annotation else {}
    return [len(member["shards"]) for member in members.values()]
