"""Typed values of server-side apply: validation, field sets, comparison, merge, removal."""

from typing import Any

import pytest

from envtest.apply.schema_types import Type
from envtest.apply.value_operations import (
    ABSENT,
    TypeMismatch,
    compare,
    field_set,
    merge,
    remove,
    validate,
)
from envtest.schema.schema_node import Schema

SCHEMA = {
    "type": "object",
    "properties": {
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "proto"],
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "integer"},
                    "proto": {"type": "string", "default": "TCP"},
                    "name": {"type": "string"},
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "frozen": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": {"type": "string"},
        },
        "size": {"type": "integer"},
        "on": {"type": "boolean"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "any": {"x-kubernetes-int-or-string": True},
    },
}
TYPE = Type(Schema(SCHEMA))


def changes(left: Any, right: Any) -> tuple[Any, Any, Any]:
    found = compare(TYPE, left, right)
    return found.removed.encode(), found.modified.encode(), found.added.encode()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"tags": ["a", "a"]}, '.tags: duplicate entries for key [="a"]'),
        (
            {"ports": [{"port": 1}, {"port": 1}]},
            '.ports: duplicate entries for key [port=1,proto="TCP"]',
        ),
        (
            {"ports": [None]},
            ".ports: element 0: associative list with keys may not have a null element",
        ),
        (
            {"ports": ["x"]},
            ".ports: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"tags": [{}]},
            ".tags: element 0: associative list without keys has an element that's a map type",
        ),
        ({"unknown": 1}, ".unknown: field not declared in schema"),
        (
            {"ports": [{"port": 1, "x": 1}]},
            '.ports[port=1,proto="TCP"].x: field not declared in schema',
        ),
        ({"size": "big"}, ".size: expected numeric (int or float), got string"),
        ({"size": True}, ".size: expected numeric (int or float), got bool"),
        ({"args": [1]}, ".args[0]: expected string, got &value.valueUnstructured{Value:1}"),
        ({"on": 1}, ".on: expected boolean, got &{1}"),
        ({"labels": ["a"]}, ".labels: expected map, got &{[a]}"),
        ({"args": {"a": "b"}}, ".args: expected list, got &{map[a:b]}"),
    ],
)
def test_validation_reports_violation(value: Any, message: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        validate(TYPE, value)
    assert str(caught.value) == message


def test_validation_reports_all_violations() -> None:
    with pytest.raises(TypeMismatch) as caught:
        validate(TYPE, {"size": "a", "on": "b"})
    assert str(caught.value).splitlines() == [
        "errors:",
        "  .size: expected numeric (int or float), got string",
        "  .on: expected boolean, got &{b}",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"size": None, "labels": None, "tags": None},
        {"free": {"a": [{"b": 1}]}},
        {"any": 5},
        {"any": "5%"},
        {"ports": [{"name": "only the default key"}]},
    ],
)
def test_validation_accepts_value(value: Any) -> None:
    validate(TYPE, value)


def test_typed_containers_contribute_leaves_and_items() -> None:
    found = field_set(
        TYPE,
        {"ports": [{"port": 80, "name": "w"}], "tags": ["a"], "labels": {"a": "b"}, "args": ["x"]},
    )
    assert found.encode() == {
        "f:args": {},
        "f:labels": {"f:a": {}},
        "f:ports": {'k:{"port":80,"proto":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}},
        "f:tags": {'v:"a"': {}},
    }


def test_free_form_containers_are_members() -> None:
    found = field_set(TYPE, {"free": {"a": {"b": 1}, "l": [{"x": 1}]}})
    assert found.encode() == {"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}}


def test_empty_and_null_containers_are_leaves() -> None:
    assert field_set(TYPE, {"labels": {}, "free": None, "tags": []}).encode() == {
        "f:free": {},
        "f:labels": {},
    }


def test_new_value_is_added_with_all_descendants() -> None:
    assert changes({}, {"labels": {"a": "b"}, "tags": ["x"]}) == (
        {},
        {},
        {"f:labels": {".": {}, "f:a": {}}, "f:tags": {".": {}, 'v:"x"': {}}},
    )


def test_missing_value_is_removed_with_all_descendants() -> None:
    assert changes({"labels": {"a": "b"}}, {}) == ({"f:labels": {".": {}, "f:a": {}}}, {}, {})


def test_atomic_values_are_modified_as_a_whole() -> None:
    left = {"args": ["a"], "frozen": {"a": "b"}}
    assert changes(left, {"args": ["a", "b"], "frozen": {"c": "d"}}) == (
        {},
        {"f:args": {}, "f:frozen": {}},
        {},
    )


def test_list_items_are_compared_by_key() -> None:
    left = {"ports": [{"port": 1, "name": "a"}, {"port": 2}]}
    right = {"ports": [{"port": 3}, {"port": 1, "proto": "TCP", "name": "b"}]}
    assert changes(left, right) == (
        {"f:ports": {'k:{"port":2,"proto":"TCP"}': {".": {}, "f:port": {}}}},
        {"f:ports": {'k:{"port":1,"proto":"TCP"}': {"f:name": {}}}},
        {
            "f:ports": {
                'k:{"port":1,"proto":"TCP"}': {"f:proto": {}},
                'k:{"port":3,"proto":"TCP"}': {".": {}, "f:port": {}},
            }
        },
    )


def test_duplicates_in_live_list_are_compared_as_one_item() -> None:
    one, item = {"tags": ["a"]}, {"f:tags": {'v:"a"': {}}}
    assert changes({"tags": ["a", "a"]}, one) == (item, {}, item)
    assert changes(one, {"tags": ["a", "a"]}) == (item, {}, item)
    assert changes({"tags": ["a", "a"]}, {"tags": ["a", "a"]}) == ({}, {}, {})


def test_whole_floats_equal_integers_but_booleans_do_not() -> None:
    assert changes({"free": {"a": 1}}, {"free": {"a": 1.0}}) == ({}, {}, {})
    assert changes({"free": {"a": 1}}, {"free": {"a": True}}) == ({}, {"f:free": {"f:a": {}}}, {})


def test_free_form_field_that_changes_type_is_modified() -> None:
    assert changes({"free": {"a": {"b": 1}}}, {"free": {"a": 5}}) == (
        {"f:free": {"f:a": {"f:b": {}}}},
        {"f:free": {"f:a": {}}},
        {},
    )


def test_merge_keeps_fields_that_are_not_in_the_configuration() -> None:
    live = {"labels": {"a": "1", "b": "2"}, "args": ["x"], "tags": ["t"], "size": 1}
    config = {"labels": {"b": "3", "c": "4"}, "args": ["y"], "tags": ["u"]}
    assert merge(TYPE, live, config) == {
        "labels": {"a": "1", "b": "3", "c": "4"},
        "args": ["y"],
        "tags": ["t", "u"],
        "size": 1,
    }


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        (["a", "b", "c"], ["c", "a"], ["b", "c", "a"]),
        (["a", "b"], ["b", "x"], ["a", "b", "x"]),
        (["a", "b", "c"], ["x", "b"], ["a", "x", "b", "c"]),
        ([], ["x"], ["x"]),
        (["a"], [], ["a"]),
    ],
)
def test_merged_items_keep_the_order_of_the_configuration(
    live: list[str], config: list[str], merged: list[str]
) -> None:
    assert merge(TYPE, {"tags": live}, {"tags": config}) == {"tags": merged}


def test_merged_null_replaces_leaves_but_not_containers() -> None:
    assert merge(TYPE, {"size": 1, "labels": {"a": "b"}}, {"size": None, "labels": None}) == {
        "size": None,
        "labels": {"a": "b"},
    }


def test_merge_with_absent_keeps_the_other_value() -> None:
    assert merge(TYPE, {"tags": ["a"]}, ABSENT) == {"tags": ["a"]}
    assert merge(TYPE.field("labels") or TYPE, ABSENT, {}) == {}


def test_remove_deletes_fields_and_items() -> None:
    value = {"ports": [{"port": 1, "name": "a"}, {"port": 2}], "labels": {"a": "b"}, "size": 1}
    removed = field_set(TYPE, {"ports": [{"port": 2}], "size": 1}) | field_set(
        TYPE, {"labels": {"a": "b"}}
    )
    assert remove(TYPE, value, removed) == {"ports": [{"port": 1, "name": "a"}], "labels": {}}


def test_operations_do_not_modify_arguments() -> None:
    live, config = {"labels": {"a": "1"}, "tags": ["x"]}, {"labels": {"b": "2"}, "tags": ["y"]}
    merge(TYPE, live, config)
    compare(TYPE, live, config)
    remove(TYPE, live, field_set(TYPE, live))
    assert live == {"labels": {"a": "1"}, "tags": ["x"]}
    assert config == {"labels": {"b": "2"}, "tags": ["y"]}
