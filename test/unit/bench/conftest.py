"""The fake benchmarks of the tests."""

from __future__ import annotations

import sys

import pytest

from test.bench.harness import Benchmark, load_benchmarks

SCENARIOS = "test.unit.bench.scenarios"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Benchmark]:
    """Load the fake benchmarks, in this process and in those that the harness starts."""
    monkeypatch.setattr("test.bench.harness.BENCHMARKS", {})
    for name in [name for name in sys.modules if name.startswith(SCENARIOS)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("CFO_BENCH_SCENARIOS", SCENARIOS)
    monkeypatch.delenv("CFO_BENCH_GO", raising=False)
    return load_benchmarks()
