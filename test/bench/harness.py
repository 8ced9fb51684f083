"""What a benchmark is, and how it is run: each in a process of its own, again and again, beside its peers.

A benchmark is a coroutine that gets a :class:`Case` (whom to measure, at which size) and gives a :class:`Sample`.
:func:`benchmark` registers it. Nothing here judges: goals are printed beside what was measured.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import pkgutil
import signal
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["BENCHMARKS", "Benchmark", "Case", "Goal", "Outcome", "Sample", "benchmark", "load", "measure", "spread"]

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 1800.0
"""Seconds that one run may take."""


class Sample(msgspec.Struct, frozen=True):
    """What one run measured: ``values`` by name with the unit at its end (``cpu s``), ``requests`` by verb."""

    values: dict[str, float]
    requests: dict[str, int] = {}


class Outcome(msgspec.Struct, frozen=True):
    """All runs of a case; ``skipped`` or ``failed`` say why there are none."""

    benchmark: str
    subject: str
    size: int
    samples: list[Sample] = []
    skipped: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Goal:
    """What ``value`` should be at the most, at ``size``, for us."""

    value: str
    at_most: float
    size: int = 0


@dataclass(frozen=True)
class Case:
    """Whom to measure (``cfo``, ``go``, ``kopf``, ``kubernetes_asyncio``), and how much of what it is about."""

    subject: str
    size: int


@dataclass(frozen=True)
class Benchmark:
    """One measurement. ``unit`` is what its size counts; ``quick`` are the sizes of a quick run."""

    name: str
    title: str
    unit: str
    run: Callable[[Case], Awaitable[Sample]]
    subjects: tuple[str, ...]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    repeat: int
    goals: tuple[Goal, ...]
    limits: Mapping[str, int] = field(default_factory=dict)

    def cases(self, *, quick: bool) -> Iterator[Case]:
        """Every subject at every size that it can stand."""
        for size in self.quick if quick else self.sizes:
            for subject in self.subjects:
                if size <= self.limits.get(subject, size):
                    yield Case(subject, size)


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(
    *,
    title: str,
    unit: str = "",
    subjects: Sequence[str] = ("cfo",),
    sizes: Sequence[int] = (0,),
    quick: Sequence[int] | None = None,
    repeat: int = 3,
    goals: Sequence[Goal] = (),
    limits: Mapping[str, int] | None = None,
) -> Callable[[Callable[[Case], Awaitable[Sample]]], Callable[[Case], Awaitable[Sample]]]:
    """Registers a coroutine under its name; ``limits`` are the largest sizes for subjects that take too long."""

    def register(run: Callable[[Case], Awaitable[Sample]]) -> Callable[[Case], Awaitable[Sample]]:
        name = run.__name__.replace("_", "-")
        BENCHMARKS[name] = Benchmark(
            name=name,
            title=title,
            unit=unit,
            run=run,
            subjects=tuple(subjects),
            sizes=tuple(sizes),
            quick=tuple(quick or sizes[:1]),
            repeat=repeat,
            goals=tuple(goals),
            limits=limits or {},
        )
        return run

    return register


def load() -> dict[str, Benchmark]:
    """All benchmarks, in the order of their modules' names; ``CFO_BENCH_SCENARIOS`` names another package of them."""
    package = importlib.import_module(os.environ.get("CFO_BENCH_SCENARIOS") or "test.bench.scenarios")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return BENCHMARKS


def unavailable(subject: str) -> str:
    """Why ``subject`` cannot be measured here; empty: it can."""
    if subject == "go" and not os.environ.get("CFO_BENCH_GO"):
        return "CFO_BENCH_GO names no binary"
    if subject.startswith("kopf") and importlib.util.find_spec("kopf") is None:
        return "kopf is not installed"
    return ""


async def measure(wanted: Benchmark, case: Case, *, repeat: int, folder: Path, patience: float = PATIENCE) -> Outcome:
    """Runs a case ``repeat`` times, each in a new process; their output goes to ``folder``."""
    outcome = Outcome(wanted.name, case.subject, case.size)
    if reason := unavailable(case.subject):
        return msgspec.structs.replace(outcome, skipped=reason)
    samples: list[Sample] = []
    for _ in range(repeat):
        log = folder / f"{wanted.name}-{case.subject}-{case.size}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "test.bench", "one", wanted.name, case.subject, str(case.size)),
                cwd=REPOSITORY,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(patience):
                    output, _ = await process.communicate()
            except TimeoutError:
                return msgspec.structs.replace(outcome, samples=samples, failed=f"not done after {patience:g} s")
            finally:
                # Its API server and operator are in its session: a run that is given up leaves nothing behind.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            return msgspec.structs.replace(outcome, samples=samples, failed=f"{lines[-1]} (see {log})")
        try:
            samples.append(msgspec.json.decode(output.splitlines()[-1], type=Sample))
        except (IndexError, msgspec.DecodeError):
            return msgspec.structs.replace(outcome, samples=samples, failed=f"it gave no sample (see {log})")
    return msgspec.structs.replace(outcome, samples=samples)


def spread(outcome: Outcome, value: str) -> tuple[float, float, float]:
    """Median, least and greatest of a value over the runs of a case."""
    found = [sample.values[value] for sample in outcome.samples if value in sample.values]
    return statistics.median(found), min(found), max(found)


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """The names of all values that these measured, in the order in which they came."""
    found: dict[str, Any] = {}
    for outcome in outcomes:
        for sample in outcome.samples:
            found |= dict.fromkeys(sample.values)
    return list(found)
