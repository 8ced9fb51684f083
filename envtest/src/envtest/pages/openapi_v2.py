"""The OpenAPI v2 form of the published types, as JSON and as the protobuf message that kubectl requests.

The message is ``openapi.v2.Document`` of the gnostic project, reduced to the parts that describe types. Field numbers
come from its ``OpenAPIv2.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

__all__ = ["swagger", "swagger_protobuf"]

_V3, _V2 = "#/components/schemas/", "#/definitions/"
_UNSUPPORTED = frozenset({"anyOf", "oneOf", "not", "nullable", "x-kubernetes-validations"})


def swagger(
    schemas: Mapping[str, Any], paths: Mapping[str, Any], info: Mapping[str, str]
) -> dict[str, Any]:
    """Convert v3 schemas and paths to the v2 document."""
    return {
        "swagger": "2.0",
        "info": dict(info),
        "paths": {path: _path(item) for path, item in sorted(paths.items())},
        "definitions": {name: _definition(schema) for name, schema in sorted(schemas.items())},
    }


def _definition(raw: Mapping[str, Any]) -> Any:
    """Convert the schema of a type; a kind with unknown fields has none: kubectl would reject the others."""
    if raw.get("x-kubernetes-preserve-unknown-fields") and _KIND in raw:
        return {
            "type": "object",
            **{word: raw[word] for word in (_KIND, _SELECTABLE) if word in raw},
        }
    return _schema(raw)


_KIND, _SELECTABLE = "x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields"


def _path(item: Mapping[str, Any]) -> dict[str, Any]:
    operations = {}
    for method, operation in item.items():
        parameters = [
            {"name": each["name"], "in": "query", "type": "string", "uniqueItems": True}
            for each in operation["parameters"]
        ]
        rest = {word: value for word, value in operation.items() if word != "requestBody"}
        operations[method] = {**rest, "parameters": parameters}
    return operations


def _schema(raw: Any) -> Any:
    """Convert a v3 schema to v2, which has no alternatives and no null."""
    if not isinstance(raw, Mapping):
        return raw
    reference = raw.get("$ref") or next(
        (part["$ref"] for part in raw.get("allOf") or () if "$ref" in part), None
    )
    if reference:
        rest = {
            word: value
            for word, value in raw.items()
            if word.startswith("x-kubernetes-") and word not in _UNSUPPORTED
        }
        return {"$ref": reference.replace(_V3, _V2), **rest}
    out: dict[str, Any] = {}
    dropped = {*_UNSUPPORTED, "allOf"}
    if raw.get("x-kubernetes-preserve-unknown-fields") or raw.get("nullable"):
        dropped |= {"properties", "items", "default"}
    if _is_untyped(raw, has_items="items" in raw and "items" not in dropped):
        dropped.add("type")
    required = _required(raw) if "required" in raw and "properties" not in dropped else None
    if required is not None and not required:
        dropped.add("required")
    for word, value in raw.items():
        if word in dropped:
            continue
        if word == "properties":
            out[word] = {name: _schema(inner) for name, inner in value.items()}
        elif word in ("items", "additionalProperties"):
            out[word] = _schema(value)
        else:
            out[word] = required if word == "required" and required is not None else value
    if raw.get("format") == "int-or-string" or raw.get("x-kubernetes-int-or-string"):
        out["type"] = "string"
        out["format"] = "int-or-string"
    return out


def _is_untyped(raw: Mapping[str, Any], *, has_items: bool) -> bool:
    """Return whether kubectl could not handle the type: of nulls, unknown objects and lists of unknown items."""
    if raw.get("nullable"):
        return True
    if raw.get("type") == "array":
        return not has_items
    return bool(raw.get("x-kubernetes-preserve-unknown-fields")) and raw.get("type") == "object"


def _required(raw: Mapping[str, Any]) -> list[str]:
    """Return the required fields that cannot be null."""
    values = raw.get("additionalProperties")
    if isinstance(values, Mapping) and values.get("nullable"):
        return []
    fields = raw.get("properties") or {}
    return [name for name in raw["required"] if not (fields.get(name) or {}).get("nullable")]


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode())


def _any(value: Any) -> bytes:
    return _text(2, orjson.dumps(value).decode() + "\n")


def _named(number: int, entries: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join(
        _bytes(number, _text(1, name) + _bytes(2, content)) for name, content in entries
    )


def swagger_protobuf(document: Mapping[str, Any]) -> bytes:
    """Encode a v2 document as the protobuf message, without its paths."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    definitions = _named(
        1, ((name, _message(schema)) for name, schema in document["definitions"].items())
    )
    return _text(1, document["swagger"]) + _bytes(2, info) + _bytes(8, b"") + _bytes(9, definitions)


def _message(raw: Mapping[str, Any]) -> bytes:
    parts = []
    for number, word in (
        (1, "$ref"),
        (2, "format"),
        (3, "title"),
        (4, "description"),
        (13, "pattern"),
    ):
        if isinstance(raw.get(word), str):
            parts.append(_text(number, raw[word]))
    if "default" in raw:
        parts.append(_bytes(5, _any(raw["default"])))
    parts += [_text(19, name) for name in raw.get("required") or ()]
    parts += [_bytes(20, _any(value)) for value in raw.get("enum") or ()]
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        parts.append(_bytes(21, _bytes(1, _message(additional))))
    elif isinstance(additional, bool):
        parts.append(_bytes(21, _varint(2 << 3) + _varint(int(additional))))
    if raw.get("type"):
        parts.append(_bytes(22, _text(1, raw["type"])))
    if isinstance(raw.get("items"), Mapping):
        parts.append(_bytes(23, _bytes(1, _message(raw["items"]))))
    properties = raw.get("properties")
    if properties:
        parts.append(
            _bytes(25, _named(1, ((name, _message(inner)) for name, inner in properties.items())))
        )
    extensions = ((word, _any(value)) for word, value in raw.items() if word.startswith("x-"))
    parts.append(_named(31, extensions))
    return b"".join(parts)
