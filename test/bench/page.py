"""The generated part of ``docs/performance.md``: targets, a table for each benchmark, the runs.

Pure: results in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from test.bench.charts import Chart
from test.bench.harness import Outcome, names, spread
from test.bench.results import Described, Result
from test.bench.table import exact, growth, number, verbs
from test.bench.targets import compared, judged, measured

__all__ = ["END", "START", "put", "section"]

START = "<!-- Benchmarks start: written by `make bench-report` -->"
END = "<!-- Benchmarks end -->"


def section(
    results: Sequence[Result], benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome], charts: Sequence[Chart]
) -> str:
    """All that stands between the markers."""
    parts = ["### Targets", "\n".join(_targets(benchmarks, outcomes))]
    parts += _images(chart for chart in charts if not chart.benchmark)
    for described in benchmarks.values():
        own = [outcome for outcome in outcomes if outcome.benchmark == described.name]
        if not own:
            continue
        parts += [f"### {described.name}", _sentence(described.title), "\n".join(_rows(described, own))]
        if told := _growth(own):
            parts.append(told)
        parts += _images(chart for chart in charts if chart.benchmark == described.name)
    parts += ["### Runs", "\n".join(_runs(results))]
    return "\n\n".join(parts)


def put(page: str, text: str) -> str:
    """``page`` with ``text`` between its markers. Raises :class:`ValueError` if they are not there."""
    if page.count(START) != 1 or page.count(END) != 1 or page.index(START) > page.index(END):
        raise ValueError(f"there must be one line `{START}`, and one `{END}` after it")
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _images(charts: Iterator[Chart]) -> list[str]:
    return [f"![{chart.title}](images/performance/{chart.name}.svg)" for chart in charts]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; the first column is text, a column of numbers is set to the right."""
    numeric = [all(re.match(r"\d[\d.,]*( |$)|$", row[column]) for row in rows) for column in range(len(header))]
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join('--:' if column else '---' for column in numeric)}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def with_spread(found: tuple[float, float, float] | None) -> str:
    """The median, with least and greatest where they differ from it."""
    if found is None:
        return ""
    median, least, greatest = map(number, found)
    return median if least == greatest else f"{median} ({least} – {greatest})"


def _unit(value: str) -> str:
    """The unit at the end of a value's name, with a space before it."""
    return f" {value.rpartition(' ')[2]}" if re.search(r" (s|ms|us|MB|kB|B)$", value) else ""


def _targets(benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The promise, what was recorded of the Go operator, and what was measured now."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = []
    peers = [each for each in ("kopf", "go") if any(one.subject == each and one.samples for one in outcomes)]
    for verdict in judged(benchmarks, outcomes):
        target = verdict.target
        unit = _unit(target.value)
        go = ""
        if target.go:
            go = " – ".join(dict.fromkeys(map(exact, target.go))) + unit
        go += f" ({target.said})" if go and target.said else target.said
        of_peers = [
            with_spread(measured(outcomes, target.benchmark, peer, target.size, target.value)) for peer in peers
        ]
        ours = with_spread(verdict.ours)
        cells = [f"{cell}{unit}" if cell else "" for cell in (ours, *of_peers)]
        what = f"&nbsp;&nbsp;{target.what[2:]}" if target.what.startswith("- ") else target.what
        rows.append(
            [what, go, f"≤ {exact(verdict.at_most)}{unit}" if verdict.at_most else "0", *cells, words[verdict.met]]
        )
    for each in compared(benchmarks, outcomes):
        ratio, times = each.ratio, ""
        if each.medians and each.times:
            theirs, ours = map(number, each.medians)
            times = f"{number(each.times)} × ({theirs} : {ours}{_unit(ratio.value)})"
        limit = f"≥ {exact(ratio.at_least)} ×"
        rows.append([ratio.what, ratio.said, limit, times, *("" for _ in peers), words[each.met]])
    told = {"kopf": "kopf", "go": "Go operator, here"}
    yield from _table(["", "Go operator, recorded", "target", "cfo", *(told[peer] for peer in peers), ""], rows)


def _rows(described: Described, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One line for each subject at each size."""
    columns = names(outcomes)
    sized = any(outcome.size for outcome in outcomes)
    requested = any(sample.requests for outcome in outcomes for sample in outcome.samples)
    header = ["", *([described.unit] if sized else []), *columns, *(["requests by verb"] if requested else []), "runs"]
    rows, remarks = [], []
    for outcome in outcomes:
        if why := outcome.failed or outcome.skipped:
            at = f" at {outcome.size:,}" if outcome.size else ""
            kind = "failed" if outcome.failed else "not measured"
            # Where its log lay is of no use to readers.
            remarks.append(f"{outcome.subject}{at}: {kind}, {re.sub(r' [(]see .*[)]$', '', why)}")
        if not outcome.samples:
            continue
        row = [outcome.subject, *([f"{outcome.size:,}"] if sized else [])]
        for column in columns:
            known = any(column in sample.values for sample in outcome.samples)
            row.append(with_spread(spread(outcome, column)) if known else "")
        rows.append([*row, *([verbs(outcome)] if requested else []), str(len(outcome.samples))])
    if rows:
        yield from _table(header, rows)
    if remarks:
        yield from [""] if rows else []
        yield "; ".join(dict.fromkeys(remarks)) + "."


def _growth(outcomes: Sequence[Outcome]) -> str:
    """How cost grows with size, for each subject: the exponent of N between its smallest and its largest size."""
    told = []
    for subject in dict.fromkeys(outcome.subject for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.subject == subject]
        powers = {value: growth(own, value) for value in names(own) if value in ("cpu s", "rss MB", "requests")}
        known = [f"{value} ~ N^{power:.2f}" for value, power in powers.items() if power is not None]
        if known:
            told.append(f"{subject}: {', '.join(known)}")
    return f"Growth (N^1 is linear): {'; '.join(told)}." if told else ""


def _runs(results: Sequence[Result]) -> Iterator[str]:
    """When, at which commit, on what."""
    rows = []
    for result in sorted(results, key=lambda each: each.began):
        machine = result.machine
        hardware = f"{machine.cores} × {machine.cpu}, {machine.memory_gb} GB"
        rows.append(
            [
                f"{result.began:%Y-%m-%d %H:%M} UTC{' (quick)' if result.quick else ''}",
                f"`{machine.commit}`" if machine.commit else "",
                f"{hardware}, {machine.system}, load {exact(machine.load)}",
                f"Python {machine.python}, "
                + ", ".join(f"{package} {version}" for package, version in machine.packages.items()),
            ]
        )
    yield from _table(["began", "commit", "machine", "versions"], rows)
