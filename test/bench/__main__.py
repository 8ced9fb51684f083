"""``python -m test.bench``: runs the benchmarks, prints their tables, writes them as JSON. It judges nothing.

``make bench`` calls it. ``BENCH="start sync-*"`` takes some of them, ``--quick`` small sizes once.
"""

from __future__ import annotations

import asyncio
import fnmatch
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import psutil
from rich.console import Console

from test.bench.harness import REPOSITORY, Benchmark, Case, Outcome, load, measure
from test.bench.table import show

_PACKAGES = ("aiohttp", "orjson", "msgspec", "cryptography", "kopf", "kubernetes-asyncio", "uvloop")


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and with what."""
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
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=REPOSITORY)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory GB": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "commit": commit.stdout.strip(),
    }


def chosen(patterns: tuple[str, ...]) -> list[Benchmark]:
    benchmarks = load()
    if not patterns:
        return list(benchmarks.values())
    found = [each for each in benchmarks.values() if any(fnmatch.fnmatch(each.name, one) for one in patterns)]
    for pattern in patterns:
        if not any(fnmatch.fnmatch(each.name, pattern) for each in found):
            raise click.BadParameter(f"{pattern!r} is no benchmark; there are {', '.join(benchmarks)}")
    return found


@click.group()
def main() -> None:
    """Benchmarks of cfo and its peers."""


@main.command("list")
def list_() -> None:
    """What there is to run."""
    for each in load().values():
        click.echo(f"{each.name:28} {each.title}")


@main.command()
@click.argument("patterns", nargs=-1)
@click.option("--quick", is_flag=True, help="Small sizes, once.")
@click.option("--repeat", type=click.IntRange(min=1), help="Runs of each case, instead of what each asks for.")
@click.option("--subject", "subjects", multiple=True, help="Only these: cfo, go, kopf, ...")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here.")
def run(
    patterns: tuple[str, ...], quick: bool, repeat: int | None, subjects: tuple[str, ...], file: Path | None
) -> None:
    """Run the benchmarks whose names match PATTERNS (all), print tables, and write JSON."""
    console = Console()
    if not console.is_terminal:
        console.width = 170
    folder = Path(tempfile.mkdtemp(prefix="cfo-bench-"))
    report: dict[str, Any] = {"began": datetime.now(UTC), "quick": quick, "machine": machine(), "outcomes": []}
    failed = False
    for benchmark in chosen(patterns):
        outcomes: list[Outcome] = []
        for case in benchmark.cases(quick=quick):
            if subjects and case.subject not in subjects:
                continue
            times = repeat or (1 if quick else benchmark.repeat)
            outcomes.append(asyncio.run(measure(benchmark, case, repeat=times, folder=folder)))
        failed |= any(outcome.failed for outcome in outcomes)
        show(benchmark, outcomes, console)
        report["outcomes"] += outcomes
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    if file is not None:
        console.print(f"written to {file}")
    sys.exit(1 if failed else 0)


@main.command(hidden=True)
@click.argument("name")
@click.argument("subject")
@click.argument("size", type=int)
def one(name: str, subject: str, size: int) -> None:
    """One run in this process; its sample is the last line of the output."""
    sample = asyncio.run(_one(load()[name], Case(subject, size)))
    click.echo(msgspec.json.encode(sample).decode())


async def _one(benchmark: Benchmark, case: Case) -> Any:
    return await benchmark.run(case)


if __name__ == "__main__":
    main(prog_name="python -m test.bench")
