"""The whole operator with RayClusters: its start, new clusters, a restart, rest, a storm of status updates."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.objects import NamespacedName, Object
from test.bench.fleet import namespaces, raycluster, status
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.stage import Plane, gathered, plane
from test.bench.subjects import operator

OPERATORS = ("cfo", "kopf", "go")


@benchmark(
    title="from exec to ready on an empty cluster, and at rest there",
    subjects=OPERATORS,
    repeat=5,
    goals=[Goal("ready s", 1.2), Goal("rss MB", 75)],
)
async def start(case: Case) -> Sample:
    async with plane() as stage:
        mark = stage.mark()
        async with operator(stage, case.subject) as (process, ready):
            await process.idle()
            asked = stage.asked(mark)
            values = {"ready s": ready, "cpu s": process.cpu(), **process.memory(), "requests": asked.total}
            return Sample(values, asked.requests)


@benchmark(
    title="new RayClusters (mTLS, Ingress), from the first create until every child is there",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(100, 300, 500, 1000),
    quick=(50,),
    goals=[Goal("wall s", 15, 300), Goal("cpu s", 8, 300), Goal("requests each", 7, 300)],
)
async def converge(case: Case) -> Sample:
    async with plane() as stage:
        await stage.create(namespaces())
        async with operator(stage, case.subject) as (process, _):
            await process.idle()
            mark, cpu, began = stage.mark(), process.cpu(), time.time()
            await stage.create(raycluster(number) for number in range(case.size))
            created = time.time() - began
            await stage.quiet()
            asked = stage.asked(mark)
            values = {
                "wall s": asked.last - began,
                "creating s": created,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests each": asked.total / case.size,
                "writes each": asked.writes / case.size,
            }
            return Sample(values, asked.requests)


async def settled(stage: Plane, case: Case, **kuberay: Any) -> None:
    """So many RayClusters with all that the operator gives them."""
    await stage.create(namespaces())
    async with operator(stage, case.subject, **kuberay) as (process, _):
        await stage.create(raycluster(number) for number in range(case.size))
        await stage.quiet()
        await process.idle()


@benchmark(
    title="a restart with RayClusters that nobody has changed, all their children there",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(300, 1000, 2000, 5000),
    quick=(100,),
    repeat=2,
    limits={"kopf": 1000, "go": 1000},
    goals=[
        Goal("writes", 0, 300),
        Goal("requests", 40, 300),
        Goal("quiet s", 3, 300),
        Goal("writes", 0, 1000),
        Goal("requests", 40, 1000),
    ],
)
async def restart(case: Case) -> Sample:
    return await restarted(case)


@benchmark(
    title="the same without mTLS: nothing is injected, each RayCluster has its two NetworkPolicies and an Ingress",
    unit="clusters",
    sizes=(1000, 5000),
    quick=(100,),
    repeat=2,
    goals=[Goal("rss MB", 130, 5000)],
)
async def restart_plain(case: Case) -> Sample:
    return await restarted(case, mTLSEnabled=False)


async def restarted(case: Case, *definitions: Object, **kuberay: Any) -> Sample:
    """From exec until an operator that found all in order has come to rest; ``definitions`` make the platform."""
    async with plane(*definitions) as stage:
        await settled(stage, case, **kuberay)
        mark = stage.mark()
        async with operator(stage, case.subject, **kuberay) as (process, ready):
            quiet = await process.idle()
            asked = stage.asked(mark)
            values = {
                "ready s": ready,
                "quiet s": quiet,
                "cpu s": process.cpu(),
                **process.memory(),
                "requests": asked.total,
                "writes": asked.writes,
            }
            return Sample(values, asked.requests)


@benchmark(
    title="60 s at rest with RayClusters",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(1000,),
    quick=(50,),
    repeat=1,
    goals=[Goal("requests", 0, 1000)],
)
async def rest(case: Case) -> Sample:
    async with plane() as stage:
        await stage.create(namespaces())
        async with operator(stage, case.subject) as (process, _):
            await stage.create(raycluster(number) for number in range(case.size))
            await stage.quiet()
            await process.idle()
            mark, cpu = stage.mark(), process.cpu()
            await asyncio.sleep(60 if case.size >= 1000 else 10)
            asked = stage.asked(mark)
            values = {"cpu s": process.cpu() - cpu, **process.memory(), "requests": asked.total}
            return Sample(values, asked.requests)


@benchmark(
    title="status updates of RayClusters by somebody else",
    unit="updates",
    subjects=OPERATORS,
    sizes=(1000, 2500, 5000, 10_000),
    quick=(500,),
    limits={"kopf": 5000, "go": 5000},
    goals=[Goal("writes", 0, 5000), Goal("cpu s", 1.0, 5000)],
)
async def storm(case: Case) -> Sample:
    clusters = 250
    async with plane() as stage:
        await stage.create(namespaces())
        async with operator(stage, case.subject) as (process, _):
            await stage.create(raycluster(number) for number in range(clusters))
            await stage.quiet()
            await report(stage, clusters, 0, clusters)
            await process.idle()
            mark, cpu, began = stage.mark(), process.cpu(), time.perf_counter()
            await report(stage, clusters, clusters, case.size)
            wall = time.perf_counter() - began
            await process.idle()
            asked = stage.asked(mark)
            values = {
                "storm s": wall,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests": asked.total,
                "writes": asked.writes,
            }
            return Sample(values, asked.requests)


async def report(stage: Plane, clusters: int, first: int, count: int) -> None:
    """KubeRay's part: so many status updates, all over the clusters."""

    async def one(tick: int) -> None:
        number = tick % clusters
        key = NamespacedName(f"team-{number % 50:02}", f"raytest-{number:05}")
        await stage.client.patch(RAY_CLUSTER, key, {"status": status(number, 1, tick)}, subresource="status")

    await gathered(lambda tick=tick: one(tick) for tick in range(first, first + count))
