"""Checks that values have the fields and JSON types of API types: built-in ones, and types of our own.

A misspelled or mistyped field is then reported at admission, and not only when an object is created from the value. The
built-in types are those of Kubernetes 1.36 (``hack/generate/builtin_types.py`` writes the table), so fields of later
releases are reported as unknown until the table is generated again. Values are not validated further: the API server
does that.

The *shape* of a value is a scalar (``string``, ``boolean``, ``int32``, ``int64``, ``Quantity``, ``IntOrString`` ...),
the name of a type, ``[shape]`` for a list, or ``{shape}`` for a map with string keys. Two shapes are only for types of
our own: ``scalar`` is a string, number or boolean, and ``object`` is a map with any content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from cfo.runtime.objects import is_quantity

TypeTable: TypeAlias = Mapping[str, Mapping[str, str]]
"""The shape of each field of each type."""

_MAX_VALUES: Final = {"int32": 2**31 - 1, "int64": 2**63 - 1}


class TypeProblem(msgspec.Struct, frozen=True):
    """A field that a type does not have (``expected`` is empty), or that must have another JSON type.

    ``path`` is relative to the checked value (``containers[0].env``), ``type_name`` the type that has the field.
    """

    path: str
    value: Any
    expected: str = ""
    type_name: str = ""

    def __str__(self) -> str:
        if self.expected:
            return f'field "{self.path}" must be {self.expected}'
        return f'unknown field "{self.path}"'


def type_problems(
    value: Any,
    shape: str,
    types: TypeTable | None = None,
    *,
    path: str = "",
    null_items: bool = True,
) -> Iterator[TypeProblem]:
    """Yield the differences between ``value`` and ``shape``, in the order of the value.

    ``types`` are the types to which shapes refer, by default the built-in types. ``path`` is the path of ``value``. A
    ``null`` field or map entry is always valid, a ``null`` item of a list of scalars only with ``null_items``. The work
    is linear in the number of values, which the caller must bound, as well as their depth.
    """
    if types is None:
        types = builtin_types()
    yield from _Check(types, null_items).value(value, shape, path)


class _Check:
    def __init__(self, types: TypeTable, null_items: bool) -> None:
        self._types = types
        self._null_items = null_items

    def value(self, value: Any, shape: str, path: str) -> Iterator[TypeProblem]:
        if shape[0] == "[":
            if not isinstance(value, list):
                yield TypeProblem(path, value, "a list")
                return
            for index, item in enumerate(value):
                # null is an empty string, but not an empty container
                if item is not None or not self._null_items or shape[1:-1] in self._types:
                    yield from self.value(item, shape[1:-1], f"{path}[{index}]")
        elif shape[0] == "{":
            if not isinstance(value, Mapping):
                yield TypeProblem(path, value, "an object")
                return
            for name, item in value.items():
                if item is not None:
                    yield from self.value(item, shape[1:-1], f"{path}[{name}]")
        elif shape in _SCALARS:
            expected, is_valid = _SCALARS[shape]
            if not is_valid(value):
                yield TypeProblem(path, value, expected)
        elif isinstance(value, Mapping):
            yield from self._object(value, shape, path)
        else:
            yield TypeProblem(path, value, "an object")

    def _object(self, value: Mapping[str, Any], type_name: str, path: str) -> Iterator[TypeProblem]:
        fields = self._types[type_name]
        for name, item in value.items():
            at = f"{path}.{name}" if path else name
            if name not in fields:
                yield TypeProblem(at, item, "", type_name)
            elif item is not None:
                yield from self.value(item, fields[name], at)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(limit: int) -> Callable[[Any], bool]:
    """Return a function that checks whether a value is an integer from ``-limit - 1`` to ``limit``."""

    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return -limit - 1 <= value <= limit

    return check


_is_int32 = _is_integer(_MAX_VALUES["int32"])
_is_int64 = _is_integer(_MAX_VALUES["int64"])


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, str):
        return is_quantity(value)
    return _is_number(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


_SCALARS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a string", _is_string),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "int32": ("an integer of 32 bits", _is_int32),
    "int64": ("an integer of 64 bits", _is_int64),
    "Quantity": ("a quantity such as 500m, 2 or 4Gi", _is_quantity),
    "IntOrString": (
        "an integer or a string",
        lambda value: _is_string(value) or _is_int32(value),
    ),
    "Time": ("a time", _is_string),
    "FieldsV1": ("an object", _is_object),
    "object": ("an object", _is_object),
    "scalar": (
        "a string, a number, true or false",
        lambda value: isinstance(value, str | int | float | bool),
    ),
}


@cache
def builtin_types() -> TypeTable:
    """Return the fields, with their shapes, of the built-in types in the table."""
    table = Path(__file__).with_name("builtin_types.json")
    types: dict[str, dict[str, str]] = orjson.loads(table.read_bytes())
    return types


def has_more_values_than(limit: int, obj: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` has more than ``limit`` values, at all levels; reads no more of them than that."""
    count = 0
    pending: list[Any] = [obj]
    while pending:
        value = pending.pop()
        count += len(value)
        if count > limit:
            return True
        items = value.values() if isinstance(value, Mapping) else value
        pending += [item for item in items if isinstance(item, dict | list)]
    return False
