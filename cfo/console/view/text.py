"""Summaries as plain text: tables as kubectl prints them, details, lines of changes, and the rows of the live table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from cfo.api.reading import counted
from cfo.runtime import GVK
from cfo.runtime.objects import parse_time
from cfo.summaries.overview import Change, ChangeType
from cfo.summaries.summary import Level, Summary

MARKS: Final = {
    Level.FAILED: "✗",
    Level.WARNING: "!",
    Level.PROGRESSING: "…",
    Level.OK: "✓",
    Level.WAITING: "–",
}
"""One character for each level, so that color is not needed."""

_ESSENTIAL: Final = ("dashboard", "position", "quota", "url", "why", "jobs", "components")
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


TITLES: Final = ("", "KIND", "NAME", "STATUS", "READY", "AGE", "INFORMATION")


def cells_of(summary: Summary, now: datetime) -> dict[str, str]:
    """Return the cells of the row of an object, by the :data:`TITLES` of their columns."""
    name, state, ready = str(summary.key), summary.state or "-", summary.ready or "-"
    texts = (
        MARKS[summary.level],
        summary.gvk.kind,
        name,
        state,
        ready,
        age(summary.created, now),
        essence(summary),
    )
    return dict(zip(TITLES, texts, strict=True))


def crop(text: str, width: int) -> str:
    """Return ``text`` with at most ``width`` characters; a cropped one ends in an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def counts(summaries: Iterable[Summary]) -> str:
    """Return how many objects there are of each level, without the levels that none has."""
    levels = [summary.level for summary in summaries]
    parts = [f"{levels.count(level)} {level.value}" for level in Level if level in levels]
    return f"{counted(len(levels), 'object')}: {', '.join(parts)}" if parts else "no objects"


def table(
    summaries: Sequence[Summary], now: datetime, *, wide: bool = False, namespaces: bool = True
) -> Iterator[str]:
    """Yield the lines of a table, with a header for each kind and one line for each object.

    ``wide`` adds all facts, and crops nothing. ``namespaces`` adds a column with the namespace.
    """
    titles = ["", *(["NAMESPACE"] if namespaces else []), *TITLES[2:]]
    rows: list[tuple[str, list[str]]] = []
    for summary in summaries:
        cells = {
            **cells_of(summary, now),
            "NAMESPACE": summary.key.namespace,
            "NAME": summary.key.name,
        }
        info = cells["INFORMATION"]
        cells["INFORMATION"] = (
            _all_facts(summary) if wide else info if "://" in info else crop(info, _MAX_INFORMATION)
        )
        rows.append((summary.gvk.kind, [cells[title] for title in titles]))
    widths = [
        max(map(len, column)) for column in zip(titles, *(cells for _, cells in rows), strict=True)
    ]
    for kind, group in groupby(rows, itemgetter(0)):
        yield from ("", kind) if kind != rows[0][0] else (kind,)
        yield from (_line(cells, widths) for cells in (titles, *map(itemgetter(1), group)))


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
    sections = {"Facts": list(summary.facts), **summary.details()}
    sections["Warning Events"] = [
        (f"{age(warning.last, now)} ago  {name}", message)
        for warning, (name, message) in zip(
            summary.warnings, sections["Warning Events"], strict=True
        )
    ]
    for title, pairs in sections.items():
        yield from ("", title) if pairs else ()
        width = max((len(name) for name, _ in pairs), default=0)
        yield from (f"  {name.ljust(width)}  {value}".rstrip() for name, value in pairs)


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


PADDING: Final = 2
"""The number of characters between two columns."""

_CONCESSIONS: Final = (
    ("INFORMATION", 40),
    ("AGE", 0),
    ("NAME", 32),
    ("STATUS", 14),
    ("INFORMATION", 30),
    ("KIND", 8),
    ("STATUS", 12),
    ("INFORMATION", 20),
    ("NAME", 20),
    ("KIND", 0),
    ("INFORMATION", 0),
    ("NAME", 10),
)
"""To which width a column shrinks, one after the other, while the table is too wide; 0 leaves the column out."""


def widths_for(rows: Iterable[Mapping[str, str]], width: int) -> dict[str, int]:
    """Return the widths of the columns that fit into ``width`` characters: no more than the cells of ``rows`` need."""
    widths = {title: len(title) for title in TITLES}
    for cells in rows:
        widths = {title: max(widths[title], len(cells[title])) for title in TITLES}
    for title, least in _CONCESSIONS:
        excess = sum(each + PADDING for each in widths.values()) - width
        if excess > 0 and title in widths:
            widths[title] = max(least, widths[title] - excess) if least else 0
            widths = {each: size for each, size in widths.items() if size or not each}
    return widths


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
    by_kind = sorted(
        summaries, key=lambda summary: (positions[summary.gvk.kind], summary.gvk, summary.key)
    )
    return sorted(by_kind, key=SORTS[order])


def is_match(summary: Summary, words: str, *, only_problems: bool = False) -> bool:
    """Return whether every word of the filter occurs in kind, name, state, level or a problem, in any case."""
    if only_problems and not summary.level.is_wrong:
        return False
    texts = (
        summary.title,
        summary.state,
        summary.level.value,
        *(problem.message for problem in summary.problems),
    )
    haystack = "\n".join(texts).casefold()
    return all(word in haystack for word in words.casefold().split())
