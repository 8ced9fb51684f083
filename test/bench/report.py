"""``python -m hack.bench_report``: writes tables and plots of ``docs/performance.md`` from the JSON of runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from test.bench.charts import Chart, charts
from test.bench.harness import REPOSITORY
from test.bench.page import render_section, replace_section
from test.bench.results import ResultError, merge, read_result
from test.bench.targets import order_by_targets

PAGE = REPOSITORY / "docs" / "performance.md"
_ELSEWHERE = "envtest"
"""Benchmarks whose names begin so are not on the page, because ``envtest/docs/benchmarks.md`` has them."""


class ReportError(click.ClickException):
    """An unusable result or page, reported as one line with exit code 2."""

    exit_code = 2


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RESULT.json ..."
)
@click.option(
    "--docs",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=PAGE,
    help="The page whose generated part is written; plots go to images/performance in the same directory.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; list stale files and exit with 1 if there are any.",
)
def command(files: tuple[Path, ...], page: Path, check: bool) -> None:
    """Write the tables and plots of RESULT.json ..., the files of `python -m test.bench run --json`.

    The samples of all files are merged; they must come from one machine.
    """
    try:
        results = [read_result(file) for file in files]
        benchmarks, outcomes = merge(results)
        outcomes = [each for each in outcomes if not each.benchmark.startswith(_ELSEWHERE)]
        benchmarks = order_by_targets(benchmarks)
        drawn = charts(benchmarks, outcomes)
        section = render_section(results, benchmarks, outcomes, drawn)
        wanted = {page: _render_page(page, section).encode()}
        folder = page.parent / "images" / "performance"
        wanted |= {folder / f"{chart.name}.svg": _svg(chart) for chart in drawn}
    except ResultError as error:
        raise ReportError(str(error)) from None
    commits = dict.fromkeys(result.machine.commit for result in results)
    if len(commits) > 1:
        click.echo(f"note: these runs are from different commits: {', '.join(commits)}", err=True)
    obsolete = sorted(set(folder.glob("*.svg")) - wanted.keys())
    stale = [
        file
        for file, content in wanted.items()
        if not file.exists() or file.read_bytes() != content
    ]
    if check:
        for file in [*stale, *obsolete]:
            click.echo(f"stale: {file}")
        sys.exit(1 if stale or obsolete else 0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in stale:
            file.write_bytes(wanted[file])
        for file in obsolete:
            file.unlink()
    except OSError as error:
        raise ReportError(f"{error.filename}: {error.strerror}") from None
    for file in [*stale, *obsolete]:
        click.echo(f"{'removed' if file in obsolete else 'wrote'} {file}")


def _render_page(page: Path, section: str) -> str:
    try:
        return replace_section(page.read_text(), section)
    except OSError as error:
        raise ResultError(f"{page}: {error.strerror}") from None
    except ValueError as error:
        raise ResultError(f"{page}: {error}") from None


def _svg(chart: Chart) -> bytes:
    try:
        from test.bench.plots import svg
    except ModuleNotFoundError as error:
        raise ResultError(
            f"{error.name}, which draws the plots, is not installed: pip install -e '.[bench]'"
        ) from None
    return svg(chart)
