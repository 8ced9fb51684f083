"""Converts the JSON values of custom resources to the types that their schemas have in CEL.

As in kube-apiserver (``UnstructuredToVal``), strings with the formats ``byte``, ``date``, ``date-time`` and
``duration`` are bytes, times and durations, lists with the type ``set`` or ``map`` are compared without their order
(``cel_lists``), and a property that is null is absent. Nothing is converted if no value of
a schema needs it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from envtest.schema.cel_frame import ConversionError
from envtest.schema.cel_lists import MapList, SetList
from envtest.schema.cel_types import escape
from envtest.schema.schema_node import Schema

__all__ = ["Adapter", "Unreadable", "adapter"]

Adapter: TypeAlias = Callable[[Any], Any]
_Parser: TypeAlias = Callable[[str], Any]

_NOT_BASE64_URL: Final = re.compile(r"[^A-Za-z0-9_=-]")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that an expression cannot read, since it does not have the type of its schema: ``1.0`` for an integer.

    As in kube-apiserver, an expression that does not read it is not affected.
    """

    error: str


def adapter(schema: Schema) -> Adapter | None:
    """Return the conversion of a node's JSON value; ``None`` when none is necessary."""
    convert = _conversion(schema)
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _conversion(schema: Schema) -> Adapter | None:
    """Return the conversion of values that are not null."""
    if schema.int_or_string:
        return _to_integer_or_string
    if schema.type == "integer":
        return _to_integer
    if schema.type == "number":
        return _to_float
    if schema.type == "string":
        return _format_adapter(schema.format)
    if schema.type == "array" and schema.items is not None:
        return _array_adapter(schema, schema.items)
    if schema.type == "object":
        return _object_adapter(schema)
    return None


def _read(item: Any) -> Any:
    if isinstance(item, Unreadable):
        raise ConversionError(item.error)
    return item


class _PartlyUnreadableMap(dict[str, Any]):
    """A map with unreadable values."""

    def __getitem__(self, name: str) -> Any:
        return _read(super().__getitem__(name))


class _PartlyUnreadableList(list[Any]):
    """A list with unreadable items."""

    def __getitem__(self, position: Any) -> Any:
        return _read(super().__getitem__(position))

    def __iter__(self) -> Iterator[Any]:
        return map(_read, super().__iter__())


_NOT_AN_INTEGER: Final = Unreadable("invalid data, expected int, got float64")
_NOT_AN_INTEGER_OR_STRING: Final = Unreadable(
    "invalid data, expected XIntOrString value to be either a string or integer"
)


def _to_float(value: Any) -> Any:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer else value


def _to_integer(value: Any) -> Any:
    return _NOT_AN_INTEGER if isinstance(value, float) else value


def _to_integer_or_string(value: Any) -> Any:
    return _NOT_AN_INTEGER_OR_STRING if isinstance(value, float) else value


def _array_adapter(schema: Schema, items: Schema) -> Adapter | None:
    item = adapter(items)
    typed = _list_type(schema)
    if item is None:
        return typed
    convert = item

    def adapt(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        converted = [convert(each) for each in value]
        if any(isinstance(each, Unreadable) for each in converted):
            return _PartlyUnreadableList(converted)
        return converted if typed is None else typed(converted)

    return adapt


def _list_type(schema: Schema) -> Adapter | None:
    """Return what gives a list the type that its schema declares; ``None`` for a list whose order counts."""
    if schema.list_type == "set":
        return lambda value: SetList(value) if isinstance(value, list) else value
    if schema.list_type == "map":
        keys = [escape(key) or key for key in schema.list_map_keys]
        return lambda value: MapList(value, keys) if isinstance(value, list) else value
    return None


def _adapted_map(values: dict[str, Any]) -> dict[str, Any]:
    is_partial = any(isinstance(value, Unreadable) for value in values.values())
    return _PartlyUnreadableMap(values) if is_partial else values


def _map_adapter(entry: Adapter) -> Adapter:
    def adapt(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return _adapted_map({name: entry(item) for name, item in value.items()})

    return adapt


def _object_adapter(schema: Schema) -> Adapter | None:
    if schema.additional is not None and not schema.properties:
        entry = adapter(schema.additional)
        return None if entry is None else _map_adapter(entry)
    parts = {name: _conversion(node) for name, node in schema.properties.items()}
    names = {name: escape(name) for name in parts}
    has_conversions = any(parts.values())
    has_escapes = any(name != escaped for name, escaped in names.items())
    has_nulls = any(node.nullable for node in schema.properties.values())
    if not (has_conversions or has_escapes or has_nulls):
        return None

    def adapt(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out = {}
        for name, item in value.items():
            if item is None and name in parts:
                continue
            part = parts.get(name)
            out[names.get(name) or name] = part(item) if part else item
        return _adapted_map(out)

    return adapt


def _format_adapter(format_name: str) -> Adapter | None:
    """Return the conversion of strings to their format's type."""
    found = _formats().get(format_name) if format_name in _FORMATS else None
    if found is None:
        return None
    parse, problem = found

    def adapt(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except ValueError as error:
            return Unreadable(f"{problem} {value}: {error}")

    return adapt


_FORMATS: Final = frozenset({"byte", "date", "date-time", "duration"})


def _formats() -> Mapping[str, tuple[_Parser, str]]:
    """Return the parser of each format, and how the error of an invalid string begins."""
    from envtest.schema.cel_times import parse_day, parse_interval, parse_time  # needs protobuf

    return {
        "byte": (_parse_bytes, "Invalid byte formatted string"),
        "date": (parse_day, "Invalid date formatted string"),
        "date-time": (parse_time, "Invalid date-time formatted string"),
        "duration": (parse_interval, "Invalid duration"),
    }


def _parse_bytes(text: str) -> bytes:
    """Return the bytes of base64 for URLs, which kube-apiserver reads although it accepts only the usual base64."""
    invalid = _NOT_BASE64_URL.search(text)
    try:
        if invalid is None:
            return base64.urlsafe_b64decode(text)
    except ValueError:
        pass
    position = len(text) if invalid is None else invalid.start()
    raise ValueError(f"illegal base64 data at input byte {position}")
