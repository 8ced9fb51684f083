"""The whole operator with RayClusters: start, new clusters, restart, idle time, a storm of status updates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.unstructured import Object
from test.bench.api_server import APIServer, api_server, run_concurrently
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import measure_start, run_operator
from test.bench.raycluster_objects import namespaces, raycluster, raycluster_key, raycluster_status

OPERATORS = ("cfo", "kopf", "go")


@benchmark(
    title="from exec to ready on an empty cluster, and idle there",
    subjects=OPERATORS,
    repeat=5,
    goals=[Goal("ready s", 1.2), Goal("cpu s", 0.45), Goal("rss MB", 72)],
)
async def start(case: Case) -> Sample:
    async with api_server() as server:
        position = server.audit_position()
        async with run_operator(server, case.subject) as (process, ready):
            await process.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "ready s": ready,
                "cpu s": process.cpu(),
                **process.memory(),
                "requests": requests.total,
            }
            return Sample(values, requests.by_resource)


@benchmark(
    title="new RayClusters (mTLS, Ingress), from the first create until all children exist",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(100, 300, 500, 1000),
    quick=(50,),
    goals=[Goal("wall s", 15, 300), Goal("cpu s", 8, 300), Goal("requests per object", 6.01, 300)],
)
async def converge(case: Case) -> Sample:
    async with api_server() as server:
        await server.create_all(namespaces())
        async with run_operator(server, case.subject) as (process, _):
            await process.wait_until_idle()
            position, cpu, started_at = server.audit_position(), process.cpu(), time.time()
            await server.create_all(raycluster(number) for number in range(case.size))
            created = time.time() - started_at
            await server.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "wall s": requests.last - started_at,
                "create s": created,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests per object": requests.total / case.size,
                "writes per object": requests.writes / case.size,
            }
            return Sample(values, requests.by_resource)


async def prepare_clusters(server: APIServer, case: Case, **kuberay: Any) -> None:
    """Create the RayClusters of ``case``, and run the operator until it has created their children."""
    await server.create_all(namespaces())
    async with run_operator(server, case.subject, **kuberay) as (process, _):
        await server.create_all(raycluster(number) for number in range(case.size))
        await server.wait_until_idle()
        await process.wait_until_idle()


@benchmark(
    title="a restart with unchanged RayClusters whose children all exist",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(300, 1000, 2000, 5000),
    quick=(100,),
    repeat=2,
    limits={"kopf": 1000, "go": 1000},
    goals=[
        Goal("writes", 0, 300),
        Goal("requests", 40, 300),
        Goal("until idle s", 3, 300),
        Goal("writes", 0, 1000),
        Goal("requests", 40, 1000),
    ],
)
async def restart(case: Case) -> Sample:
    return await measure_restart(case)


@benchmark(
    title="a restart without mTLS: nothing is injected, and each RayCluster has two NetworkPolicies and an Ingress",
    unit="clusters",
    sizes=(1000, 5000),
    quick=(100,),
    repeat=2,
    goals=[Goal("rss MB", 130, 5000)],
)
async def restart_plain(case: Case) -> Sample:
    return await measure_restart(case, mTLSEnabled=False)


@benchmark(
    title="suspended RayClusters that are older than the operator: its first run, and a restart (no mTLS, no Ingress)",
    unit="clusters",
    sizes=(1000, 5000, 30_000),
    quick=(100,),
    repeat=1,
    goals=[
        Goal("first cpu s", 8, 1000),
        Goal("first writes per object", 3.01, 1000),
        Goal("cpu s", 3.2, 5000),
        Goal("rss MB", 110, 5000),
        Goal("writes", 0, 30_000),
    ],
)
async def suspended(case: Case) -> Sample:
    options: dict[str, Any] = {"mTLSEnabled": False, "ingressDomain": ""}
    async with api_server() as server:
        await server.create_all(namespaces())
        await server.create_all(suspended_clusters(case.size))
        position = server.audit_position()
        async with run_operator(server, case.subject, **options) as (process, _):
            await server.wait_until_idle()
            await process.wait_until_idle(2.0)
            first, cpu = server.requests_since(position), process.cpu()
        restarted = await measure_start(server, case.subject, **options)
        values = {
            "first cpu s": cpu,
            "first writes per object": first.writes / case.size,
            **restarted.values,
        }
        return Sample(values, restarted.requests)


def suspended_clusters(count: int) -> Iterator[Object]:
    """Yield RayClusters without pods, as KubeRay leaves them."""
    for number in range(count):
        cluster = raycluster(number)
        cluster["spec"]["suspend"] = True
        yield cluster


async def measure_restart(case: Case, *extra_crds: Object, **kuberay: Any) -> Sample:
    """Measure an operator without anything to do, from exec until it is idle; ``extra_crds`` determine the platform."""
    async with api_server(*extra_crds) as server:
        await prepare_clusters(server, case, **kuberay)
        return await measure_start(server, case.subject, **kuberay)


@benchmark(
    title="60 s idle with RayClusters",
    unit="clusters",
    subjects=OPERATORS,
    sizes=(1000,),
    quick=(50,),
    repeat=1,
    goals=[Goal("requests", 0, 1000)],
)
async def idle(case: Case) -> Sample:
    async with api_server() as server:
        await server.create_all(namespaces())
        async with run_operator(server, case.subject) as (process, _):
            await server.create_all(raycluster(number) for number in range(case.size))
            await server.wait_until_idle()
            await process.wait_until_idle()
            position, cpu = server.audit_position(), process.cpu()
            await asyncio.sleep(60 if case.size >= 1000 else 10)
            requests = server.requests_since(position)
            values = {"cpu s": process.cpu() - cpu, **process.memory(), "requests": requests.total}
            return Sample(values, requests.by_resource)


@benchmark(
    title="status updates of RayClusters by another client",
    unit="updates",
    subjects=OPERATORS,
    sizes=(1000, 2500, 5000, 10_000),
    quick=(500,),
    limits={"kopf": 5000, "go": 5000},
    goals=[Goal("writes", 0, 5000), Goal("cpu s", 1.0, 5000)],
)
async def storm(case: Case) -> Sample:
    clusters = 250
    async with api_server() as server:
        await server.create_all(namespaces())
        async with run_operator(server, case.subject) as (process, _):
            await server.create_all(raycluster(number) for number in range(clusters))
            await server.wait_until_idle()
            await update_statuses(server, clusters, 0, clusters)
            await process.wait_until_idle()
            position, cpu, started_at = server.audit_position(), process.cpu(), time.perf_counter()
            await update_statuses(server, clusters, clusters, case.size)
            wall = time.perf_counter() - started_at
            await process.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "update s": wall,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests": requests.total,
                "writes": requests.writes,
            }
            return Sample(values, requests.by_resource)


async def update_statuses(server: APIServer, clusters: int, first: int, count: int) -> None:
    """Write ``count`` different status updates, as KubeRay does, distributed over all ``clusters``."""

    async def update(tick: int) -> None:
        number = tick % clusters
        patch = {"status": raycluster_status(number, tick)}
        await server.client.patch(RAY_CLUSTER, raycluster_key(number), patch, subresource="status")

    await run_concurrently(partial(update, tick) for tick in range(first, first + count))
