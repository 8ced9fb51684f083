"""Accessors for the fields and labels of a RayCluster that the operator uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL, label_value
from cfo.runtime import labels_of, name_of, namespace_of, owner_references_of, uid_of

__all__ = [
    "CERTIFICATE_CONTAINER",
    "HEAD_LABELS",
    "POD_CLUSTER_LABEL",
    "TLS_VARIABLE",
    "cluster_labels",
    "has_cluster_labels",
    "has_injected_tls",
    "head_pod_spec",
    "is_owned_by",
    "is_suspended",
    "pod_labels",
    "uses_kuberay_auth",
    "uses_kuberay_tls",
]

POD_CLUSTER_LABEL = "ray.io/cluster"
"""The label that KubeRay sets on the pods of each RayCluster, with its name."""
NODE_TYPE_LABEL = "ray.io/node-type"
CERTIFICATE_CONTAINER = "create-cert"
"""The injected init container that creates a Ray node's certificate."""
TLS_VARIABLE = {"name": "RAY_USE_TLS", "value": "1"}
"""The injected environment variable that makes Ray require TLS with client certificates."""
HEAD_LABELS = f"{NODE_TYPE_LABEL}=head"
"""The label selector for the head pods of all clusters."""


def _spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    return cluster.get("spec") or {}


def head_pod_spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the head's pod template."""
    group = _spec(cluster).get("headGroupSpec") or {}
    return (group.get("template") or {}).get("spec") or {}


def is_suspended(cluster: Mapping[str, Any]) -> bool:
    """Return whether the cluster is suspended, so that it has no pods."""
    return bool(_spec(cluster).get("suspend"))


def uses_kuberay_tls(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay itself provides TLS between the nodes (``spec.tlsOptions.enabled``)."""
    return (_spec(cluster).get("tlsOptions") or {}).get("enabled") is True


def has_injected_tls(cluster: Mapping[str, Any]) -> bool:
    """Return whether the head's pod template has the parts with which the operator makes Ray require TLS.

    These are the init container ``create-cert`` and, in the container that runs Ray, ``RAY_USE_TLS=1``. For KubeRay,
    that is always the first container. Of several variables with one name the last wins, so all must have this value.
    """
    pod = head_pod_spec(cluster)
    init_containers = {item.get("name") for item in pod.get("initContainers") or ()}
    ray: Mapping[str, Any] = next(iter(pod.get("containers") or ()), {})
    values = [item.get("value") for item in ray.get("env") or () if item.get("name") == TLS_VARIABLE["name"]]
    return CERTIFICATE_CONTAINER in init_containers and bool(values) and set(values) == {TLS_VARIABLE["value"]}


def uses_kuberay_auth(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay itself protects the dashboard with tokens (``spec.authOptions.mode``)."""
    return (_spec(cluster).get("authOptions") or {}).get("mode") == "token"


def cluster_labels(cluster: Mapping[str, Any], *, with_namespace: bool = False) -> dict[str, str]:
    """Return the labels of objects that belong to ``cluster``; cluster-scoped ones need ``with_namespace``."""
    labels = {CLUSTER_LABEL: label_value(name_of(cluster))}
    if with_namespace:
        labels[NAMESPACE_LABEL] = namespace_of(cluster)
    return labels


def has_cluster_labels(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether the labels of ``obj`` name ``cluster``.

    An object in the cluster's namespace needs the label with the cluster's name; a cluster-scoped object also needs the
    label with the cluster's namespace.
    """
    labels = labels_of(obj)
    namespace = namespace_of(obj)
    wanted = cluster_labels(cluster, with_namespace=not namespace)
    return namespace in ("", namespace_of(cluster)) and wanted.items() <= labels.items()


def is_owned_by(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether an owner reference of ``obj`` has the uid of ``cluster``."""
    uid = uid_of(cluster)
    return any(reference.get("uid") == uid for reference in owner_references_of(obj))


def pod_labels(cluster: Mapping[str, Any], node_type: str = "") -> dict[str, str]:
    """Return the labels that KubeRay sets on the pods of ``cluster``: all pods, or the pods of one ``node_type``."""
    labels = {POD_CLUSTER_LABEL: label_value(name_of(cluster))}
    if node_type:
        labels[NODE_TYPE_LABEL] = node_type
    return labels
