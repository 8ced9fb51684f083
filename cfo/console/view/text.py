"""Summaries as plain text: tables as kubectl prints them, details, lines of changes, and the rows of the live table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from cfo.console.summaries.kind_view import KindView
from cfo.console.summaries.overview import Change, ChangeType
from cfo.console.summaries.summary import Level, Summary
from cfo.runtime import GVK
from cfo.runtime.objects import parse_time

MARKS: Final = {Level.ERROR: "✗", Level.WARNING: "!", Level.PROGRESSING: "…", Level.OK: "✓", Level.IDLE: "–"}
"""One character for each level, so that color is not needed."""

_ESSENTIAL: Final = ("dashboard", "position", "quota", "url", "why", "pods ready", "jobs", "components")
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
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), (1, "s"))
    return f"{seconds // size}{unit}"


def essence(summary: Summary) -> str:
    """Return the most important text about an object: its first problem, otherwise its most important fact."""
    if summary.problems:
        more = f" (+{len(summary.problems) - 1})" if len(summary.problems) > 1 else ""
        return summary.problems[0].message + more
    return next((summary.fact(name) for name in _ESSENTIAL if summary.fact(name)), "")


def crop(text: str, width: int) -> str:
    """Return ``text`` with at most ``width`` characters; a cropped one ends in an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def counts(summaries: Iterable[Summary]) -> str:
    """Return how many objects there are of each level, without the levels that none has."""
    levels = [summary.level for summary in summaries]
    parts = [f"{levels.count(level)} {level.value}" for level in Level if level in levels]
    return f"{len(levels)} objects: {', '.join(parts)}" if parts else "no objects"


def table(summaries: Sequence[Summary], now: datetime, *, wide: bool = False, namespaces: bool = True) -> Iterator[str]:
    """Yield the lines of a table, with a header for each kind and one line for each object.

    ``wide`` adds all facts, and crops nothing. ``namespaces`` adds a column with the namespace.
    """
    titles = ["", *(["NAMESPACE"] if namespaces else []), "NAME", "STATUS", "READY", "AGE", "INFORMATION"]
    rows: list[tuple[str, list[str]]] = []
    for summary in summaries:
        namespace = [summary.key.namespace] if namespaces else []
        info = _all_facts(summary) if wide else crop(essence(summary), _MAX_INFORMATION)
        cells = [MARKS[summary.level], *namespace, summary.key.name, summary.state or "-", summary.ready or "-"]
        rows.append((summary.gvk.kind, [*cells, age(summary.created, now), info]))
    widths = [max(map(len, column)) for column in zip(titles, *(cells for _, cells in rows), strict=True)]
    previous = ""
    for kind, cells in rows:
        if kind != previous:
            if previous:
                yield ""
            yield kind
            yield _line(titles, widths)
        previous = kind
        yield _line(cells, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _all_facts(summary: Summary) -> str:
    facts = [f"{name}: {value}" for name, value in summary.facts]
    return "; ".join([*(problem.message for problem in summary.problems), *facts])


def problem_lines(summaries: Iterable[Summary]) -> Iterator[str]:
    """Yield what is wrong and what to do about it, for each object that has problems."""
    for summary in summaries:
        if summary.problems:
            yield f"{MARKS[summary.level]} {summary.title}"
            for problem in summary.problems:
                yield f"    {problem.message}"
                yield f"      -> {problem.remedy}"


def detail(summary: Summary, now: datetime) -> Iterator[str]:
    """Yield everything that is known about one object."""
    ready = f", {summary.ready} ready" if summary.ready else ""
    yield f"{MARKS[summary.level]} {summary.title}: {summary.state or 'no state'}{ready}, {summary.level.value}"
    yield f"  created {local_time(summary.created)} ({age(summary.created, now)} ago)"
    if summary.problems:
        yield ""
        yield "Problems"
        for problem in summary.problems:
            yield f"  {problem.message}"
            yield f"    -> {problem.remedy}"
    if summary.facts:
        yield ""
        yield "Facts"
        width = max(len(name) for name, _ in summary.facts)
        for name, value in summary.facts:
            yield f"  {name.ljust(width)}  {value}"
    if summary.conditions:
        yield ""
        yield "Conditions"
        width = max(len(condition.type) for condition in summary.conditions)
        for condition in summary.conditions:
            why = ": ".join(part for part in (condition.reason, condition.message) if part)
            yield f"  {condition.type.ljust(width)}  {condition.status.ljust(7)}  {why}"
    if summary.warnings:
        yield ""
        yield "Warning Events"
        for warning in summary.warnings:
            times = f" (x{warning.count})" if warning.count > 1 else ""
            yield f"  {age(warning.last, now)} ago  {warning.reason}: {warning.message}{times}"


def change_text(change: Change) -> str:
    """Return the text of one line about a change."""
    summary = change.summary
    if change.type is ChangeType.REMOVED:
        return f"– {summary.title}: deleted"
    ready = f" {summary.ready}" if summary.ready else ""
    text = essence(summary)
    return f"{MARKS[summary.level]} {summary.title}: {summary.state or 'no state'}{ready}{f', {text}' if text else ''}"


def local_time(created: str) -> str:
    """Return an RFC 3339 time as local date and time; the string itself if it is not a time."""
    try:
        return parse_time(created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return created or "at an unknown time"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its title, its width in characters, and the text of a cell."""

    title: str
    width: int
    cell: Callable[[Summary, datetime], str]


_PADDING: Final = 2
"""The number of characters between two columns."""


def columns_for(width: int, views: Mapping[GVK, KindView]) -> list[Column]:
    """Return the columns that fill ``width`` characters: fewer, and narrower ones, if it is narrow."""

    def short_kind(summary: Summary, _: datetime) -> str:
        return views[summary.gvk].short_title or summary.gvk.kind

    def short_state(summary: Summary, _: datetime) -> str:
        return summary.state.removeprefix(views[summary.gvk].state_prefix) or "-"

    mark = Column("", 1, lambda summary, _: MARKS[summary.level])
    name = partial(Column, "NAME", cell=lambda summary, _: str(summary.key))
    ready = partial(Column, "READY", cell=lambda summary, _: summary.ready or "-")
    if width >= 120:
        fixed = [
            mark,
            Column("KIND", 14, lambda summary, _: summary.gvk.kind),
            name(min(48, width // 4)),
            Column("STATUS", 23, lambda summary, _: summary.state or "-"),
            ready(7),
            Column("AGE", 4, lambda summary, now: age(summary.created, now)),
        ]
    elif width >= 76:
        fixed = [
            mark,
            Column("KIND", 7, short_kind),
            name(24 + (width - 76) // 3),
            Column("STATUS", 12, short_state),
            ready(5),
        ]
    else:
        size = max(10, width - 1 - 12 - 5 - 4 * _PADDING)
        fixed = [mark, name(size), Column("STATUS", 12, short_state), ready(5)]
    rest = width - sum(column.width + _PADDING for column in fixed) - _PADDING
    information = Column("INFORMATION", rest, lambda summary, _: essence(summary))
    return [*fixed, information] if rest >= 10 else fixed


def row(summary: Summary, columns: Sequence[Column], now: datetime) -> tuple[str, ...]:
    """Return the cells of an object."""
    return tuple(crop(column.cell(summary, now), column.width) for column in columns)


SORTS: Final[dict[str, Callable[[Summary], Any]]] = {
    "kind": lambda summary: (),
    "attention": lambda summary: summary.level.rank,
    "name": lambda summary: summary.key,
    "age": lambda summary: tuple(-ord(char) for char in summary.created),
}
"""The orders of the table: by kind, what needs attention first, by namespace and name, the youngest first."""


def sort_summaries(summaries: Iterable[Summary], order: str, kinds: Iterable[GVK]) -> list[Summary]:
    """Return ``summaries`` in an order of :data:`SORTS`; equal ones are in the order of ``kinds``, then by name."""
    positions = {gvk.kind: position for position, gvk in enumerate(kinds)}
    by_kind = sorted(summaries, key=lambda summary: (positions[summary.gvk.kind], summary.gvk, summary.key))
    return sorted(by_kind, key=SORTS[order])


def is_match(summary: Summary, words: str, *, only_problems: bool = False) -> bool:
    """Return whether every word of the filter occurs in kind, name, state, level or a problem, in any case."""
    if only_problems and not summary.level.is_wrong:
        return False
    texts = (summary.title, summary.state, summary.level.value, *(problem.message for problem in summary.problems))
    haystack = "\n".join(texts).casefold()
    return all(word in haystack for word in words.casefold().split())
