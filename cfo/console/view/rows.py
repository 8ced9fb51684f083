"""The rows of the live table: filtered, sorted, and cropped to the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from cfo.console.summaries import KindView, Summary
from cfo.console.view.text import MARKS, age, crop, essence
from cfo.runtime import GVK


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
