"""What a RayCluster asks for, as far as these controllers care."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL, label_value
from cfo.runtime.objects import labels_of, name_of, namespace_of, owner_references_of, uid_of

__all__ = [
    "HEAD_LABELS",
    "cluster_labels",
    "has_cluster_labels",
    "is_owned_by",
    "is_suspended",
    "pod_labels",
    "uses_kuberay_auth",
    "uses_kuberay_network_policy",
    "uses_kuberay_tls",
]

POD_CLUSTER_LABEL = "ray.io/cluster"
NODE_TYPE_LABEL = "ray.io/node-type"
HEAD_LABELS = f"{NODE_TYPE_LABEL}=head"
"""The label selector of every head pod."""


def _spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    return cluster.get("spec") or {}


def is_suspended(cluster: Mapping[str, Any]) -> bool:
    """Whether the cluster is to have no pods now."""
    return bool(_spec(cluster).get("suspend"))


def uses_kuberay_tls(cluster: Mapping[str, Any]) -> bool:
    """Whether KubeRay itself provides TLS between the nodes (``spec.tlsOptions.enabled``)."""
    return (_spec(cluster).get("tlsOptions") or {}).get("enabled") is True


def uses_kuberay_network_policy(cluster: Mapping[str, Any]) -> bool:
    """Whether KubeRay itself makes the network policies (``spec.networkPolicy``, whose mode has a default)."""
    return _spec(cluster).get("networkPolicy") is not None


def uses_kuberay_auth(cluster: Mapping[str, Any]) -> bool:
    """Whether KubeRay itself guards the dashboard with tokens (``spec.authOptions.mode``)."""
    return (_spec(cluster).get("authOptions") or {}).get("mode") == "token"


def cluster_labels(cluster: Mapping[str, Any], *, with_namespace: bool = False) -> dict[str, str]:
    """The labels of what belongs to ``cluster``; cluster-scoped objects need the namespace too."""
    labels = {CLUSTER_LABEL: label_value(name_of(cluster))}
    if with_namespace:
        labels[NAMESPACE_LABEL] = namespace_of(cluster)
    return labels


def has_cluster_labels(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether the labels of ``obj`` say that it belongs to ``cluster``.

    In the cluster's namespace its name is enough; an object without a namespace must name that too.
    """
    labels = labels_of(obj)
    namespace = namespace_of(obj)
    wanted = cluster_labels(cluster, with_namespace=not namespace)
    return namespace in ("", namespace_of(cluster)) and wanted.items() <= labels.items()


def is_owned_by(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether an owner reference of ``obj`` holds the uid of ``cluster``."""
    uid = uid_of(cluster)
    return any(reference.get("uid") == uid for reference in owner_references_of(obj))


def pod_labels(cluster: Mapping[str, Any], node_type: str = "") -> dict[str, str]:
    """The labels by which KubeRay marks the pods of ``cluster``, all or those of one ``node_type``."""
    labels = {POD_CLUSTER_LABEL: label_value(name_of(cluster))}
    if node_type:
        labels[NODE_TYPE_LABEL] = node_type
    return labels
