"""The delay between a change and the start of its reconcile, at a constant rate of changes."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

import orjson

from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName
from test.bench.api_server import APIServer, api_server
from test.bench.harness import REPOSITORY, Case, Sample, benchmark
from test.bench.processes import MeasuredProcess

OBJECTS = 50
"""Number of ConfigMaps, which are changed in turn."""
SECONDS = 10
"""Duration of the changes."""


@benchmark(
    title="from the response to a write until its reconcile starts, by rate of writes (kopf: until on.event is called)",
    unit="events/s",
    subjects=("cfo", "kopf"),
    sizes=(10, 100, 500),
    quick=(100,),
)
async def latency(case: Case) -> Sample:
    async with api_server() as server:
        keys = [NamespacedName("default", f"latency-{number}") for number in range(OBJECTS)]
        await server.create_all(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": key.namespace, "name": key.name},
            }
            for key in keys
        )
        pipe = asyncio.subprocess.PIPE
        log = server.folder / "event-times.log"
        with log.open("wb") as errors:
            started_at = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "test.bench.peers.event_times", case.subject),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                cwd=REPOSITORY,
                env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
            )
        controller = MeasuredProcess(process, log, started_at)
        try:
            assert process.stdout is not None
            if await process.stdout.readline() != b"ready\n":
                await process.wait()
                controller.check_running()
            await controller.wait_until_idle()
            cpu = controller.cpu()
            responded = await change_objects(server, keys, case.size)
            await controller.wait_until_idle()
            cpu = controller.cpu() - cpu
            memory = controller.memory()
            output, _ = await process.communicate(b"")
        finally:
            await controller.stop()
        called: dict[str, float] = orjson.loads(output.splitlines()[-1])
        # The watch can deliver an event before the writer has read its response: that counts as no delay.
        delays = [
            max(0.0, called[serial] - at) * 1000
            for serial, at in responded.items()
            if serial in called
        ]
        percentiles = statistics.quantiles(delays, n=100)
        return Sample(
            {
                "p50 ms": percentiles[49],
                "p99 ms": percentiles[98],
                "max ms": max(delays),
                "share delivered": len(delays) / len(responded),
                "cpu s": cpu,
                **memory,
            }
        )


async def change_objects(
    server: APIServer, keys: list[NamespacedName], rate: int
) -> dict[str, float]:
    """Write ``rate`` values per second, all different; return when the response to each value's write arrived."""
    responded: dict[str, float] = {}

    async def write(serial: int) -> None:
        await server.client.patch(
            CONFIG_MAP, keys[serial % OBJECTS], {"data": {"serial": str(serial)}}
        )
        responded[str(serial)] = time.perf_counter()

    async with asyncio.TaskGroup() as writers:
        started_at = time.perf_counter()
        for serial in range(rate * SECONDS):
            await asyncio.sleep(max(0.0, started_at + serial / rate - time.perf_counter()))
            writers.create_task(write(serial))
    return responded
