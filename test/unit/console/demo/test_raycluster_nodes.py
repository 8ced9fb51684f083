"""The demo's replacement for KubeRay: the pods and the status of a RayCluster."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, requires_ray_token
from cfo.console.demo.raycluster_nodes import (
    _KubeRayReconciler,
    is_ray_node,
    pods_of,
    runs_here,
    status_of,
)
from cfo.runtime import (
    GVK,
    AlreadyExists,
    Client,
    Forbidden,
    Informer,
    Invalid,
    NamespacedName,
    Object,
    name_of,
    rfc3339,
)
from test.support.clocks import FakeClock


def cluster(**group: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}
    workers = {
        "groupName": "small",
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 3,
        "template": template,
        **group,
    }
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
    assert [pod["metadata"]["labels"]["ray.io/node-type"] for pod in pods] == ["head"] + [
        "worker"
    ] * 4
    assert len({pod["metadata"]["name"] for pod in pods}) == 5


@pytest.mark.parametrize(
    ("group", "workers"),
    [
        ({"replicas": 7}, 3),
        ({"replicas": 0}, 1),
        ({"replicas": 7, "maxReplicas": None}, 7),
        ({"replicas": None, "minReplicas": 2, "numOfHosts": 2}, 4),
        ({"replicas": 2, "suspend": True}, 0),
    ],
)
def test_replicas_are_kept_between_the_limits_of_their_group(
    group: dict[str, Any], workers: int
) -> None:
    ray_cluster = cluster(**group)
    assert len(list(pods_of(ray_cluster))) == 1 + workers
    assert status_of(ray_cluster, [])["desiredWorkerReplicas"] == workers


def test_suspended_worker_groups_count_nowhere_in_the_status() -> None:
    status = status_of(cluster(suspend=True), [])
    assert (status["minWorkerReplicas"], status["maxWorkerReplicas"]) == (0, 0)
    template = {
        "spec": {
            "containers": [{"name": "ray", "image": "ray", "resources": {"requests": {"cpu": 1}}}]
        }
    }
    assert status_of(cluster(template=template), [])["desiredCPU"] == "2"
    assert status_of(cluster(template=template, suspend=True), [])["desiredCPU"] == "0"


def test_numbers_in_the_status_have_32_bits() -> None:
    """``maxReplicas`` is the largest one by default."""
    ray_cluster = cluster(maxReplicas=2**31 - 1, numOfHosts=2)
    assert status_of(ray_cluster, [])["maxWorkerReplicas"] == 2**31 - 1


async def test_pods_follow_the_replicas() -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"]["creationTimestamp"] = rfc3339(FakeClock().now())
    head, first, second = pods_of(ray_cluster)
    existing: list[Object] = [head, second]
    created: list[str] = []
    deleted: list[str] = []

    async def get(gvk: GVK, key: NamespacedName) -> Object:
        return ray_cluster

    async def create(pod: Object) -> Object:
        created.append(name_of(pod))
        return pod

    async def delete(gvk: GVK, key: NamespacedName, *, uid: str) -> None:
        deleted.append(key.name)

    async def patch_object(read: Object, change: Object, **_: Any) -> None:
        ray_cluster["status"] = change["status"]

    pods = SimpleNamespace(reader=SimpleNamespace(list=lambda namespace: existing))
    client = SimpleNamespace(get=get, create=create, delete=delete, patch_object=patch_object)
    reconciler = _KubeRayReconciler(cast("Client", client), cast("Informer", pods), FakeClock())
    await reconciler.reconcile(NamespacedName("ns", "rc"))
    assert (created, deleted) == ([name_of(first)], [])
    existing.append(first)
    ray_cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    await reconciler.reconcile(NamespacedName("ns", "rc"))
    assert (created, deleted) == ([name_of(first)], [name_of(second)])


def test_pods_are_found_by_their_labels() -> None:
    ray_cluster = cluster()
    head = next(pods_of(ray_cluster))
    orphan = {**head, "metadata": {**head["metadata"], "ownerReferences": []}}
    assert is_ray_node(orphan, ray_cluster)
    unlabelled = {**head, "metadata": {**head["metadata"], "labels": {POD_CLUSTER_LABEL: "rc"}}}
    assert not is_ray_node(unlabelled, ray_cluster)


def test_number_of_pods_is_limited() -> None:
    assert sum(1 for _ in pods_of(cluster(replicas=100_000, maxReplicas=None))) == 1_000


def test_status_has_what_all_pods_request() -> None:
    ray_cluster = cluster(numOfHosts=2)
    requests = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    group = ray_cluster["spec"]["workerGroupSpecs"][0]
    group["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    status = status_of(ray_cluster, [])
    assert (status["desiredCPU"], status["desiredMemory"]) == ("2500m", "5Gi")
    assert (status["desiredGPU"], status["desiredTPU"]) == ("5", "0")


def test_cluster_is_ready_when_head_and_all_workers_are_ready() -> None:
    ray_cluster = cluster()
    head, first, second = pods_of(ray_cluster)
    status = status_of(
        ray_cluster, [with_ready_condition(head), with_ready_condition(first), second]
    )
    assert status["state"] is None
    assert (status["desiredWorkerReplicas"], status["availableWorkerReplicas"]) == (2, 1)
    assert (
        status["minWorkerReplicas"],
        status["maxWorkerReplicas"],
        status["observedGeneration"],
    ) == (1, 3, 4)
    assert (
        status_of(ray_cluster, map(with_ready_condition, (head, first, second)))["state"] == "ready"
    )
    assert status_of(ray_cluster, map(with_ready_condition, (first, second)))["state"] is None


def test_head_requires_token_if_the_cluster_requests_it() -> None:
    ray_cluster = cluster()
    assert not requires_ray_token(next(pods_of(ray_cluster))["spec"])
    ray_cluster["spec"]["authOptions"] = {"mode": "token"}
    for pod in pods_of(ray_cluster):
        assert requires_ray_token(pod["spec"])
    assert "env" not in ray_cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


def test_cluster_of_multikueue_does_not_run_here() -> None:
    ray_cluster = cluster()
    assert runs_here(ray_cluster)
    ray_cluster["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert not runs_here(ray_cluster)


def test_suspended_cluster_has_the_state_suspended_when_its_pods_are_deleted() -> None:
    ray_cluster = cluster()
    pods = list(map(with_ready_condition, pods_of(ray_cluster)))
    ray_cluster["spec"]["suspend"] = True
    assert status_of(ray_cluster, pods)["state"] is None
    assert status_of(ray_cluster, [])["state"] == "suspended"


def test_cluster_is_not_ready_after_its_pods_have_ended() -> None:
    ray_cluster = cluster()
    ended = [{**pod, "status": {"phase": "Succeeded"}} for pod in pods_of(ray_cluster)]
    assert status_of(ray_cluster, ended)["state"] is None


NO_ACCOUNT = 'pods "rc-head" is forbidden: error looking up service account ns/x: serviceaccount "x" not found'


@pytest.mark.parametrize(
    ("error", "age", "reported"),
    [
        (Invalid(422, {"message": "Pod is invalid: image: Required value"}), 0, True),
        (AlreadyExists(409, {"message": 'pods "rc-head" already exists'}), 0, True),
        (Forbidden(403, {"message": NO_ACCOUNT}), 1, False),
        (Forbidden(403, {"message": NO_ACCOUNT}), 9, True),
    ],
    ids=["invalid", "pod of another owner", "account of a new cluster", "unknown account"],
)
async def test_pod_that_the_api_server_refuses_is_a_replica_failure(
    error: AlreadyExists | Invalid | Forbidden, age: float, *, reported: bool
) -> None:
    clock = FakeClock()
    ray_cluster = cluster()
    created = clock.now() - timedelta(seconds=age)
    ray_cluster["metadata"]["creationTimestamp"] = rfc3339(created)
    written: list[Object] = []

    async def get(gvk: GVK, key: NamespacedName) -> Object:
        return ray_cluster

    async def create(pod: Object) -> Object:
        raise error

    async def patch_object(
        read: Object, change: Object, *, unchanged: bool, subresource: str
    ) -> None:
        assert (read, unchanged, subresource) == (ray_cluster, True, "status")
        written.append(change["status"])

    pods = SimpleNamespace(reader=SimpleNamespace(list=lambda namespace: []))
    client = SimpleNamespace(get=get, create=create, patch_object=patch_object)
    reconciler = _KubeRayReconciler(cast("Client", client), cast("Informer", pods), clock)
    result = await reconciler.reconcile(NamespacedName("ns", "rc"))
    assert result.requeue_after > 0
    failures = [each for status in written for each in status["conditions"]]
    assert [each["message"] for each in failures] == ([error.message] if reported else [])
