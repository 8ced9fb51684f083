"""Counts the values in an object, as a bound of the work that the rest of its validation takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def has_more_values_than(limit: int, obj: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` has more than ``limit`` values, at all levels; reads no more of them than that."""
    count = 0
    pending: list[Any] = [obj]
    while pending:
        value = pending.pop()
        count += len(value)
        if count > limit:
            return True
        items = value.values() if isinstance(value, Mapping) else value
        pending += [item for item in items if isinstance(item, dict | list)]
    return False
