"""The plots as data: panels and their points. Pure functions; :mod:`test.bench.plots` draws them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from test.bench.harness import Outcome, spread, value_names
from test.bench.results import BenchmarkDescription
from test.bench.targets import TARGETS, Target, check_targets, measurement

RECORDED = "Go, recorded"
"""The subject of bars that show the Go operator's recorded figures instead of results."""

GROWTH_VALUES = {"cpu s": "CPU (s)", "rss MB": "RSS (MB)", "requests": "requests"}
"""The values that are plotted against size, with the titles of their panels."""
SPREAD_SUBJECTS = ("cfo", "go", "kopf", "kubernetes_asyncio")
"""The subjects in the chart of spreads; other subjects occur in one benchmark only."""
PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?) ms$|(?P<max>max) ms$")
MAX_TARGET_PANELS = 12


@dataclass(frozen=True)
class Point:
    """Median, minimum and maximum at ``x``."""

    x: float
    median: float
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Series:
    """The points of one subject; ``label`` distinguishes several series of one subject."""

    subject: str
    points: tuple[Point, ...]
    label: str = ""


@dataclass(frozen=True)
class LinePanel:
    """A panel of cost against size with logarithmic axes; with ``linear``, a dotted line shows linear growth."""

    title: str
    x: str
    series: tuple[Series, ...]
    linear: bool = True


@dataclass(frozen=True)
class Bar:
    """A bar; a recorded range is drawn at its middle."""

    subject: str
    value: float
    minimum: float
    maximum: float


@dataclass(frozen=True)
class BarPanel:
    """A panel of bars with a line at the target."""

    title: str
    at_most: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class StripPanel:
    """A panel with one row for each case: its label, its subject, and each run relative to the median of the runs."""

    title: str
    rows: tuple[tuple[str, str, tuple[float, ...]], ...]


@dataclass(frozen=True)
class Chart:
    """One image. ``benchmark`` is the benchmark whose table it follows; empty for charts of several benchmarks."""

    name: str
    title: str
    panels: tuple[LinePanel | BarPanel | StripPanel, ...]
    benchmark: str = ""


def charts(
    benchmarks: Mapping[str, BenchmarkDescription], outcomes: Sequence[Outcome]
) -> list[Chart]:
    """Return every chart that has data."""
    candidates = [_targets(benchmarks, outcomes), _spread(benchmarks, outcomes)]
    for description in benchmarks.values():
        own = [
            outcome
            for outcome in outcomes
            if outcome.benchmark == description.name and outcome.samples
        ]
        candidates += [_growth(description, own), _latency(description, own)]
    return [chart for chart in candidates if chart.panels]


def _points(outcomes: Sequence[Outcome], subject: str, value: str) -> tuple[Point, ...]:
    """Return a value of a subject at all sizes, without zeros because the axes are logarithmic."""
    points = [
        Point(outcome.size, *spread(outcome, value))
        for outcome in outcomes
        if outcome.subject == subject
        and outcome.size
        and any(value in sample.values for sample in outcome.samples)
    ]
    return tuple(point for point in points if point.minimum > 0)


def _subjects(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(outcome.subject for outcome in outcomes))


def _growth(description: BenchmarkDescription, outcomes: Sequence[Outcome]) -> Chart:
    panels = []
    for value, title in GROWTH_VALUES.items():
        series = [
            Series(subject, _points(outcomes, subject, value)) for subject in _subjects(outcomes)
        ]
        if any(len(each.points) > 1 for each in series):
            panels.append(
                LinePanel(title, description.unit, tuple(each for each in series if each.points))
            )
    title = f"{description.name}: cost by {description.unit}"
    return Chart(f"growth-{description.name}", title, tuple(panels), description.name)


def _latency(description: BenchmarkDescription, outcomes: Sequence[Outcome]) -> Chart:
    panels = []
    for subject in _subjects(outcomes):
        values = [value for value in value_names(outcomes) if PERCENTILE.search(value)]
        series = [
            Series(subject, _points(outcomes, subject, value), value.removesuffix(" ms"))
            for value in values
        ]
        if any(len(each.points) > 1 for each in series):
            kept = tuple(each for each in series if each.points)
            panels.append(
                LinePanel(f"{subject}: latency (ms)", description.unit, kept, linear=False)
            )
    title = f"{description.name}: percentiles by {description.unit}"
    return Chart(f"latency-{description.name}", title, tuple(panels), description.name)


def _targets(benchmarks: Mapping[str, BenchmarkDescription], outcomes: Sequence[Outcome]) -> Chart:
    """Return a panel for each target that has a figure to compare with; targets of 0 are left out."""
    panels = []
    parent: Target = TARGETS[0]
    for result in check_targets(benchmarks, outcomes):
        target = result.target
        parent = parent if target.title.startswith("- ") else target
        bars = [
            Bar(subject, *measured)
            for subject in ("cfo", "kopf", "go")
            if (
                measured := measurement(
                    outcomes, target.benchmark, subject, target.size, target.value
                )
            )
            is not None
        ]
        if target.go and not any(bar.subject == "go" for bar in bars):
            bars.append(Bar(RECORDED, statistics.fmean(target.go), *target.go))
        if result.measured and result.at_most > 0 and len(bars) > 1:
            panels.append(BarPanel(_panel_title(parent, target), result.at_most, tuple(bars)))
    return Chart(
        "targets", "Measured values, recorded values and targets", tuple(panels[:MAX_TARGET_PANELS])
    )


def _panel_title(parent: Target, target: Target) -> str:
    """Return the title of a target in two short lines, with the unit."""
    subject = re.split(r"[:,] ", parent.title)[0]
    detail = (
        target.title.removeprefix("- ")
        if target is not parent
        else target.title[len(subject) :].lstrip(":, ")
    )
    unit = target.value.rpartition(" ")[2]
    suffix = f" ({unit})" if unit in ("s", "ms", "MB") else ""
    return f"{subject}:\n{detail}{suffix}" if detail else f"{subject}{suffix}"


def _spread(benchmarks: Mapping[str, BenchmarkDescription], outcomes: Sequence[Outcome]) -> Chart:
    """Return the CPU time of each run relative to the median.

    Each benchmark and subject has one row: of the sizes with the most runs, the largest.
    """
    rows = []
    for name in benchmarks:
        for subject in SPREAD_SUBJECTS:
            cases = [
                (len(samples), outcome.size, samples)
                for outcome in outcomes
                if (outcome.benchmark, outcome.subject) == (name, subject)
                and len(
                    samples := [
                        each.values["cpu s"] for each in outcome.samples if "cpu s" in each.values
                    ]
                )
                > 1
            ]
            if not cases:
                continue
            _, size, samples = max(cases)
            median = statistics.median(samples)
            if median > 0:
                label = f"{name} {size:,}" if size else name
                rows.append(
                    (label, subject, tuple((sample / median - 1) * 100 for sample in samples))
                )
    panels = (
        (StripPanel("CPU of each run, % from the median of its case", tuple(rows)),) if rows else ()
    )
    return Chart("spread", "Spread of the runs", panels)


def subjects_in_chart(chart: Chart) -> Iterator[str]:
    """Yield each subject of a chart once."""
    subjects: dict[str, None] = {}
    for panel in chart.panels:
        match panel:
            case LinePanel():
                subjects |= dict.fromkeys(each.subject for each in panel.series)
            case BarPanel():
                subjects |= dict.fromkeys(bar.subject for bar in panel.bars)
            case StripPanel():
                subjects |= dict.fromkeys(subject for _, subject, _ in panel.rows)
    yield from subjects
