"""Sets of completion indexes as intervals, as ``completedIndexes`` and ``failedIndexes`` of Jobs list them.

All functions are pure, and their time depends on the number of intervals, not on ``completions``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

__all__ = [
    "Intervals",
    "contains",
    "format_intervals",
    "intersect",
    "parse_intervals",
    "pending",
    "total",
    "union",
]

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted intervals with their first and last index, which neither overlap nor touch."""


def parse_intervals(text: str | None, completions: int) -> Intervals:
    """Return the indexes below ``completions`` of ``1,3-5``; parts that are not numbers are ignored."""
    found = []
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            continue
        if int(first) < completions:
            found.append((int(first), min(int(last or first), completions - 1)))
    return _merged(found)


def format_intervals(intervals: Intervals) -> str:
    """Return the indexes as ``1,3-5``."""
    parts = []
    for first, last in intervals:
        if first == last:
            parts.append(str(first))
        elif last == first + 1:
            parts.append(f"{first},{last}")
        else:
            parts.append(f"{first}-{last}")
    return ",".join(parts)


def union(intervals: Intervals, indexes: Iterable[int] = (), others: Intervals = ()) -> Intervals:
    """Return the intervals with further indexes and intervals."""
    return _merged([*intervals, *others, *((index, index) for index in indexes)])


def _merged(parts: list[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        elif first <= last:
            merged.append((first, last))
    return tuple(merged)


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """Return the indexes that are in both."""
    found = []
    i = 0
    j = 0
    while i < len(one) and j < len(other):
        first = max(one[i][0], other[j][0])
        last = min(one[i][1], other[j][1])
        if first <= last:
            found.append((first, last))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def total(intervals: Intervals) -> int:
    """Return the number of indexes."""
    return sum(last - first + 1 for first, last in intervals)


def contains(intervals: Intervals, index: int) -> bool:
    """Return whether ``index`` is in the intervals."""
    position = bisect_right(intervals, index, key=lambda each: each[0])
    return position > 0 and intervals[position - 1][1] >= index


def pending(done: Intervals, count: int, completions: int) -> list[int]:
    """Return the first ``count`` indexes below ``completions`` that are not in ``done``."""
    found: list[int] = []
    candidate = 0
    for first, last in (*done, (completions, completions)):
        found.extend(range(candidate, min(first, candidate + count - len(found), completions)))
        if len(found) >= count:
            break
        candidate = max(candidate, last + 1)
    return found
