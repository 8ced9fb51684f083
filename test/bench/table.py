"""What was measured, for people: a table for each benchmark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from test.bench.harness import Benchmark, Outcome, names, spread

__all__ = ["exact", "growth", "number", "show", "verbs"]


def number(value: float) -> str:
    """Three digits are enough, and thousands stay whole."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if abs(value) < 100 else f"{value:.0f}"


def exact(value: float) -> str:
    """A number that somebody chose, with the digits that he gave it."""
    return f"{value:,.10g}"


def verbs(outcome: Outcome) -> str:
    """Requests of the last run by verb: ``list 12, patch 300``."""
    counts: Counter[str] = Counter()
    for request, count in (outcome.samples[-1].requests if outcome.samples else {}).items():
        counts[request.split(" ", 1)[0]] += count
    return ", ".join(f"{verb} {count:,}" for verb, count in sorted(counts.items()))


def growth(outcomes: Sequence[Outcome], value: str) -> float | None:
    """The exponent p of cost ~ N^p from the smallest to the largest size (1: linear); ``None``: there is one size."""
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


def show(benchmark: Benchmark, outcomes: Sequence[Outcome], console: Console) -> None:
    """Prints the table of one benchmark: medians, with least and greatest where they differ."""
    columns = names(outcomes)
    console.print(f"[bold]{benchmark.name}[/bold]: {escape(benchmark.title)}", highlight=False)
    table = Table()
    table.add_column("subject")
    table.add_column(benchmark.unit or "", justify="right")
    for column in columns:
        table.add_column(column, justify="right")
    requested = any(sample.requests for outcome in outcomes for sample in outcome.samples)
    if requested:
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
            median, least, greatest = spread(outcome, column)
            both = f" ({number(least)} - {number(greatest)})" if number(least) != number(greatest) else ""
            row.append(number(median) + both)
        table.add_row(*row, *([verbs(outcome)] if requested else []))
    console.print(table)
    for outcome in outcomes:
        if why := outcome.failed or outcome.skipped:
            at = f" at {outcome.size:,}" if outcome.size else ""
            console.print(f"  {outcome.subject}{at} {'failed' if outcome.failed else 'skipped'}: {why}", markup=False)
    for goal in benchmark.goals:
        for outcome in outcomes:
            if outcome.subject != "cfo" or outcome.size != goal.size or not outcome.samples:
                continue
            if not any(goal.value in sample.values for sample in outcome.samples):
                console.print(f"  goal {goal.value} <= {exact(goal.at_most)}: not measured")
                continue
            measured = spread(outcome, goal.value)[0]
            at = f" at {goal.size:,}" if goal.size else ""
            word = "met" if measured <= goal.at_most else "MISSED"
            console.print(f"  goal {goal.value} <= {exact(goal.at_most)}{at}: {number(measured)}, {word}")
    for subject in benchmark.subjects:
        own = [outcome for outcome in outcomes if outcome.subject == subject]
        powers = {value: growth(own, value) for value in columns if value.endswith((" s", " MB"))}
        told = [f"{value} ~ N^{power:.2f}" for value, power in powers.items() if power is not None]
        if told:
            console.print(f"  growth, {subject}: {', '.join(told)}")
    console.print()
