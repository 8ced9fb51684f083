"""The generated part of ``docs/performance.md``: targets, a table for each benchmark, and the list of runs.

Pure functions from results to Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from test.bench.charts import Chart
from test.bench.harness import Outcome, spread, value_names
from test.bench.results import BenchmarkDescription, Result
from test.bench.table import format_exact, format_number, growth_exponent
from test.bench.targets import check_ratios, check_targets, measurement

START = "<!-- Benchmarks start: written by `make bench-report` -->"
END = "<!-- Benchmarks end -->"


def render_section(
    results: Sequence[Result],
    benchmarks: Mapping[str, BenchmarkDescription],
    outcomes: Sequence[Outcome],
    charts: Sequence[Chart],
) -> str:
    """Return the Markdown between the markers."""
    parts = ["### Targets", "\n".join(_targets(benchmarks, outcomes))]
    parts += _images(chart for chart in charts if not chart.benchmark)
    for description in benchmarks.values():
        own = [outcome for outcome in outcomes if outcome.benchmark == description.name]
        if not own:
            continue
        parts += [f"### {description.name}", _sentence(description.title) + _runs_of_each_case(own)]
        parts.append("\n".join(_rows(description, own)))
        if growth := _growth(own):
            parts.append(growth)
        parts += _images(chart for chart in charts if chart.benchmark == description.name)
    skipped = dict.fromkeys(
        f"{each.subject}: not measured, {each.skipped}." for each in outcomes if each.skipped
    )
    parts += ["### Runs", *skipped, "\n".join(_runs(results))]
    return "\n\n".join(parts)


def replace_section(page: str, section: str) -> str:
    """Return ``page`` with ``section`` between its markers. Raises :class:`ValueError` if it has no markers."""
    if page.count(START) != 1 or page.count(END) != 1 or page.index(START) > page.index(END):
        raise ValueError(f"expected one line `{START}`, and one line `{END}` after it")
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{section}\n\n{END}{rest.partition(END)[2]}"


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _runs_of_each_case(outcomes: Sequence[Outcome]) -> str:
    """Return the number of runs as a sentence if it is the same for all measured cases, otherwise nothing."""
    runs = {len(outcome.samples) for outcome in outcomes if outcome.samples}
    if len(runs) != 1:
        return ""
    (number,) = runs
    return f" {number} run{'s' if number > 1 else ''}."


def _images(charts: Iterator[Chart]) -> list[str]:
    return [f"![{chart.title}](images/performance/{chart.name}.svg)" for chart in charts]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; columns of numbers are aligned to the right.

    The cells are not padded: each bar would count as a word of the page.
    """
    numeric = [
        all(re.match(r"\d[\d.,]*( |$)|$", row[column]) for row in rows)
        for column in range(len(header))
    ]
    yield f"|{'|'.join(header)}|"
    yield f"|{'|'.join('--:' if column else '---' for column in numeric)}|"
    for row in rows:
        yield f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in row)}|"


def _with_spread(measured: tuple[float, float, float] | None) -> str:
    """Format a median, followed by minimum and maximum if they differ."""
    if measured is None:
        return ""
    median, low, high = map(format_number, measured)
    return median if low == high else f"{median} ({low}–{high})"


def _unit(value: str) -> str:
    """Return the unit at the end of a value's name, with a space before it."""
    return f" {value.rpartition(' ')[2]}" if re.search(r" (s|ms|us|MB|kB|B)$", value) else ""


def _targets(
    benchmarks: Mapping[str, BenchmarkDescription], outcomes: Sequence[Outcome]
) -> Iterator[str]:
    """Yield the table of targets with the recorded figures of the Go operator and the measured ones."""
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    rows = []
    peers = [
        each
        for each in ("kopf", "go")
        if any(one.subject == each and one.samples for one in outcomes)
    ]
    for result in check_targets(benchmarks, outcomes):
        target = result.target
        unit = _unit(target.value).replace(" ", ", ")
        recorded = target.note
        if target.go:
            recorded = "–".join(dict.fromkeys(map(format_exact, target.go)))
            recorded += f" ({target.note})" if target.note else ""
        measured = [
            result.measured,
            *(
                measurement(outcomes, target.benchmark, peer, target.size, target.value)
                for peer in peers
            ),
        ]
        title = f"&nbsp;&nbsp;{target.title[2:]}" if target.title.startswith("- ") else target.title
        limit = f"≤ {format_exact(result.at_most)}" if result.at_most else "0"
        rows.append(
            [title + unit, recorded, limit, *map(_with_spread, measured), verdicts[result.met]]
        )
    for ratio in check_ratios(benchmarks, outcomes):
        factor = ""
        if ratio.medians and ratio.factor:
            peer, own = map(format_number, ratio.medians)
            factor = f"{format_number(ratio.factor)} × ({peer} : {own}{_unit(ratio.target.value)})"
        limit = f"≥ {format_exact(ratio.target.at_least)} ×"
        rows.append(
            [
                ratio.target.title,
                ratio.target.recorded,
                limit,
                factor,
                *("" for _ in peers),
                verdicts[ratio.met],
            ]
        )
    headings = {"kopf": "kopf", "go": "Go operator, same run"}
    header = ["", "Go operator, recorded", "target", "cfo", *(headings[peer] for peer in peers), ""]
    if {row[-1] for row in rows} == {verdicts[True]}:
        yield from _table(header[:-1], [row[:-1] for row in rows])
        yield from ["", "All targets are met."]
    else:
        yield from _table(header, rows)


def _rows(description: BenchmarkDescription, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the table of a benchmark with one row for each subject at each size, then failed cases.

    A column is left out if it is in the sentence above (the number of runs), or adds nothing: the subject if only this
    operator was measured, the peak of the memory if it equals the other one.
    """
    measured = [outcome for outcome in outcomes if outcome.samples]
    columns = {
        name: [_cell(outcome, name) for outcome in measured] for name in value_names(outcomes)
    }
    if "peak MB" in columns and columns["peak MB"] == columns.get("rss MB"):
        del columns["peak MB"]
    if any(outcome.size for outcome in outcomes):
        columns = {description.unit: [f"{outcome.size:,}" for outcome in measured], **columns}
    if {outcome.subject for outcome in measured} != {"cfo"}:
        columns = {"": [outcome.subject for outcome in measured], **columns}
    if not _runs_of_each_case(outcomes):
        columns["runs"] = [str(len(outcome.samples)) for outcome in measured]
    if measured:
        yield from _table(list(columns), list(zip(*columns.values(), strict=True)))
    remarks = []
    for outcome in outcomes:
        if outcome.failed:
            at = f" at {outcome.size:,}" if outcome.size else ""
            # The log is a temporary file, so its path is of no use to readers of the page.
            remarks.append(
                f"{outcome.subject}{at}: failed, {re.sub(r' [(]see .*[)]$', '', outcome.failed)}"
            )
    if remarks:
        yield from [""] if measured else []
        yield "; ".join(dict.fromkeys(remarks)) + "."


def _cell(outcome: Outcome, name: str) -> str:
    """Format a measured value; an empty string if no sample has it."""
    known = any(name in sample.values for sample in outcome.samples)
    return _with_spread(spread(outcome, name)) if known else ""


def _growth(outcomes: Sequence[Outcome]) -> str:
    """Return a sentence with the growth exponents of each subject, or an empty string if there are none."""
    parts = []
    for subject in dict.fromkeys(outcome.subject for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.subject == subject]
        exponents = {
            value: growth_exponent(own, value)
            for value in value_names(own)
            if value in ("cpu s", "rss MB", "requests")
        }
        known = [
            f"{value} {exponent:.2f}"
            for value, exponent in exponents.items()
            if exponent is not None
        ]
        if known:
            parts.append(f"{subject} {', '.join(known)}")
    return f"Growth: {'; '.join(parts)}." if parts else ""


def _runs(results: Sequence[Result]) -> Iterator[str]:
    """Yield the table of runs: their starts, commit, machine and versions; runs that share these have one row."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in sorted(results, key=lambda each: each.began):
        machine = result.machine
        versions = ", ".join(
            f"{package} {version}" for package, version in machine.packages.items()
        )
        commit = f"`{machine.commit}`{' (quick)' if result.quick else ''}" if machine.commit else ""
        hardware = f"{machine.cores} × {machine.cpu}, {machine.memory_gb} GB, {machine.system}"
        groups.setdefault((commit, hardware, f"Python {machine.python}, {versions}"), []).append(
            result
        )
    rows = []
    for (commit, hardware, versions), same in groups.items():
        loads = sorted(result.machine.load for result in same)
        starts = list(
            dict.fromkeys(f"{result.began:%Y-%m-%d %H:%M}" for result in (same[0], same[-1]))
        )
        load = "–".join(dict.fromkeys(map(format_exact, (loads[0], loads[-1]))))
        rows.append(
            [
                f"{' to '.join(starts)} UTC",
                str(len(same)),
                commit,
                f"{hardware}, load {load}",
                versions,
            ]
        )
    yield from _table(["started", "runs", "commit", "machine", "versions"], rows)
