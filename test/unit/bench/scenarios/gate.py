"""A gate that needs no API server: the installed program is a file that contains its cost."""

from __future__ import annotations

import os
from pathlib import Path

from test.bench.harness import Case, Sample, benchmark


@benchmark(title="the cost in a file", sizes=(150,), quick=(20,))
async def gate(case: Case) -> Sample:
    cost = Path(os.environ["CFO_BENCH_CFO"]).read_text()
    return Sample({"start cpu s": float(cost), "writes": 0, "clusters": case.size})
