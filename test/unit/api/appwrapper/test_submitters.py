"""The pod that submits a RayJob requests no more in a queue than another pod of the RayJob that must run."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.appwrapper.submitters import submitter_errors
from cfo.runtime.objects.field import Path

GPU = "nvidia.com/gpu"


def pod_template(requests: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


def ray_job(submitter: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """Return a component with a RayJob: a small head, a worker with two GPUs, and up to 8 workers with four more."""
    groups = [
        {"groupName": "must run", "template": pod_template({GPU: "2"})},
        {
            "groupName": "may run",
            "minReplicas": 0,
            "maxReplicas": 8,
            "template": pod_template({GPU: "4"}),
        },
    ]
    cluster = {
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"template": pod_template({"cpu": "2", "ephemeral-storage": "1Gi"})},
        "workerGroupSpecs": groups,
    }
    groups[0] |= {"minReplicas": 1, "maxReplicas": 1}
    spec: dict[str, Any] = {"rayClusterSpec": cluster, **fields}
    if submitter is not None:
        spec["submitterPodTemplate"] = pod_template(submitter)
    return {"template": {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}}


def errors(component: dict[str, Any]) -> list[str]:
    return [str(error) for error in submitter_errors(component, Path("c"))]


@pytest.mark.parametrize(
    "submitter",
    [
        pytest.param(None, id="default"),
        pytest.param({}, id="nothing"),
        pytest.param({"cpu": "500m", "memory": "1Gi"}, id="as KubeRay's default"),
        pytest.param({"cpu": "2"}, id="as the head"),
        pytest.param({GPU: "2"}, id="as a worker that must run"),
        pytest.param({"ephemeral-storage": "1Ti"}, id="what queues do not count"),
    ],
)
def test_submitter_may_request_as_much_as_another_pod(submitter: dict[str, Any] | None) -> None:
    assert errors(ray_job(submitter)) == []


@pytest.mark.parametrize(
    ("submitter", "expected"),
    [
        pytest.param({"cpu": "3"}, "requests 3 cpu; in a queue at most 2,", id="CPU"),
        pytest.param(
            {"memory": "2Gi"},
            "requests 2147483648 memory; in a queue at most 1073741824,",
            id="memory",
        ),
        pytest.param(
            {GPU: "4"}, f"requests 4 {GPU}; in a queue at most 2,", id="autoscaled worker"
        ),
        pytest.param({"e.com/x": 9}, "requests 9 e.com/x; in a queue at most 0,", id="device"),
    ],
)
def test_submitter_that_requests_more_is_refused_in_a_queue(
    submitter: dict[str, Any], expected: str
) -> None:
    """Nothing shows whether its pod exists, so its quota could be kept without use."""
    (error,) = errors(ray_job(submitter))
    assert error.startswith("c.template.spec.submitterPodTemplate: Invalid value")
    assert expected in error


def test_template_that_creates_no_pod_is_not_counted() -> None:
    assert errors(ray_job({GPU: "4"}, submissionMode="HTTPMode")) == []
    component = ray_job({GPU: "4"})
    component["template"]["kind"] = "RayCluster"
    assert errors(component) == []
