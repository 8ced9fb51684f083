"""JSON merge patch (RFC 7386), with the behavior of kube-apiserver's library.

It differs from the RFC in one point: nulls are also removed from the objects in lists that are set or replaced. It
sorts the names of the objects that it visits.
"""

from __future__ import annotations

from typing import Any

__all__ = ["merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` after ``patch``: maps are merged, null removes a key, any other value replaces.

    Neither argument is modified; the result can share parts with both.
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
    return dict(sorted(merged.items()))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(item) for name, item in sorted(value.items()) if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
