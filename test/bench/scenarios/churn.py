"""Memory growth of the operator while RayClusters and AppWrappers are created, changed and deleted in waves."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from functools import partial

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.bench.api_server import APIServer, api_server, run_concurrently
from test.bench.harness import Case, Sample, benchmark
from test.bench.operators import run_operator
from test.bench.raycluster_objects import namespaces, raycluster, raycluster_key
from test.bench.scenarios.appwrappers import (
    APPWRAPPER_NAMESPACE,
    PhaseTracker,
    create_appwrappers,
    watch_phases,
)
from test.support.appwrapper_environment import CONTROLLERS

WAVE = 100
"""Number of objects of each kind in a wave."""


@benchmark(
    title=f"memory over waves of {WAVE} RayClusters and {WAVE} AppWrappers (growth: in the second half of the waves)",
    unit="objects",
    subjects=("cfo",),
    sizes=(8000,),
    quick=(800,),
    repeat=1,
)
async def churn(case: Case) -> Sample:
    async with api_server(controllers=CONTROLLERS) as server, watch_phases(server) as phases:
        await server.create_all([APPWRAPPER_NAMESPACE, *namespaces()])
        async with run_operator(server, case.subject) as (process, _):
            await process.wait_until_idle()
            cpu, memory = process.cpu(), [process.rss()]
            for number in range(case.size // (2 * WAVE)):
                await run_wave(server, phases, number * WAVE)
                await process.wait_until_idle(0.5)
                memory.append(process.rss())
            second_half = memory[len(memory) // 2 :]
            per_wave = statistics.linear_regression(range(len(second_half)), second_half).slope
            middle = len(second_half) // 2
            return Sample(
                {
                    "first wave MB": memory[1],
                    "middle wave MB": second_half[0],
                    "rss MB": memory[-1],
                    "peak MB": process.peak(),
                    "growth MB": statistics.mean(second_half[middle:])
                    - statistics.mean(second_half[:middle]),
                    "MB per 1,000": per_wave * 1000 / (2 * WAVE),
                    "cpu s": process.cpu() - cpu,
                }
            )


async def run_wave(server: APIServer, phases: PhaseTracker, first: int) -> None:
    """Create, change and delete RayClusters and AppWrappers, and wait until all of their children are deleted."""
    numbers = range(first, first + WAVE)
    clusters = [raycluster_key(number) for number in numbers]
    appwrappers = [NamespacedName("ns", f"w-{number}") for number in numbers]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.create_all(raycluster(number) for number in numbers))
        tasks.create_task(create_appwrappers(server, WAVE, first=first, phase="Succeeded"))
    await phases.wait_for_count("Succeeded", WAVE)
    await server.wait_until_idle()
    patch = {"metadata": {"labels": {"changed": "yes"}}}
    await run_concurrently(
        partial(server.client.patch, RAY_CLUSTER, key, patch) for key in clusters
    )
    await delete_all(server, RAY_CLUSTER, clusters)
    await delete_all(server, APPWRAPPER, appwrappers)
    await phases.wait_for_deletion()
    await server.wait_until_idle()


async def delete_all(server: APIServer, gvk: GVK, keys: Sequence[NamespacedName]) -> None:
    """Delete the objects, several at a time."""
    await run_concurrently(partial(server.client.delete, gvk, key) for key in keys)
