"""Pruning and defaulting of custom resources by their schema."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.schema.schema_node import Schema
from envtest.schema.shaping import compile_defaulter, compile_pruner

STRING = {"type": "string"}


def object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def prune(schema: dict[str, Any], value: Any, *, root: bool = False) -> tuple[Any, list[str]]:
    removed: list[str] = []
    compile_pruner(Schema(schema), resource_root=root)(value, "", removed)
    return value, removed


def set_defaults(schema: dict[str, Any], value: Any, *, root: bool = False) -> Any:
    compile_defaulter(Schema(schema), resource_root=root)(value)
    return value


def test_unknown_fields_are_pruned_and_reported() -> None:
    schema = object_schema(
        spec=object_schema(a=STRING, list={"type": "array", "items": object_schema(b=STRING)})
    )
    value = {"spec": {"a": "x", "z": 1, "list": [{"b": "y"}, {"c": {"d": 1}}]}, "q": None}
    kept, removed = prune(schema, value)
    assert kept == {"spec": {"a": "x", "list": [{"b": "y"}, {}]}}
    assert sorted(removed) == ["q", "spec.list[1].c", "spec.z"]


def test_kind_and_metadata_are_kept_at_the_resource_root_only() -> None:
    value = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "status": {}}
    assert prune(object_schema(), dict(value), root=True)[0] == {
        name: value[name] for name in ("apiVersion", "kind", "metadata")
    }
    assert prune(object_schema(), dict(value))[0] == {}


def test_preserved_unknown_fields_are_kept_and_known_fields_pruned() -> None:
    schema = {
        **object_schema(known=object_schema(a=STRING)),
        "x-kubernetes-preserve-unknown-fields": True,
    }
    value, removed = prune(schema, {"free": {"x": 1}, "known": {"a": "1", "b": 2}})
    assert value == {"free": {"x": 1}, "known": {"a": "1"}}
    assert removed == ["known.b"]


def test_map_keys_are_not_pruned() -> None:
    schema = {"type": "object", "additionalProperties": object_schema(a=STRING)}
    value, removed = prune(schema, {"k.x": {"a": "1", "b": 2}})
    assert value == {"k.x": {"a": "1"}}
    assert len(removed) == 1
    assert removed[0].endswith(".b")


def test_embedded_resources_keep_kind_and_metadata() -> None:
    schema = object_schema(
        template={**object_schema(spec=object_schema()), "x-kubernetes-embedded-resource": True}
    )
    value = {
        "template": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"labels": {}},
            "spec": {"x": 1},
            "y": 2,
        }
    }
    kept, removed = prune(schema, value)
    assert kept == {
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {}}
    }
    assert sorted(removed) == ["template.spec.x", "template.y"]


def test_defaults_are_set_at_any_depth() -> None:
    inner = {
        **object_schema(a={**STRING, "default": "A"}, n={"type": "integer"}),
        "default": {"n": 1},
    }
    schema = object_schema(spec=object_schema(inner=inner, items={"type": "array", "items": inner}))
    assert set_defaults(schema, {}) == {}, "an object without its own default is not created"
    assert set_defaults(schema, {"spec": {}}) == {"spec": {"inner": {"n": 1, "a": "A"}}}
    assert set_defaults(schema, {"spec": {"inner": {"a": "own"}}}) == {
        "spec": {"inner": {"a": "own"}}
    }
    assert set_defaults(schema, {"spec": {"inner": {}, "items": [{}]}})["spec"]["items"] == [
        {"a": "A"}
    ]


def test_defaults_are_copied_for_each_object() -> None:
    schema = object_schema(
        labels={"type": "object", "additionalProperties": STRING, "default": {"a": "b"}}
    )
    first = set_defaults(schema, {})
    first["labels"]["a"] = "changed"
    assert set_defaults(schema, {}) == {"labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({**STRING, "default": "d"}, {"f": "d"}),
        ({**STRING, "default": "d", "nullable": True}, {"f": None}),
        ({**STRING, "nullable": True}, {"f": None}),
    ],
)
def test_null_is_replaced_by_the_default_unless_nullable(
    field: dict[str, Any], expected: Any
) -> None:
    assert set_defaults(object_schema(f=field), {"f": None}) == expected


def test_defaults_are_set_in_map_values() -> None:
    schema = {"type": "object", "additionalProperties": object_schema(a={**STRING, "default": "A"})}
    assert set_defaults(schema, {"one": {}, "two": {"a": "x"}}) == {
        "one": {"a": "A"},
        "two": {"a": "x"},
    }
