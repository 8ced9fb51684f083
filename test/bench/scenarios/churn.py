"""Whether the operator grows with what comes and goes: waves of RayClusters and AppWrappers, made, changed, deleted."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.kinds import NAMESPACE
from cfo.runtime.objects import GVK, NamespacedName
from test.bench.fleet import namespaces, raycluster
from test.bench.harness import Case, Sample, benchmark
from test.bench.scenarios.appwrappers import Phases, create, watched
from test.bench.stage import Plane, gathered, plane
from test.bench.subjects import operator
from test.support.appwrapper_environment import CONTROLLERS

WAVE = 100
"""So many of each kind are there at a time."""


@benchmark(
    title=f"memory over waves of {WAVE} RayClusters and {WAVE} AppWrappers (growth: over the last half of them)",
    unit="objects",
    subjects=("cfo",),
    sizes=(8000,),
    quick=(800,),
    repeat=1,
)
async def churn(case: Case) -> Sample:
    async with plane(controllers=CONTROLLERS) as stage, watched(stage) as phases:
        await stage.create([NAMESPACE, *namespaces()])
        async with operator(stage, case.subject) as (process, _):
            await process.idle()
            cpu, memory = process.cpu(), [process.rss()]
            for number in range(case.size // (2 * WAVE)):
                await wave(stage, phases, number * WAVE)
                await process.idle(0.5)
                memory.append(process.rss())
            later = memory[len(memory) // 2 :]
            per_wave = statistics.linear_regression(range(len(later)), later).slope
            half = len(later) // 2
            return Sample(
                {
                    "first wave MB": memory[1],
                    "half way MB": later[0],
                    "rss MB": memory[-1],
                    "peak MB": process.peak(),
                    "growth MB": statistics.mean(later[half:]) - statistics.mean(later[:half]),
                    "MB per 1,000": per_wave * 1000 / (2 * WAVE),
                    "cpu s": process.cpu() - cpu,
                }
            )


async def wave(stage: Plane, phases: Phases, first: int) -> None:
    """Objects come, are changed, and go, with all that was made for them."""
    clusters = [raycluster(number) for number in range(first, first + WAVE)]
    keys = [NamespacedName(each["metadata"]["namespace"], each["metadata"]["name"]) for each in clusters]
    async with asyncio.TaskGroup() as both:
        both.create_task(stage.create(clusters))
        both.create_task(create(stage, WAVE, first=first, phase="Succeeded"))
    await phases.reach("Succeeded", WAVE)
    await stage.quiet()
    change = {"metadata": {"labels": {"changed": "yes"}}}
    await gathered((lambda key=key: stage.client.patch(RAY_CLUSTER, key, change)) for key in keys)  # type: ignore[misc]
    wrappers = [NamespacedName("ns", f"w-{number}") for number in range(first, first + WAVE)]
    await delete(stage, RAY_CLUSTER, keys)
    await delete(stage, APPWRAPPER, wrappers)
    await phases.none()
    await stage.quiet()


async def delete(stage: Plane, gvk: GVK, keys: Sequence[NamespacedName]) -> None:
    """Deletes all of them."""
    await gathered((lambda key=key: stage.client.delete(gvk, key)) for key in keys)  # type: ignore[misc]
