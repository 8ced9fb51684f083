"""Takes values of a wrong type out of an object, so that its other problems are found as well."""

from __future__ import annotations

from typing import Any

from envtest.manifest_check.documents import steps_of


def remove_value(obj: dict[str, Any], path: str) -> bool:
    """Remove the value at ``path`` from ``obj``; return whether it was there.

    An item of a list becomes null, because other paths contain the positions of the items after it.
    """
    parent: Any = obj
    steps = steps_of(path)
    while steps:
        if isinstance(parent, list):
            position = steps.pop(0)
            if not position.isdecimal() or int(position[:9]) >= len(parent):
                return False
            if not steps:
                parent[int(position)] = None
                return True
            parent = parent[int(position)]
            continue
        key = _first_key(parent, steps)
        if key is None:
            return False
        if not steps:
            del parent[key]
            return True
        parent = parent[key]
    return False


def _first_key(parent: object, steps: list[str]) -> str | None:
    """Return the key with which ``steps`` begin, and remove its steps; ``None`` if there is no such key."""
    if not isinstance(parent, dict):
        return None
    for count in range(1, len(steps) + 1):  # a key such as app.kubernetes.io/name contains dots
        key = ".".join(steps[:count])
        if key in parent:
            del steps[:count]
            return key
    return None


def is_related(path: str, removed: str) -> bool:
    """Return whether one of two paths leads to the other."""
    steps = steps_of(path)
    others = steps_of(removed)
    common = min(len(steps), len(others))
    return bool(steps) and steps[:common] == others[:common]
