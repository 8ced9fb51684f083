"""The rows of the live table: filtered, sorted, and cropped to the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cfo.console.summaries import KINDS, Summary
from cfo.console.view.text import MARKS, age, crop, essence

__all__ = ["SORTS", "Column", "columns_for", "is_match", "row", "sort_summaries"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its title, its width in characters, and the text of a cell."""

    title: str
    width: int
    cell: Callable[[Summary, datetime], str]


_PADDING: Final = 2
"""The number of characters between two columns."""

_KIND_ORDER: Final = {gvk.kind: position for position, gvk in enumerate(KINDS)}

_SHORT_KINDS: Final = {
    "RayCluster": "Ray",
    "AppWrapper": "AppWr",
    "FluxSetup": "FluxSet",
    "FluxJob": "FluxJob",
    "MiniCluster": "MiniCl",
    "InferenceStack": "Stack",
}


def _mark(summary: Summary, _: datetime) -> str:
    return MARKS[summary.level]


def _kind(summary: Summary, _: datetime) -> str:
    return summary.gvk.kind


def _short_kind(summary: Summary, _: datetime) -> str:
    return _SHORT_KINDS.get(summary.gvk.kind, summary.gvk.kind)


def _name(summary: Summary, _: datetime) -> str:
    return str(summary.key)


def _state(summary: Summary, _: datetime) -> str:
    if summary.gvk.kind in ("FluxJob", "MiniCluster"):
        return summary.state.removeprefix("Job") or "-"
    return _whole_state(summary, _)


def _whole_state(summary: Summary, _: datetime) -> str:
    return summary.state or "-"


def _ready(summary: Summary, _: datetime) -> str:
    return summary.ready or "-"


def _age(summary: Summary, now: datetime) -> str:
    return age(summary.created, now)


def _information(summary: Summary, _: datetime) -> str:
    return essence(summary)


def columns_for(width: int) -> list[Column]:
    """Return the columns that fill ``width`` characters: fewer, and narrower ones, if it is narrow."""
    if width >= 120:
        fixed = [
            Column("", 1, _mark),
            Column("KIND", 14, _kind),
            Column("NAME", min(48, width // 4), _name),
            Column("STATUS", 23, _whole_state),
            Column("READY", 7, _ready),
            Column("AGE", 4, _age),
        ]
    elif width >= 76:
        fixed = [
            Column("", 1, _mark),
            Column("KIND", 7, _short_kind),
            Column("NAME", 24 + (width - 76) // 3, _name),
            Column("STATUS", 12, _state),
            Column("READY", 5, _ready),
        ]
    else:
        fixed = [
            Column("", 1, _mark),
            Column("NAME", max(10, width - 1 - 12 - 5 - 4 * _PADDING), _name),
            Column("STATUS", 12, _state),
            Column("READY", 5, _ready),
        ]
    rest = width - sum(column.width + _PADDING for column in fixed) - _PADDING
    return [*fixed, Column("INFORMATION", rest, _information)] if rest >= 10 else fixed


def row(summary: Summary, columns: Sequence[Column], now: datetime) -> tuple[str, ...]:
    """Return the cells of an object."""
    return tuple(crop(column.cell(summary, now), column.width) for column in columns)


def _by_attention(summary: Summary) -> tuple[Any, ...]:
    return (summary.level.rank, *_by_kind(summary))


def _by_kind(summary: Summary) -> tuple[Any, ...]:
    return (_KIND_ORDER.get(summary.gvk.kind, len(_KIND_ORDER)), summary.gvk, summary.key)


def _by_name(summary: Summary) -> tuple[Any, ...]:
    return (summary.key, *_by_kind(summary))


def _by_age(summary: Summary) -> tuple[Any, ...]:
    return (tuple(-ord(char) for char in summary.created), *_by_kind(summary))


SORTS: Final[dict[str, Callable[[Summary], tuple[Any, ...]]]] = {
    "kind": _by_kind,
    "attention": _by_attention,
    "name": _by_name,
    "age": _by_age,
}
"""The orders of the table: by kind, what needs attention first, by namespace and name, the youngest first."""


def sort_summaries(summaries: Iterable[Summary], order: str) -> list[Summary]:
    """Return ``summaries`` in an order of :data:`SORTS`."""
    return sorted(summaries, key=SORTS[order])


def is_match(summary: Summary, words: str, *, only_problems: bool = False) -> bool:
    """Return whether every word of the filter occurs in kind, name, state, level or a problem, in any case."""
    if only_problems and not summary.level.is_wrong:
        return False
    texts = (summary.title, summary.state, summary.level.value, *(problem.message for problem in summary.problems))
    haystack = "\n".join(texts).casefold()
    return all(word in haystack for word in words.casefold().split())
