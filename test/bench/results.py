"""The JSON file of a benchmark run, and the merging of several runs on one machine."""

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

_PACKAGES = ("aiohttp", "orjson", "msgspec", "cryptography", "kopf", "kubernetes-asyncio", "uvloop")


class ResultError(ValueError):
    """A file is not a result, or results cannot be merged; the message is one line with the reason."""


class Machine(msgspec.Struct, frozen=True):
    """The hardware and software of a run. ``load`` is the system's load average at the start."""

    cpu: str
    cores: int
    memory_gb: int
    load: float
    system: str
    python: str
    packages: dict[str, str]
    commit: str


class BenchmarkDescription(msgspec.Struct, frozen=True):
    """The part of a :class:`~test.bench.harness.Benchmark` that is needed to report its results."""

    name: str
    title: str
    unit: str
    goals: list[Goal]


class Result(msgspec.Struct):
    """One run of benchmarks; the content of one JSON file."""

    began: datetime
    quick: bool
    machine: Machine
    benchmarks: list[BenchmarkDescription]
    outcomes: list[Outcome]
    format: Literal["cfo-bench/1"] = "cfo-bench/1"

    def write(self, file: Path) -> None:
        """Write or overwrite ``file``. Raises :class:`OSError`."""
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def describe(benchmark: Benchmark) -> BenchmarkDescription:
    """Return the part of ``benchmark`` that results contain."""
    return BenchmarkDescription(
        benchmark.name, benchmark.title, benchmark.unit, list(benchmark.goals)
    )


def describe_machine() -> Machine:
    """Describe this machine, the installed packages and the commit of this repository."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        model = models[0] if models else model
    git_describe = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    commit = subprocess.run(
        git_describe, capture_output=True, text=True, cwd=REPOSITORY, check=False
    )
    return Machine(
        cpu=model,
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9),
        load=round(os.getloadavg()[0], 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=versions,
        commit=commit.stdout.strip(),
    )


def read_result(file: Path) -> Result:
    """Read the result in ``file``. Raises :class:`ResultError`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except OSError as error:
        raise ResultError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ResultError(
            f"{file}: not a result of `python -m test.bench run --json`: {error}"
        ) from None


def merge(results: Sequence[Result]) -> tuple[dict[str, BenchmarkDescription], list[Outcome]]:
    """Merge ``results`` into one outcome for each case, sorted by size and subject, and all benchmarks by name.

    A case that one run measured and another one skipped counts as measured. A case that failed in any run keeps its
    samples and its failure.

    Raises :class:`ResultError` if the results contain no sample, or if they come from different machines, because
    figures of different machines cannot be compared.
    """
    machines = {(each.machine.cpu, each.machine.cores) for each in results}
    if len(machines) > 1:
        names = " and ".join(f"{cores} x {cpu}" for cpu, cores in sorted(machines))
        raise ResultError(f"the results come from different machines: {names}")
    benchmarks: dict[str, BenchmarkDescription] = {}
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
        raise ResultError("the results contain no samples")
    missing = {outcome.benchmark for outcome in ordered} - benchmarks.keys()
    if missing:
        raise ResultError(f"no result describes these benchmarks: {', '.join(sorted(missing))}")
    return benchmarks, ordered
