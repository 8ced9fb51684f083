"""Validates that an object has only fields of ``v1.PodSpec``, each with a value of the correct type.

Without this check, a misspelled field would be noticed only by the component's own controller, after the AppWrapper has
consumed quota. The fields are defined by Kubernetes 1.36 (``hack/generate/pod_spec.py`` writes the table), so fields of
later releases are rejected until the table is regenerated. Values are not validated further: the API server does that
when it creates the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from cfo.api.quantity import is_quantity
from cfo.api.value_count import has_more_values_than

__all__ = ["pod_spec_problems"]

_MAX_VALUES_IN_SPEC: Final = 10_000
"""The maximum number of values in a pod spec, at all levels. More are not checked one by one."""

_MAX_VALUES: Final = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def pod_spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why ``spec`` is not a PodSpec, each with the path of the field in it."""
    if has_more_values_than(_MAX_VALUES_IN_SPEC, spec):
        yield f"more than {_MAX_VALUES_IN_SPEC} values"
        return
    yield from _object(spec, "PodSpec", "")


def _object(value: Mapping[str, Any], type_name: str, path: str) -> Iterator[str]:
    fields = _types()[type_name]
    for name, item in value.items():
        at = f"{path}.{name}" if path else name
        if name not in fields:
            yield f'unknown field "{at}"'
        elif item is not None:
            yield from _value(item, fields[name], at)


def _value(value: Any, shape: str, path: str) -> Iterator[str]:
    if shape[0] == "[":
        if not isinstance(value, list):
            yield _type_error(path, "a list")
            return
        for index, item in enumerate(value):
            if item is not None or shape[1:-1] in _types():  # null is an empty string, but not an empty container
                yield from _value(item, shape[1:-1], f"{path}[{index}]")
    elif shape[0] == "{":
        if not isinstance(value, Mapping):
            yield _type_error(path, "an object")
            return
        for name, item in value.items():
            if item is not None:
                yield from _value(item, shape[1:-1], f"{path}[{name}]")
    elif shape in _SCALARS:
        expected, is_valid = _SCALARS[shape]
        if not is_valid(value):
            yield _type_error(path, expected)
    elif isinstance(value, Mapping):
        yield from _object(value, shape, path)
    else:
        yield _type_error(path, "an object")


def _type_error(path: str, expected: str) -> str:
    return f'field "{path}" must be {expected}'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_quantity(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, str) and is_quantity(value))


_SCALARS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a string", _is_string),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "int32": ("an integer of 32 bits", _is_integer(_MAX_VALUES["int32"])),
    "int64": ("an integer of 64 bits", _is_integer(_MAX_VALUES["int64"])),
    "Quantity": ("a quantity such as 500m, 2 or 4Gi", _is_quantity),
    "IntOrString": (
        "an integer or a string",
        lambda value: _is_string(value) or _is_integer(_MAX_VALUES["int32"])(value),
    ),
    "Time": ("a time", _is_string),
    "FieldsV1": ("an object", lambda value: isinstance(value, Mapping)),
}


@cache
def _types() -> dict[str, dict[str, str]]:
    """Return the fields, with their shapes, of each type that occurs in a PodSpec."""
    types: dict[str, dict[str, str]] = orjson.loads(Path(__file__).with_name("pod_spec.json").read_bytes())
    return types
