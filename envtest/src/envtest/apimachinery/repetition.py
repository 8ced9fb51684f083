"""Finds repeated items of lists in linear time: clients choose how long they are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import orjson

__all__ = ["identity", "repeated_positions"]


def identity(value: Any) -> bytes:
    """Return bytes that are equal for equal JSON values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def repeated_positions(items: Iterable[Hashable]) -> set[int]:
    """Return the positions of the items that equal an earlier one."""
    seen: set[Hashable] = set()
    found: set[int] = set()
    for position, item in enumerate(items):
        if item in seen:
            found.add(position)
        seen.add(item)
    return found
