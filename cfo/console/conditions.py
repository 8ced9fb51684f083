"""Removes the operator's conditions from the status of objects that others keep."""

from __future__ import annotations

from collections.abc import Collection

from cfo.api.reading import mapping, path, text
from cfo.runtime import Object


def without_conditions(obj: Object, types: Collection[str]) -> Object:
    """Return ``obj``, or a copy without the conditions of ``types`` if it has any; ``obj`` is not modified."""
    stored = path(obj, "status", "conditions")
    if not isinstance(stored, list):
        return obj
    kept = [each for each in stored if text(mapping(each).get("type")) not in types]
    if len(kept) == len(stored):
        return obj
    return {**obj, "status": {**obj["status"], "conditions": kept}}
