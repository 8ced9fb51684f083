"""Where a pod template stands in a component: the grammar of the paths in ``podSets``.

A path begins with ``template``, which is the component's whole object, and goes on with ``.field`` and ``[index]``:
``template.spec.workerGroupSpecs[0].template``. A field's name ends at the next dot or bracket, so fields with either in
their name cannot be reached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cfo.runtime.objects import Object

__all__ = ["ROOT", "PathError", "object_at", "value_at"]

ROOT: Final = "template"
"""The first element of every path: the component's object itself."""

_FIELD = re.compile(r"(?s:.[^.\[]*)?")  # the first character belongs to the name, whatever it is
_INDEX = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


class PathError(ValueError):
    """A path leads nowhere; the text says how far it led."""


def value_at(obj: Mapping[str, Any], path: str) -> Any:
    """What ``path`` leads to in ``obj``; not a copy. Raises :class:`PathError`."""
    if not path.startswith(ROOT):
        raise PathError(f"first element of the path must be '{ROOT}'")
    at = len(ROOT)
    value: Any = obj
    while at < len(path):
        if path[at] == ".":
            value, at = _field(value, path, at)
        elif path[at] == "[":
            value, at = _item(value, path, at)
        else:
            raise PathError(f"at path position '{path[:at]}' invalid path element '{path[at:]}'")
    return value


def object_at(obj: Mapping[str, Any], path: str) -> Object:
    """The object that ``path`` leads to in ``obj``; not a copy, so a change of it is one of ``obj``.

    Raises :class:`PathError`, also where something else is there.
    """
    value = value_at(obj, path)
    if not isinstance(value, dict):
        raise PathError(f"at path position '{path}' non-map value")
    return value


def _field(value: Any, path: str, at: int) -> tuple[Any, int]:
    at += 1
    found = _FIELD.match(path, at)
    assert found is not None  # it matches nothing, too
    name = found.group()
    if not isinstance(value, Mapping):
        raise PathError(f"at path position '{path[:at]}' non-map value")
    if name not in value:
        raise PathError(f"at path position '{path[:at]}' missing field '{name}'")
    return value[name], at + len(name)


def _item(value: Any, path: str, at: int) -> tuple[Any, int]:
    where = f"at path position '{path[:at]}'"
    end = path.find("]", at)
    if end < 0:
        raise PathError(f"{where} invalid array index '{path[at:]}'")
    expression = path[at + 1 : end]
    if not _INDEX.fullmatch(expression):
        raise PathError(f"{where} invalid index expression '{expression}'")
    if not isinstance(value, list):
        raise PathError(f"{where} found non-array value")
    index = int(expression)
    if not 0 <= index < len(value):
        raise PathError(f"{where} out of bounds index '{index}'")
    return value[index], end + 1
