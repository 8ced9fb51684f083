"""JSON merge patch, JSON Patch and strategic merge patch; duplicate keys in request bodies."""

import json
from typing import Any

import pytest

from envtest.apimachinery.errors import StatusError
from envtest.apply import json_patch, merge_patch, strategic_merge
from envtest.apply.json_text import Number, has_text, texts_of
from envtest.apply.strategic import UncomparableKeys
from envtest.builtins.catalog import schema_of
from envtest.formats.duplicate_keys import repeated_keys

POD = schema_of("io.k8s.api.core.v1.Pod")
META = schema_of("io.k8s.api.core.v1.ConfigMap")


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        ({"a": "text"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": [1]}, {"a": [None, {"b": None, "c": 1}]}, {"a": [None, {"c": 1}]}),
    ],
)
def test_merge_patch_result(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def test_merge_patch_does_not_modify_arguments() -> None:
    target, patch = {"a": {"b": 1}}, {"a": {"c": None, "d": 2}}
    merge_patch(target, patch)
    assert (target, patch) == ({"a": {"b": 1}}, {"a": {"c": None, "d": 2}})


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/a/x", "value": 1}], {"a": {"b": 1, "x": 1}, "l": [1, 2, 3]}),
        (
            [{"op": "replace", "path": "/a/nosuch", "value": 1}],
            {"a": {"b": 1, "nosuch": 1}, "l": [1, 2, 3]},
        ),
        ([{"op": "remove", "path": "/l/-1"}], {"a": {"b": 1}, "l": [1, 2]}),
        ([{"op": "add", "path": "/l/1", "value": 9}], {"a": {"b": 1}, "l": [1, 9, 2, 3]}),
        ([{"op": "add", "path": "/l/-", "value": 9}], {"a": {"b": 1}, "l": [1, 2, 3, 9]}),
        ([{"op": "replace", "path": "/l/0", "value": 9}], {"a": {"b": 1}, "l": [9, 2, 3]}),
        ([{"op": "move", "from": "/a/b", "path": "/m"}], {"a": {}, "l": [1, 2, 3], "m": 1}),
        (
            [{"op": "copy", "from": "/a", "path": "/c"}],
            {"a": {"b": 1}, "l": [1, 2, 3], "c": {"b": 1}},
        ),
        ([{"op": "test", "path": "/nosuch", "value": None}], {"a": {"b": 1}, "l": [1, 2, 3]}),
        ([{"op": "test", "path": "/a", "value": {"b": 1}}], {"a": {"b": 1}, "l": [1, 2, 3]}),
        ([{"op": "add", "path": "lost/x", "value": 1}], {"a": {"b": 1}, "l": [1, 2, 3], "x": 1}),
        (
            [{"op": "add", "path": "/a~1b~0c", "value": 1}],
            {"a": {"b": 1}, "l": [1, 2, 3], "a/b~c": 1},
        ),
    ],
)
def test_json_patch_result(operations: list[Any], result: Any) -> None:
    target = {"a": {"b": 1}, "l": [1, 2, 3]}
    assert json_patch(target, operations) == result
    assert target == {"a": {"b": 1}, "l": [1, 2, 3]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/b", "value": 2},
        {"op": "test", "path": "/a/b", "value": True},
        {"op": "remove", "path": "/nosuch"},
        {"op": "add", "path": "/x/y/z", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "replace", "path": "/l/3", "value": 1},
        {"op": "remove", "path": "/l/x"},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "move", "from": "/nosuch", "path": "/a"},
        {"op": "frobnicate", "path": "/a"},
        {"op": "add", "path": "nosegments", "value": 1},
        {"op": "add", "value": 1},
        {"path": "/a"},
        "text",
    ],
)
def test_json_patch_that_does_not_apply_is_rejected(operation: Any) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({"a": {"b": 1}, "l": [1, 2, 3]}, [operation])
    assert (caught.value.code, caught.value.details) == (422, {})
    assert caught.value.message == "the server rejected our request due to an error in our request"


def test_json_patch_with_too_many_operations_is_rejected() -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert caught.value.code == 413


def containers(*names: str) -> Any:
    return {"spec": {"containers": [{"name": name, "image": f"i-{name}"} for name in names]}}


def names(pod: Any) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"]]


def test_lists_are_merged_by_merge_key() -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "new"}]}}
    merged = strategic_merge(POD, containers("a", "b"), patch)
    assert merged["spec"]["containers"] == [
        {"name": "a", "image": "i-a"},
        {"name": "b", "image": "new"},
    ]


def test_new_items_are_prepended() -> None:
    assert names(
        strategic_merge(POD, containers("a"), {"spec": {"containers": [{"name": "b"}]}})
    ) == ["b", "a"]


def test_delete_directive_removes_item() -> None:
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    assert names(strategic_merge(POD, containers("a", "b"), patch)) == ["b"]


def test_replace_directive_replaces_list() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "only"}]}}
    assert strategic_merge(POD, containers("a", "b"), patch)["spec"]["containers"] == [
        {"name": "only"}
    ]


def test_order_directive_sorts_merged_list() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}],
        }
    }
    assert names(strategic_merge(POD, containers("a", "b", "c"), patch)) == ["b", "c", "a"]


def test_order_directive_without_items_sorts_list() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert names(strategic_merge(POD, containers("a", "b"), patch)) == ["b", "a"]


def test_lists_without_patch_strategy_are_replaced() -> None:
    live = {"spec": {"tolerations": [{"key": "a"}]}}
    assert strategic_merge(POD, live, {"spec": {"tolerations": [{"key": "b"}]}}) == {
        "spec": {"tolerations": [{"key": "b"}]}
    }


def test_lists_of_scalars_are_merged_as_sets() -> None:
    live = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_merge(META, live, {"metadata": {"finalizers": ["c", "a"]}})["metadata"][
        "finalizers"
    ] == [
        "c",
        "a",
        "b",
    ]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(META, live, patch)["metadata"]["finalizers"] == ["b"]


def test_maps_are_merged_replaced_and_emptied() -> None:
    live = {"data": {"a": "1", "b": "2"}}
    assert strategic_merge(META, live, {"data": {"a": None, "c": "3"}}) == {
        "data": {"b": "2", "c": "3"}
    }
    assert strategic_merge(META, live, {"data": {"$patch": "replace", "x": "y"}}) == {
        "data": {"x": "y"}
    }
    assert strategic_merge(META, live, {"data": {"$patch": "delete"}}) == {"data": {}}


def test_retain_keys_removes_other_keys() -> None:
    live = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {
        "spec": {
            "volumes": [
                {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}
            ]
        }
    }
    assert strategic_merge(POD, live, patch) == {
        "spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}
    }


def test_directives_for_missing_values_are_ignored() -> None:
    patch = {"spec": {"volumes": [{"name": "gone", "$patch": "delete"}, {"name": "v"}]}}
    assert strategic_merge(POD, {"spec": {}}, patch) == {"spec": {"volumes": [{"name": "v"}]}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"data": {"$patch": "nonsense"}},
            500,
            "unknown patch type: nonsense in map: map[$patch:nonsense]",
        ),
        ({"$retainKeys": "x"}, 400, "invalid patch format of retainKeys"),
        ({"$retainKeys": ["data"], "immutable": True}, 400, "invalid patch format of retainKeys"),
        (
            {"metadata": {"$setElementOrder/finalizers": "x"}},
            500,
            "expected a []interface {}, but received a string",
        ),
    ],
)
def test_malformed_directives_are_rejected(patch: Any, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_merge(META, {"data": {"a": "b"}, "metadata": {"finalizers": ["a"]}}, patch)
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize("name", [{}, ["x"]])
def test_merge_keys_that_go_cannot_compare_end_the_connection(name: Any) -> None:
    """Go compares the key with itself when it sorts the list; keys of different types just differ."""
    with pytest.raises(UncomparableKeys):
        strategic_merge(POD, containers("a"), {"spec": {"containers": [{"name": name}]}})
    assert strategic_merge(POD, {}, {"spec": {"containers": [{"name": name}]}})


def test_missing_merge_key_is_an_error() -> None:
    with pytest.raises(StatusError) as caught:
        strategic_merge(POD, containers("a"), {"spec": {"containers": [{"image": "noname"}]}})
    assert caught.value.code == 500
    assert (
        caught.value.message == "map: map[image:noname] does not contain declared merge key: name"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"a: 1\nb: 2\n", []),
        (b"a: 1\na: 2\n", ['line 2: key "a" already set in map']),
        (
            b"a:\n  b: 1\na:\n  b: 2\n  b: 3\n",
            ['line 5: key "b" already set in map', 'line 4: key "a" already set in map'],
        ),
        (b"- 1: x\n  1: y\n", ["line 2: key 1 already set in map"]),
        (b'{"a": 1, "a": 2}', ['line 1: key "a" already set in map']),
        (b"", []),
    ],
)
def test_duplicate_keys_are_reported(text: bytes, lines: list[str]) -> None:
    assert repeated_keys(text) == lines


@pytest.mark.parametrize(
    ("text", "is_equal"),
    [
        ('{"i":1,"f":2.5,"s":"\\u003ca\\u003e é \\"","l":[true,null]}', True),
        ('{"l":[true,null],"s":"\\u003ca\\u003e é \\"","f":2.5,"i":1}', True),
        ('{"i":1.0,"f":2.5,"s":"\\u003ca\\u003e é \\"","l":[true,null]}', False),
        ('{"i":1,"f":2.50,"s":"\\u003ca\\u003e é \\"","l":[true,null]}', False),
        ('{"i":1,"f":2.5,"s":"<a> é \\"","l":[true,null]}', False),
        ('{"i":1,"f":2.5,"s":"\\u003ca\\u003e \\u00e9 \\"","l":[true,null]}', False),
        ('{"i":1,"f":2.5,"s":"\\u003ca\\u003e é \\"","l":[1,null]}', False),
    ],
)
def test_json_patch_compares_the_texts_of_tested_values(text: str, is_equal: bool) -> None:
    target = {"i": 1, "f": 2.5, "s": '<a> é "', "l": [True, None]}
    data = f'[{{"op":"test","path":"","value":{text}}}]'.encode()
    operations = json.loads(data)
    if is_equal:
        assert json_patch(target, operations, texts_of(data)) == target
    else:
        with pytest.raises(StatusError):
            json_patch(target, operations, texts_of(data))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e18, "1000000000000000000"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (2e-05, "0.00002"),
        (-1, "-1"),
    ],
)
def test_numbers_are_written_as_in_go(value: float, text: str) -> None:
    assert has_text(value, Number(text))
