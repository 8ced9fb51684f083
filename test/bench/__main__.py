"""Command line of the benchmarks, ``python -m test.bench``: runs them, prints tables and writes the results as JSON.

``make bench`` calls it. ``BENCH="start sync*"`` selects benchmarks by name, ``--quick`` runs small sizes once. The exit
code of ``run`` does not depend on the measured values; that of ``gate``, which compares two commits, does.
"""

from __future__ import annotations

import asyncio
import fnmatch
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from test.bench.gate import (
    GateError,
    compare,
    default_base,
    has_changed,
    install_commit,
    measure_alternately,
    print_ratios,
    resolve_commit,
)
from test.bench.harness import (
    REPOSITORY,
    Benchmark,
    Case,
    Outcome,
    Sample,
    load_benchmarks,
    measure,
)
from test.bench.results import Result, describe, describe_machine
from test.bench.table import print_table


class CommandLineError(click.ClickException):
    """An invalid command line, reported as one line with exit code 2."""

    exit_code = 2


def select_benchmarks(patterns: tuple[str, ...], subjects: tuple[str, ...]) -> list[Benchmark]:
    """Return the benchmarks that match any of ``patterns`` (no pattern: all).

    Raises :class:`CommandLineError` if a pattern matches none, or if none of them has one of ``subjects``.
    """
    benchmarks = load_benchmarks()
    for pattern in patterns:
        if not fnmatch.filter(benchmarks, pattern):
            raise CommandLineError(
                f"{pattern!r}: no such benchmark; available: {', '.join(benchmarks)}"
            )
    selected = [
        each
        for each in benchmarks.values()
        if any(fnmatch.fnmatch(each.name, pattern) for pattern in patterns or ("*",))
    ]
    known = dict.fromkeys(subject for each in selected for subject in each.subjects)
    for subject in subjects:
        if subject not in known:
            raise CommandLineError(
                f"--subject {subject}: not measured by these benchmarks; available: {', '.join(known)}"
            )
    return selected


@click.group()
def main() -> None:
    """Benchmarks of cfo and its peers."""


@main.command("list")
def list_benchmarks() -> None:
    """List the benchmarks."""
    for each in load_benchmarks().values():
        click.echo(f"{each.name:28} {each.title}")


@main.command()
@click.argument("patterns", nargs=-1)
@click.option("--quick", is_flag=True, help="Run small sizes, once each.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    help="Number of runs of each case; the default is the benchmark's.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    help="Measure only this program (cfo, go, kopf, ...); repeatable.",
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results to this file.",
)
def run(
    patterns: tuple[str, ...],
    quick: bool,
    repeat: int | None,
    subjects: tuple[str, ...],
    file: Path | None,
) -> None:
    """Run the benchmarks whose names match PATTERNS (all), print tables, and write JSON."""
    console = Console()
    if not console.is_terminal:
        console.width = 170
    # The runs have their own sessions and do not get this signal; KeyboardInterrupt makes `measure` kill them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    benchmarks = select_benchmarks(patterns, subjects)
    result = Result(
        datetime.now(UTC), quick, describe_machine(), [describe(each) for each in benchmarks], []
    )
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            result.write(file)
        except FileExistsError:
            raise CommandLineError(f"--json {file}: {file.parent} is not a directory") from None
        except OSError as error:
            raise CommandLineError(f"--json {file}: {error.strerror}") from None
    folder = Path(tempfile.mkdtemp(prefix="cfo-bench-"))
    failed = False
    for benchmark in benchmarks:
        outcomes: list[Outcome] = []
        for case in benchmark.cases(quick=quick):
            if subjects and case.subject not in subjects:
                continue
            times = repeat or (1 if quick else benchmark.repeat)
            with console.status(
                f"{benchmark.name}: {case.subject}{f' at {case.size:,}' if case.size else ''}"
            ):
                outcomes.append(asyncio.run(measure(benchmark, case, repeat=times, folder=folder)))
        if not outcomes:
            continue
        failed |= any(outcome.failed for outcome in outcomes)
        result.outcomes.extend(outcomes)
        if file is not None:
            result.write(file)
        print_table(benchmark, outcomes, console)
    if not failed:
        shutil.rmtree(folder)  # it holds only logs, which messages about failed runs refer to
    if file is not None:
        console.print(f"Results written to {file}")
    sys.exit(1 if failed else 0)


@main.command()
@click.option(
    "--base", help="The commit to compare with; the default is where this branch left origin/main."
)
@click.option("--commit", default="HEAD", show_default=True, help="The commit to measure.")
@click.option(
    "--runs",
    type=click.IntRange(min=4),
    default=7,
    show_default=True,
    help="Number of runs of each commit.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=1),
    default=1.05,
    show_default=True,
    help="The largest ratio allowed.",
)
@click.option("--quick", is_flag=True, help="Use few objects.")
def gate(base: str | None, commit: str, runs: int, limit: float, quick: bool) -> None:
    """Fail if COMMIT costs more than --limit times what the base costs: CPU, memory or requests."""
    console = Console()
    if not console.is_terminal:
        console.width = 120
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        commits = (resolve_commit(base) if base else default_base(), resolve_commit(commit))
        if not has_changed(*commits):
            console.print(f"passed: cfo/ is the same in {commits[0][:9]} and {commits[1][:9]}")
            return
        executables = [install_commit(each, REPOSITORY / "build/gate") for each in commits]
        benchmark = load_benchmarks()["gate"]
        size = (benchmark.quick if quick else benchmark.sizes)[0]
        folder = Path(tempfile.mkdtemp(prefix="cfo-gate-"))
        old, new = asyncio.run(measure_alternately(executables, runs, size, folder))
    except GateError as error:
        raise CommandLineError(str(error)) from None
    shutil.rmtree(folder)
    values = old[0].values
    ratios = [
        compare(name, [each.values[name] for each in old], [each.values[name] for each in new])
        for name in values
    ]
    console.print(
        f"{commits[1][:9]} compared with {commits[0][:9]}: {runs} runs of each, {size} RayClusters"
    )
    print_ratios(ratios, limit, console)
    exceeding = [each.value for each in ratios if each.exceeds(limit)]
    console.print(f"FAILED: {', '.join(exceeding)}" if exceeding else "passed")
    sys.exit(1 if exceeding else 0)


@main.command("run-once", hidden=True)
@click.argument("name")
@click.argument("subject")
@click.argument("size", type=int)
def run_once(name: str, subject: str, size: int) -> None:
    """Run one case in this process and print its sample as the last line of output."""
    sample = asyncio.run(_run(load_benchmarks()[name], Case(subject, size)))
    click.echo(msgspec.json.encode(sample).decode())


async def _run(benchmark: Benchmark, case: Case) -> Sample:
    return await benchmark.run(case)


if __name__ == "__main__":
    main(prog_name="python -m test.bench")
