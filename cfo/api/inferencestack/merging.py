"""The rules by which the parts of a spec are merged. Pure functions that never change their arguments.

Maps are merged, lists and scalars are replaced, and ``null`` removes what it overrides: these are the rules of Helm
values. The same rules apply between an application and the template, where the original depends on the version of a
library for ``false``, ``0`` and ``""``: here, an explicit value always wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfo.runtime import Object

__all__ = ["merge", "merge_env"]


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> Object:
    """Return ``base`` with the values of ``override``, without the values that are ``null`` there.

    The result shares lists and scalars with the arguments, but no maps.
    """
    merged = {key: merge(value, {}) if isinstance(value, Mapping) else value for key, value in base.items()}
    for key, value in override.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def merge_env(*sources: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the environment variables of ``sources``: of those with the same name, the first.

    The order is that of the sources, the one with the highest precedence first.
    """
    merged: dict[str, Object] = {}
    for source in sources:
        for variable in source:
            merged.setdefault(variable.get("name") or "", dict(variable))
    return list(merged.values())
