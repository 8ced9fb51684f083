"""Draws charts as SVG: the same bytes for the same data, text as text, for bright and for dark pages.

The picture itself is drawn for a bright page. A style sheet inside of it exchanges ink and paper where the reader
prefers dark; programs that know no style sheets show the bright one.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from test.bench.charts import RECORDED, Bars, Chart, Lines, Strips, drawn_subjects
from test.bench.table import exact, number

__all__ = ["draw", "svg"]

INK, PAPER, FAINT, GUIDE = "#24292f", "#ffffff", "#d0d7de", "#8c959f"
DARK = {INK: "#e6edf3", PAPER: "#0d1117", FAINT: "#3d444d", "#0072b2": "#3d9be0"}

# Okabe and Ito's colours: people with any kind of colour blindness can tell them apart; markers say it again.
STYLES = {
    "cfo": ("#0072b2", "o", "-"),
    "kopf": ("#d55e00", "s", "--"),
    "go": ("#009e73", "^", "-."),
    RECORDED: ("#009e73", "^", "-."),
    "kubernetes_asyncio": ("#cc79a7", "D", ":"),
}
OTHERS = (("#e69f00", "v", "--"), ("#56b4e9", "P", "-."), ("#cc79a7", "X", ":"))

SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cfo-bench",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "path.simplify": True,
}


def svg(chart: Chart) -> bytes:
    """A chart as SVG."""
    with mpl.rc_context(SETTINGS):
        out = io.BytesIO()
        draw(chart).savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue().decode()
    rules = "".join(
        f'[style*="{what}: {bright}"]{{{what}:{dark}!important}}'
        for bright, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    text = text.replace("<metadata>", f"<title>{escape(chart.title)}</title>\n {style}\n <metadata>", 1)
    return re.sub(r"[ \t]+\n", "\n", text).encode()


def draw(chart: Chart) -> Figure:
    """A chart as a figure, in the settings of :data:`SETTINGS`."""
    styles = _styles(chart)
    count = len(chart.panels)
    wide = min(3, count)
    high = -(-count // wide)
    first = chart.panels[0]
    match first:
        case Lines():
            size = (3.3 * wide if wide > 1 else 5.0, 2.8 * high + 0.4)
        case Bars():
            size = (3.3 * wide, 1.55 * high + 0.4)
        case Strips():
            size = (8.0, 0.22 * len(first.rows) + 1.3)
    figure = Figure(figsize=size, layout="constrained")
    handles: dict[str, Any] = {}
    shared = None
    for place, panel in enumerate(chart.panels):
        axes = figure.add_subplot(high, wide, place + 1, sharey=shared)
        if isinstance(panel, Lines) and not panel.linear:
            shared = shared or axes  # the same quantity of several subjects
        axes.set_title(panel.title)
        match panel:
            case Lines():
                handles |= _lines(axes, panel, styles)
            case Bars():
                handles |= _bars(axes, panel, styles)
            case Strips():
                handles |= _strips(axes, panel, styles)
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=min(6, len(handles)))
    return figure


def _styles(chart: Chart) -> dict[str, tuple[str, str, str]]:
    """Colour, marker and line of everybody in the chart."""
    others: Iterator[tuple[str, str, str]] = itertools.cycle(OTHERS)
    return {subject: STYLES.get(subject) or next(others) for subject in drawn_subjects(chart)}


def _logarithmic(axis: Any) -> None:
    """Ticks at 1, 2 and 5 of each decade, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: exact(value)))
    axis.set_minor_formatter(NullFormatter())


def _lines(axes: Any, panel: Lines, styles: Mapping[str, tuple[str, str, str]]) -> dict[str, Any]:
    handles = {}
    several = len({each.label for each in panel.series}) > 1
    axes.set_xscale("log")
    axes.set_yscale("log")
    for place, series in enumerate(panel.series):
        color, marker, line = styles[series.subject]
        if several:
            # Percentiles of one subject: the same colour, from light to full.
            marker, line = "osD^vPX"[place % 7], ("-", "--", "-.", ":")[place % 4]
        xs, ys = [point.x for point in series.points], [point.median for point in series.points]
        (drawn,) = axes.plot(xs, ys, color=color, marker=marker, linestyle=line, markersize=4.5, linewidth=1.5)
        for point in series.points:
            if point.greatest > point.least:
                axes.plot([point.x, point.x], [point.least, point.greatest], color=color, linewidth=0.8)
        if several:
            drawn = Line2D([], [], color=INK, marker=marker, linestyle=line, markersize=4.5, linewidth=1.5)
        handles[series.label or series.subject] = drawn
    longest = max(panel.series, key=lambda each: len(each.points)).points
    if panel.linear and len(longest) > 1:
        low, high = longest[0], longest[-1]
        axes.set_ylim(*_room(axes.get_ylim()))
        straight = [low.median, low.median * high.x / low.x]
        (drawn,) = axes.plot([low.x, high.x], straight, color=GUIDE, linestyle=(0, (2, 2)), linewidth=1.2, zorder=0)
        handles["linear growth"] = drawn
    axes.set_xlabel(panel.x)
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    xs = sorted({point.x for series in panel.series for point in series.points})
    axes.set_xticks(xs, labels=[exact(x) for x in xs])
    axes.xaxis.set_minor_formatter(NullFormatter())
    _logarithmic(axes.yaxis)
    return handles


def _room(limits: tuple[float, float]) -> tuple[float, float]:
    """At least a decade, for noise not to look like growth."""
    low, high = limits
    lacking = max(1.0, 10 * low / high)
    return low / lacking**0.5, high * lacking**0.5


def _bars(axes: Any, panel: Bars, styles: Mapping[str, tuple[str, str, str]]) -> dict[str, Any]:
    handles = {}
    longest = max(panel.at_most, *(bar.value for bar in panel.bars))
    for place, bar in enumerate(panel.bars):
        recorded = bar.subject == RECORDED
        color = styles[bar.subject][0]
        drawn = axes.barh(
            place,
            bar.value,
            height=0.7,
            color="none" if recorded else color,
            edgecolor=color,
            hatch="////" if recorded else None,
            linewidth=0.8,
        )
        handles[bar.subject] = drawn
        ranged = recorded and bar.least != bar.most
        label = f"{exact(bar.least)} – {exact(bar.most)}" if ranged else (exact if recorded else number)(bar.value)
        paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
        axes.text(bar.value + longest * 0.02, place, label, va="center", fontsize=8, bbox=paper)
    handles["target"] = axes.axvline(panel.at_most, color=INK, linestyle=(0, (3, 2)), linewidth=1.2, zorder=2)
    axes.set_xlim(0, longest * 1.2)
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    return handles


def _strips(axes: Any, panel: Strips, styles: Mapping[str, tuple[str, str, str]]) -> dict[str, Any]:
    handles = {}
    for place, (_, subject, shares) in enumerate(panel.rows):
        color, marker, _ = styles[subject]
        (drawn,) = axes.plot(
            shares, [place] * len(shares), color=color, marker=marker, linestyle="none", markersize=5, alpha=0.75
        )
        handles[subject] = drawn
    axes.axvline(0, color=FAINT, zorder=0)
    axes.set_yticks(range(len(panel.rows)), labels=[label for label, _, _ in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.0f} %" if value else "0"))
    return handles
