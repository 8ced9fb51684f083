"""Kubernetes' protobuf format: the tables of its messages, and the decoder of request bodies.

``kubectl create`` and client-go's typed clients send built-in kinds in this format. The field numbers come from the
``generated.proto`` files of k8s.io/api, shipped as ``data/protobuf.json.gz`` (``hack/generate_protobuf_fields.py``).
:mod:`envtest.endpoints.protobuf_encoder` encodes responses; most are JSON, which all these clients accept, too.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

from envtest.apimachinery.objects import Object, format_time
from envtest.builtins.catalog import all_resources
from envtest.formats.go_json_errors import syntax_error

__all__ = [
    "APIEXTENSIONS",
    "MAGIC",
    "META",
    "ProtobufError",
    "decode_body",
    "fields_of",
    "type_of",
    "wire_fields",
]

MAGIC = b"k8s\0"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_SUBJECTS = {
    ("policy/v1", "Eviction"): "io.k8s.api.policy.v1.Eviction",
    ("autoscaling/v1", "Scale"): "io.k8s.api.autoscaling.v1.Scale",
    ("authentication.k8s.io/v1", "TokenRequest"): "io.k8s.api.authentication.v1.TokenRequest",
}

Field = tuple[str, str, str]
Wire = tuple[int, Any]


class ProtobufError(ValueError):
    """Raised for a body that is not a valid message of its kind."""


@cache
def _table() -> Mapping[str, Mapping[str, Mapping[str, Field]]]:
    data = (resources.files("envtest") / "data" / "protobuf.json.gz").read_bytes()
    table: Mapping[str, Mapping[str, Mapping[str, Field]]] = orjson.loads(gzip.decompress(data))
    return table


@cache
def fields_of(kind: str) -> dict[int, Field]:
    """Return the fields of a message, by number. Raises ProtobufError for an unknown message."""
    package, _, name = kind.rpartition(".")
    try:
        entries = _table()[package][name]
    except KeyError:
        raise ProtobufError(f"the fields of {kind} are unknown") from None
    return {int(number): (field[0], field[1], field[2]) for number, field in entries.items()}


_DOUBLE: Final = struct.Struct("<d")


@cache
def _types() -> dict[tuple[str, str], str]:
    types = dict(_SUBJECTS)
    for each in all_resources():
        types[f"{each.group}/{each.version}" if each.group else each.version, each.kind] = each.type
    return types


@cache
def type_of(version: str, kind: str) -> str | None:
    """Return the message of a kind or of its list, ``None`` if it has none. Kinds of all groups are in ``meta``."""
    name = _types().get((version, kind))
    if name is None and kind.endswith("List"):
        item = _types().get((version, kind[:-4]))
        if item:
            name = f"{item}List"
    if name is None and version in _META_VERSIONS and kind in _table()[META]:
        name = f"{META}.{kind}"
    return name


_META_VERSIONS = frozenset({"", "v1", "meta.k8s.io/v1", "meta.k8s.io/v1beta1"})


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ProtobufError("truncated number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise ProtobufError("number out of range")
            return value, position
        shift += 7


def wire_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield (field number, raw value): an int, or the bytes of a string, a message or a double."""
    if not isinstance(data, bytes):
        raise ProtobufError("expected a message")
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number = tag >> 3
        kind = tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif kind in {1, 5}:
            length = 8 if kind == 1 else 4
        else:
            raise ProtobufError(f"unknown wire type {kind}")
        if position + length > len(data):
            raise ProtobufError("truncated field")
        yield number, data[position : position + length]
        position += length


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise ProtobufError("expected a number")
    return value - (1 << 64) if value >= 1 << 63 else value


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ProtobufError("expected a string")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ProtobufError(f"string is not valid UTF-8: {error}") from None


def _scalar(kind: str, value: Any) -> Any:
    if kind == "s":
        return _text(value)
    if kind == "i":
        return _signed(value)
    if kind == "z":
        return bool(value)
    if not isinstance(value, bytes):
        raise ProtobufError("expected bytes")
    if kind == "b":
        return base64.b64encode(value).decode()
    if kind == "d":
        if len(value) != _DOUBLE.size:
            raise ProtobufError("expected a double")
        return _DOUBLE.unpack(value)[0]
    special = _SPECIAL.get(kind)
    return special(value) if special else _message(kind, value)


def _message(kind: str, data: bytes) -> Object:
    fields = fields_of(kind)
    obj: Object = {}
    for number, raw in wire_fields(data):
        field = fields.get(number)
        if field is None:
            continue
        name, value_kind, container = field
        if container == "map":
            key, value = _entry(value_kind, raw)
            obj.setdefault(name, {})[key] = value
        elif container == "list":
            obj.setdefault(name, []).append(_scalar(value_kind, raw))
        elif name:
            obj[name] = _scalar(value_kind, raw)
        else:
            obj.update(_scalar(value_kind, raw))
    return obj


def _entry(kind: str, data: bytes) -> tuple[str, Any]:
    key = ""
    is_integer = kind in {"i", "z"}
    empty = 0 if is_integer else b""
    value = _scalar(kind, empty)
    for number, raw in wire_fields(data):
        if number == 1:
            key = _text(raw)
        elif number == 2:
            value = _scalar(kind, raw)
    return key, value


def _one(data: bytes, number: int, default: Any = None) -> Any:
    found = default
    for each, raw in wire_fields(data):
        if each == number:
            found = raw
    return found


def _moment(data: bytes) -> tuple[datetime, int] | None:
    if not data:
        return None
    seconds = _signed(_one(data, 1, 0))
    try:
        return datetime.fromtimestamp(seconds, UTC), _signed(_one(data, 2, 0))
    except (ValueError, OverflowError, OSError):
        raise ProtobufError(f"time out of range: {seconds}") from None


def _time(data: bytes) -> str | None:
    found = _moment(data)
    return None if found is None else format_time(found[0])


def _micro_time(data: bytes) -> str | None:
    found = _moment(data)
    return None if found is None else format_time(found[0], f".{found[1] // 1000:06}")


def _int_or_string(data: bytes) -> Any:
    return _text(_one(data, 3, b"")) if _one(data, 1, 0) == 1 else _signed(_one(data, 2, 0))


def _raw_json(data: bytes) -> Any:
    raw = _one(data, 1, b"")
    try:
        return orjson.loads(raw) if raw else None
    except orjson.JSONDecodeError:
        raise ProtobufError(f"embedded JSON: {syntax_error(raw)}") from None


def _items(data: bytes) -> list[str]:
    return [_text(raw) for number, raw in wire_fields(data) if number == 1]


def _schema_or_array(data: bytes) -> Any:
    schema = _one(data, 1)
    if schema is not None:
        return _message(f"{APIEXTENSIONS}.JSONSchemaProps", schema)
    return [
        _message(f"{APIEXTENSIONS}.JSONSchemaProps", raw)
        for number, raw in wire_fields(data)
        if number == 2
    ]


def _schema_or_bool(data: bytes) -> Any:
    schema = _one(data, 2)
    return (
        bool(_one(data, 1, 0))
        if schema is None
        else _message(f"{APIEXTENSIONS}.JSONSchemaProps", schema)
    )


def _schema_or_names(data: bytes) -> Any:
    schema = _one(data, 1)
    if schema is not None:
        return _message(f"{APIEXTENSIONS}.JSONSchemaProps", schema)
    return [_text(raw) for number, raw in wire_fields(data) if number == 2]


_SPECIAL: dict[str, Callable[[bytes], Any]] = {
    f"{META}.Time": _time,
    f"{META}.MicroTime": _micro_time,
    f"{META}.FieldsV1": _raw_json,
    f"{META}.Verbs": _items,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda data: _text(_one(data, 1, b"0")),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_json,
    "io.k8s.api.authentication.v1.ExtraValue": _items,
    "io.k8s.api.authorization.v1.ExtraValue": _items,
    "io.k8s.api.certificates.v1.ExtraValue": _items,
    f"{APIEXTENSIONS}.JSON": _raw_json,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrArray": _schema_or_array,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrBool": _schema_or_bool,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrStringArray": _schema_or_names,
}


def decode_body(data: bytes) -> Object:
    """Decode the object in Kubernetes' protobuf envelope. Raises :class:`ProtobufError`."""
    if not data.startswith(MAGIC):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    version = ""
    kind = ""
    raw = b""
    for number, value in wire_fields(data[len(MAGIC) :]):
        if number == 1:
            version = _text(_one(value, 1, b""))
            kind = _text(_one(value, 2, b""))
        elif number == 2:
            raw = value
    obj: Object = {"apiVersion": version, "kind": kind}
    # Options of a deletion have the version of the resource's group.
    type_name = f"{META}.DeleteOptions" if kind == "DeleteOptions" else type_of(version, kind)
    if type_name is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{version}"')
    return obj | _message(type_name, raw)
