"""Checks of strings that a program passes to the library."""

from __future__ import annotations


def require_list(name: str, values: object) -> None:
    """Raise :class:`TypeError` if ``values`` is one string, because its characters would be taken for the strings.

    ``name`` is the parameter, or the function that returned the value.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name}: {values!r:.200}: must be a list of strings")
