"""Resources inside custom resources and inside the defaults of CRDs."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.crd.embedded_resources import embedded_resource_errors, embedded_resources
from envtest.crd.structural import schema_errors
from envtest.schema.schema_node import Schema

EMBEDDED = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "one": EMBEDDED,
        "list": {"type": "array", "items": EMBEDDED},
        "map": {"type": "object", "additionalProperties": EMBEDDED},
    },
}
TYPE = {"apiVersion": "a/v1", "kind": "Thing"}


def errors(value: Any) -> list[str]:
    return [
        str(error)
        for path, resource in embedded_resources(Schema(SCHEMA), value, "")
        for error in embedded_resource_errors(resource, path)
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        None,
        {
            "name": "x",
            "namespace": "kube-system",
            "generateName": "x-",
            "labels": {"a.b/c": "d"},
            "generation": 1,
        },
        {"generateName": ".", "finalizers": ["a", "orphan"], "annotations": {"a": "any text"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]},
    ],
)
def test_valid_metadata(metadata: Any) -> None:
    assert errors({"one": {**TYPE, "metadata": metadata}}) == []


def test_type_is_required_and_metadata_is_not() -> None:
    assert errors({"one": TYPE, "list": [{}], "map": {"a": {"kind": "Thing"}}}) == [
        "list[0].apiVersion: Required value",
        "list[0].kind: Required value",
        "map[a].apiVersion: Required value",
    ]


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (
            {"apiVersion": "a/b/c"},
            'one.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        ),
        ({"apiVersion": ""}, 'one.apiVersion: Invalid value: "": must not be empty'),
        ({"apiVersion": 1}, "one.apiVersion: Invalid value: 1: must be a string"),
        (
            {"kind": "a b"},
            'one.kind: Invalid value: "a b": may have mixed case, but should otherwise match: a DNS',
        ),
        (
            {"metadata": {"name": "a/b"}},
            "one.metadata.name: Invalid value: \"a/b\": may not contain '/'",
        ),
        ({"metadata": {"name": ".."}}, "one.metadata.name: Invalid value: \"..\": may not be '..'"),
        (
            {"metadata": {"generateName": "a%"}},
            "one.metadata.generateName: Invalid value: \"a%\": may not contain '%'",
        ),
        (
            {"metadata": {"labels": {"a b": "c"}}},
            'one.metadata.labels: Invalid value: "a b": name part must consist',
        ),
        (
            {"metadata": {"labels": {"a": "c d"}}},
            'one.metadata.labels: Invalid value: "c d": a valid label must be',
        ),
        (
            {"metadata": {"annotations": {"a b": "c"}}},
            'one.metadata.annotations: Invalid value: "a b": name part',
        ),
        (
            {"metadata": {"namespace": "A_"}},
            'one.metadata.namespace: Invalid value: "A_": a lowercase RFC 1123 label',
        ),
        (
            {"metadata": {"generation": -1}},
            "one.metadata.generation: Invalid value: -1: must be greater than or equal",
        ),
        (
            {"metadata": {"finalizers": ["a b"]}},
            'one.metadata.finalizers: Invalid value: "a b": name part must',
        ),
        ({"metadata": {"labels": ["a"]}}, "one.metadata: Invalid value: "),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}},
            'one.metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
    ],
)
def test_error_of_a_resource(resource: dict[str, Any], error: str) -> None:
    (text,) = errors({"one": {**TYPE, **resource}})
    assert text.startswith(error)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"name": "a/b"}, "metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        ({"labels": {"a": 1}}, "metadata: Invalid value: "),
    ],
)
def test_defaults_of_a_schema_are_validated(metadata: Any, error: str) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {**EMBEDDED, "default": {**TYPE, "metadata": metadata}}},
    }
    (text,) = (str(each) for each in schema_errors(schema, "schema", has_status=False))
    assert text.startswith(f"schema.properties[spec].default.{error}")
