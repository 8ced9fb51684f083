"""Formatting of benchmark results for the terminal: one table for each benchmark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from test.bench.harness import Benchmark, Outcome, spread, value_names


def format_number(value: float) -> str:
    """Format a measured value with three significant digits, or more for 1,000 and above."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return (
        f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
        if abs(value) < 100
        else f"{value:.0f}"
    )


def format_exact(value: float) -> str:
    """Format a value from the source code, such as a goal, with all of its digits."""
    return f"{value:,.10g}"


def requests_by_verb(outcome: Outcome) -> str:
    """Format the requests of the last run by verb: ``list 12, patch 300``."""
    counts: Counter[str] = Counter()
    for request, count in (outcome.samples[-1].requests if outcome.samples else {}).items():
        counts[request.split(" ", 1)[0]] += count
    return ", ".join(f"{verb} {count:,}" for verb, count in sorted(counts.items()))


def growth_exponent(outcomes: Sequence[Outcome], value: str) -> float | None:
    """Return the exponent p of cost ~ N^p between the smallest and the largest size (1 is linear).

    Returns ``None`` if the value was measured at fewer than two sizes. Values of zero are ignored.
    """
    points = sorted(
        (outcome.size, spread(outcome, value)[0])
        for outcome in outcomes
        if outcome.size and any(value in sample.values for sample in outcome.samples)
    )
    points = [(size, cost) for size, cost in points if cost > 0]
    if len(points) < 2:
        return None
    (small, low), (large, high) = points[0], points[-1]
    return math.log(high / low) / math.log(large / small)


def print_table(benchmark: Benchmark, outcomes: Sequence[Outcome], console: Console) -> None:
    """Print the table of one benchmark: medians, with minimum and maximum if they differ; then goals and growth."""
    columns = value_names(outcomes)
    console.print(f"[bold]{benchmark.name}[/bold]: {escape(benchmark.title)}", highlight=False)
    table = Table()
    table.add_column("subject")
    table.add_column(benchmark.unit or "", justify="right")
    for column in columns:
        table.add_column(column, justify="right")
    with_requests = any(sample.requests for outcome in outcomes for sample in outcome.samples)
    if with_requests:
        table.add_column("requests by verb")
    for outcome in outcomes:
        row = [outcome.subject, f"{outcome.size:,}" if outcome.size else ""]
        if outcome.failed or outcome.skipped:
            table.add_row(*row, "failed" if outcome.failed else "skipped")
            continue
        for column in columns:
            if not any(column in sample.values for sample in outcome.samples):
                row.append("")
                continue
            median, low, high = map(format_number, spread(outcome, column))
            row.append(f"{median} ({low} - {high})" if low != high else median)
        table.add_row(*row, *([requests_by_verb(outcome)] if with_requests else []))
    console.print(table)
    for outcome in outcomes:
        if reason := outcome.failed or outcome.skipped:
            at = f" at {outcome.size:,}" if outcome.size else ""
            console.print(
                f"  {outcome.subject}{at} {'failed' if outcome.failed else 'skipped'}: {reason}",
                markup=False,
            )
    for goal in benchmark.goals:
        for outcome in outcomes:
            if outcome.subject != "cfo" or outcome.size != goal.size or not outcome.samples:
                continue
            if not any(goal.value in sample.values for sample in outcome.samples):
                console.print(f"  goal {goal.value} <= {format_exact(goal.at_most)}: not measured")
                continue
            measured = spread(outcome, goal.value)[0]
            at = f" at {goal.size:,}" if goal.size else ""
            verdict = "met" if measured <= goal.at_most else "MISSED"
            console.print(
                f"  goal {goal.value} <= {format_exact(goal.at_most)}{at}: {format_number(measured)}, {verdict}"
            )
    for subject in benchmark.subjects:
        own = [outcome for outcome in outcomes if outcome.subject == subject]
        exponents = {
            value: growth_exponent(own, value) for value in columns if value.endswith((" s", " MB"))
        }
        known = [
            f"{value} ~ N^{exponent:.2f}"
            for value, exponent in exponents.items()
            if exponent is not None
        ]
        if known:
            console.print(f"  growth, {subject}: {', '.join(known)}")
    console.print()
