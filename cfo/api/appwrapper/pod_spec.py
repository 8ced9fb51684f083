"""Whether an object can be read as a ``v1.PodSpec``: nothing but fields that it has, each of its type.

What a component wraps is only read by its own kind's controller once it runs; a misspelt field found then has cost a
queue's quota. The fields are those of Kubernetes 1.36 (``hack/generate_pod_spec.py`` writes the table), so that a field
of a later release is refused until the table is renewed. Values are not judged any further: that is the business of the
API server that creates the pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

__all__ = ["pod_spec_problems"]

_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(n|u|m|k|[KMGTPE]i|[MGTPE]|[eE][+-]?\d+)?", re.ASCII)
_LARGEST: Final = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def pod_spec_problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """What keeps ``spec`` from being a PodSpec, each with the field's path from the spec."""
    return _object(spec, "PodSpec", "")


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
            yield _wrong(path, "a list")
            return
        for index, item in enumerate(value):
            if item is not None:
                yield from _value(item, shape[1:-1], f"{path}[{index}]")
    elif shape[0] == "{":
        if not isinstance(value, Mapping):
            yield _wrong(path, "an object")
            return
        for name, item in value.items():
            if item is not None:
                yield from _value(item, shape[1:-1], f"{path}[{name}]")
    elif shape in _SCALARS:
        what, fits = _SCALARS[shape]
        if not fits(value):
            yield _wrong(path, what)
    elif isinstance(value, Mapping):
        yield from _object(value, shape, path)
    else:
        yield _wrong(path, "an object")


def _wrong(path: str, what: str) -> str:
    return f'field "{path}" must be {what}'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_quantity(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)


_SCALARS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a string", _is_text),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "int32": ("an integer of 32 bits", _is_integer(_LARGEST["int32"])),
    "int64": ("an integer of 64 bits", _is_integer(_LARGEST["int64"])),
    "Quantity": ("a quantity such as 500m, 2 or 4Gi", _is_quantity),
    "IntOrString": (
        "an integer or a string",
        lambda value: _is_text(value) or _is_integer(_LARGEST["int32"])(value),
    ),
    "Time": ("a time", _is_text),
    "FieldsV1": ("an object", lambda value: isinstance(value, Mapping)),
}


@cache
def _types() -> dict[str, dict[str, str]]:
    """The fields of each type that a PodSpec is made of, with their shapes."""
    types: dict[str, dict[str, str]] = orjson.loads(Path(__file__).with_name("pod_spec.json").read_bytes())
    return types
