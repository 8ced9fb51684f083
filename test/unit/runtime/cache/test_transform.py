"""Transforms: which fields they can remove, and what happens if they do anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
import structlog

from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.transform import TransformError, check_transformed, drop_fields
from cfo.runtime.client.partial_objects import Transform, removed_field
from cfo.runtime.objects.unstructured import GVK, Object

POD = GVK("", "v1", "Pod")
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def pod(**rest: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"app": "x"},
            "annotations": {APPLIED: "{}", "note": "n"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "o", "uid": "ou", "controller": True}],
            "managedFields": [{"manager": "m"}],
        },
        "spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}], "volumes": []},
        "status": {"phase": "Running"},
        **rest,
    }


def stored(transform: Transform | None, obj: Object, **options: Any) -> Object:
    """Return the object as an informer with this transform stores it."""
    return EntryDecoder(POD, transform=transform, **options).decode(orjson.dumps(obj)).object()


def whole() -> Object:
    return stored(None, pod())


def without(obj: Object, *path: str) -> Object:
    parent = obj
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    return obj


@pytest.mark.parametrize(
    ("paths", "removed"),
    [
        (["status"], [("status",)]),
        (["spec.containers", "status.phase"], [("spec", "containers"), ("status", "phase")]),
        ([("metadata", "annotations", APPLIED)], [("metadata", "annotations", APPLIED)]),
        (["metadata.annotations"], [("metadata", "annotations")]),
        (["status", "status.phase"], [("status",)]),
        (["status.phase", "status"], [("status",)]),
        (["spec.missing", "nothing.at.all", "spec.containers.env", "metadata.annotations.note.x"], []),
    ],
)
def test_dropped_fields_are_not_stored(paths: list[str | Sequence[str]], removed: list[tuple[str, ...]]) -> None:
    expected = whole()
    for path in removed:
        without(expected, *path)
    transform = drop_fields(*paths)
    assert stored(transform, pod()) == expected
    assert transform(whole()) == expected
    check_transformed(whole(), expected)


def test_metadata_of_the_entry_is_the_stored_one() -> None:
    entry = EntryDecoder(POD, transform=drop_fields("metadata.annotations", "status")).decode(orjson.dumps(pod()))
    assert dict(entry.annotations) == {}
    assert (entry.meta.uid, entry.version, entry.meta.labels) == ("u", 7, {"app": "x"})
    assert entry.meta.controller is not None


@pytest.mark.parametrize(
    "path", ["", "a..b", "kind", "apiVersion.x", "metadata", "metadata.labels", "metadata.labels.app", "metadata.uid"]
)
def test_fields_that_the_cache_needs_cannot_be_dropped(path: str) -> None:
    with pytest.raises(ValueError, match=r"must be the keys of a field|the cache needs this field"):
        drop_fields(path)


def test_function_removes_fields_within_lists() -> None:
    def transform(obj: Object) -> Object:
        for container in obj["spec"]["containers"]:
            container.pop("env", None)
        return obj

    expected = whole()
    del expected["spec"]["containers"][0]["env"]
    assert stored(transform, pod()) == expected


def edited(change: Callable[[Object], object]) -> Transform:
    def transform(obj: Object) -> Object:
        change(obj)
        return obj

    return transform


@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (edited(lambda obj: obj["absent"]), "KeyError"),
        (lambda obj: None, "returned NoneType: must return the object"),
        (edited(lambda obj: obj.pop("metadata")), "removed metadata"),
        (edited(lambda obj: obj["metadata"].pop("uid")), "removed or changed metadata.uid"),
        (edited(lambda obj: obj["metadata"].pop("resourceVersion")), "removed or changed metadata.resourceVersion"),
        (edited(lambda obj: obj["metadata"]["labels"].clear()), "removed or changed metadata.labels"),
        (edited(lambda obj: obj.update(kind="Other")), "removed or changed kind"),
        (edited(lambda obj: obj["spec"].update(node="n")), "changed or added spec.node"),
        (edited(lambda obj: obj["status"].update(phase="Done")), "changed or added status.phase"),
        (edited(lambda obj: obj["spec"]["containers"].clear()), "changed or added spec.containers"),
        (edited(lambda obj: obj["spec"]["containers"][0].update(name="d")), r"changed or added spec.containers\[0\]"),
        (edited(lambda obj: obj["metadata"].update(selfLink="x")), "changed or added metadata.selfLink"),
    ],
)
def test_object_of_a_transform_that_fails_is_kept_whole_and_logged_once(transform: Transform, error: str) -> None:
    decoder = EntryDecoder(POD, transform=transform)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert decoder.decode(orjson.dumps(pod())).object() == whole()
    (line,) = logs
    assert line["event"] == "Transform failed, keeping the whole object"
    assert error.replace("\\", "") in line["error"]


def test_metadata_only_is_not_transformed() -> None:
    assert stored(lambda obj: {}, pod(), metadata_only=True)["metadata"]["annotations"]["note"] == "n"


def test_values_of_another_type_are_a_change() -> None:
    with pytest.raises(TransformError, match="spec"):
        check_transformed({"metadata": {}, "spec": 1}, {"metadata": {}, "spec": True})


@pytest.mark.parametrize(
    ("obj", "missing"),
    [
        ({"spec": {"a": 1}, "status": {}}, ""),
        ({"spec": {"a": 1}}, "status"),
        ({"spec": {}, "status": {"changed": 1}}, ""),  # removed by the author, not by the transform
        ({"spec": {"a": 1, "list": [{"x": 1}]}, "status": {}}, "spec.list.0.y"),
        ({"spec": {"a": 1, "list": [{"x": 1, "y": 2}]}, "status": {}}, ""),
        ({"spec": {"a": 1, "list": []}, "status": {}}, ""),
    ],
)
def test_removed_field_is_found_in_a_partial_object(obj: Object, missing: str) -> None:
    complete = {"spec": {"a": 1, "list": [{"x": 1, "y": 2}]}, "status": {"s": 1}}
    transformed = {"spec": {"a": 1, "list": [{"x": 1}]}}
    assert removed_field(complete, transformed, obj) == missing
