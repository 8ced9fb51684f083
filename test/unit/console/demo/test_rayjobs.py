"""The demo's replacement for KubeRay: what is created for a RayJob, and its status."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.console.demo.rayjobs import (
    cluster_key,
    cluster_of,
    status_of,
    submitter_of,
    validation_error,
)
from cfo.runtime import Object, controller_of

HEAD = {"template": {"spec": {"containers": [{"name": "head", "image": "ray:1"}]}}}
READY = {"spec": {"headGroupSpec": HEAD}, "status": {"state": "ready"}}


def job(**spec: Any) -> Object:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "train",
            "namespace": "ns",
            "uid": "12345-6",
            "labels": {"kueue.x-k8s.io/queue-name": "team"},
        },
        "spec": {"entrypoint": "sleep 3", "rayClusterSpec": {"headGroupSpec": HEAD}, **spec},
    }


def submitter(condition: str) -> Object:
    return {"status": {"conditions": [{"type": condition, "status": "True"}]}}


def test_cluster_has_the_labels_of_its_rayjob() -> None:
    cluster = cluster_of(job())
    assert cluster["metadata"]["name"] == "train-12345"
    assert cluster["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "team",
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/originated-from-cr-name": "train",
    }
    assert cluster["spec"] == {"headGroupSpec": HEAD}
    assert (controller_of(cluster) or {})["uid"] == "12345-6"


def test_selected_cluster_is_used() -> None:
    selecting = job(clusterSelector={"ray.io/cluster": "shared"}, rayClusterSpec=None)
    assert cluster_key(selecting).name == "shared"
    assert validation_error(selecting) == ""
    template = submitter_of(selecting, READY)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "ray:1"


def test_submitter_runs_the_entrypoint_with_the_image_of_the_head() -> None:
    (container,) = submitter_of(job(), READY)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ray:1"
    assert container["args"] == ["sleep 3"]
    own = {"spec": {"containers": [{"name": "own", "image": "own:1", "command": ["submit"]}]}}
    (container,) = submitter_of(job(submitterPodTemplate=own), READY)["spec"]["template"]["spec"][
        "containers"
    ]
    assert (container["image"], container["command"]) == ("own:1", ["submit"])


@pytest.mark.parametrize(
    ("spec", "cluster", "submitted", "states"),
    [
        ({}, None, None, ("Initializing", None)),
        ({}, {"status": {}}, None, ("Initializing", None)),
        ({}, READY, submitter("Suspended"), ("Running", "RUNNING")),
        ({}, None, submitter("Complete"), ("Complete", "SUCCEEDED")),
        ({}, READY, submitter("Failed"), ("Failed", "FAILED")),
        ({"submissionMode": "InteractiveMode"}, READY, None, ("Waiting", None)),
        ({"submissionMode": "HTTPMode"}, READY, None, ("Running", "RUNNING")),
    ],
)
def test_rayjob_ends_as_its_submitter_does(
    spec: Object, cluster: Object | None, submitted: Object | None, states: tuple[str, str | None]
) -> None:
    status = status_of(job(**spec), cluster, submitted)
    assert (status["jobDeploymentStatus"], status.get("jobStatus")) == states


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"suspend": True, "shutdownAfterJobFinishes": True}, ""),
        ({"suspend": True}, "shutdownAfterJobFinishes"),
        (
            {
                "suspend": True,
                "shutdownAfterJobFinishes": True,
                "clusterSelector": {"ray.io/cluster": "shared"},
            },
            "ClusterSelector",
        ),
        ({"rayClusterSpec": None}, "RayClusterSpec"),
    ],
)
def test_rayjobs_are_validated_as_kuberay_does(spec: Object, error: str) -> None:
    found = validation_error(job(**spec))
    assert error in found
    assert bool(found) is bool(error)
