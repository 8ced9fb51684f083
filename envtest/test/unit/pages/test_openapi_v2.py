"""Conversion of the schemas of built-in types to OpenAPI v2."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.pages.openapi_v2 import swagger


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "default": 0}, {"type": "integer"}),
        (
            {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
            {"type": "string", "format": "int-or-string"},
        ),
        (
            {"allOf": [{"$ref": "#/components/schemas/b"}], "default": {}, "description": "d"},
            {"$ref": "#/definitions/b", "description": "d"},
        ),
        (
            {"type": "array", "items": {"$ref": "#/components/schemas/b"}},
            {"type": "array", "items": {"$ref": "#/definitions/b"}},
        ),
    ],
)
def test_fields(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    converted = swagger({"a": {"properties": {"default": schema}}}, {}, {})
    assert converted["definitions"]["a"] == {"properties": {"default": expected}}
