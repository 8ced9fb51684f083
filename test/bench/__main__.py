"""``python -m test.bench``: runs the benchmarks, prints their tables, writes them as JSON. It judges nothing.

``make bench`` calls it. ``BENCH="start sync-*"`` takes some of them, ``--quick`` small sizes once.
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

from test.bench.harness import Benchmark, Case, Outcome, Sample, load, measure
from test.bench.results import Result, describe, here
from test.bench.table import show


class Misuse(click.ClickException):
    """The command line cannot be used: one line, exit code 2."""

    exit_code = 2


def chosen(patterns: tuple[str, ...], subjects: tuple[str, ...]) -> list[Benchmark]:
    """The benchmarks that are meant. Raises :class:`Misuse` for what does not exist."""
    benchmarks = load()
    for pattern in patterns:
        if not fnmatch.filter(benchmarks, pattern):
            raise Misuse(f"{pattern!r} is no benchmark; there are {', '.join(benchmarks)}")
    found = [each for each in benchmarks.values() if any(fnmatch.fnmatch(each.name, one) for one in patterns or ("*",))]
    known = dict.fromkeys(subject for each in found for subject in each.subjects)
    for subject in subjects:
        if subject not in known:
            raise Misuse(f"--subject {subject}: is in none of these benchmarks; there are {', '.join(known)}")
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
    # What runs in sessions of its own must end with us, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    benchmarks = chosen(patterns, subjects)
    result = Result(datetime.now(UTC), quick, here(), [describe(each) for each in benchmarks], [])
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            result.write(file)
        except FileExistsError:
            raise Misuse(f"--json {file}: {file.parent} is no folder") from None
        except OSError as error:
            raise Misuse(f"--json {file}: {error.strerror}") from None
    folder = Path(tempfile.mkdtemp(prefix="cfo-bench-"))
    failed = False
    for benchmark in benchmarks:
        outcomes: list[Outcome] = []
        for case in benchmark.cases(quick=quick):
            if subjects and case.subject not in subjects:
                continue
            times = repeat or (1 if quick else benchmark.repeat)
            with console.status(f"{benchmark.name}: {case.subject}{f' at {case.size:,}' if case.size else ''}"):
                outcomes.append(asyncio.run(measure(benchmark, case, repeat=times, folder=folder)))
        if not outcomes:
            continue
        failed |= any(outcome.failed for outcome in outcomes)
        result.outcomes.extend(outcomes)
        if file is not None:
            result.write(file)
        show(benchmark, outcomes, console)
    if not failed:
        shutil.rmtree(folder)  # logs, that nobody was told of
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


async def _one(benchmark: Benchmark, case: Case) -> Sample:
    return await benchmark.run(case)


if __name__ == "__main__":
    main(prog_name="python -m test.bench")
