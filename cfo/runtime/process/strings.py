"""Checks of strings that a program passes to the library."""

from __future__ import annotations

from collections.abc import Collection


def require_list(name: str, values: object) -> None:
    """Raise :class:`TypeError` if ``values`` is one string, because its characters would be taken for the strings.

    ``name`` is the parameter, or the function that returned the value.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name}: {values!r:.200}: must be a list of strings")


def require_strings(name: str, values: Collection[object] | None) -> None:
    """Raise :class:`TypeError` if ``values``, which the parameter ``name`` got, are not strings, or are one string."""
    require_list(name, values)
    for value in values or ():
        if not isinstance(value, str):
            raise TypeError(f"{name}: {value!r:.200}: must be a string")
