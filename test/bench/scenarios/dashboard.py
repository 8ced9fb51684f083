"""What an open dashboard costs the operator, while RayClusters change."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import aiohttp
import yaml

from cfo.api.raycluster.names import RAY_CLUSTER
from test.bench.api_server import APIServer, api_server
from test.bench.harness import Case, Goal, Sample, benchmark
from test.bench.operators import run_operator
from test.bench.processes import free_port
from test.bench.raycluster_objects import namespaces, raycluster, raycluster_key, raycluster_status

CHANGES: Final = 50
"""Changes of the status of a RayCluster in a second."""
SECONDS: Final = 20


@benchmark(
    title=f"cost of an open dashboard in the operator, with {CHANGES} changes a second",
    unit="RayClusters",
    subjects=("cfo",),
    sizes=(1000,),
    quick=(1000,),
    repeat=1,
    goals=(Goal("page cpu %", 5), Goal("page MB", 8), Goal("closed cpu %", 0.5)),
)
async def dashboard(case: Case) -> Sample:
    port = free_port()
    metrics = {"bindAddress": f"127.0.0.1:{port}", "secureServing": True, "dashboard": True}
    async with api_server() as server:
        await server.create_all(namespaces())
        await server.create_all(raycluster(number) for number in range(case.size))
        await change(server, case.size, case.size, round_number=0)
        async with run_operator(server, case.subject, {"metrics": metrics}) as (process, _):
            await process.wait_until_idle()
            await load(
                server, case.size, process.cpu, 1
            )  # the first changes of each RayCluster cause reconciles
            await process.wait_until_idle()
            without_page = await load(server, case.size, process.cpu, 3)
            await process.wait_until_idle()
            memory = process.rss()
            token = yaml.safe_load(server.kubeconfig.read_text())["users"][0]["user"]["token"]
            async with aiohttp.ClientSession(read_bufsize=1 << 23) as session:
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(
                    f"https://127.0.0.1:{port}/dashboard/stream", headers=headers, ssl=False
                ) as page:
                    received: list[int] = []
                    reader = asyncio.create_task(read(page, received))
                    await process.wait_until_idle()
                    snapshot = sum(received)
                    with_page = await load(server, case.size, process.cpu, 2)
                    await process.wait_until_idle()
                    open_memory = process.rss()
                    reader.cancel()
            await asyncio.sleep(
                50
            )  # a closed connection is noticed after at most 15 s, and the informers stop 30 s later
            idle = process.cpu()
            await asyncio.sleep(5)
            return Sample(
                {
                    "cpu %": without_page,
                    "with page cpu %": with_page,
                    "page cpu %": with_page - without_page,
                    "page MB": open_memory - memory,
                    "peak MB": process.peak(),
                    "closed cpu %": 100 * (process.cpu() - idle) / 5,
                    "snapshot MB": snapshot / 1e6,
                    "sent kB/s": (sum(received) - snapshot) / SECONDS / 1000,
                }
            )


async def read(response: aiohttp.ClientResponse, received: list[int]) -> None:
    """Read the stream as fast as it is sent, and record the sizes."""
    async for chunk in response.content.iter_any():
        received.append(len(chunk))


async def load(server: APIServer, size: int, cpu: object, round_number: int) -> float:
    """Change RayClusters for a period; return the CPU time of the operator in percent of a core."""
    assert callable(cpu)
    before, started = cpu(), time.perf_counter()
    await change(server, CHANGES * SECONDS, size, round_number, per_second=CHANGES)
    return 100 * float(cpu() - before) / (time.perf_counter() - started)


async def change(
    server: APIServer, count: int, size: int, round_number: int, per_second: int = 0
) -> None:
    """Change the status of ``count`` RayClusters, evenly distributed over time (``per_second``; 0: at once)."""
    started = time.perf_counter()
    for number in range(count):
        status = raycluster_status(number % size, round_number)
        status |= {
            "readyWorkerReplicas": (number + round_number) % 7,
            "desiredWorkerReplicas": 7,
            "state": "ready",
        }
        await server.client.patch(
            RAY_CLUSTER, raycluster_key(number % size), {"status": status}, subresource="status"
        )
        if per_second:
            await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
