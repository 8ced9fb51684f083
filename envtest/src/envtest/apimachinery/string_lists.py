"""Checks of arguments that are lists of strings."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["checked_strings"]


def checked_strings(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the ``values`` of the argument ``name``.

    Raises TypeError for a single string, whose characters would be the values, and for anything but strings.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: {values!r}: must be a sequence of strings")
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(f"{name}: {value!r}: must be a string")
    return found
