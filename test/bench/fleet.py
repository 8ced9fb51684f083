"""RayClusters by the thousand, as the CodeFlare SDK makes them: 4.7 kB of JSON each, as in the recorded figures."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

__all__ = ["OBJECT_BYTES", "namespaces", "pad", "raycluster", "status"]

OBJECT_BYTES = 4700
"""What a RayCluster has in the API server's answers, managedFields included."""
CREATED_BYTES = 2930
"""What it has when it is created: the server adds managedFields, and what it and definitions set by default."""
TEAMS = 50


def container(name: str, cpu: str, memory: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "quay.io/modh/ray:2.47.1-py311-cu121",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}},
        "ports": [
            {"containerPort": port, "name": title, "protocol": "TCP"}
            for port, title in ((6379, "gcs"), (8265, "dashboard"), (10001, "client"))
        ],
        "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}, {"name": "RAY_GRAFANA_IFRAME_HOST", "value": "g"}],
        "volumeMounts": [{"mountPath": "/etc/pki/tls/certs/odh-trusted-ca-bundle.crt", "name": "odh-trusted-ca-cert"}],
    }


def namespaces() -> list[dict[str, Any]]:
    """Where the clusters live."""
    names = [f"team-{number:02}" for number in range(TEAMS)]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def raycluster(number: int, *, padded: bool = True) -> dict[str, Any]:
    """A RayCluster as somebody creates it; ``padded`` to the size of a real one."""
    name = f"raytest-{number:05}"
    head = {"containers": [container("ray-head", "2", "8G")], "volumes": [trusted_ca()]}
    worker = {"containers": [container("machine-learning", "1", "4G")], "volumes": [trusted_ca()]}
    body: dict[str, Any] = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": f"team-{number % TEAMS:02}",
            "labels": {"app.kubernetes.io/managed-by": "codeflare-sdk"},
            "annotations": {"note": ""},
        },
        "spec": {
            "rayVersion": "2.47.1",
            "enableInTreeAutoscaling": False,
            "headGroupSpec": {
                "serviceType": "ClusterIP",
                "enableIngress": False,
                "rayStartParams": {"dashboard-host": "0.0.0.0", "block": "true", "num-gpus": "0"},
                "template": {"spec": head},
            },
            "workerGroupSpecs": [
                {
                    "groupName": f"small-group-{name}",
                    "replicas": 2,
                    "minReplicas": 2,
                    "maxReplicas": 2,
                    "rayStartParams": {"block": "true", "num-gpus": "0"},
                    "template": {"spec": worker},
                }
            ],
        },
    }
    if padded:
        pad(body, CREATED_BYTES)
    return body


def pad(body: dict[str, Any], size: int = OBJECT_BYTES) -> None:
    """Fills its annotation with what is missing to ``size``: text that compresses as data does."""
    digits = hashlib.shake_256(body["metadata"]["name"].encode()).hexdigest(size)
    body["metadata"]["annotations"]["note"] = digits[: max(0, size - len(orjson.dumps(body)))]


def trusted_ca() -> dict[str, Any]:
    return {"name": "odh-trusted-ca-cert", "configMap": {"name": "odh-trusted-ca-bundle", "optional": True}}


def status(number: int, generation: int, tick: int) -> dict[str, Any]:
    """What KubeRay reports on a running cluster; each ``tick`` differs in what no reconciler needs to know."""
    return {
        "state": "ready",
        "desiredWorkerReplicas": 2,
        "availableWorkerReplicas": 2,
        "head": {"podIP": "10.128.4.17", "serviceIP": "10.128.4.17", "serviceName": f"raytest-{number:05}-head-svc"},
        "endpoints": {"client": "10001", "dashboard": "8265", "gcs-server": "6379", "metrics": "8080"},
        "observedGeneration": generation,
        "lastUpdateTime": f"2026-01-01T{tick // 3600 % 24:02}:{tick // 60 % 60:02}:{tick % 60:02}Z",
    }
