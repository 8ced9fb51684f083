"""The JSON of a run: what was measured, on which machine; and how the runs of one machine become one result."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from test.bench.harness import REPOSITORY, Benchmark, Goal, Outcome

__all__ = ["Described", "Machine", "Result", "Unreadable", "describe", "here", "merge", "read"]

_PACKAGES = ("aiohttp", "orjson", "msgspec", "cryptography", "kopf", "kubernetes-asyncio", "uvloop")


class Unreadable(ValueError):
    """A file is no result, or does not go with the others; one line that says why."""


class Machine(msgspec.Struct, frozen=True):
    """What the numbers were measured on, and with what; ``load`` is the system's load before the first of them."""

    cpu: str
    cores: int
    memory_gb: int
    load: float
    system: str
    python: str
    packages: dict[str, str]
    commit: str


class Described(msgspec.Struct, frozen=True):
    """What the reader of a result must know of a benchmark."""

    name: str
    title: str
    unit: str
    goals: list[Goal]


class Result(msgspec.Struct):
    """One run of benchmarks; a file holds one of these."""

    began: datetime
    quick: bool
    machine: Machine
    benchmarks: list[Described]
    outcomes: list[Outcome]
    format: Literal["cfo-bench/1"] = "cfo-bench/1"

    def write(self, file: Path) -> None:
        """Replaces ``file``. Raises :class:`OSError`."""
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def describe(benchmark: Benchmark) -> Described:
    """What a file keeps of ``benchmark``."""
    return Described(benchmark.name, benchmark.title, benchmark.unit, list(benchmark.goals))


def here() -> Machine:
    """This machine, and the commit of this tree."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = found[0] if found else model
    describing = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    commit = subprocess.run(describing, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    return Machine(
        cpu=model,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9),
        load=round(os.getloadavg()[0], 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=versions,
        commit=commit.stdout.strip(),
    )


def read(file: Path) -> Result:
    """A result from its file. Raises :class:`Unreadable`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise Unreadable(f"{file}: is no result of `python -m test.bench run --json`: {error}") from None


def merge(results: Sequence[Result]) -> tuple[dict[str, Described], list[Outcome]]:
    """The benchmarks of all ``results`` by name, and all samples of each case in one outcome, by size and subject.

    A case that was skipped or failed in one run and measured in another keeps its samples; a failure stays told.
    Raises :class:`Unreadable` if nothing was measured, or on different machines: their numbers say nothing beside
    each other.
    """
    machines = {(each.machine.cpu, each.machine.cores) for each in results}
    if len(machines) > 1:
        told = " and ".join(f"{cores} x {cpu}" for cpu, cores in sorted(machines))
        raise Unreadable(f"the results were measured on different machines: {told}")
    benchmarks: dict[str, Described] = {}
    cases: dict[tuple[str, str, int], Outcome] = {}
    for result in sorted(results, key=lambda each: each.began):
        benchmarks |= {each.name: each for each in result.benchmarks}
        for outcome in result.outcomes:
            key = (outcome.benchmark, outcome.subject, outcome.size)
            known = cases.get(key, Outcome(*key))
            samples = known.samples + outcome.samples
            cases[key] = Outcome(
                *key,
                samples=samples,
                failed=outcome.failed or known.failed,
                skipped="" if samples else outcome.skipped or known.skipped,
            )
    subjects = list(dict.fromkeys(outcome.subject for outcome in cases.values()))
    ordered = sorted(cases.values(), key=lambda each: (each.size, subjects.index(each.subject)))
    if not any(outcome.samples for outcome in ordered):
        raise Unreadable("nothing was measured in these results")
    missing = {outcome.benchmark for outcome in ordered} - benchmarks.keys()
    if missing:
        raise Unreadable(f"benchmarks that no result describes: {', '.join(sorted(missing))}")
    return benchmarks, ordered
