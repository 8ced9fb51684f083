"""Generated RayClusters, as the CodeFlare SDK creates them: 4.7 kB of JSON each, as in the recorded figures."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from cfo.runtime.objects.unstructured import NamespacedName

OBJECT_BYTES = 4700
"""Size of a RayCluster in responses of the API server, including managedFields."""
CREATED_BYTES = 2930
"""Size of a RayCluster in the create request; the server adds managedFields, metadata and the defaults of the CRD."""
TEAMS = 50
"""Number of namespaces, over which the RayClusters are distributed evenly."""


def container(name: str, cpu: str, memory: str) -> dict[str, Any]:
    """Return a Ray container."""
    return {
        "name": name,
        "image": "quay.io/modh/ray:2.47.1-py311-cu121",
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": cpu, "memory": memory},
            "requests": {"cpu": cpu, "memory": memory},
        },
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}},
        "ports": [
            {"containerPort": port, "name": port_name, "protocol": "TCP"}
            for port, port_name in ((6379, "gcs"), (8265, "dashboard"), (10001, "client"))
        ],
        "env": [
            {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
            {"name": "RAY_GRAFANA_IFRAME_HOST", "value": "g"},
        ],
        "volumeMounts": [
            {
                "mountPath": "/etc/pki/tls/certs/odh-trusted-ca-bundle.crt",
                "name": "odh-trusted-ca-cert",
            }
        ],
    }


def namespaces() -> list[dict[str, Any]]:
    """Return the namespaces of the RayClusters."""
    names = [f"team-{number:02}" for number in range(TEAMS)]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def raycluster_key(number: int) -> NamespacedName:
    """Return namespace and name of a RayCluster."""
    return NamespacedName(f"team-{number % TEAMS:02}", f"raytest-{number:05}")


def raycluster(number: int, *, padded: bool = True) -> dict[str, Any]:
    """Return a RayCluster for a create request; ``padded`` gives it the size of a real one."""
    key = raycluster_key(number)
    head = {"containers": [container("ray-head", "2", "8G")], "volumes": [trusted_ca()]}
    worker = {"containers": [container("machine-learning", "1", "4G")], "volumes": [trusted_ca()]}
    body: dict[str, Any] = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
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
                    "groupName": f"small-group-{key.name}",
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
    """Pad the object's annotation until its JSON has ``size`` bytes, with text that compresses like real data."""
    digits = hashlib.shake_256(body["metadata"]["name"].encode()).hexdigest(size)
    body["metadata"]["annotations"]["note"] = digits[: max(0, size - len(orjson.dumps(body)))]


def trusted_ca() -> dict[str, Any]:
    """Return the volume of the CA bundle."""
    return {
        "name": "odh-trusted-ca-cert",
        "configMap": {"name": "odh-trusted-ca-bundle", "optional": True},
    }


def raycluster_status(number: int, tick: int) -> dict[str, Any]:
    """Return the status that KubeRay reports for a running cluster; ``tick`` changes only ``lastUpdateTime``."""
    return {
        "state": "ready",
        "desiredWorkerReplicas": 2,
        "availableWorkerReplicas": 2,
        "head": {
            "podIP": "10.128.4.17",
            "serviceIP": "10.128.4.17",
            "serviceName": f"raytest-{number:05}-head-svc",
        },
        "endpoints": {
            "client": "10001",
            "dashboard": "8265",
            "gcs-server": "6379",
            "metrics": "8080",
        },
        "observedGeneration": 1,
        "lastUpdateTime": f"2026-01-01T{tick // 3600 % 24:02}:{tick // 60 % 60:02}:{tick % 60:02}Z",
    }
