"""States: what is masked, which names and fields are unstable, and how differences are named."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from envtest.chaos.comparison import compare
from envtest.chaos.names import Names, random_names
from envtest.chaos.normal_form import (
    Live,
    Snapshot,
    State,
    mask,
    normalize,
    reference_names,
    unstable_fields,
)

RESOURCE = "widgets.example.com"


def widget(
    name: str = "a", *, metadata: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    whole = {"name": name, "namespace": "default", "uid": str(uuid4()), **(metadata or {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": whole, **fields}


def state(
    *objects: dict[str, Any], names: Names | None = None, deleted: tuple[str, ...] = ()
) -> State:
    live = [Live((RESOURCE, "default", obj["metadata"]["name"]), obj) for obj in objects]
    live += [Live((RESOURCE, "default", name), None) for name in deleted]
    uids = frozenset(obj["metadata"]["uid"] for obj in objects)
    return normalize(Snapshot(live, uids), names or Names())


def differences(expected: State, found: State, **options: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in compare(expected, found, **options)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"metadata": {"resourceVersion": "1", "generation": 1}},
            {"metadata": {"resourceVersion": "7"}},
        ),
        (
            {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}},
            {"metadata": {"managedFields": []}},
        ),
        ({"spec": {"clusterIP": "10.0.0.1"}}, {"spec": {"clusterIP": "10.0.0.2"}}),
        (
            {"status": {"at": "2026-01-01T00:00:00Z"}},
            {"status": {"at": "2026-02-01T10:00:00.123+01:00"}},
        ),
        ({"status": {"of": str(uuid4())}}, {"status": {"of": str(uuid4())}}),
        ({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["b", "a"]}}),
        (
            {"metadata": {"generation": 2}, "status": {"observedGeneration": 2}},
            {"metadata": {"generation": 5}, "status": {"observedGeneration": 5}},
        ),
        (
            {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}},
            {"status": {"conditions": [{"type": "B"}, {"type": "A"}]}},
        ),
    ],
)
def test_values_of_a_single_run_are_masked(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert compare(state(widget(**one)), state(widget(**other))) == []


def test_objects_that_are_being_deleted_differ_only_in_their_finalizers() -> None:
    def deleting(*finalizers: str, **fields: Any) -> State:
        metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": list(finalizers)}
        return state(widget(metadata=metadata, **fields))

    assert compare(deleting("a", spec={"x": 1}), deleting("a", spec={"x": 2})) == []
    assert differences(deleting("a"), deleting("b")) == [("different", "a")]
    assert differences(deleting("a"), state(widget())) == [("different", "a")]


def test_outdated_status_is_a_difference() -> None:
    current = state(widget(metadata={"generation": 2}, status={"observedGeneration": 2}))
    outdated = state(widget(metadata={"generation": 2}, status={"observedGeneration": 1}))
    assert differences(current, outdated) == [("different", "a")]


def test_difference_has_the_fields() -> None:
    (found,) = compare(state(widget(spec={"size": 1})), state(widget(spec={"size": 2})))
    assert (found.object, found.lines) == (
        "widgets.example.com default/a",
        ("~ spec.size: 1 -> 2",),
    )


def test_missing_and_unexpected_objects() -> None:
    expected, found = state(widget("a", spec={})), state(widget("b", spec={"x": 1}))
    assert differences(expected, found) == [("missing", "a"), ("unexpected", "b")]


def test_deleted_object_of_the_prepared_state() -> None:
    assert differences(state(), state(deleted=("a",))) == []
    assert differences(state(deleted=("a",)), state(deleted=("a",))) == []


def test_object_with_the_same_content_is_a_duplicate() -> None:
    assert differences(
        state(widget("a", spec={})), state(widget("a", spec={}), widget("b", spec={}))
    ) == [("duplicate", "b")]


def test_generated_names_are_compared_as_a_set() -> None:
    generated = {"metadata": {"generateName": "a-"}}
    one, other = state(widget("a-12345", **generated)), state(widget("a-zzzzz", **generated))
    assert compare(one, other) == []


def test_one_more_generated_name_is_a_duplicate() -> None:
    generated = {"metadata": {"generateName": "a-"}}
    two = state(widget("a-11111", **generated), widget("a-22222", **generated))
    ((kind, name),) = differences(state(widget("a-12345", **generated)), two)
    assert kind == "duplicate"
    assert name in ("a-11111", "a-22222")


def test_references_to_generated_names_are_masked() -> None:
    generated = {"metadata": {"generateName": "a-"}}
    one = state(widget("a-12345", **generated), widget("b", spec={"child": "a-12345"}))
    other = state(widget("a-zzzzz", **generated), widget("b", spec={"child": "a-zzzzz"}))
    assert compare(one, other) == []


def test_object_without_its_owner_is_an_orphan() -> None:
    owner = {"apiVersion": "v1", "kind": "Widget", "name": "gone", "uid": str(uuid4())}
    assert differences(state(), state(widget(metadata={"ownerReferences": [owner]}))) == [
        ("orphan", "a")
    ]


def test_object_that_should_be_deleted_by_now_is_an_orphan() -> None:
    assert differences(state(), state(widget()), earlier={(RESOURCE, "default", "a")}) == [
        ("orphan", "a")
    ]


def test_random_names_of_the_operator_are_found_by_two_runs() -> None:
    first, second = (
        [state(widget("job-1a2b", spec={"x": 1}))],
        [state(widget("job-9z8y", spec={"x": 1}))],
    )
    names = reference_names(first, second)
    assert names.canonical((RESOURCE, "default", "job-5555")) == "job-*"
    assert (
        compare(
            state(widget("job-1a2b", spec={"x": 1}), names=names),
            state(widget("job-7777", spec={"x": 1}), names=names),
        )
        == []
    )


def test_stable_names_are_not_generated_ones() -> None:
    names = Names(frozenset({(RESOURCE, "default", "a-main")}), ((RESOURCE, "a-"),))
    assert names.canonical((RESOURCE, "default", "a-main")) == "a-main"
    assert names.canonical((RESOURCE, "default", "a-x")) == "a-*"
    assert names.canonical(("secrets", "default", "a-x")) == "a-x"


def test_names_without_a_common_prefix_are_not_random() -> None:
    assert random_names([(RESOURCE, "default", "a")], [(RESOURCE, "default", "b")]) == set()


def test_fields_that_differ_without_faults_are_not_compared() -> None:
    first, second = (state(widget(data={"password": value, "user": "x"})) for value in ("a", "b"))
    unstable = unstable_fields(first, second)
    assert unstable == {(RESOURCE, "data.password")}
    third = state(widget(data={"password": "c", "user": "x"}))
    assert compare(mask(first, unstable), mask(third, unstable)) == []
    other = state(widget(data={"password": "c", "user": "y"}))
    assert differences(mask(first, unstable), mask(other, unstable)) == [("different", "a")]


def test_objects_that_only_one_run_has_are_not_compared() -> None:
    first, second = state(widget("a"), widget("b", spec={})), state(widget("a"))
    unstable = unstable_fields(first, second)
    assert compare(mask(first, unstable), mask(second, unstable)) == []


def test_fields_in_lists_and_of_all_resources_can_be_left_out() -> None:
    one, other = (state(widget(spec={"items": [{"n": value, "k": 1}]})) for value in (1, 2))
    fields = {("*", "spec.items[*].n")}
    assert compare(mask(one, fields), mask(other, fields)) == []
