"""Pruning and defaulting of objects by their schema."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.schema.node import Schema
from envtest.schema.shaping import compile_defaulter, compile_pruner

TEXT = {"type": "string"}


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def pruned(schema: dict[str, Any], value: Any, *, root: bool = False) -> tuple[Any, list[str]]:
    gone: list[str] = []
    compile_pruner(Schema(schema), resource_root=root)(value, "", gone)
    return value, gone


def defaulted(schema: dict[str, Any], value: Any, *, root: bool = False) -> Any:
    compile_defaulter(Schema(schema), resource_root=root)(value)
    return value


def test_unknown_fields_go_and_are_named() -> None:
    schema = thing(spec=thing(a=TEXT, list={"type": "array", "items": thing(b=TEXT)}))
    value = {"spec": {"a": "x", "z": 1, "list": [{"b": "y"}, {"c": {"d": 1}}]}, "q": None}
    kept, gone = pruned(schema, value)
    assert kept == {"spec": {"a": "x", "list": [{"b": "y"}, {}]}}
    assert sorted(gone) == ["q", "spec.list[1].c", "spec.z"]


def test_kind_and_metadata_belong_to_resources_only() -> None:
    value = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "status": {}}
    assert pruned(thing(), dict(value), root=True)[0] == {
        name: value[name] for name in ("apiVersion", "kind", "metadata")
    }
    assert pruned(thing(), dict(value))[0] == {}


def test_what_is_to_be_preserved_stays_but_known_parts_are_pruned() -> None:
    schema = {**thing(known=thing(a=TEXT)), "x-kubernetes-preserve-unknown-fields": True}
    value, gone = pruned(schema, {"free": {"x": 1}, "known": {"a": "1", "b": 2}})
    assert value == {"free": {"x": 1}, "known": {"a": "1"}}
    assert gone == ["known.b"]


def test_keys_of_maps_are_no_fields() -> None:
    schema = {"type": "object", "additionalProperties": thing(a=TEXT)}
    value, gone = pruned(schema, {"k.x": {"a": "1", "b": 2}})
    assert value == {"k.x": {"a": "1"}}
    assert len(gone) == 1
    assert gone[0].endswith(".b")


def test_embedded_resources_keep_what_makes_a_resource() -> None:
    schema = thing(template={**thing(spec=thing()), "x-kubernetes-embedded-resource": True})
    value = {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {"x": 1}, "y": 2}}
    kept, gone = pruned(schema, value)
    assert kept == {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {}}}
    assert sorted(gone) == ["template.spec.x", "template.y"]


def test_defaults_fill_what_is_absent_at_any_depth() -> None:
    inner = {**thing(a={**TEXT, "default": "A"}, n={"type": "integer"}), "default": {"n": 1}}
    schema = thing(spec=thing(inner=inner, items={"type": "array", "items": inner}))
    assert defaulted(schema, {}) == {}, "without a default of its own, an object is not made"
    assert defaulted(schema, {"spec": {}}) == {"spec": {"inner": {"n": 1, "a": "A"}}}
    assert defaulted(schema, {"spec": {"inner": {"a": "own"}}}) == {"spec": {"inner": {"a": "own"}}}
    assert defaulted(schema, {"spec": {"inner": {}, "items": [{}]}})["spec"]["items"] == [{"a": "A"}]


def test_defaults_are_copied_for_each_object() -> None:
    schema = thing(labels={"type": "object", "additionalProperties": TEXT, "default": {"a": "b"}})
    first = defaulted(schema, {})
    first["labels"]["a"] = "changed"
    assert defaulted(schema, {}) == {"labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({**TEXT, "default": "d"}, {"f": "d"}),
        ({**TEXT, "default": "d", "nullable": True}, {"f": None}),
        ({**TEXT, "nullable": True}, {"f": None}),
    ],
)
def test_null_takes_the_default_unless_null_is_a_value(field: dict[str, Any], expected: Any) -> None:
    assert defaulted(thing(f=field), {"f": None}) == expected


def test_defaults_reach_into_maps() -> None:
    schema = {"type": "object", "additionalProperties": thing(a={**TEXT, "default": "A"})}
    assert defaulted(schema, {"one": {}, "two": {"a": "x"}}) == {"one": {"a": "A"}, "two": {"a": "x"}}
