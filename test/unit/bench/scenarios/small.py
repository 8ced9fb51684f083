from __future__ import annotations

import asyncio
import os
from pathlib import Path

from test.bench.harness import Case, Goal, Sample, benchmark


@benchmark(
    title="nothing at all",
    unit="things",
    subjects=("cfo", "kopf", "go"),
    sizes=(10, 100, 1000),
    quick=(10,),
    repeat=2,
    limits={"kopf": 100},
    goals=[Goal("cpu s", 2, 100), Goal("writes", 0, 10), Goal("no such value", 1, 10)],
)
async def small(case: Case) -> Sample:
    return Sample({"cpu s": case.size / 100, "pid": float(os.getpid())}, {"list pods": 1, "create pods -> 409": 2})


@benchmark(title="ends with an error", subjects=("cfo",))
async def broken(case: Case) -> Sample:
    raise RuntimeError("it broke [here]")


@benchmark(title="says something that is no sample", subjects=("cfo",))
async def mute(case: Case) -> Sample:
    os._exit(0)


@benchmark(title="leaves a process behind and does not end", subjects=("cfo",))
async def endless(case: Case) -> Sample:
    left = await asyncio.create_subprocess_exec("sleep", "600")
    Path(os.environ["CFO_TEST_PID"]).write_text(f"{left.pid}\n")
    await left.wait()
    return Sample({})
