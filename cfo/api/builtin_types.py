"""Checks that values have the fields and JSON types of API types: built-in types, and our own.

A misspelled or mistyped field is then reported at admission, and not only when an object is created from the value. The
built-in types are those of the Kubernetes release that the table names (``hack/generate/builtin_types.py`` writes
it), so fields of later releases are reported as unknown until the table is generated again. Values are not validated
further: the API server does that.

The *shape* of a value is a scalar (``string``, ``boolean``, ``int32``, ``int64``, ``Quantity``, ``IntOrString`` ...),
the name of a type, ``[shape]`` for a list, or ``{shape}`` for a map with string keys. Two shapes are only for types of
our own: ``scalar`` is a string, number or boolean, and ``object`` is a map with any content.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from cfo.runtime.objects import is_quantity

_MAX_NAME: Final = 64
_SIMILARITY: Final = 0.8
_MAX_DIFFERENCE: Final = 2
"""The maximum difference in length of a misspelled name: minReplicaCount is not a misspelled replicaCount."""

TypeTable: TypeAlias = Mapping[str, Mapping[str, str]]
"""The shape of each field of each type."""


class ReleasedTypes(msgspec.Struct, frozen=True):
    """The types of one release of a component; ``release`` names both, such as ``Kubernetes 1.36``."""

    release: str
    types: dict[str, dict[str, str]]


class TypeProblem(msgspec.Struct, frozen=True):
    """An unknown field, or a value of another JSON type than ``expected``, which is empty for an unknown field.

    ``path`` is that of the field (``containers[0].env``). ``type_name`` is the type that lacks an unknown field.
    """

    path: str
    value: Any
    expected: str = ""
    type_name: str = ""

    def __str__(self) -> str:
        if self.expected:
            return f'field "{self.path}" must be {self.expected}'
        return f'unknown field "{self.path}"'


def nearest_name(name: str, known_names: Iterable[str]) -> str:
    """Return the one of ``known_names`` of which ``name`` seems to be a misspelling; empty if there is none."""
    if len(name) > _MAX_NAME:
        return ""
    similar = [known for known in known_names if abs(len(known) - len(name)) <= _MAX_DIFFERENCE]
    for known in similar:
        if known.lower() == name.lower():
            return known
    matches = difflib.get_close_matches(name, similar, n=1, cutoff=_SIMILARITY)
    return matches[0] if matches else ""


def nearest_field(problem: TypeProblem, types: TypeTable | None = None) -> str:
    """Return the field of which the unknown one in ``problem`` seems to be a misspelling; empty if there is none."""
    if not problem.type_name:
        return ""
    if types is None:
        types = builtin_types()
    _, _, name = problem.path.rpartition(".")
    return nearest_name(name, types[problem.type_name])


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
    yield from _ShapeChecker(types, null_items).problems(value, shape, path)


class _ShapeChecker:
    def __init__(self, types: TypeTable, null_items: bool) -> None:
        self._types = types
        self._null_items = null_items

    def problems(self, value: Any, shape: str, path: str) -> Iterator[TypeProblem]:
        if shape.startswith("["):
            yield from self._list_problems(value, shape[1:-1], path)
        elif shape.startswith("{"):
            yield from self._map_problems(value, shape[1:-1], path)
        elif shape in _SCALARS:
            expected, is_valid = _SCALARS[shape]
            if not is_valid(value):
                yield TypeProblem(path, value, expected)
        else:
            yield from self._object_problems(value, shape, path)

    def _list_problems(self, value: Any, item_shape: str, path: str) -> Iterator[TypeProblem]:
        if not isinstance(value, list):
            yield TypeProblem(path, value, "a list")
            return
        # The API server decodes a null item as the zero value: an empty string is valid, an empty container is not.
        accepts_null = self._null_items and item_shape not in self._types
        for index, item in enumerate(value):
            if item is None and accepts_null:
                continue
            yield from self.problems(item, item_shape, f"{path}[{index}]")

    def _map_problems(self, value: Any, item_shape: str, path: str) -> Iterator[TypeProblem]:
        if not isinstance(value, Mapping):
            yield TypeProblem(path, value, "an object")
            return
        for name, item in value.items():
            if item is not None:
                yield from self.problems(item, item_shape, f"{path}[{name}]")

    def _object_problems(self, value: Any, type_name: str, path: str) -> Iterator[TypeProblem]:
        if not isinstance(value, Mapping):
            yield TypeProblem(path, value, "an object")
            return
        fields = self._types[type_name]
        for name, item in value.items():
            field_path = f"{path}.{name}" if path else name
            if name not in fields:
                yield TypeProblem(field_path, item, type_name=type_name)
            elif item is not None:
                yield from self.problems(item, fields[name], field_path)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int32(value: Any) -> bool:
    return _is_integer(value) and -(2**31) <= value < 2**31


def _is_int64(value: Any) -> bool:
    return _is_integer(value) and -(2**63) <= value < 2**63


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, str):
        return is_quantity(value)
    return _is_number(value)


def _is_integer_or_string(value: Any) -> bool:
    return _is_string(value) or _is_int32(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


_SCALARS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a string", _is_string),
    "boolean": ("true or false", _is_boolean),
    "int32": ("an integer of 32 bits", _is_int32),
    "int64": ("an integer of 64 bits", _is_int64),
    "Quantity": ("a quantity such as 500m, 2 or 4Gi", _is_quantity),
    "IntOrString": ("an integer or a string", _is_integer_or_string),
    "Time": ("a time", _is_string),
    "FieldsV1": ("an object", _is_object),
    "object": ("an object", _is_object),
    "scalar": ("a string, a number, true or false", _is_scalar),
}
"""By scalar shape: what a value must be, for messages, and the function that checks it."""


def builtin_types() -> TypeTable:
    """Return the fields, with their shapes, of the built-in types in the table."""
    return kubernetes_types().types


@cache
def kubernetes_types() -> ReleasedTypes:
    """Return the table of built-in types with the release of Kubernetes that they are from."""
    return read_types(Path(__file__).with_name("builtin_types.json"))


def read_types(file: Path) -> ReleasedTypes:
    """Read a table that a module of ``hack/generate`` wrote."""
    return msgspec.json.decode(file.read_bytes(), type=ReleasedTypes)
