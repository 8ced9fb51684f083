"""How soon after a change its reconcile begins, at a steady rate of changes."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

import orjson

from cfo.runtime.kinds import CONFIG_MAP
from cfo.runtime.objects import NamespacedName
from test.bench.harness import REPOSITORY, Case, Sample, benchmark
from test.bench.stage import Measured, Plane, plane

OBJECTS = 50
SECONDS = 10


@benchmark(
    title="from the answer to a write until its reconcile begins, by rate (kopf: until on.event is called)",
    unit="events/s",
    subjects=("cfo", "kopf"),
    sizes=(10, 100, 500),
    quick=(100,),
)
async def latency(case: Case) -> Sample:
    async with plane() as stage:
        keys = [NamespacedName("default", f"latency-{number}") for number in range(OBJECTS)]
        await stage.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": key.namespace, "name": key.name}}
            for key in keys
        )
        pipe = asyncio.subprocess.PIPE
        log = stage.folder / "clocked.log"
        with log.open("wb") as errors:
            began = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "test.bench.peers.clocked", case.subject),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                cwd=REPOSITORY,
                env={**os.environ, "KUBECONFIG": str(stage.kubeconfig)},
            )
        clocked = Measured(process, log, began)
        try:
            assert process.stdout is not None
            if await process.stdout.readline() != b"ready\n":
                await process.wait()
                clocked.alive()
            await clocked.idle()
            cpu = clocked.cpu()
            answered = await change(stage, keys, case.size)
            await clocked.idle()
            cpu = clocked.cpu() - cpu
            memory = clocked.memory()
            output, _ = await process.communicate(b"")
        finally:
            await clocked.stop()
        called: dict[str, float] = orjson.loads(output.splitlines()[-1])
        # a watch may tell before the writer has read its answer: that is no latency at all
        waits = [max(0.0, called[serial] - at) * 1000 for serial, at in answered.items() if serial in called]
        cuts = statistics.quantiles(waits, n=100)
        return Sample(
            {
                "p50 ms": cuts[49],
                "p99 ms": cuts[98],
                "max ms": max(waits),
                "seen": len(waits) / len(answered),
                "cpu s": cpu,
                **memory,
            }
        )


async def change(stage: Plane, keys: list[NamespacedName], rate: int) -> dict[str, float]:
    """Changes objects at ``rate`` a second, each to another value; gives when each value's write was answered."""
    answered: dict[str, float] = {}

    async def write(serial: int) -> None:
        await stage.client.patch(CONFIG_MAP, keys[serial % OBJECTS], {"data": {"serial": str(serial)}})
        answered[str(serial)] = time.perf_counter()

    async with asyncio.TaskGroup() as writers:
        began = time.perf_counter()
        for serial in range(rate * SECONDS):
            await asyncio.sleep(max(0.0, began + serial / rate - time.perf_counter()))
            writers.create_task(write(serial))
    return answered
