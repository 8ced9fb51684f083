"""The gate: compares what two commits cost, and fails if the new one is more expensive.

Both commits are installed as in production: their wheel and its dependencies in a virtual environment, nothing else.
The benchmark ``gate`` of this tree then runs with the one and the other in turn, so that whatever else happens on the
machine hits both. For each value, all pairs of runs give a ratio new/old. Their median is the result (the estimator by
Hodges and Lehmann), with the interval of the Wilcoxon-Mann-Whitney test, which needs no assumption about how runs
vary. A value fails when its whole interval is above the limit; an interval that contains the limit proves nothing.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from rich.console import Console
from rich.table import Column, Table

from test.bench.harness import REPOSITORY, Case, Sample, load_benchmarks, measure
from test.bench.table import format_number

CONFIDENCE = 0.95


class GateError(RuntimeError):
    """A commit does not exist or cannot be installed; the message is one line with the reason."""


@dataclass(frozen=True)
class Ratio:
    """The cost of the new commit relative to the old one: medians of both, and the ratio with its interval."""

    value: str
    old: float
    new: float
    ratio: float
    low: float
    high: float

    def exceeds(self, limit: float) -> bool:
        """Whether the new commit is more expensive than ``limit`` times the old one, with confidence."""
        return self.low > limit


def compare(
    value: str, old: Sequence[float], new: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """Compare the runs of the old and the new commit, at least four of each.

    A zero counts as one half, so that writes where there were none have a ratio.

    Raises :class:`ValueError` for fewer runs, whose interval cannot have the confidence.
    """
    if min(len(old), len(new)) < 4:
        raise ValueError(
            f"{value}: {len(old)} and {len(new)} runs; at least 4 of each commit are needed"
        )
    ratios = sorted(
        (after or 0.5) / (before or 0.5) for after, before in itertools.product(new, old)
    )
    deviation = math.sqrt(len(ratios) * (len(old) + len(new) + 1) / 12)
    outside = (
        math.floor(len(ratios) / 2 - NormalDist().inv_cdf((1 + confidence) / 2) * deviation) - 1
    )
    medians = statistics.median(old), statistics.median(new)
    return Ratio(value, *medians, statistics.median(ratios), ratios[outside], ratios[-1 - outside])


def resolve_commit(revision: str, repository: Path = REPOSITORY) -> str:
    """Return the hash of the commit ``revision``. Raises :class:`GateError`."""
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        raise GateError(f"{revision!r}: no such commit")
    return commit


def default_base(repository: Path = REPOSITORY) -> str:
    """Return the commit to compare HEAD with: where its branch left ``origin/main``, or on main its first parent."""
    base = _git(repository, "merge-base", "origin/main", "HEAD")
    return (
        base
        if base and base != resolve_commit("HEAD", repository)
        else resolve_commit("HEAD^", repository)
    )


def has_changed(old: str, new: str, repository: Path = REPOSITORY) -> bool:
    """Whether the program or its dependencies differ between two commits."""
    paths = ("cfo", "pyproject.toml", "constraints.txt")
    command = ("git", "-C", str(repository), "diff", "--quiet", old, new, "--", *paths)
    return subprocess.run(command, check=False).returncode != 0


def install_commit(commit: str, folder: Path, repository: Path = REPOSITORY) -> Path:
    """Install the program of ``commit`` as in production into ``folder``, once; return the path of its ``cfo``.

    Raises :class:`GateError` with the last line of the output if that fails.
    """
    home = folder / commit
    executable, complete = home / "venv/bin/cfo", home / "complete"
    if complete.exists():
        return executable
    shutil.rmtree(home, ignore_errors=True)
    source = home / "source"
    source.mkdir(parents=True)
    _run("git", "-C", str(repository), "archive", "--output", str(home / "source.tar"), commit)
    _run("tar", "--extract", "--file", str(home / "source.tar"), "--directory", str(source))
    constraints = source / "constraints.txt"
    if not constraints.is_file():
        raise GateError(f"{commit}: has no constraints.txt")
    _run(sys.executable, "-m", "venv", str(home / "venv"))
    pip = (
        str(home / "venv/bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    )
    _run(*pip, "--constraint", str(constraints), str(source))
    complete.touch()
    return executable


async def measure_alternately(
    executables: Sequence[Path], runs: int, size: int, folder: Path
) -> list[list[Sample]]:
    """Run the benchmark ``runs`` times for each of the two programs, the first one of each pair in turn.

    Raises :class:`GateError` if a run fails.
    """
    benchmark = load_benchmarks()["gate"]
    samples: list[list[Sample]] = [[] for _ in executables]
    for run in range(runs):
        order = range(len(executables)) if run % 2 == 0 else reversed(range(len(executables)))
        for index in order:
            environment = {"CFO_BENCH_CFO": str(executables[index])}
            outcome = await measure(
                benchmark, Case("cfo", size), repeat=1, folder=folder, environment=environment
            )
            if outcome.failed:
                raise GateError(f"{executables[index]}: {outcome.failed}")
            samples[index] += outcome.samples
    return samples


def print_ratios(ratios: Sequence[Ratio], limit: float, console: Console) -> None:
    """Print a table of ``ratios``, with those that exceed ``limit`` marked."""
    table = Table(
        "value",
        *(Column(title, justify="right") for title in ("old", "new", "ratio", "interval")),
        "",
    )
    for each in ratios:
        interval = f"{each.low:.3f} to {each.high:.3f}"
        verdict = f"above {limit:g}" if each.exceeds(limit) else ""
        table.add_row(
            each.value,
            format_number(each.old),
            format_number(each.new),
            f"{each.ratio:.3f}",
            interval,
            verdict,
        )
    console.print(table)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GateError(
            f"{' '.join(command)}: {(done.stderr.strip() or done.stdout.strip()).rpartition(chr(10))[2]}"
        )
    return done.stdout.strip()


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("git", "-C", str(repository), *arguments), capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
