"""Conversion of schemas to OpenAPI v2, as the API server of CRDs converts them for kubectl."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.pages.openapi_v2 import swagger

KIND = {"x-kubernetes-group-version-kind": [{"group": "a.io", "version": "v1", "kind": "A"}]}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}


def convert(schema: dict[str, Any]) -> Any:
    return swagger({"a": schema}, {}, {})["definitions"]["a"]


def test_kind_with_unknown_fields_has_no_fields() -> None:
    fields = {"properties": {"metadata": {"type": "object"}}}
    assert convert({"type": "object", "description": "An A.", **PRESERVE, **fields, **KIND}) == {
        "type": "object",
        **KIND,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", **PRESERVE, "properties": {"x": {}}}, PRESERVE),
        ({"type": "array", **PRESERVE, "items": {"type": "string"}}, PRESERVE),
        ({"type": "string", **PRESERVE}, {"type": "string", **PRESERVE}),
        ({"type": "array"}, {}),
        (
            {"type": "object", "nullable": True, "properties": {"x": {}}, "description": "d"},
            {"description": "d"},
        ),
        (
            {
                "type": "object",
                "required": ["x", "y"],
                "properties": {"x": {"nullable": True}, "y": {}},
            },
            {"type": "object", "required": ["y"], "properties": {"x": {}, "y": {}}},
        ),
        (
            {
                "type": "object",
                "required": ["x"],
                "additionalProperties": {"type": "string", "nullable": True},
            },
            {"type": "object", "additionalProperties": {}},
        ),
    ],
)
def test_fields(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    kept = convert({"type": "object", "properties": {"a": schema}})
    assert kept == {"type": "object", "properties": {"a": expected}}
