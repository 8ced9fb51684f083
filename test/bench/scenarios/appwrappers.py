"""AppWrappers with one Job each. The process of the API server also simulates the controllers of Jobs and pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime import Transport, load_config
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.objects.unstructured import NamespacedName
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import run_operator
from test.support.appwrapper_environment import CONTROLLERS, job, pod, wrapper

OPERATORS = ("cfo", "go")
APPWRAPPER_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}


class _Status(msgspec.Struct):
    phase: str = ""


class _AppWrapper(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class PhaseTracker:
    """The phase of each AppWrapper, updated by a watch."""

    def __init__(self) -> None:
        self._phases: dict[NamespacedName, str] = {}
        self._changed = asyncio.Event()
        self._decoder = msgspec.json.Decoder(_AppWrapper)

    def handle(self, event: Event) -> None:
        """Store the phase in an event of the informer."""
        if event.new is None:
            self._phases.pop(event.key, None)
        else:
            self._phases[event.key] = self._decoder.decode(event.new.raw).status.phase
        self._changed.set()

    async def wait_for_count(self, phase: str, count: int) -> None:
        """Wait until ``count`` AppWrappers are in ``phase``."""
        while sum(each == phase for each in self._phases.values()) < count:
            self._changed.clear()
            await self._changed.wait()
            await asyncio.sleep(
                0.05
            )  # counting after each of thousands of events would be expensive

    async def wait_for_deletion(self) -> None:
        """Wait until all AppWrappers are deleted."""
        while self._phases:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def watch_phases(server: APIServer) -> AsyncIterator[PhaseTracker]:
    """Watch AppWrappers as the admin, whose requests are not counted."""
    phases = PhaseTracker()
    async with Transport(await load_config(str(server.admin_kubeconfig))) as transport:
        cache = Cache(transport, RESTMapper(transport))
        cache.informer(APPWRAPPER).add_handler(phases.handle)
        watch = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        try:
            yield phases
        finally:
            watch.cancel()
            await asyncio.wait({watch})


async def create_appwrappers(server: APIServer, count: int, *, first: int = 0, **pods: Any) -> None:
    """Create ``count`` AppWrappers with numbers from ``first``; ``pods`` are options for the pods of their Jobs."""
    await server.create_all(
        wrapper(job(f"j-{n}", **pods), name=f"w-{n}") for n in range(first, first + count)
    )


@benchmark(
    title="AppWrappers with one Job each, from the first create until all have succeeded",
    unit="AppWrappers",
    subjects=OPERATORS,
    sizes=(250, 500, 1000, 2000),
    quick=(100,),
    repeat=2,
    limits={"go": 1000},
)
async def appwrappers(case: Case) -> Sample:
    async with api_server(controllers=CONTROLLERS) as server, watch_phases(server) as phases:
        await server.create_all([APPWRAPPER_NAMESPACE])
        async with run_operator(server, case.subject) as (process, _):
            await process.wait_until_idle()
            position, cpu, started_at = server.audit_position(), process.cpu(), time.perf_counter()
            await create_appwrappers(server, case.size, phase="Succeeded")
            created = time.perf_counter() - started_at
            await phases.wait_for_count("Succeeded", case.size)
            wall = time.perf_counter() - started_at
            await process.wait_until_idle()
            requests = server.requests_since(position)
            values = {
                "wall s": wall,
                "create s": created,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests per object": requests.total / case.size,
                "writes per object": requests.writes / case.size,
            }
            return Sample(values, requests.by_resource)


@benchmark(
    title="60 s idle with running AppWrappers",
    unit="AppWrappers",
    subjects=OPERATORS,
    sizes=(5000,),
    quick=(100,),
    repeat=1,
    limits={"go": 1000},
    goals=[Goal("requests", 0, 5000)],
)
async def appwrappers_idle(case: Case) -> Sample:
    async with api_server(controllers=CONTROLLERS) as server, watch_phases(server) as phases:
        await server.create_all([APPWRAPPER_NAMESPACE])
        async with run_operator(server, case.subject) as (process, _):
            started_at = time.perf_counter()
            await create_appwrappers(server, case.size)
            await phases.wait_for_count("Running", case.size)
            await server.wait_until_idle()
            await process.wait_until_idle()
            running = time.perf_counter() - started_at
            position, cpu = server.audit_position(), process.cpu()
            await asyncio.sleep(60 if case.size >= 1000 else 10)
            requests = server.requests_since(position)
            values = {
                "until running s": running,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "requests": requests.total,
            }
            return Sample(values, requests.by_resource)


@benchmark(
    title="one AppWrapper with a pod, until it is ready",
    subjects=OPERATORS,
    repeat=1,
    goals=[Goal("requests", 6)],
)
async def appwrapper_one(case: Case) -> Sample:
    async with api_server(controllers=CONTROLLERS) as server, watch_phases(server) as phases:
        await server.create_all([APPWRAPPER_NAMESPACE])
        async with run_operator(server, case.subject) as (process, _):
            await process.wait_until_idle()
            position, started_at = server.audit_position(), time.perf_counter()
            await server.client.create(wrapper(pod()))
            await phases.wait_for_count("Running", 1)
            wall = time.perf_counter() - started_at
            await process.wait_until_idle(
                3.0
            )  # the operator writes the pod's readiness after the phase
            requests = server.requests_since(position)
            values = {"wall s": wall, "requests": requests.total, "writes": requests.writes}
            return Sample(values, requests.by_resource)
