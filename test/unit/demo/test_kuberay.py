"""The demo's replacement for KubeRay: the pods and the status of a RayCluster."""

from __future__ import annotations

from typing import Any

from cfo.demo.kuberay import pods_of, status_of


def cluster(**group: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}
    workers = {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 3, "template": template, **group}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "rc", "namespace": "ns", "uid": "u", "generation": 4},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [workers]},
    }


def with_ready_condition(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_cluster_has_one_head_pod_and_one_pod_per_worker_host() -> None:
    pods = list(pods_of(cluster(numOfHosts=2)))
    assert [pod["metadata"]["labels"]["ray.io/node-type"] for pod in pods] == ["head"] + ["worker"] * 4
    assert len({pod["metadata"]["name"] for pod in pods}) == 5


def test_cluster_is_ready_when_head_and_all_workers_are_ready() -> None:
    ray_cluster = cluster()
    head, first, second = pods_of(ray_cluster)
    status = status_of(ray_cluster, [with_ready_condition(head), with_ready_condition(first), second])
    assert "state" not in status
    assert (status["desiredWorkerReplicas"], status["availableWorkerReplicas"]) == (2, 1)
    assert (status["minWorkerReplicas"], status["maxWorkerReplicas"], status["observedGeneration"]) == (1, 3, 4)
    assert status_of(ray_cluster, map(with_ready_condition, (head, first, second)))["state"] == "ready"
    assert "state" not in status_of(ray_cluster, map(with_ready_condition, (first, second)))
