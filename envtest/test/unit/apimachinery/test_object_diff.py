"""Differences between two versions of an object."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.apimachinery.object_diff import MAX_LINES, object_diff


def deployment(**spec: Any) -> dict[str, Any]:
    metadata = {
        "name": "a",
        "uid": "u",
        "resourceVersion": "1",
        "managedFields": [{}],
        "labels": {"a/b": "c"},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"replicas": 1}, {"replicas": 2}, ["~ spec.replicas: 1 -> 2"]),
        ({}, {"paused": True}, ["+ spec.paused: true"]),
        ({"paused": True}, {}, ["- spec.paused: true"]),
        ({"x": [1, 2]}, {"x": [1, 3, 4]}, ["~ spec.x[1]: 2 -> 3", "+ spec.x[2]: 4"]),
        ({"x": {}}, {"x": []}, ["~ spec.x: {} -> []"]),
        ({"x": 1}, {"x": {"y": {"z": 2}}}, ['~ spec.x: 1 -> {"y":{"z":2}}']),
        ({}, {"x": {"y": {"z": 2}}}, ["+ spec.x.y.z: 2"]),
        ({"x": None}, {"x": 0}, ["~ spec.x: null -> 0"]),
        ({"x": 1}, {"x": 1}, []),
    ],
)
def test_changed_fields(before: dict[str, Any], after: dict[str, Any], lines: list[str]) -> None:
    assert object_diff(deployment(**before), deployment(**after)) == lines


def test_new_object_shows_its_content_without_system_metadata() -> None:
    assert object_diff(None, deployment(replicas=1)) == [
        '+ metadata.labels.a/b: "c"',
        "+ spec.replicas: 1",
    ]


def test_values_of_secrets_are_not_shown() -> None:
    before = {"kind": "Secret", "metadata": {"annotations": {}}, "data": {"key": "b2xk"}}
    after = {
        "kind": "Secret",
        "metadata": {"annotations": {"last-applied": "bmV3"}},
        "data": {"key": "bmV3", "b": "bmV3"},
    }
    text = "\n".join(object_diff(before, after))
    assert "~ data.key: (hidden) -> (hidden)" in text
    assert "bmV3" not in text
    assert "b2xk" not in text


def test_long_differences_are_cut() -> None:
    lines = object_diff(
        deployment(), deployment(**{f"x{number}": "y" * 1000 for number in range(100)})
    )
    assert len(lines) == MAX_LINES + 1
    assert max(map(len, lines)) < 200


def test_deeply_nested_values_are_compared_as_a_whole() -> None:
    before: Any = 1
    after: Any = 2
    for _ in range(500):
        before, after = {"a": before}, {"a": after}
    (line,) = object_diff(deployment(x=before), deployment(x=after))
    assert line.startswith("~ spec.x.a.a.a")
    assert line.endswith("(deeply nested) -> (deeply nested)")
