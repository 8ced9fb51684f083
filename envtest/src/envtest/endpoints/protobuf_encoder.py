"""Encodes responses in Kubernetes' protobuf format, with the tables of :mod:`envtest.endpoints.protobuf`.

A field that is not in the JSON is not encoded: Go decodes it to the same empty value as the empty field that it would
encode itself.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import orjson

from envtest.apimachinery.errors import not_acceptable
from envtest.endpoints.protobuf import APIEXTENSIONS, MAGIC, META, fields_of, type_of

__all__ = ["encode_body", "encode_event"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MASK = (1 << 64) - 1


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & _MASK)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _moment(text: str) -> bytes:
    since = datetime.fromisoformat(text) - _EPOCH
    seconds = since // timedelta(seconds=1)
    nanoseconds = since.microseconds * 1000
    return _number(1, seconds) + _number(2, nanoseconds)


def _raw_json(value: Any) -> bytes:
    return _delimited(1, orjson.dumps(value))


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return _number(1, 1) + _number(2, 0) + _delimited(3, value.encode())
    return _number(1, 0) + _number(2, int(value)) + _delimited(3, b"")


def _items(value: Any) -> bytes:
    return b"".join(_delimited(1, item.encode()) for item in value)


def _json_schema(value: Any) -> bytes:
    return _message(f"{APIEXTENSIONS}.JSONSchemaProps", value)


def _schema_or_array(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(_delimited(2, _json_schema(item)) for item in value)
    return _delimited(1, _json_schema(value))


def _schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return _number(1, value)
    return _number(1, 1) + _delimited(2, _json_schema(value))


def _schema_or_names(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(_delimited(2, item.encode()) for item in value)
    return _delimited(1, _json_schema(value))


_SPECIAL: dict[str, Callable[[Any], bytes]] = {
    "s": lambda value: str(value).encode(),
    "b": base64.b64decode,
    f"{META}.Time": _moment,
    f"{META}.MicroTime": _moment,
    f"{META}.FieldsV1": _raw_json,
    f"{META}.Verbs": _items,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda value: _delimited(
        1, str(value).encode()
    ),
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


def _field(kind: str, number: int, value: Any) -> bytes:
    """Encode one value with its tag."""
    if kind in {"i", "z"}:
        return _number(number, int(value))
    if kind == "d":
        return _double(number, value)
    special = _SPECIAL.get(kind)
    content = _message(kind, value) if special is None else special(value)
    return _delimited(number, content)


class _Layout(NamedTuple):
    """The fields of a message: by JSON name, and those whose fields are inlined in JSON."""

    named: Mapping[str, tuple[int, str, str]]
    embedded: tuple[tuple[int, str], ...]


@cache
def _layout(kind: str) -> _Layout:
    fields = sorted(fields_of(kind).items())
    return _Layout(
        {
            name: (number, value_kind, container)
            for number, (name, value_kind, container) in fields
            if name
        },
        tuple((number, value_kind) for number, (name, value_kind, _) in fields if not name),
    )


def _message(kind: str, obj: Mapping[str, Any]) -> bytes:
    named, embedded = _layout(kind)
    parts: list[tuple[int, bytes]] = []
    for name, value in obj.items():
        field = named.get(name)
        if field is None or value is None:
            continue
        number, value_kind, container = field
        if container == "map":
            entries = (
                _delimited(number, _delimited(1, key.encode()) + _field(value_kind, 2, value[key]))
                for key in sorted(value)
            )
            parts.append((number, b"".join(entries)))
        elif container == "list":
            parts.append((number, b"".join(_field(value_kind, number, item) for item in value)))
        else:
            parts.append((number, _field(value_kind, number, value)))
    for number, value_kind in embedded:
        content = _message(value_kind, obj)
        if content:
            parts.append((number, _delimited(number, content)))
    parts.sort()
    return b"".join(content for _, content in parts)


def encode_body(document: Mapping[str, Any]) -> bytes:
    """Encode a document in Kubernetes' envelope, which contains its apiVersion and kind.

    Raises StatusError (406) if the kind has no message.
    """
    version = document.get("apiVersion", "")
    kind = document.get("kind", "")
    name = type_of(version, kind)
    if name is None:
        problem = "does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
        raise not_acceptable(f"object {kind} {problem}")
    identity = _delimited(1, version.encode()) + _delimited(2, kind.encode())
    return (
        MAGIC
        + _delimited(1, identity)
        + _delimited(2, _message(name, document))
        + _delimited(3, b"")
        + b"\x22\x00"
    )


def encode_event(kind: str, document: Mapping[str, Any]) -> bytes:
    """Encode a watch event, preceded by its length in four bytes."""
    event = _delimited(1, kind.encode()) + _delimited(2, _delimited(1, encode_body(document)))
    return struct.pack(">I", len(event)) + event
