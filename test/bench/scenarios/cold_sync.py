"""The cold sync: loading all RayClusters into memory after a start, before a controller does any work.

The API server is :mod:`test.bench.list_server`, which does nothing else.
"""

from __future__ import annotations

import asyncio
import sys

import orjson

from test.bench.harness import REPOSITORY, Case, Goal, Sample, benchmark

LIMITS = {"kopf": 5000, "kopf-index": 5000}
"""kopf takes minutes for more objects; with an index, its time grows with the square of their number."""


async def measure_sync(library: str, count: int) -> tuple[dict[str, float], dict[str, int]]:
    """Run :mod:`test.bench.peers.cold_sync`; return its measurements and the sizes from the list server."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "test.bench.list_server", str(count)),
        stdin=pipe,
        stdout=pipe,
        cwd=REPOSITORY,
    )
    assert server.stdout is not None
    try:
        address = await server.stdout.readline()
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "test.bench.peers.cold_sync", library, str(count)),
            stdin=pipe,
            stdout=pipe,
            cwd=REPOSITORY,
        )
        output, _ = await client.communicate(address)
        if client.returncode:
            raise RuntimeError(f"the cold sync with {library} exited with code {client.returncode}")
        return orjson.loads(output.splitlines()[-1]), orjson.loads(address)
    finally:
        server.kill()
        await server.wait()


@benchmark(
    title="cold sync with an informer only: from exec until RayClusters of 4.7 kB are in memory",
    unit="objects",
    subjects=("cfo", "kubernetes_asyncio", "kopf", "kopf-index"),
    sizes=(1000, 5000, 20_000),
    quick=(1000,),
    limits=LIMITS,
    goals=[Goal("cpu s", 2.0, 5000), Goal("rss MB", 130, 5000)],
)
async def sync(case: Case) -> Sample:
    values, _ = await measure_sync(case.subject, case.size)
    return Sample(values)


@benchmark(
    title="memory per additional cached object (when their number doubles), relative to its JSON without managedFields",
    unit="objects",
    subjects=("cfo", "kubernetes_asyncio"),
    sizes=(10_000,),
    quick=(2000,),
    goals=[Goal("ratio", 1.3, 10_000)],
)
async def object_memory(case: Case) -> Sample:
    single, _ = await measure_sync(case.subject, case.size)
    double, sizes = await measure_sync(case.subject, 2 * case.size)
    per_object = (double["rss MB"] - single["rss MB"]) * 1e6 / case.size
    return Sample(
        {
            "MB per 1,000": per_object / 1000,
            "object bytes": sizes["plain_bytes"],
            "ratio": per_object / sizes["plain_bytes"],
        }
    )
