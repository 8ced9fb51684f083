"""``python -m hack.bench_report``: from the JSON of runs to the tables and plots of ``docs/performance.md``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from test.bench.charts import Chart, charts
from test.bench.harness import REPOSITORY
from test.bench.page import put, section
from test.bench.results import Unreadable, merge, read
from test.bench.targets import ordered

__all__ = ["command"]

PAGE = REPOSITORY / "docs" / "performance.md"


class Misuse(click.ClickException):
    """What was given cannot be used: one line, exit code 2."""

    exit_code = 2


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RESULT.json ...")
@click.option(
    "--docs",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=PAGE,
    help="The page whose generated part is written; plots go to images/performance beside it.",
)
@click.option("--check", is_flag=True, help="Write nothing; say what is stale, and fail (1) if anything is.")
def command(files: tuple[Path, ...], page: Path, check: bool) -> None:
    """Write the tables and plots of RESULT.json ..., the files of `python -m test.bench run --json`.

    The samples of all files are merged; they must come from one machine.
    """
    try:
        results = [read(file) for file in files]
        benchmarks, outcomes = merge(results)
        benchmarks = ordered(benchmarks)
        drawn = charts(benchmarks, outcomes)
        wanted = {page: _page(page, section(results, benchmarks, outcomes, drawn)).encode()}
        folder = page.parent / "images" / "performance"
        wanted |= {folder / f"{chart.name}.svg": _svg(chart) for chart in drawn}
    except Unreadable as error:
        raise Misuse(str(error)) from None
    commits = dict.fromkeys(result.machine.commit for result in results)
    if len(commits) > 1:
        click.echo(f"note: these runs are of several commits: {', '.join(commits)}", err=True)
    dead = sorted(set(folder.glob("*.svg")) - wanted.keys())
    stale = [file for file, content in wanted.items() if not file.exists() or file.read_bytes() != content]
    if check:
        for file in [*stale, *dead]:
            click.echo(f"stale: {file}")
        sys.exit(1 if stale or dead else 0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in stale:
            file.write_bytes(wanted[file])
        for file in dead:
            file.unlink()
    except OSError as error:
        raise Misuse(f"{error.filename}: {error.strerror}") from None
    for file in [*stale, *dead]:
        click.echo(f"{'removed' if file in dead else 'wrote'} {file}")


def _page(page: Path, text: str) -> str:
    try:
        return put(page.read_text(), text)
    except OSError as error:
        raise Unreadable(f"{page}: {error.strerror}") from None
    except ValueError as error:
        raise Unreadable(f"{page}: {error}") from None


def _svg(chart: Chart) -> bytes:
    try:
        from test.bench.plots import svg
    except ModuleNotFoundError as error:
        raise Unreadable(f"{error.name} is not installed, it draws the plots: pip install -e '.[bench]'") from None
    return svg(chart)
