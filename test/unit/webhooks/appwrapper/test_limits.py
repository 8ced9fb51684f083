"""Limits of AppWrappers: what exceeds them is rejected before any template is read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cfo.api.appwrapper.inference import infer_pod_sets
from cfo.api.appwrapper.podsets import MAX_POD_SET_BYTES, PodSetError, pod_template_at
from cfo.api.reading import MAX_SPEC_VALUES
from cfo.runtime import GVK, Object
from cfo.webhooks.access import Access
from cfo.webhooks.appwrapper import validation
from cfo.webhooks.appwrapper.validation import MAX_COMPONENTS, create_errors, update_errors

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
ACCESS = {GVK("", "v1", "Pod"): Access()}


def appwrapper(*components: dict[str, Any]) -> Object:
    return {"metadata": {"name": "aw", "namespace": "ns"}, "spec": {"components": list(components)}}


def pods(*paths: str) -> dict[str, Any]:
    return {"template": POD, "podSets": [{"path": path} for path in paths]}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the templates that are read."""
    found: list[str] = []

    def counted(template: Object, path: str) -> Object:
        found.append(path)
        return pod_template_at(template, path)

    monkeypatch.setattr(validation, "pod_template_at", counted)
    return found


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            appwrapper(*[pods("template")] * 9),
            "spec.components: Invalid value: components contains 9 podspecs; at most 8 are allowed",
        ),
        (
            appwrapper(pods(*["template"] * 3000)),
            "spec.components: Invalid value: components contains 3000 podspecs; at most 8 are allowed",
        ),
        (
            appwrapper({"template": {**POD, "extra": [{"a": 1}] * (MAX_SPEC_VALUES // 2)}}),
            "spec.components: Invalid value: must have at most 100000 values, at all levels",
        ),
        (
            appwrapper(*[pods()] * (MAX_COMPONENTS + 1)),
            "spec.components: Too many: 101: must have at most 100 items",
        ),
    ],
)
def test_counts_are_checked_before_templates(
    obj: Object, message: str, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "infer_pod_sets", reads.append)
    assert [str(error) for error in create_errors(obj, "ns", ACCESS)] == [message]
    assert reads == []


def with_annotation(length: int) -> dict[str, Any]:
    """Return a component whose declared pod set has an annotation of this length."""
    pod_set = {"path": "template", "annotations": {"a": "x" * length}}
    return {"template": POD, "podSets": [pod_set]}


def test_size_of_declared_pod_sets_is_limited_because_the_status_repeats_them() -> None:
    largest = MAX_POD_SET_BYTES - len(orjson.dumps(with_annotation(0)["podSets"]))
    assert "podSets" not in str(create_errors(appwrapper(with_annotation(largest)), "ns", ACCESS))
    (error,) = create_errors(appwrapper(with_annotation(largest + 1)), "ns", ACCESS)
    assert str(error) == (
        "spec.components: Invalid value: podSets have 16385 bytes; at most 16384 are allowed, because the status "
        "repeats them"
    )
    half = with_annotation(MAX_POD_SET_BYTES // 2)
    assert "podSets have" in str(create_errors(appwrapper(half, half), "ns", ACCESS))


@pytest.mark.parametrize(
    ("length", "expected"), [(253, []), (254, ["may not be more than 253 bytes"])]
)
def test_name_that_no_component_can_have_is_rejected(length: int, expected: list[str]) -> None:
    pod = {**POD, "metadata": {"name": "p" * length}}
    errors = create_errors(appwrapper({"template": pod}), "ns", ACCESS)
    path = "spec.components[0].template.metadata.name"
    assert [error.detail for error in errors if error.field == path] == expected


def test_template_of_equal_paths_is_read_once(reads: list[str]) -> None:
    create_errors(appwrapper(pods(*["template.spec"] * 8)), "ns", ACCESS)
    assert reads == ["template.spec"]


def test_inferred_template_is_not_read_again(reads: list[str]) -> None:
    assert all(
        "path" not in error.field
        for error in create_errors(appwrapper(pods("template")), "ns", ACCESS)
    )
    assert reads == []


def test_number_of_inferred_pod_sets_is_limited() -> None:
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{}] * 9000},
    }
    message = "at path position 'template.spec.replicatedJobs' 9000 items; at most 20 are allowed"
    with pytest.raises(PodSetError, match=f"^{message}$"):
        infer_pod_sets(job_set)


def test_number_of_values_in_a_pod_spec_is_limited() -> None:
    pod = {**POD, "spec": {"containers": [{}] * 10_001}}
    message = "content at template.spec not parseable as a v1.PodSpec: strict decoding error: more than 10000 values"
    with pytest.raises(PodSetError, match=f"^{message}$"):
        pod_template_at(pod, "template")


def test_number_of_update_errors_is_limited() -> None:
    old = appwrapper(*[{**pods(), "podSets": [{"path": "a"}] * 9}] * 100)
    new = appwrapper(*[{**pods(), "podSets": [{"path": "b"}] * 9}] * 100)
    assert len(validation.update_errors(old, new)) == 101


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ("x", ["spec: Invalid value: must be of type object"]),
        ({"components": {}}, ["spec.components: Invalid value: must be of type array"]),
        ({"components": [None]}, ["spec.components[0]: Invalid value: must be of type object"]),
        (
            {"components": [{"template": {"metadata": {"name": 1}}, "podSets": "x"}]},
            [
                "spec.components[0].template.metadata.name: Invalid value: must be of type string",
                "spec.components[0].podSets: Invalid value: must be of type array",
            ],
        ),
        (
            {"components": [{"podSets": [1, {"path": 2, "replicas": "3", "annotations": []}]}]},
            [
                "spec.components[0].podSets[0]: Invalid value: must be of type object",
                "spec.components[0].podSets[1].path: Invalid value: must be of type string",
                "spec.components[0].podSets[1].annotations: Invalid value: must be of type object",
                "spec.components[0].podSets[1].replicas: Invalid value: must be of type integer",
            ],
        ),
    ],
)
def test_wrong_json_types_are_rejected_before_templates_are_read(
    spec: Any, errors: list[str], reads: list[str]
) -> None:
    """API servers validate the types, but any pod can send requests."""
    obj = {"metadata": {"name": "aw"}, "spec": spec}
    assert [str(error) for error in create_errors(obj, "ns", ACCESS)] == errors
    assert [str(error) for error in update_errors(appwrapper(), obj)] == errors
    assert reads == []
