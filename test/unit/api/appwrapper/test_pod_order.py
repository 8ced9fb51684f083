"""In which order the controllers of components create their pods."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.appwrapper.pod_order import PodOrder, pod_order

READY = PodOrder.AFTER_READINESS
COMPLETE = PodOrder.AFTER_COMPLETION


def depends(*statuses: object) -> dict[str, Any]:
    dependencies = [{"name": "first", "status": status} for status in statuses]
    return {"replicatedJobs": [{"name": "first"}, {"name": "last", "dependsOn": dependencies}]}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "expected"),
    [
        ("batch/v1", "Job", {"completions": 9}, PodOrder.AT_ONCE),
        ("apps/v1", "StatefulSet", {}, READY),
        ("apps/v1", "StatefulSet", {"podManagementPolicy": "Parallel"}, PodOrder.AT_ONCE),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [None, {}]}, PodOrder.AT_ONCE),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", depends("Ready"), READY),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", depends("Ready", "Complete"), COMPLETE),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
            READY,
        ),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {}, COMPLETE),
        ("kubeflow.org/v2beta1", "MPIJob", {}, PodOrder.AT_ONCE),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            {"launcherCreationPolicy": "WaitForWorkersReady"},
            READY,
        ),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {}, PodOrder.AT_ONCE),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"startupPolicy": "LeaderReady"},
            READY,
        ),
        ("apps/v1", "StatefulSet", None, READY),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", ["x"], PodOrder.AT_ONCE),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", depends([], {}, 5), READY),
    ],
)
def test_order_of_pods(api_version: str, kind: str, spec: Any, expected: PodOrder) -> None:
    assert pod_order({"apiVersion": api_version, "kind": kind, "spec": spec}) is expected
