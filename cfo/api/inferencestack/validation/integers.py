"""Integers in configurations, where a number and its string mean the same."""

from __future__ import annotations

from typing import Any

__all__ = ["as_integer"]

_MAX_DIGITS = 9


def as_integer(value: Any) -> int | None:
    """Return the integer that ``value`` means; ``None`` if it is not a non-negative integer of at most nine digits."""
    if isinstance(value, bool):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None
