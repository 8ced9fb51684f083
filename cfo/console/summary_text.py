"""Summaries as plain text: tables as kubectl prints them, details, and one line for each change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from cfo.console.counts import counted
from cfo.runtime import GVK
from cfo.runtime.objects import parse_time
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.repetitions import without_repetitions
from cfo.summaries.summary import Level, Summary, kind_names

MARKS: Final = {
    Level.FAILED: "✗",
    Level.WARNING: "!",
    Level.PROGRESSING: "…",
    Level.OK: "✓",
    Level.WAITING: "–",
}
"""One character for each level, so that color is not needed."""

_PREDICATES: Final = {
    Level.FAILED: "has failed",
    Level.WARNING: "has a problem",
    Level.PROGRESSING: "is in progress",
    Level.OK: "is ok",
    Level.WAITING: "is waiting",
}
"""What a sentence says about an object without a state."""

_ESSENTIAL: Final = (
    "cause",
    "deletion",
    "connect",
    "dashboard",
    "position",
    "quota",
    "why",
    "url",
    "jobs",
    "components",
)
"""The facts of which the first is shown in a line about an object without problems."""

_MAX_INFORMATION: Final = 100
"""The width of the last column of a table; the whole text follows below the table, or with ``wide``."""

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def age(created: str, now: datetime) -> str:
    """Return the time since ``created`` (RFC 3339) in its largest unit, as ``5m``; empty if it is not a time."""
    try:
        seconds = max(0, int((now - parse_time(created)).total_seconds()))
    except (ValueError, TypeError):
        return ""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def essence(summary: Summary) -> str:
    """Return the most important text about an object: its first problem, otherwise its most important fact."""
    if summary.problems:
        first = summary.problems[0].message
        others = len(summary.problems) - 1
        return f"{first} (+{others})" if others else first
    for name in _ESSENTIAL:
        if value := summary.fact(name):
            return value
    return ""


def counts(summaries: Iterable[Summary]) -> str:
    """Return how many objects there are of each level, without the levels that none has."""
    levels = [summary.level for summary in summaries]
    if not levels:
        return "no objects"
    parts = [f"{levels.count(level)} {level.value}" for level in Level if level in levels]
    return f"{counted(len(levels), 'object')}: {', '.join(parts)}"


def listing(
    summaries: Sequence[Summary], now: datetime, namespace: str | None, *, wide: bool = False
) -> Iterator[str]:
    """Yield a table of all objects, their problems with remedies, and how many there are of each level.

    A problem that the owner of an object has as well is shown for the owner only.

    ``namespace``: the one that all objects are in, or ``None`` for all namespaces.
    """
    summaries = without_repetitions(summaries)
    if summaries:
        yield from table(summaries, now, wide=wide, namespaces=namespace is None)
        yield ""
    problems = list(problem_lines(summaries))
    if problems:
        yield from problems
        yield ""
    yield f"{counts(summaries)} in {place_text(namespace)}"


def place_text(namespace: str | None) -> str:
    """Return where objects were looked for; ``None``: in all namespaces."""
    return "all namespaces" if namespace is None else f"namespace {namespace}"


def table(
    summaries: Sequence[Summary], now: datetime, *, wide: bool = False, namespaces: bool = True
) -> Iterator[str]:
    """Yield the lines of a table, with a header for each kind and one line for each object.

    ``wide`` adds all facts, and crops nothing. ``namespaces`` adds a column with the namespace.
    """
    titles = ["", "NAME", "STATUS", "READY", "AGE", "INFORMATION"]
    if namespaces:
        titles.insert(1, "NAMESPACE")
    kinds = kind_names(summary.gvk for summary in summaries)
    rows: list[tuple[str, list[str]]] = []
    for summary in summaries:
        cells = [
            MARKS[summary.level],
            summary.key.name,
            summary.state or "-",
            summary.ready or "-",
            age(summary.created, now),
            _all_facts(summary) if wide else _cropped(essence(summary)),
        ]
        if namespaces:
            cells.insert(1, summary.key.namespace)
        rows.append((kinds[summary.gvk], cells))
    columns = zip(titles, *(cells for _, cells in rows), strict=True)
    widths = [max(map(len, column)) for column in columns]
    is_first = True
    for kind, rows_of_kind in groupby(rows, key=lambda row: row[0]):
        if not is_first:
            yield ""
        is_first = False
        yield kind
        yield _line(titles, widths)
        for _, cells in rows_of_kind:
            yield _line(cells, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _cropped(text: str) -> str:
    """Return ``text`` with at most :data:`_MAX_INFORMATION` characters; an address is only of use if it is complete."""
    if len(text) <= _MAX_INFORMATION or "://" in text:
        return text
    return f"{text[: _MAX_INFORMATION - 1]}…"


def _all_facts(summary: Summary) -> str:
    problems = [problem.message for problem in summary.problems]
    facts = [f"{name}: {value}" for name, value in summary.facts]
    return "; ".join(problems + facts)


def problem_lines(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield what is wrong and what to do about it, for each object that has problems."""
    kinds = kind_names(summary.gvk for summary in summaries)
    for summary in summaries:
        if summary.problems:
            yield f"{MARKS[summary.level]} {kinds[summary.gvk]} {summary.key}"
            for problem in summary.problems:
                yield f"    {problem.message}"
                yield f"      -> {problem.remedy}"


def detail(summary: Summary, now: datetime, kinds: Mapping[GVK, str]) -> Iterator[str]:
    """Yield everything that is known about one object; ``kinds`` has the name of its kind (see :func:`.kind_names`)."""
    ready = f", {summary.ready} ready" if summary.ready else ""
    state = summary.state or "no state"
    yield f"{MARKS[summary.level]} {kinds[summary.gvk]} {summary.key}: {state}{ready}, {summary.level.value}"
    yield f"  created {local_time(summary.created)} ({age(summary.created, now)} ago)"
    if summary.problems:
        yield ""
        yield "Problems"
        for problem in summary.problems:
            yield f"  {problem.message}"
            yield f"    -> {problem.remedy}"
    sections = {"Facts": list(summary.facts), **summary.details()}
    warnings = zip(summary.warnings, sections["Warning Events"], strict=True)
    sections["Warning Events"] = [
        (f"{age(warning.last, now)} ago  {name}", message) for warning, (name, message) in warnings
    ]
    for title, pairs in sections.items():
        if pairs:
            yield ""
            yield title
            width = max(len(name) for name, _ in pairs)
            for name, value in pairs:
                yield f"  {name.ljust(width)}  {value}".rstrip()


def change_text(change: SummaryChange, kinds: Mapping[GVK, str]) -> str:
    """Return a sentence about a change, such as ``✓ RayCluster default/rc is ready (1/1): https://rc.example.com``.

    ``kinds`` has the name of the object's kind (see :func:`.kind_names`).
    """
    summary = change.summary
    title = f"{kinds[summary.gvk]} {summary.key}"
    if change.type is ChangeType.REMOVED:
        return f"– {title} was deleted"
    predicate = f"is {summary.state}" if summary.state else _PREDICATES[summary.level]
    text = f"{MARKS[summary.level]} {title} {predicate}"
    if summary.ready:
        text += f" ({summary.ready})"
    information = essence(summary)
    return f"{text}: {information}" if information else text


def local_time(created: str) -> str:
    """Return an RFC 3339 time as local date and time; the string itself if it is not a time."""
    try:
        return parse_time(created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return created or "at an unknown time"
