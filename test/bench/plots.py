"""Drawing of charts as SVG, for light and dark pages.

The output is deterministic, and text is not converted to paths. The image is drawn with light colors; its style sheet
swaps foreground and background colors if the reader prefers dark ones. Programs without style sheets show the light
version.
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

from test.bench.charts import RECORDED, BarPanel, Chart, LinePanel, StripPanel, subjects_in_chart
from test.bench.table import format_exact, format_number

TEXT, BACKGROUND, GRID, GUIDE = "#24292f", "#ffffff", "#d0d7de", "#8c959f"
DARK = {TEXT: "#e6edf3", BACKGROUND: "#0d1117", GRID: "#3d444d", "#0072b2": "#3d9be0"}

# The palette of Okabe and Ito, which people with any kind of color blindness can distinguish; the markers differ, too.
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
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": BACKGROUND,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "path.simplify": True,
}


def svg(chart: Chart) -> bytes:
    """Return a chart as SVG."""
    with mpl.rc_context(SETTINGS):
        out = io.BytesIO()
        draw(chart).savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue().decode()
    rules = "".join(
        f'[style*="{attribute}: {light}"]{{{attribute}:{dark}!important}}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    text = text.replace(
        "<metadata>", f"<title>{escape(chart.title)}</title>\n {style}\n <metadata>", 1
    )
    return re.sub(r"[ \t]+\n", "\n", text).encode()


def draw(chart: Chart) -> Figure:
    """Return a chart as a figure; the caller applies :data:`SETTINGS`."""
    styles = _styles(chart)
    count = len(chart.panels)
    columns = min(3, count)
    rows = -(-count // columns)
    first = chart.panels[0]
    match first:
        case LinePanel():
            size = (3.3 * columns if columns > 1 else 5.0, 2.8 * rows + 0.4)
        case BarPanel():
            size = (3.3 * columns, 1.55 * rows + 0.4)
        case StripPanel():
            size = (8.0, 0.22 * len(first.rows) + 1.3)
    figure = Figure(figsize=size, layout="constrained")
    handles: dict[str, Any] = {}
    shared = None
    for index, panel in enumerate(chart.panels):
        axes = figure.add_subplot(rows, columns, index + 1, sharey=shared)
        if isinstance(panel, LinePanel) and not panel.linear:
            shared = shared or axes  # the panels show the same values of several subjects
        axes.set_title(panel.title)
        match panel:
            case LinePanel():
                handles |= _lines(axes, panel, styles)
            case BarPanel():
                handles |= _bars(axes, panel, styles)
            case StripPanel():
                handles |= _strips(axes, panel, styles)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower left", ncols=min(6, len(handles))
    )
    return figure


def _styles(chart: Chart) -> dict[str, tuple[str, str, str]]:
    """Return color, marker and line style of each subject in the chart."""
    others: Iterator[tuple[str, str, str]] = itertools.cycle(OTHERS)
    return {subject: STYLES.get(subject) or next(others) for subject in subjects_in_chart(chart)}


def _logarithmic(axis: Any) -> None:
    """Set ticks at 1, 2 and 5 of each decade, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_exact(value)))
    axis.set_minor_formatter(NullFormatter())


def _lines(
    axes: Any, panel: LinePanel, styles: Mapping[str, tuple[str, str, str]]
) -> dict[str, Any]:
    handles = {}
    is_labeled = len({each.label for each in panel.series}) > 1
    axes.set_xscale("log")
    axes.set_yscale("log")
    for index, series in enumerate(panel.series):
        color, marker, line = styles[series.subject]
        if is_labeled:
            # Percentiles of one subject have the same color and differ in marker and line style.
            marker, line = "osD^vPX"[index % 7], ("-", "--", "-.", ":")[index % 4]
        xs, ys = [point.x for point in series.points], [point.median for point in series.points]
        (artist,) = axes.plot(
            xs, ys, color=color, marker=marker, linestyle=line, markersize=4.5, linewidth=1.5
        )
        for point in series.points:
            if point.maximum > point.minimum:
                axes.plot(
                    [point.x, point.x], [point.minimum, point.maximum], color=color, linewidth=0.8
                )
        if is_labeled:
            artist = Line2D(
                [], [], color=TEXT, marker=marker, linestyle=line, markersize=4.5, linewidth=1.5
            )
        handles[series.label or series.subject] = artist
    longest = max(panel.series, key=lambda each: len(each.points)).points
    if panel.linear and len(longest) > 1:
        low, high = longest[0], longest[-1]
        axes.set_ylim(*_at_least_a_decade(axes.get_ylim()))
        straight = [low.median, low.median * high.x / low.x]
        (artist,) = axes.plot(
            [low.x, high.x], straight, color=GUIDE, linestyle=(0, (2, 2)), linewidth=1.2, zorder=0
        )
        handles["linear growth"] = artist
    axes.set_xlabel(panel.x)
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    xs = sorted({point.x for series in panel.series for point in series.points})
    axes.set_xticks(xs, labels=[format_exact(x) for x in xs])
    axes.xaxis.set_minor_formatter(NullFormatter())
    _logarithmic(axes.yaxis)
    return handles


def _at_least_a_decade(limits: tuple[float, float]) -> tuple[float, float]:
    """Extend the limits of an axis to at least a factor of 10, so that noise does not look like growth."""
    low, high = limits
    factor = max(1.0, 10 * low / high)
    return low / factor**0.5, high * factor**0.5


def _bars(axes: Any, panel: BarPanel, styles: Mapping[str, tuple[str, str, str]]) -> dict[str, Any]:
    handles = {}
    longest = max(panel.at_most, *(bar.value for bar in panel.bars))
    for index, bar in enumerate(panel.bars):
        recorded = bar.subject == RECORDED
        color = styles[bar.subject][0]
        artist = axes.barh(
            index,
            bar.value,
            height=0.7,
            color="none" if recorded else color,
            edgecolor=color,
            hatch="////" if recorded else None,
            linewidth=0.8,
        )
        handles[bar.subject] = artist
        is_range = recorded and bar.minimum != bar.maximum
        format_value = format_exact if recorded else format_number
        label = (
            f"{format_value(bar.minimum)} – {format_value(bar.maximum)}"
            if is_range
            else format_value(bar.value)
        )
        box = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.8}
        axes.text(bar.value + longest * 0.02, index, label, va="center", fontsize=8, bbox=box)
    handles["target"] = axes.axvline(
        panel.at_most, color=TEXT, linestyle=(0, (3, 2)), linewidth=1.2, zorder=2
    )
    axes.set_xlim(0, longest * 1.2)
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    return handles


def _strips(
    axes: Any, panel: StripPanel, styles: Mapping[str, tuple[str, str, str]]
) -> dict[str, Any]:
    handles = {}
    for index, (_, subject, shares) in enumerate(panel.rows):
        color, marker, _ = styles[subject]
        (artist,) = axes.plot(
            shares,
            [index] * len(shares),
            color=color,
            marker=marker,
            linestyle="none",
            markersize=5,
            alpha=0.75,
        )
        handles[subject] = artist
    axes.axvline(0, color=GRID, zorder=0)
    axes.set_yticks(range(len(panel.rows)), labels=[label for label, _, _ in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+.0f} %" if value else "0")
    )
    return handles
