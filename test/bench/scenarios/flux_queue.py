"""The queue of FluxJobs: one decision about many waiting jobs, its memory, and a burst of submissions."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP
from cfo.controllers.flux.queue.ledger import Ledger
from cfo.runtime import Client
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of
from cfo.runtime.process.clock import rfc3339
from test.bench.api_server import api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import FLUX, run_operator
from test.support.flux_environment import SCHEDULED, flux_job, flux_setup, pod_annotations

STRATEGIES = ("BestEffortFIFO", "StrictFIFO", "Backfill")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACES = 30


def waiting_job(number: int) -> Object:
    """Return a FluxJob that was validated and waits; all are different in size, priority and age."""
    job = flux_job(
        f"job-{number:05}", f"team-{number % NAMESPACES}", size=1 + number % 7, priority=number % 3
    )
    job["metadata"] |= {
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "generation": 1,
        "resourceVersion": str(number + 1),
        "creationTimestamp": rfc3339(NOW + timedelta(seconds=(number * 7919) % 5000)),
    }
    job["spec"]["deadlineSeconds"] = 60 + number % 600
    job["status"] = {"jobid": f"job-{number}", "observedGeneration": 1, "conditions": []}
    return job


def entries(count: int) -> list[Entry]:
    """Return waiting FluxJobs as an informer stores them."""
    decoder = EntryDecoder(FLUX_JOB)
    found = [decoder.decode(orjson.dumps(waiting_job(number))) for number in range(count)]
    for entry in found:
        entry.drop_meta()
    return found


def started_ledger(jobs: list[Entry], **spec: Any) -> tuple[Ledger, NamespacedName]:
    """Return a ledger with one FluxSetup, which governs ``jobs``, before its first decision."""
    ledger = Ledger(frozenset({"operator"}), lambda _: None, lambda _: None, lambda _: None)
    setup = flux_setup(namespace="operator", namespaceSelector={}, **spec)
    setup["metadata"] |= {"uid": "1", "resourceVersion": "1", "creationTimestamp": rfc3339(NOW)}
    ledger.on_setup(_added(EntryDecoder(FLUX_SETUP).decode(orjson.dumps(setup))))
    for entry in jobs:
        ledger.on_job(_added(entry))
    ledger.start()
    return ledger, key_of(setup)


def _added(entry: Entry) -> Event:
    return Event(EventType.ADDED, entry.key, None, entry)


@benchmark(
    title="one decision of the queue about waiting FluxJobs, the slowest of all strategies",
    unit="waiting FluxJobs",
    sizes=(1000, 10_000),
    quick=(1000,),
    goals=[Goal("cpu ms", 50, 10_000)],
)
async def flux_decision(case: Case) -> Sample:
    jobs = entries(case.size)
    slowest = 0.0
    for strategy in STRATEGIES:
        for fairness in ("None", "Namespace"):
            ledger, setup = started_ledger(
                jobs, max_size=200, queueingStrategy=strategy, fairness=fairness
            )
            ledger.decide(setup, NOW.timestamp())  # the first one admits
            gc.collect()
            slowest = max(slowest, statistics.median(_seconds(ledger, setup) for _ in range(5)))
    return Sample({"cpu ms": slowest * 1000})


def _seconds(ledger: Ledger, setup: NamespacedName) -> float:
    """Return the CPU time of one decision in seconds."""
    started_at = time.process_time()
    ledger.decide(setup, NOW.timestamp())
    return time.process_time() - started_at


@benchmark(
    title="memory of the queue for each waiting FluxJob, in addition to the cached object",
    unit="waiting FluxJobs",
    sizes=(10_000,),
    quick=(1000,),
    repeat=1,
    goals=[Goal("bytes", 1024, 10_000)],
)
async def flux_queue_memory(case: Case) -> Sample:
    jobs = entries(case.size)
    gc.collect()
    tracemalloc.start()
    ledger, setup = started_ledger(jobs, max_size=20)
    ledger.decide(setup, NOW.timestamp())
    gc.collect()
    used, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Sample({"bytes": used / case.size, "peak bytes": peak / case.size})


@benchmark(
    title="a burst of FluxJobs with a quota of 20 pods, until the queue has decided about all and all quota is used",
    unit="FluxJobs",
    sizes=(1000,),
    quick=(100,),
    repeat=1,
    goals=[Goal("cpu s", 20, 1000)],
)
async def flux_burst(case: Case) -> Sample:
    crds = (minicluster_crd(), fluxjob_crd(), fluxsetup_crd())
    async with api_server(*crds, controllers=SCHEDULED) as server:
        await server.create_all(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}]
        )
        running = {"pod": pod_annotations(phase="Running")}
        await server.client.create(flux_setup(mini_cluster=running))
        async with run_operator(server, case.subject, FLUX) as (process, _):
            await process.wait_until_idle()
            position, cpu, started_at = server.audit_position(), process.cpu(), time.perf_counter()
            await server.create_all(flux_job(f"job-{number}") for number in range(case.size))
            created = time.perf_counter() - started_at
            while not await _is_settled(server.client, case.size):  # noqa: ASYNC110 (the state of another process)
                await asyncio.sleep(0.2)
            wall = time.perf_counter() - started_at
            await process.wait_until_idle(2.0)
            requests = server.requests_since(position)
            values = {
                "wall s": wall,
                "create s": created,
                "cpu s": process.cpu() - cpu,
                **process.memory(),
                "writes per object": requests.writes / case.size,
            }
            return Sample(values, requests.by_resource)


async def _is_settled(client: Client, count: int) -> bool:
    found = await client.get(FLUX_SETUP, NamespacedName("ns", "setup"))
    status = (found or {}).get("status") or {}
    numbers = (
        status.get("usedResources"),
        status.get("admittedWorkloads"),
        status.get("pendingWorkloads"),
    )
    return bool(numbers == (20, 10, count - 10))
