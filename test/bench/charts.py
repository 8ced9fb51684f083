"""What the plots show, as data: which panels, which points. Pure; :mod:`test.bench.plots` draws it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from test.bench.harness import Outcome, names, spread
from test.bench.results import Described
from test.bench.targets import TARGETS, Target, judged, measured

__all__ = ["Bar", "Bars", "Chart", "Lines", "Point", "Series", "Strips", "charts"]

RECORDED = "Go, recorded"
"""The subject of figures that come from the recordings, not from the runs."""

GROWING = {"cpu s": "CPU (s)", "rss MB": "RSS (MB)", "requests": "requests"}
COMPARED = ("cfo", "go", "kopf", "kubernetes_asyncio")
"""Who is compared all over; other subjects are parts of one benchmark."""
PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?) ms$|(?P<max>max) ms$")
MAIN = 12
"""How many of the targets are drawn."""


@dataclass(frozen=True)
class Point:
    """A median at ``x``, with least and greatest."""

    x: float
    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Series:
    """What one subject cost; ``label`` tells apart several of one subject."""

    subject: str
    points: tuple[Point, ...]
    label: str = ""


@dataclass(frozen=True)
class Lines:
    """A panel of cost against size, both logarithmic; a dotted line shows what linear growth would look like."""

    title: str
    x: str
    series: tuple[Series, ...]
    linear: bool = True


@dataclass(frozen=True)
class Bar:
    """One bar; what was recorded as a range is drawn at its middle."""

    subject: str
    value: float
    least: float
    most: float


@dataclass(frozen=True)
class Bars:
    """A panel of bars with a line at the target."""

    title: str
    at_most: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Strips:
    """A panel of rows: each run of a case, relative to the median of its runs."""

    title: str
    rows: tuple[tuple[str, str, tuple[float, ...]], ...]


@dataclass(frozen=True)
class Chart:
    """One picture; ``benchmark`` names the one beside whose table it stands."""

    name: str
    title: str
    panels: tuple[Lines | Bars | Strips, ...]
    benchmark: str = ""


def charts(benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome]) -> list[Chart]:
    """Every chart for which there are data."""
    drawn = [_targets(benchmarks, outcomes), _spread(benchmarks, outcomes)]
    for described in benchmarks.values():
        own = [outcome for outcome in outcomes if outcome.benchmark == described.name and outcome.samples]
        drawn += [_growth(described, own), _latency(described, own)]
    return [chart for chart in drawn if chart.panels]


def _points(outcomes: Sequence[Outcome], subject: str, value: str) -> tuple[Point, ...]:
    """A value of a subject at all sizes; nothing that a logarithm does not know."""
    found = [
        Point(outcome.size, *spread(outcome, value))
        for outcome in outcomes
        if outcome.subject == subject and outcome.size and any(value in sample.values for sample in outcome.samples)
    ]
    return tuple(point for point in found if point.least > 0)


def _subjects(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(outcome.subject for outcome in outcomes))


def _growth(described: Described, outcomes: Sequence[Outcome]) -> Chart:
    panels = []
    for value, title in GROWING.items():
        series = [Series(subject, _points(outcomes, subject, value)) for subject in _subjects(outcomes)]
        if any(len(each.points) > 1 for each in series):
            panels.append(Lines(title, described.unit, tuple(each for each in series if each.points)))
    title = f"{described.name}: cost by {described.unit}"
    return Chart(f"growth-{described.name}", title, tuple(panels), described.name)


def _latency(described: Described, outcomes: Sequence[Outcome]) -> Chart:
    panels = []
    for subject in _subjects(outcomes):
        values = [value for value in names(outcomes) if PERCENTILE.search(value)]
        series = [Series(subject, _points(outcomes, subject, value), value.removesuffix(" ms")) for value in values]
        if any(len(each.points) > 1 for each in series):
            kept = tuple(each for each in series if each.points)
            panels.append(Lines(f"{subject}: latency (ms)", described.unit, kept, linear=False))
    title = f"{described.name}: percentiles by {described.unit}"
    return Chart(f"latency-{described.name}", title, tuple(panels), described.name)


def _targets(benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome]) -> Chart:
    """The targets with which somebody can be compared; what is 0 needs no bar."""
    panels = []
    parent: Target = TARGETS[0]
    for verdict in judged(benchmarks, outcomes):
        target = verdict.target
        parent = parent if target.what.startswith("- ") else target
        bars = [
            Bar(subject, *found)
            for subject in ("cfo", "kopf", "go")
            if (found := measured(outcomes, target.benchmark, subject, target.size, target.value)) is not None
        ]
        if target.go and not any(bar.subject == "go" for bar in bars):
            bars.append(Bar(RECORDED, statistics.fmean(target.go), *target.go))
        if verdict.ours and verdict.at_most > 0 and len(bars) > 1:
            panels.append(Bars(_title(parent, target), verdict.at_most, tuple(bars)))
    return Chart("targets", "What the operators need, and the targets", tuple(panels[:MAIN]))


def _title(parent: Target, target: Target) -> str:
    """What a bar shows: short, with its unit."""
    about = re.split(r"[:,] ", parent.what)[0]
    detail = target.what.removeprefix("- ") if target is not parent else target.what[len(about) :].lstrip(":, ")
    unit = target.value.rpartition(" ")[2]
    told = f" ({unit})" if unit in ("s", "ms", "MB") else ""
    return f"{about}:\n{detail}{told}" if detail else f"{about}{told}"


def _spread(benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome]) -> Chart:
    """How far the runs of a case are apart in CPU time: ours, at the largest size with the most runs."""
    rows = []
    for name in benchmarks:
        for subject in COMPARED:
            cases = [
                (len(samples), outcome.size, samples)
                for outcome in outcomes
                if (outcome.benchmark, outcome.subject) == (name, subject)
                and len(samples := [each.values["cpu s"] for each in outcome.samples if "cpu s" in each.values]) > 1
            ]
            if not cases:
                continue
            _, size, samples = max(cases)
            median = statistics.median(samples)
            if median > 0:
                label = f"{name} {size:,}" if size else name
                rows.append((label, subject, tuple((sample / median - 1) * 100 for sample in samples)))
    panels = (Strips("CPU of each run, % from the median of its case", tuple(rows)),) if rows else ()
    return Chart("spread", "How far the runs are apart", panels)


def drawn_subjects(chart: Chart) -> Iterator[str]:
    """Whom a chart shows, each once."""
    seen: dict[str, None] = {}
    for panel in chart.panels:
        match panel:
            case Lines():
                seen |= dict.fromkeys(each.subject for each in panel.series)
            case Bars():
                seen |= dict.fromkeys(bar.subject for bar in panel.bars)
            case Strips():
                seen |= dict.fromkeys(subject for _, subject, _ in panel.rows)
    yield from seen
