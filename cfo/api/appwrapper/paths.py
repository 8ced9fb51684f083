"""The grammar of the paths in ``podSets``, which locate pod templates in a component.

A path begins with ``template``, the component's whole object, and continues with ``.field`` and ``[index]``:
``template.spec.workerGroupSpecs[0].template``. A field name ends at the next dot or bracket, so field names cannot
contain dots or brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cfo.runtime import Object

ROOT: Final = "template"
"""The first element of every path: the component's object itself."""

_FIELD = re.compile(r"(?s:.[^.\[]*)?")  # the first character always belongs to the name
_INDEX = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


class PathError(ValueError):
    """Raised if a path does not exist; the message contains the part of it that exists."""


def value_at(obj: Mapping[str, Any], path: str) -> Any:
    """Return the value at ``path`` in ``obj``, not a copy. Raises :class:`PathError`."""
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


def value_or_none(obj: Mapping[str, Any], path: str) -> Any:
    """Return the value at ``path``, or ``None`` if it does not exist."""
    try:
        return value_at(obj, path)
    except PathError:
        return None


def object_at(obj: Mapping[str, Any], path: str) -> Object:
    """Return the object at ``path`` in ``obj``, not a copy, so that changing it changes ``obj``.

    Raises :class:`PathError`, also if the value at ``path`` is not an object.
    """
    value = value_at(obj, path)
    if not isinstance(value, dict):
        raise PathError(f"at path position '{path}' non-map value")
    return value


def _field(value: Any, path: str, at: int) -> tuple[Any, int]:
    at += 1
    found = _FIELD.match(path, at)
    assert found is not None  # it also matches the empty string
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
