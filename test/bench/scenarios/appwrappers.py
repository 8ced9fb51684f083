"""AppWrappers of one Job each; Jobs and pods are run by the API server's process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from cfo.api.appwrapper import APPWRAPPER
from cfo.runtime import Transport, load_config
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.store import Event
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.objects import NamespacedName
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.stage import Plane, plane
from test.bench.subjects import operator
from test.support.appwrapper_environment import CONTROLLERS, job, pod, wrapper

OPERATORS = ("cfo", "go")
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}


class _Status(msgspec.Struct):
    phase: str = ""


class _AppWrapper(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Phases:
    """Which phase each AppWrapper is in, as a watch tells."""

    def __init__(self) -> None:
        self._phases: dict[NamespacedName, str] = {}
        self._told = asyncio.Event()
        self._decoder = msgspec.json.Decoder(_AppWrapper)

    def note(self, event: Event) -> None:
        if event.new is None:
            self._phases.pop(event.key, None)
        else:
            self._phases[event.key] = self._decoder.decode(event.new.raw).status.phase
        self._told.set()

    async def reach(self, phase: str, count: int) -> None:
        """Waits until so many are in ``phase``."""
        while sum(each == phase for each in self._phases.values()) < count:
            self._told.clear()
            await self._told.wait()
            await asyncio.sleep(0.05)  # thousands of events need not be counted one by one

    async def none(self) -> None:
        """Waits until all are gone."""
        while self._phases:
            self._told.clear()
            await self._told.wait()


@asynccontextmanager
async def watched(stage: Plane) -> AsyncIterator[Phases]:
    """Watches AppWrappers, as the world."""
    phases = Phases()
    async with Transport(await load_config(str(stage.folder / "admin.kubeconfig"))) as transport:
        cache = Cache(transport, RESTMapper(transport))
        cache.informer(APPWRAPPER).add_handler(phases.note)
        watching = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        try:
            yield phases
        finally:
            watching.cancel()
            await asyncio.wait({watching})


async def create(stage: Plane, count: int, *, first: int = 0, **pods: Any) -> None:
    """Creates so many, whose pods do what ``pods`` say."""
    await stage.create(wrapper(job(f"j-{n}", **pods), name=f"w-{n}") for n in range(first, first + count))


@benchmark(
    title="AppWrappers of one Job each, from the first create until all have succeeded",
    unit="AppWrappers",
    subjects=OPERATORS,
    sizes=(250, 500, 1000, 2000),
    quick=(100,),
    repeat=2,
    limits={"go": 1000},
)
async def appwrappers(case: Case) -> Sample:
    async with plane(controllers=CONTROLLERS) as stage, watched(stage) as phases:
        await stage.create([NAMESPACE])
        async with operator(stage, case.subject) as (process, _):
            await process.idle()
            mark, cpu, began = stage.mark(), process.cpu(), time.perf_counter()
            await create(stage, case.size, phase="Succeeded")
            created = time.perf_counter() - began
            await phases.reach("Succeeded", case.size)
            wall = time.perf_counter() - began
            await process.idle()
            asked = stage.asked(mark)
            values = {
                "wall s": wall,
                "creating s": created,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests each": asked.total / case.size,
                "writes each": asked.writes / case.size,
            }
            return Sample(values, asked.requests)


@benchmark(
    title="60 s at rest with running AppWrappers",
    unit="AppWrappers",
    subjects=OPERATORS,
    sizes=(5000,),
    quick=(100,),
    repeat=1,
    limits={"go": 1000},
    goals=[Goal("requests", 0, 5000)],
)
async def appwrappers_rest(case: Case) -> Sample:
    async with plane(controllers=CONTROLLERS) as stage, watched(stage) as phases:
        await stage.create([NAMESPACE])
        async with operator(stage, case.subject) as (process, _):
            began = time.perf_counter()
            await create(stage, case.size)
            await phases.reach("Running", case.size)
            await stage.quiet()
            await process.idle()
            running = time.perf_counter() - began
            mark, cpu = stage.mark(), process.cpu()
            await asyncio.sleep(60 if case.size >= 1000 else 10)
            asked = stage.asked(mark)
            values = {
                "running after s": running,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests": asked.total,
            }
            return Sample(values, asked.requests)


@benchmark(
    title="one AppWrapper with a pod, until it is ready",
    subjects=OPERATORS,
    repeat=1,
    goals=[Goal("requests", 6)],
)
async def appwrapper_one(case: Case) -> Sample:
    async with plane(controllers=CONTROLLERS) as stage, watched(stage) as phases:
        await stage.create([NAMESPACE])
        async with operator(stage, case.subject) as (process, _):
            await process.idle()
            mark, began = stage.mark(), time.perf_counter()
            await stage.client.create(wrapper(pod()))
            await phases.reach("Running", 1)
            wall = time.perf_counter() - began
            await process.idle(3.0)  # the pod is ready, and that is written
            asked = stage.asked(mark)
            return Sample({"wall s": wall, "requests": asked.total, "writes": asked.writes}, asked.requests)
