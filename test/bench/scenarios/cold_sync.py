"""Getting RayClusters into memory after a start, by an informer alone: what an operator pays before it does anything.

The API server is one that has nothing else to do, see :mod:`test.bench.peers.lists`.
"""

from __future__ import annotations

import asyncio
import sys

import orjson

from test.bench.harness import REPOSITORY, Case, Goal, Sample, benchmark

MODULE = "test.bench.peers"
LIMITS = {"kopf": 5000, "kopf-index": 5000}
"""kopf takes minutes beyond; with an index, time grows with the square of their number."""


async def synced(library: str, count: int) -> tuple[dict[str, float], dict[str, int]]:
    """What ``count`` objects cost in a process of ``library``; what the server said of the objects' sizes."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{MODULE}.lists", str(count)), stdin=pipe, stdout=pipe, cwd=REPOSITORY
    )
    assert server.stdout is not None
    try:
        told = await server.stdout.readline()
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{MODULE}.syncing", library, str(count)), stdin=pipe, stdout=pipe, cwd=REPOSITORY
        )
        output, _ = await client.communicate(told)
        if client.returncode:
            raise RuntimeError(f"{library} ended with {client.returncode}")
        return orjson.loads(output.splitlines()[-1]), orjson.loads(told)
    finally:
        server.kill()
        await server.wait()


@benchmark(
    title="from exec until RayClusters of 4.7 kB are in memory, by an informer alone",
    unit="objects",
    subjects=("cfo", "kubernetes_asyncio", "kopf", "kopf-index"),
    sizes=(1000, 5000, 20_000),
    quick=(1000,),
    limits=LIMITS,
    goals=[Goal("cpu s", 2.0, 5000), Goal("rss MB", 130, 5000)],
)
async def sync(case: Case) -> Sample:
    cost, _ = await synced(case.subject, case.size)
    return Sample(cost)


@benchmark(
    title="memory of each further cached object (of twice as many), against its JSON without managedFields",
    unit="objects",
    subjects=("cfo", "kubernetes_asyncio"),
    sizes=(10_000,),
    quick=(2000,),
    goals=[Goal("ratio", 1.3, 10_000)],
)
async def object_memory(case: Case) -> Sample:
    fewer, _ = await synced(case.subject, case.size)
    more, sizes = await synced(case.subject, 2 * case.size)
    each = (more["rss MB"] - fewer["rss MB"]) * 1e6 / case.size
    return Sample(
        {"MB per 1,000": each / 1000, "object bytes": sizes["plain_bytes"], "ratio": each / sizes["plain_bytes"]}
    )
