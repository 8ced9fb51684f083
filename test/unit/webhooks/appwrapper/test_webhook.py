"""The RayClusters that will be created from the components of an AppWrapper."""

from __future__ import annotations

from typing import Any

import pytest

from cfo import operator
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config import OperatorConfiguration
from cfo.runtime.objects.field import Path, invalid
from cfo.webhooks import appwrapper as webhooks
from cfo.webhooks.appwrapper.webhook import PlannedObject, planned_objects

SPEC: dict[str, Any] = {"headGroupSpec": {"template": {}}}


def planned(kind: str, spec: dict[str, Any], **metadata: Any) -> list[PlannedObject]:
    template = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    pod = {"apiVersion": "v1", "kind": "Pod"}
    return list(planned_objects({"spec": {"components": [{"template": pod}, {"template": template}]}}))


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("RayCluster", SPEC, "spec"),
        ("RayJob", {"rayClusterSpec": SPEC}, "spec.rayClusterSpec"),
        ("RayService", {"rayClusterConfig": SPEC}, "spec.rayClusterConfig"),
    ],
)
def test_errors_have_the_path_in_the_appwrapper(kind: str, spec: dict[str, Any], path: str) -> None:
    (cluster,) = planned(kind, spec, name="r")
    assert cluster.obj["spec"] == SPEC
    located = {
        str(field): str(cluster.located(invalid(field, 1, "x")).field)
        for field in (Path("spec"), Path("spec", "headGroupSpec", "enableIngress"), Path("metadata", "name"))
    }
    at = "spec.components[1].template"
    assert located == {
        "spec": f"{at}.{path}",
        "spec.headGroupSpec.enableIngress": f"{at}.{path}.headGroupSpec.enableIngress",
        "metadata.name": f"{at}.metadata.name",
    }


def test_cluster_of_a_job_has_a_generated_name_and_its_labels() -> None:
    metadata = {"labels": {"a": "b", "c": 1}, "annotations": {"d": None}, "finalizers": ["x"]}
    (cluster,) = planned("RayJob", {"rayClusterSpec": SPEC}, name="r", **metadata)
    assert cluster.obj["metadata"] == {"generateName": "r-", "labels": {"a": "b"}, "annotations": {}}
    (cluster,) = planned("RayCluster", SPEC, generateName="g-")
    assert cluster.obj["metadata"] == {"generateName": "g-", "labels": {}, "annotations": {}}


@pytest.mark.parametrize(("kind", "spec"), [("RayJob", {"clusterSelector": {"a": "b"}}), ("RayClusterSet", SPEC)])
def test_component_without_a_cluster_of_its_own_has_none(kind: str, spec: dict[str, Any]) -> None:
    assert planned(kind, spec) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_operator_validates_clusters_if_it_validates_rayclusters(
    monkeypatch: pytest.MonkeyPatch, *, enabled: bool
) -> None:
    found: list[Any] = []
    setup = webhooks.setup
    monkeypatch.setattr(webhooks, "setup", lambda *args: (found.append(args[2]), setup(*args)))
    configuration = OperatorConfiguration.model_validate({"kuberay": {"enabled": enabled}})
    operator.webhook_configurations("ns", configuration)
    assert [RAY_CLUSTER in validators for validators in found] == [enabled]
