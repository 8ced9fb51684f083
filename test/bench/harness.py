"""Definition and execution of benchmarks: each run is a separate process.

A benchmark is a coroutine that takes a :class:`Case` (which program to measure, at which size) and returns a
:class:`Sample`; :func:`benchmark` registers it. Benchmarks never fail because of a measured value: goals are only
printed next to it, and :mod:`test.bench.gate` compares values with those of another commit.
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

REPOSITORY = Path(__file__).parents[2]
TIMEOUT = 1800.0
"""Seconds after which a run is killed."""


class Sample(msgspec.Struct, frozen=True):
    """The measurements of one run.

    ``values`` are named with their unit at the end (``cpu s``). ``requests`` are counts of requests to the API server,
    by verb and resource (``list pods``).
    """

    values: dict[str, float]
    requests: dict[str, int] = {}


class Outcome(msgspec.Struct, frozen=True):
    """All runs of one case. ``skipped`` or ``failed`` is the reason why samples are missing."""

    benchmark: str
    subject: str
    size: int
    samples: list[Sample] = []
    skipped: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Goal:
    """The upper limit that cfo should meet for ``value`` at ``size``."""

    value: str
    at_most: float
    size: int = 0


@dataclass(frozen=True)
class Case:
    """The subject, which is the program to measure (``cfo``, ``go``, ``kopf``, ...), and the size of its task."""

    subject: str
    size: int


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark. ``unit`` is the unit of ``sizes``; ``quick`` contains the sizes of a quick run."""

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
        """Yield every subject at every size up to the subject's limit."""
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
    """Register a coroutine as a benchmark, under its name with hyphens instead of underscores.

    ``quick`` defaults to the first of ``sizes``. ``limits`` are the largest sizes of subjects that take too long.
    """

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


def load_benchmarks() -> dict[str, Benchmark]:
    """Import all benchmarks, in the order of their modules' names.

    They are in the package ``test.bench.scenarios``, or in the one that ``CFO_BENCH_SCENARIOS`` names.
    """
    package = importlib.import_module(
        os.environ.get("CFO_BENCH_SCENARIOS") or "test.bench.scenarios"
    )
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return BENCHMARKS


def reason_to_skip(subject: str) -> str:
    """Return the reason why ``subject`` cannot be measured on this machine, or an empty string."""
    if subject == "go" and not os.environ.get("CFO_BENCH_GO"):
        return "CFO_BENCH_GO is not set"
    if subject.startswith("kopf") and importlib.util.find_spec("kopf") is None:
        return "kopf is not installed"
    return ""


async def measure(
    benchmark: Benchmark,
    case: Case,
    *,
    repeat: int,
    folder: Path,
    timeout: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a case ``repeat`` times, each time in a new process with ``environment`` added, until the first failure.

    The standard error of the runs goes to a log in ``folder``. A run fails after ``timeout`` seconds.
    """
    outcome = Outcome(benchmark.name, case.subject, case.size)
    if reason := reason_to_skip(case.subject):
        return msgspec.structs.replace(outcome, skipped=reason)
    samples: list[Sample] = []
    for _ in range(repeat):
        log = folder / f"{benchmark.name}-{case.subject}-{case.size}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "test.bench",
                    "run-once",
                    benchmark.name,
                    case.subject,
                    str(case.size),
                ),
                cwd=REPOSITORY,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(timeout):
                    output, _ = await process.communicate()
            except TimeoutError:
                return msgspec.structs.replace(
                    outcome, samples=samples, failed=f"timed out after {timeout:g} s"
                )
            finally:
                # The API server and the operator of the run are in the same session, so this also kills them after
                # a timeout or a cancellation.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            error = last_error(log.read_text(errors="replace"))
            return msgspec.structs.replace(outcome, samples=samples, failed=f"{error} (see {log})")
        try:
            samples.append(msgspec.json.decode(output.splitlines()[-1], type=Sample))
        except (IndexError, msgspec.DecodeError):
            return msgspec.structs.replace(
                outcome, samples=samples, failed=f"the run printed no sample (see {log})"
            )
    return msgspec.structs.replace(outcome, samples=samples)


def last_error(log: str) -> str:
    """Return the last line of a log, without the frame that Python draws around the errors of an ExceptionGroup."""
    lines = [line.lstrip(" |") for line in log.splitlines()]
    return next((line for line in reversed(lines) if line.strip(" +-")), "no output")


def spread(outcome: Outcome, value: str) -> tuple[float, float, float]:
    """Return median, minimum and maximum of a value over the runs that measured it."""
    measured = [sample.values[value] for sample in outcome.samples if value in sample.values]
    return statistics.median(measured), min(measured), max(measured)


def value_names(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the names of all measured values, in the order of their first occurrence."""
    names: dict[str, Any] = {}
    for outcome in outcomes:
        for sample in outcome.samples:
            names |= dict.fromkeys(sample.values)
    return list(names)
