"""The OpenAPI v2 form of the published types, as JSON and as the protobuf message that kubectl requests.

The message is ``openapi.v2.Document`` of the gnostic project, reduced to the parts that describe types. Field numbers
come from its ``OpenAPIv2.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from envtest.pages.openapi_custom import V2_PARAMETERS

__all__ = ["swagger", "swagger_protobuf"]

_V3 = "#/components/schemas/"
_V2 = "#/definitions/"
_UNSUPPORTED = frozenset({"allOf", "anyOf", "oneOf", "not", "default"})


def swagger(
    schemas: Mapping[str, Any], paths: Mapping[str, Any], info: Mapping[str, str]
) -> dict[str, Any]:
    """Convert v3 schemas and paths of built-in kinds to the v2 document."""
    return {
        "swagger": "2.0",
        "info": dict(info),
        "paths": {path: _path(item) for path, item in sorted(paths.items())},
        "definitions": {name: _schema(schema) for name, schema in sorted(schemas.items())},
        "parameters": V2_PARAMETERS,
        "securityDefinitions": {
            "BearerToken": {
                "description": "Bearer Token authentication",
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
            }
        },
        "security": [{"BearerToken": []}],
    }


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
    """Convert the v3 schema of a built-in type to v2, which has no alternatives and no defaults."""
    if not isinstance(raw, Mapping):
        return raw
    reference = raw.get("$ref") or next(
        (part["$ref"] for part in raw.get("allOf") or () if "$ref" in part), None
    )
    if reference:
        rest = {
            word: value
            for word, value in raw.items()
            if word.startswith("x-kubernetes-") or word == "description"
        }
        return {"$ref": reference.replace(_V3, _V2), **rest}
    out: dict[str, Any] = {}
    for word, value in raw.items():
        if word in _UNSUPPORTED:
            continue
        if word == "properties":
            out[word] = {name: _schema(inner) for name, inner in value.items()}
        elif word in ("items", "additionalProperties"):
            out[word] = _schema(value)
        else:
            out[word] = value
    if raw.get("format") == "int-or-string":
        out["type"] = "string"
    return out


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        low = number & 0x7F
        number >>= 7
        if not number:
            out.append(low)
            return bytes(out)
        out.append(low | 0x80)


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
