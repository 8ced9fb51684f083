"""End-to-end tests of RayClusters and AppWrappers on a cluster with KubeRay and Kueue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from test.e2e import mnist
from test.e2e.conftest import Cluster

pytestmark = pytest.mark.timeout(1800)


def ray_cluster(name: str, image: str) -> dict[str, Any]:
    def group(container: str) -> dict[str, Any]:
        resources = {
            "requests": {"cpu": "250m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        }
        return {
            "spec": {"containers": [{"name": container, "image": image, "resources": resources}]}
        }

    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.35.0",
            "headGroupSpec": {
                "rayStartParams": {"dashboard-host": "0.0.0.0"},
                "template": group("ray-head"),
            },
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


def create_queue(cluster: Cluster) -> None:
    """Create a queue with quota for one small job, only for this test."""
    name = cluster.namespace
    cluster.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
        }
    )
    flavor = {
        "name": name,
        "resources": [
            {"name": "cpu", "nominalQuota": "2"},
            {"name": "memory", "nominalQuota": "8Gi"},
        ],
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


def job(name: str, **container: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        **container,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [main]}},
        },
    }


def training(name: str, cluster: Cluster) -> dict[str, Any]:
    """Return a Job that installs with pip, downloads a dataset and trains, with the cluster's settings."""
    script = Path(mnist.__file__).read_text()
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"mnist.py": script},
        }
    )
    environment = {
        "HOME": "/tmp",
        "MNIST_DATASET_URL": cluster.settings.mnist_url,
        **cluster.settings.pip,
    }
    training_job = job(
        name,
        image=cluster.settings.pytorch_image,
        command=["sh", "-c", "python -m pip install torchmetrics && python /script/mnist.py"],
        env=[{"name": key, "value": value} for key, value in environment.items()],
        resources={"requests": {"cpu": "500m", "memory": "2Gi"}},
        volumeMounts=[{"name": "script", "mountPath": "/script"}],
    )
    training_job["spec"]["template"]["spec"]["volumes"] = [
        {"name": "script", "configMap": {"name": name}}
    ]
    return training_job


def app_wrapper(name: str, component: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"components": [{"template": component}]},
    }


def wait_until_ready(cluster: Cluster, name: str) -> None:
    cluster.wait_for(
        lambda: cluster.get("raycluster", name).get("status", {}).get("state") == "ready",
        f"RayCluster {name} is ready",
        cluster.settings.long,
    )


def wait_until_succeeded(cluster: Cluster, name: str) -> None:
    def succeeded() -> Any:
        phase = cluster.get("appwrapper", name).get("status", {}).get("phase")
        assert phase != "Failed", f"AppWrapper {name} failed"
        return phase == "Succeeded"

    cluster.wait_for(succeeded, f"AppWrapper {name} has succeeded", cluster.settings.long)


def test_raycluster_becomes_ready_with_ingress_policies_and_secret(cluster: Cluster) -> None:
    cluster.apply(ray_cluster("small", cluster.settings.ray_image))
    wait_until_ready(cluster, "small")
    for kind in ("ingress", "networkpolicy", "secret"):
        label = "ray.openshift.ai/cluster-name=small"
        assert cluster.kubectl("get", kind, "--selector", label, "-o", "name").strip(), kind
    pods = cluster.kubectl(
        "get", "pods", "--selector", "ray.io/node-type=head", "-o", "name"
    ).split()
    output = cluster.kubectl("exec", pods[0], "--", "ray", "status")
    assert "Active" in output  # the worker has joined, with mutual TLS
    cluster.kubectl("delete", "raycluster", "small", "--timeout", f"{cluster.settings.medium:g}s")


def test_wrapped_job_runs_when_admitted(cluster: Cluster) -> None:
    create_queue(cluster)
    printing = job(
        "wrapped", image=cluster.settings.ray_image, command=["python", "-c", "print('done')"]
    )
    cluster.apply(app_wrapper("wrapped", printing))
    wait_until_succeeded(cluster, "wrapped")


def test_wrapped_training_job_reaches_the_minimum_accuracy(cluster: Cluster) -> None:
    create_queue(cluster)
    cluster.apply(app_wrapper("mnist", training("mnist", cluster)))
    wait_until_succeeded(cluster, "mnist")
    assert "accuracy" in cluster.kubectl("logs", "job/mnist")


def test_wrapped_raycluster_runs_when_admitted_and_is_deleted_with_its_appwrapper(
    cluster: Cluster,
) -> None:
    create_queue(cluster)
    cluster.apply(app_wrapper("wrapped", ray_cluster("inner", cluster.settings.ray_image)))
    wait_until_ready(cluster, "inner")
    cluster.kubectl("delete", "appwrapper", "wrapped", "--timeout", f"{cluster.settings.medium:g}s")
    cluster.wait_for(
        lambda: not cluster.get("raycluster", "inner"),
        "the RayCluster is deleted with its AppWrapper",
        cluster.settings.short,
    )


def test_admission_rejects_unknown_kinds(cluster: Cluster) -> None:
    unknown = {"apiVersion": "example.test/v1", "kind": "None", "metadata": {"name": "x"}}
    with pytest.raises(AssertionError, match=r"spec\.components"):
        cluster.apply(app_wrapper("nothing", unknown))
