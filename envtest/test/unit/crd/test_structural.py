"""Rules of the schemas of CRDs; all messages are those of kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.crd.structural import field_at, schema_errors
from envtest.schema.schema_node import Schema

UNKNOWN = "must not have unknown fields"


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ({}, ["schema.default.apiVersion: Required value", "schema.default.kind: Required value"]),
        (
            {"a": 1, "kind": "A"},
            [
                f'schema.default: Invalid value: {{"a":1,"kind":"A"}}: {UNKNOWN}',
                "schema.default.apiVersion: Required value",
            ],
        ),
        ({"apiVersion": "v1", "kind": "A", "metadata": {"name": "A_"}}, []),
    ],
)
def test_default_of_the_root_is_a_whole_resource(default: Any, expected: list[str]) -> None:
    schema = {"type": "object", "default": default}
    assert [str(each) for each in schema_errors(schema, "schema", has_status=False)] == expected


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ({"$ref": "#/a"}, "$ref"),
        ({"type": "array", "items": {"$ref": "#/a"}}, "items.$ref"),
        ({"additionalProperties": {"$ref": "#/a"}}, "additionalProperties.$ref"),
        ({"anyOf": [{"definitions": {"a": {}}}]}, "anyOf[0].definitions"),
    ],
)
def test_unsupported_word_is_the_only_error_of_a_schema(node: dict[str, Any], path: str) -> None:
    schema = {"type": "object", "properties": {"spec": node}}
    (error,) = schema_errors(schema, "schema", has_status=False)
    word = path.rpartition(".")[2]
    expected = f"schema.properties[spec].{path}: Forbidden: {word} is not supported"
    assert str(error) == expected


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("spec.a", "expected [ or . but got: spec"),
        ("a[0]", "expected [ or . but got: a"),
        (" .spec", "expected [ or . but got:  "),
        (".", "unexpected end of JSON path"),
        (".spec..a", "does not refer to a valid field"),
    ],
)
def test_invalid_path_of_a_field(path: str, problem: str) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {}}}}}
    assert field_at(Schema(schema), path, arrays=False) == problem
