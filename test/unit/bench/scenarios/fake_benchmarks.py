"""Benchmarks that measure nothing; the tests of the harness run them in separate processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from test.bench.harness import Case, Goal, Sample, benchmark


@benchmark(
    title="measures nothing",
    unit="things",
    subjects=("cfo", "kopf", "go"),
    sizes=(10, 100, 1000),
    quick=(10,),
    repeat=2,
    limits={"kopf": 100},
    goals=[Goal("cpu s", 2, 100), Goal("writes", 0, 10), Goal("no such value", 1, 10)],
)
async def small(case: Case) -> Sample:
    return Sample(
        {"cpu s": case.size / 100, "pid": float(os.getpid())},
        {"list pods": 1, "create pods -> 409": 2},
    )


@benchmark(title="raises an exception", subjects=("cfo",))
async def failing(case: Case) -> Sample:
    raise RuntimeError("it broke [here]")


@benchmark(title="exits without a sample", subjects=("cfo",))
async def silent(case: Case) -> Sample:
    os._exit(0)


@benchmark(title="starts a process and does not end", subjects=("cfo",))
async def endless(case: Case) -> Sample:
    child = await asyncio.create_subprocess_exec("sleep", "600")
    Path(os.environ["CFO_TEST_PID"]).write_text(f"{child.pid}\n")
    await child.wait()
    return Sample({})
