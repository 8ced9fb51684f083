"""The operator's Deployment, its Services and PodDisruptionBudget, and its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from cfo.config.model import OperatorConfiguration
from cfo.manifests.names import DEPLOYMENT, LABELS, PREFIX, SERVICE_ACCOUNT, named
from cfo.operator import METRICS_SERVICE
from cfo.runtime import Object

ENTRY_POINT = "/manager"
"""Path of the program in the image.

It is the same as in the Go operator's image, so that only the image in a Deployment has to change.
"""

METRICS_PORT = 8080
HEALTH_PORT = 8081
WEBHOOK_PORT = 9443

REPLICAS = 2
"""Only the leader reconciles, but both replicas serve webhooks, so admission keeps working if a node is lost."""

RESOURCES: dict[str, dict[str, str]] = {
    "requests": {"cpu": "100m", "memory": "160Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
"""The process takes about 75 MB when idle, 85 MB with 300 RayClusters and their objects; see docs/sizing.md."""

_TERMINATION_SECONDS = 40
"""More than the 30 s that running reconciles have to finish at a stop (``graceful_shutdown_timeout``)."""


_NAMESPACE_FIELD = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}


def namespace_object(namespace: str) -> Object:
    """Return the namespace. It has no labels, because other applications may use it as well."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}


def deployment(namespace: str, image: str) -> Object:
    """Return the Deployment. It meets the restricted Pod Security Standard, and sets no user, as OpenShift requires."""
    template = {
        "metadata": {
            "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
            "labels": dict(LABELS),
        },
        "spec": {
            "serviceAccountName": SERVICE_ACCOUNT,
            "terminationGracePeriodSeconds": _TERMINATION_SECONDS,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": dict(LABELS)},
                }
            ],
            "containers": [_container(image)],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
        },
    }
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": dict(LABELS)}, "template": template}
    return named("apps/v1", "Deployment", DEPLOYMENT, namespace, spec=spec)


def set_first_configuration(deployment: Object, settings: Mapping[str, Any]) -> None:
    """Set the document with which the operator of ``deployment`` creates its ConfigMap, if there is none."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    document = yaml.safe_dump(settings, sort_keys=False)
    container.setdefault("args", []).append(f"--default-config={document}")


def _container(image: str) -> dict[str, Any]:
    health = OperatorConfiguration().health
    return {
        "name": "manager",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [ENTRY_POINT],
        # A fieldRef is one value for server-side apply, so it has the defaulted apiVersion.
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": dict(_NAMESPACE_FIELD)}}],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"name": "webhook-server", "containerPort": WEBHOOK_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": {
            "httpGet": {"path": f"/{health.liveness_endpoint_name}", "port": HEALTH_PORT},
            "initialDelaySeconds": 15,
            "periodSeconds": 20,
        },
        "readinessProbe": {
            "httpGet": {"path": f"/{health.readiness_endpoint_name}", "port": HEALTH_PORT},
            "initialDelaySeconds": 2,
            "periodSeconds": 5,
        },
        "resources": {
            "requests": dict(RESOURCES["requests"]),
            "limits": dict(RESOURCES["limits"]),
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 (a path in the container)
    }


def metrics_service(namespace: str) -> Object:
    """Return the Service through which Prometheus scrapes the metrics."""
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    return _service(METRICS_SERVICE, namespace, port)


def disruption_budget(namespace: str) -> Object:
    """Return the PodDisruptionBudget, with which one replica at a time is evicted."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(LABELS)}}
    return named("policy/v1", "PodDisruptionBudget", DEPLOYMENT, namespace, spec=spec)


def webhook_service(namespace: str) -> Object:
    """Return the Service through which API servers call the webhooks."""
    port = {"port": 443, "targetPort": WEBHOOK_PORT}
    return _service(f"{PREFIX}-webhook-service", namespace, port)


def _service(name: str, namespace: str, port: dict[str, Any]) -> Object:
    spec = {"ports": [{**port, "protocol": "TCP"}], "selector": dict(LABELS)}
    return named("v1", "Service", name, namespace, spec=spec)
