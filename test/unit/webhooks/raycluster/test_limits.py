"""Limits of RayClusters: what exceeds them is rejected before anything is computed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.api.reading import MAX_SPEC_VALUES
from cfo.runtime.objects.unstructured import Object
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from cfo.webhooks.raycluster.json_types import MAX_ENTRIES, MAX_LIST, MAX_WORKER_GROUPS
from cfo.webhooks.raycluster.pod_additions import PodAdditions
from cfo.webhooks.raycluster.validation import create_errors, update_errors

SETTINGS = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")


def ray_cluster(workers: int = 0, env: int = 0, **head: Any) -> Object:
    def template() -> Object:
        variables = [{"name": f"E{at}", "value": "v"} for at in range(env)]
        return {"spec": {"containers": [{"name": "ray", "env": variables}]}}

    groups = [{"groupName": f"g{at}", "template": template()} for at in range(workers)]
    head_spec = {"containers": [{"name": "ray"}], **head}
    spec = {"headGroupSpec": {"template": {"spec": head_spec}}, "workerGroupSpecs": groups}
    metadata = {"name": "rc", "namespace": "ns"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


LISTS = "containers, initContainers, volumes, env, volumeMounts, command"
ENV = [{"name": "A"}] * (MAX_LIST + 1)

TOO_LARGE = [
    (
        ray_cluster(MAX_WORKER_GROUPS + 1),
        "spec.workerGroupSpecs: Too many: 501: must have at most 500 items",
    ),
    (
        ray_cluster(volumes=ENV),
        "spec.headGroupSpec.template.spec.volumes: Too many: 1001: must have at most 1000 items",
    ),
    (
        ray_cluster(initContainers=[{"command": ["x"] * 1001}]),
        "spec.headGroupSpec.template.spec.initContainers[0].command: Too many: 1001: must have at most 1000 items",
    ),
    (
        ray_cluster(containers=[{"name": "ray", "env": ENV}]),
        "spec.headGroupSpec.template.spec.containers[0].env: Too many: 1001: must have at most 1000 items",
    ),
    (
        ray_cluster(MAX_WORKER_GROUPS, MAX_ENTRIES // MAX_WORKER_GROUPS),
        f"spec: Invalid value: the lists {LISTS} of all groups must have at most 20000 entries together",
    ),
    (
        ray_cluster(tolerations=[{"key": "a"}] * (MAX_SPEC_VALUES // 2)),
        "spec: Invalid value: must have at most 100000 values, at all levels",
    ),
]


@pytest.mark.parametrize(("cluster", "message"), TOO_LARGE)
def test_too_large_cluster_is_rejected_with_one_error(cluster: Object, message: str) -> None:
    assert [str(error) for error in create_errors(cluster, SETTINGS)] == [message]
    assert [str(error) for error in update_errors(ray_cluster(), cluster, SETTINGS)] == [message]
    larger = {**cluster, "spec": {**cluster["spec"], "rayVersion": "2.50.0"}}
    assert [str(error) for error in update_errors(cluster, larger, SETTINGS)] == [message]


@pytest.mark.parametrize("old", [cluster for cluster, _ in TOO_LARGE])
def test_stored_cluster_beyond_the_limits_can_be_suspended(old: Object) -> None:
    suspended = {**old, "spec": {**old["spec"], "suspend": True}}
    assert default(suspended, old, SETTINGS).cluster is suspended
    assert update_errors(old, suspended, SETTINGS) == []
    assert update_errors(suspended, old, SETTINGS) == []


@pytest.mark.parametrize("old", [cluster for cluster, _ in TOO_LARGE])
def test_stored_cluster_beyond_the_limits_can_be_reduced_and_labelled(old: Object) -> None:
    smaller = default(ray_cluster(2), old, SETTINGS).cluster
    assert update_errors(old, smaller, SETTINGS) == []
    labelled = {**old, "metadata": {**old["metadata"], "finalizers": ["example.com/f"]}}
    assert default(labelled, old, SETTINGS).cluster is labelled
    assert update_errors(old, labelled, SETTINGS) == []
    renamed = {**old, "metadata": {**old["metadata"], "annotations": {VERSION_ANNOTATION: "v0"}}}
    assert len(update_errors(old, renamed, SETTINGS)) == 1


def test_injected_parts_of_a_stored_cluster_beyond_the_limits_are_kept() -> None:
    old = default(ray_cluster(2), None, SETTINGS).cluster
    old["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] += ENV
    new = copy.deepcopy(old)
    del new["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert update_errors(old, new, SETTINGS)
    restored = default(new, old, SETTINGS).cluster
    assert update_errors(old, restored, SETTINGS) == []
    assert restored["spec"]["workerGroupSpecs"] == old["spec"]["workerGroupSpecs"]


@pytest.mark.parametrize("cluster", [cluster for cluster, _ in TOO_LARGE])
def test_nothing_is_injected_into_a_too_large_cluster(cluster: Object) -> None:
    assert default(cluster, None, SETTINGS).cluster is cluster


def test_largest_cluster_is_admitted() -> None:
    cluster = default(ray_cluster(MAX_WORKER_GROUPS, 20), None, SETTINGS).cluster
    assert create_errors(cluster, SETTINGS) == []
    assert update_errors(cluster, cluster, SETTINGS) == []


def test_number_of_errors_is_limited() -> None:
    errors = create_errors(ray_cluster(MAX_WORKER_GROUPS), SETTINGS)
    assert len(errors) == 101


def test_input_is_not_modified() -> None:
    cluster, expected = ray_cluster(2, 2), ray_cluster(2, 2)
    assert default(cluster, None, SETTINGS).cluster != expected
    assert cluster == expected


def test_former_groups_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    old = default(ray_cluster(1), None, SETTINGS).cluster
    calls = 0
    original = PodAdditions.were_added_to

    def counted(self: PodAdditions, pod: Object) -> bool:
        nonlocal calls
        calls += 1
        return original(self, pod)

    monkeypatch.setattr(PodAdditions, "were_added_to", counted)
    default(ray_cluster(100), old, SETTINGS)
    assert calls == 3  # the head group for each feature, and the worker group that existed before
