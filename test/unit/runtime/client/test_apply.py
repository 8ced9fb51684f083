"""Detection of applies without effect: desired fields are compared with managed fields and the stored object."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cfo.runtime.client import apply
from cfo.runtime.client.apply import ApplyIntent, UnchangedApplies, is_applied
from test.support.apply_recordings import Step, apply_steps

MANAGER = "me"


def entry(fields: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    return {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **overrides,
    }


def obj(content: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": "a", **metadata},
        **(content or {}),
    }


def applied(desired: dict[str, Any], current: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Return whether ``desired`` is applied to ``current`` if this manager owns ``fields``."""
    return is_applied(
        ApplyIntent(obj(desired), MANAGER),
        obj(current, uid="u", resourceVersion="1"),
        [entry(fields)],
    )


SCALARS = {"f:data": {"f:k": {}, "f:n": {}}}


def test_equal_values_of_exactly_the_owned_fields_are_applied() -> None:
    assert applied(
        {"data": {"k": "v", "n": 1}}, {"data": {"k": "v", "n": 1, "theirs": 2}, "more": 3}, SCALARS
    )


@pytest.mark.parametrize(
    "desired",
    [
        pytest.param({"k": "v"}, id="owned field removed"),
        pytest.param({"k": "v", "n": 1, "theirs": 2}, id="unowned field added"),
        pytest.param({"k": "w", "n": 1}, id="different value"),
        pytest.param({"k": "v", "n": True}, id="boolean instead of number"),
        pytest.param({"k": "v", "n": "1"}, id="string instead of number"),
        pytest.param({"k": "v", "n": None}, id="null instead of number"),
        pytest.param({}, id="no fields"),
        pytest.param([], id="list instead of map"),
    ],
)
def test_any_difference_of_fields_is_not_applied(desired: Any) -> None:
    assert not applied({"data": desired}, {"data": {"k": "v", "n": 1, "theirs": 2}}, SCALARS)


def test_booleans_and_numbers_differ_inside_a_leaf() -> None:
    content = {"deep": [{"a": 1, "b": [True, 2.0]}]}
    assert applied({"x": content}, {"x": {"deep": [{"b": [True, 2], "a": 1.0}]}}, {"f:x": {}})
    assert not applied({"x": content}, {"x": {"deep": [{"a": True, "b": [True, 2]}]}}, {"f:x": {}})
    assert not applied({"x": content}, {"x": {"deep": [{"a": 1, "b": [1, 2]}]}}, {"f:x": {}})


def test_integer_and_float_of_equal_value_are_equal() -> None:
    assert applied({"data": {"k": "v", "n": 1.0}}, {"data": {"k": "v", "n": 1}}, SCALARS)


def test_owned_field_missing_in_the_object_is_not_applied() -> None:
    assert not applied({"data": {"k": "v", "n": 1}}, {"data": {"k": "v"}}, SCALARS)
    assert not applied({"data": {"k": "v", "n": 1}}, {}, SCALARS)


@pytest.mark.parametrize(
    "managers",
    [
        [],
        [entry(SCALARS, manager="another")],
        [entry(SCALARS, operation="Update")],
        [entry(SCALARS, apiVersion="v2")],
        [entry(SCALARS, subresource="status")],
        [entry(SCALARS), entry(SCALARS)],
    ],
)
def test_other_or_duplicate_managed_fields_entries_are_not_applied(
    managers: list[dict[str, Any]],
) -> None:
    desired = obj({"data": {"k": "v", "n": 1}})
    assert not is_applied(ApplyIntent(desired, MANAGER), desired, managers)


def test_apply_without_fields_requires_no_entry() -> None:
    assert is_applied(ApplyIntent(obj(), MANAGER), obj({"data": {"theirs": 1}}), [])
    assert not is_applied(
        ApplyIntent(obj(), MANAGER), obj({"data": {"k": "v", "n": 1}}), [entry(SCALARS)]
    )


def test_entries_of_others_are_ignored() -> None:
    desired = obj({"data": {"k": "v", "n": 1}})
    others = [
        entry(SCALARS, manager="another"),
        entry(SCALARS, operation="Update"),
        entry({}, subresource="status"),
    ]
    assert is_applied(ApplyIntent(desired, MANAGER), desired, [*others, entry(SCALARS)])


def test_subresource_has_its_own_entry() -> None:
    desired = obj({"status": {"state": "ready"}})
    managers = [entry({"f:status": {"f:state": {}}}, subresource="status"), entry(SCALARS)]
    assert is_applied(ApplyIntent(desired, MANAGER, "status"), desired, managers)
    assert not is_applied(ApplyIntent(desired, MANAGER), desired, managers)


def test_metadata_that_no_manager_can_own_is_ignored() -> None:
    current = obj(
        {"data": {"k": "v", "n": 1}}, namespace="ns", uid="u", resourceVersion="7", generation=3
    )
    desired = obj(
        {"data": {"k": "v", "n": 1}},
        namespace="ns",
        uid="u",
        resourceVersion="7",
        creationTimestamp=None,
    )
    assert is_applied(ApplyIntent(desired, MANAGER), current, [entry(SCALARS)])


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "6"}])
def test_failed_preconditions_are_left_to_the_server(precondition: dict[str, str]) -> None:
    current = obj({"data": {"k": "v", "n": 1}}, uid="u", resourceVersion="7")
    assert not is_applied(
        ApplyIntent(obj({"data": {"k": "v", "n": 1}}, **precondition), MANAGER),
        current,
        [entry(SCALARS)],
    )


def test_object_of_another_kind_is_not_applied() -> None:
    desired = obj({"data": {"k": "v", "n": 1}})
    assert not is_applied(
        ApplyIntent(desired, MANAGER), {**desired, "kind": "Other"}, [entry(SCALARS)]
    )


def test_labels_owner_references_and_finalizers_are_compared() -> None:
    owner = {"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "1", "controller": True}
    fields = {
        "f:metadata": {
            "f:labels": {"f:example.com/a.b": {}},
            "f:ownerReferences": {'k:{"uid":"1"}': {}},
            "f:finalizers": {'v:"example.com/f"': {}},
        }
    }
    ours = {
        "labels": {"example.com/a.b": "x"},
        "ownerReferences": [owner],
        "finalizers": ["example.com/f"],
    }
    theirs = {
        "labels": {"example.com/a.b": "x", "other": "y"},
        "ownerReferences": [{**owner, "uid": "2"}, owner],
        "finalizers": ["another", "example.com/f"],
    }
    assert is_applied(ApplyIntent(obj(**ours), MANAGER), obj(**theirs), [entry(fields)])
    changed = {**theirs, "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    assert not is_applied(ApplyIntent(obj(**ours), MANAGER), obj(**changed), [entry(fields)])
    removed = {**theirs, "finalizers": ["another"]}
    assert not is_applied(ApplyIntent(obj(**ours), MANAGER), obj(**removed), [entry(fields)])


RULES = [
    {
        "host": "h",
        "http": {
            "paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s"}}}]
        },
    }
]


def test_leaf_owns_its_whole_subtree() -> None:
    fields = {"f:spec": {"f:rules": {}}}
    assert applied(
        {"spec": {"rules": RULES}}, {"spec": {"rules": RULES, "ingressClassName": "x"}}, fields
    )
    longer = [*RULES, {"host": "theirs"}]
    assert not applied({"spec": {"rules": RULES}}, {"spec": {"rules": longer}}, fields)
    assert not applied({"spec": {"rules": longer}}, {"spec": {"rules": longer[::-1]}}, fields)


def test_defaults_inside_an_atomic_list_must_be_explicit() -> None:
    fields = {"f:spec": {"f:ingress": {}}}
    stored = {"spec": {"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}
    assert not applied({"spec": {"ingress": [{"ports": [{"port": 80}]}]}}, stored, fields)
    assert applied(
        {"spec": {"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}, stored, fields
    )


def test_atomic_map_must_be_equal() -> None:
    fields = {"f:spec": {"f:selector": {}}}
    assert applied({"spec": {"selector": {"a": "b"}}}, {"spec": {"selector": {"a": "b"}}}, fields)
    assert not applied(
        {"spec": {"selector": {"a": "b"}}}, {"spec": {"selector": {"a": "b", "c": "d"}}}, fields
    )


@pytest.mark.parametrize("empty", [{}, []])
def test_empty_container_may_be_omitted_by_the_server(empty: Any) -> None:
    assert applied({"x": empty}, {}, {"f:x": {}})
    assert applied({"x": empty}, {"x": empty}, {"f:x": {}})
    assert not applied({"x": empty}, {"x": ["theirs"]}, {"f:x": {}})
    assert not applied({"x": empty}, {"x": 0}, {"f:x": {}})


def test_entry_for_a_container_includes_the_container_itself() -> None:
    fields = {"f:spec": {".": {}, "f:deep": {".": {}, "f:a": {}}, "f:list": {}}}
    content = {"spec": {"deep": {"a": 1}, "list": [{"name": "x"}]}}
    assert applied(content, content, fields)
    assert not applied({"spec": {"deep": {}, "list": [{"name": "x"}]}}, content, fields)


PORT = {".": {}, "f:port": {}, "f:name": {}}
PORTS = {"f:ports": {'k:{"port":80}': PORT, 'k:{"port":81}': PORT}}


def test_owned_elements_of_a_list_map_are_compared() -> None:
    ours = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    theirs = {"port": 82, "name": "theirs"}
    assert applied({"ports": ours}, {"ports": [theirs, ours[0], {**ours[1], "more": 1}]}, PORTS)


@pytest.mark.parametrize(
    "current",
    [
        pytest.param([{"port": 81, "name": "b"}, {"port": 80, "name": "a"}], id="different order"),
        pytest.param([{"port": 80, "name": "a"}], id="element missing"),
        pytest.param([{"port": 80, "name": "a"}, {"port": 81, "name": "c"}], id="different value"),
        pytest.param(
            [{"port": "80", "name": "a"}, {"port": 81, "name": "b"}], id="key of different type"
        ),
        pytest.param({"port": 80}, id="map instead of list"),
    ],
)
def test_difference_in_stored_elements_is_not_applied(current: Any) -> None:
    assert not applied(
        {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}, {"ports": current}, PORTS
    )


@pytest.mark.parametrize(
    "desired",
    [
        pytest.param([{"port": 80, "name": "a"}], id="element removed"),
        pytest.param([{"port": 80, "name": "a"}, {"port": 82, "name": "b"}], id="element added"),
        pytest.param([{"port": 80, "name": "a"}, {"port": 81}], id="field removed"),
        pytest.param([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}], id="duplicate key"),
        pytest.param([{"port": 80, "name": "a"}, 81], id="number instead of map"),
    ],
)
def test_difference_in_desired_elements_is_not_applied(desired: Any) -> None:
    current = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    assert not applied({"ports": desired}, {"ports": current}, PORTS)


def test_key_field_of_a_list_map_may_be_omitted_if_it_has_its_default() -> None:
    fields = {
        "f:ports": {
            'k:{"port":53,"protocol":"TCP"}': {".": {}, "f:port": {}},
            'k:{"port":53,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}},
        }
    }
    stored = [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    assert applied(
        {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}, {"ports": stored}, fields
    )
    assert not applied({"ports": stored}, {"ports": stored}, fields)
    assert not applied({"ports": [{"port": 53}, {"port": 53}]}, {"ports": stored}, fields)
    assert not applied(
        {"ports": [{"port": 53}, {"port": 54, "protocol": "UDP"}]}, {"ports": stored}, fields
    )


def test_keys_of_different_fields_are_left_to_the_server() -> None:
    fields = {
        "f:ports": {'k:{"port":1}': {"f:port": {}}, 'k:{"port":2,"protocol":"UDP"}': {"f:port": {}}}
    }
    desired = {"ports": [{"port": 1}, {"port": 2, "protocol": "UDP"}]}
    assert not applied(desired, desired, fields)


@pytest.mark.parametrize("omitted", [False, True])
def test_long_list_maps_are_compared_in_linear_time(
    monkeypatch: pytest.MonkeyPatch, *, omitted: bool
) -> None:
    calls = Counter[str]()

    def count(name: str) -> None:
        original = getattr(apply, name)

        def counted(*arguments: Any) -> Any:
            calls[name] += 1
            return original(*arguments)

        monkeypatch.setattr(apply, name, counted)

    for name in ("_equal", "_hashable", "_matches"):
        count(name)
    number = 1000
    current = [{"port": port, "protocol": "TCP"} for port in range(number)]
    fields = {f'k:{{"port":{port},"protocol":"TCP"}}': {"f:port": {}} for port in range(number)}
    desired = [
        {"port": port} if omitted else {"port": port, "protocol": "TCP"} for port in range(number)
    ]
    owned = fields if omitted else {key: {"f:port": {}, "f:protocol": {}} for key in fields}
    assert applied({"ports": desired}, {"ports": current}, {"f:ports": owned})
    assert 0 < calls.total() < 20 * number


def test_keys_of_a_list_map_are_compared_with_their_types() -> None:
    fields = {
        "f:items": {'k:{"flag":true,"n":1,"s":"x"}': {".": {}, "f:flag": {}, "f:n": {}, "f:s": {}}}
    }
    item = {"flag": True, "n": 1, "s": "x"}
    assert applied({"items": [item]}, {"items": [{**item, "flag": 1}, item]}, fields)
    assert not applied({"items": [item]}, {"items": [{**item, "flag": 1}]}, fields)


def test_owned_elements_of_a_set_are_compared() -> None:
    fields = {"f:tags": {'v:"b"': {}, 'v:"c"': {}}}
    assert applied({"tags": ["b", "c"]}, {"tags": ["a", "b", "c"]}, fields)
    assert not applied({"tags": ["c", "b"]}, {"tags": ["a", "b", "c"]}, fields)
    assert not applied({"tags": ["b"]}, {"tags": ["a", "b", "c"]}, fields)
    assert not applied({"tags": ["b", "d"]}, {"tags": ["a", "b", "d"]}, fields)
    assert not applied({"tags": ["b", "b"]}, {"tags": ["b", "c"]}, fields)
    assert not applied({"tags": ["b", "c"]}, {"tags": ["b"]}, fields)


def test_numbers_in_sets_are_compared_with_their_types() -> None:
    assert applied({"n": [1, 2]}, {"n": [1, 2]}, {"f:n": {"v:1": {}, "v:2": {}}})
    assert not applied({"n": [True, 2]}, {"n": [True, 2]}, {"f:n": {"v:1": {}, "v:2": {}}})


def test_unsupported_path_elements_are_left_to_the_server() -> None:
    assert not applied({"x": ["a"]}, {"x": ["a"]}, {"f:x": {"i:0": {}}})
    assert not applied({"x": {"a": 1}}, {"x": {"a": 1}}, {"f:x": {"v:1": {}}})


def test_unchanged_apply_is_remembered() -> None:
    current = obj({"spec": {"x": 1}, "status": {"n": 1}}, uid="u", resourceVersion="1")
    managers = [entry({"f:spec": {}})]
    apply = ApplyIntent(obj({"spec": {}}), MANAGER)
    memory = UnchangedApplies()
    assert not memory.contains(apply, current, managers)
    memory.remember(apply, current, managers)
    assert memory.contains(apply, current, managers)
    status_changed = {
        **current,
        "status": {"n": 2},
        "metadata": {**current["metadata"], "resourceVersion": "2"},
    }
    assert memory.contains(
        apply, status_changed, [entry({"f:spec": {}}, time="2027-01-01T00:00:00Z")]
    )
    assert not memory.contains(apply, {**current, "spec": {"x": 2}}, managers)
    assert not memory.contains(
        apply, {**current, "metadata": {**current["metadata"], "labels": {"a": "b"}}}, managers
    )
    assert not memory.contains(
        apply, {**current, "metadata": {**current["metadata"], "uid": "v"}}, managers
    )
    assert not memory.contains(apply, current, [entry({"f:spec": {"f:x": {}}})])
    assert not memory.contains(ApplyIntent(obj({"spec": {"x": 1}}), MANAGER), current, managers)
    assert not memory.contains(replace(apply, manager="another"), current, managers)


def test_remembered_apply_of_the_status_depends_on_the_status() -> None:
    current = obj({"status": {"n": 1}}, uid="u")
    apply = ApplyIntent(obj({"status": {}}), MANAGER)
    memory = UnchangedApplies()
    memory.remember(apply, current, [])
    assert memory.contains(apply, current, [])
    assert not memory.contains(apply, {**current, "status": {"n": 2}}, [])


def test_number_of_remembered_applies_is_bounded() -> None:
    memory = UnchangedApplies(size=2)
    states = [obj(uid=str(number)) for number in range(3)]
    apply = ApplyIntent(obj(), MANAGER)
    memory.remember(apply, states[0], [])
    memory.remember(apply, states[1], [])
    assert memory.contains(apply, states[0], [])
    memory.remember(apply, states[2], [])
    assert len(memory) == 2
    assert [memory.contains(apply, state, []) for state in states] == [True, False, True]


@pytest.mark.parametrize("step", apply_steps())
def test_skipped_applies_changed_nothing_in_recordings(step: Step) -> None:
    """Each apply that would not be sent changed nothing on the real API server."""
    skipped = is_applied(
        ApplyIntent(step.desired, step.manager, step.subresource), step.before, step.managers
    )
    assert not skipped or step.unchanged


@pytest.mark.parametrize("step", apply_steps(repeatable=True))
def test_repetition_of_a_recorded_apply_is_skipped(step: Step) -> None:
    assert is_applied(
        ApplyIntent(step.desired, step.manager, step.subresource), step.after, step.managers_after
    )
