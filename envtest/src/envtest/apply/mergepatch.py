"""JSON merge patch (RFC 7386), as the library of the real server understands it.

It departs from the RFC in one thing: nulls go from lists, too, where a list is set or replaced.
"""

from __future__ import annotations

from typing import Any

__all__ = ["merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """``target`` after ``patch``: maps are merged, null removes, everything else replaces.

    Neither argument is changed; the result may share parts with both.
    """
    if not isinstance(patch, dict):
        return patch if isinstance(target, dict) else _without_nulls(patch)
    if not isinstance(target, dict):
        return _without_nulls(patch)
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value
