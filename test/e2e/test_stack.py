"""RayClusters and AppWrappers on a real cluster, with KubeRay and Kueue beside us."""

from __future__ import annotations

from typing import Any

import pytest

from test.e2e.conftest import RAY_IMAGE, Cluster

pytestmark = pytest.mark.timeout(1800)


def ray_cluster(name: str, **metadata: Any) -> dict[str, Any]:
    def group(container: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
        return {"spec": {"containers": [{"name": container, "image": RAY_IMAGE, "resources": resources}]}}

    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, **metadata},
        "spec": {
            "rayVersion": "2.35.0",
            "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": group("ray-head")},
            "workerGroupSpecs": [
                {
                    "groupName": "small",
                    "replicas": 1,
                    "minReplicas": 1,
                    "maxReplicas": 1,
                    "rayStartParams": {},
                    "template": group("ray-worker"),
                }
            ],
        },
    }


def queue(cluster: Cluster) -> None:
    """Quota for one small job, in a queue of the test's own."""
    name = cluster.namespace
    cluster.apply({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": name}})
    flavor = {
        "name": name,
        "resources": [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "8Gi"}],
    }
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]
    cluster.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        }
    )
    cluster.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "queue"},
            "spec": {"clusterQueue": name},
        }
    )


def job(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": RAY_IMAGE,
        "command": ["python", "-c", "print('done')"],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def app_wrapper(name: str, component: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"components": [{"template": component}]},
    }


def test_a_ray_cluster_becomes_ready_behind_its_policies(cluster: Cluster) -> None:
    cluster.apply(ray_cluster("small"))
    cluster.until(lambda: cluster.get("raycluster", "small").get("status", {}).get("state") == "ready", "ready")
    for kind in ("ingress", "networkpolicy", "secret"):
        label = "ray.openshift.ai/cluster-name=small"
        assert cluster.kubectl("get", kind, "--selector", label, "-o", "name").strip(), kind
    pods = cluster.kubectl("get", "pods", "--selector", "ray.io/node-type=head", "-o", "name").split()
    said = cluster.kubectl("exec", pods[0], "--", "ray", "status")
    assert "Active" in said  # the worker has joined, with mutual TLS
    cluster.kubectl("delete", "raycluster", "small", "--timeout", "120s")


def test_a_wrapped_job_runs_when_the_queue_lets_it(cluster: Cluster) -> None:
    queue(cluster)
    cluster.apply(app_wrapper("wrapped", job("wrapped")))
    cluster.until(lambda: cluster.get("appwrapper", "wrapped").get("status", {}).get("phase") == "Succeeded", "done")


def test_a_wrapped_ray_cluster_runs_when_the_queue_lets_it(cluster: Cluster) -> None:
    queue(cluster)
    cluster.apply(app_wrapper("wrapped", ray_cluster("inner")))
    cluster.until(lambda: cluster.get("raycluster", "inner").get("status", {}).get("state") == "ready", "ready")
    cluster.kubectl("delete", "appwrapper", "wrapped", "--timeout", "180s")
    cluster.until(lambda: not cluster.get("raycluster", "inner"), "gone with its wrapper")


def test_admission_refuses_what_cannot_work(cluster: Cluster) -> None:
    unknown = {"apiVersion": "example.test/v1", "kind": "None", "metadata": {"name": "x"}}
    with pytest.raises(AssertionError, match=r"spec\.components"):
        cluster.apply(app_wrapper("nothing", unknown))
