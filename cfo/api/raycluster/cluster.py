"""Accessors for the fields and labels of a RayCluster that the operator uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cfo.api.raycluster.names import CLUSTER_LABEL, NAMESPACE_LABEL, label_value
from cfo.runtime import (
    GVK,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from cfo.runtime.objects import new_object

POD_CLUSTER_LABEL = "ray.io/cluster"
"""The label that KubeRay sets on the pods of each RayCluster, with its name."""
NODE_TYPE_LABEL = "ray.io/node-type"
CERTIFICATE_CONTAINER = "create-cert"
"""The injected init container that creates a Ray node's certificate."""
TLS_VARIABLE = {"name": "RAY_USE_TLS", "value": "1"}
"""The injected environment variable that makes Ray require TLS with client certificates."""
RBAC_PROXY_CONTAINER = "rbac-proxy"
"""The injected container with kube-rbac-proxy, through which all requests to the dashboard pass."""
PROXY_CONTAINER = "oauth-proxy"
"""The injected container with the OAuth proxy of OpenShift."""
PROXY_CONTAINERS = frozenset({PROXY_CONTAINER, RBAC_PROXY_CONTAINER})
"""The names of all injected containers that run alongside Ray."""
ADDED_CONTAINERS = PROXY_CONTAINERS | {CERTIFICATE_CONTAINER}
"""The names of all injected containers."""
_RAY_AUTH_MODE = "RAY_AUTH_MODE"
MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"
"""The value of ``spec.managedBy`` with which MultiKueue runs a RayCluster in another Kubernetes cluster."""
SECURE_TRUSTED_NETWORK = "odh.ray.io/secure-trusted-network"
"""The annotation with which Open Data Hub's KubeRay secures a RayCluster (only the value ``true``).

Its webhook sets it on OpenShift.
"""
HEAD_LABELS = f"{NODE_TYPE_LABEL}=head"
"""The label selector for the head pods of all clusters."""


def _spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = cluster.get("spec")
    return spec if isinstance(spec, dict) else {}


def head_pod_spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the head's pod template."""
    return _pod_of(_spec(cluster).get("headGroupSpec"))


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
    values = _values_of(ray, TLS_VARIABLE["name"])
    return CERTIFICATE_CONTAINER in init_containers and _are_all(values, TLS_VARIABLE["value"])


def uses_kuberay_auth(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay itself protects the dashboard with tokens (``spec.authOptions.mode``)."""
    return (_spec(cluster).get("authOptions") or {}).get("mode") == "token"


def has_injected_auth_proxy(cluster: Mapping[str, Any]) -> bool:
    """Return whether the head's pod template has the proxy that checks all requests."""
    containers = head_pod_spec(cluster).get("containers") or ()
    return any(item.get("name") == RBAC_PROXY_CONTAINER for item in containers[1:])


def requests_ray_token(cluster: Mapping[str, Any]) -> bool:
    """Return whether new pods of ``cluster`` require Ray's token, if KubeRay acts on ``authOptions``.

    A template that sets ``RAY_AUTH_MODE`` to another value disables the token, whatever ``authOptions`` says.
    """
    if not uses_kuberay_auth(cluster):
        return False
    return all(mode == "token" for mode in _ray_auth_modes(head_pod_spec(cluster)))


def requires_ray_token(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether Ray requires a token in a running pod with this spec.

    KubeRay sets ``RAY_AUTH_MODE`` in the first container when it creates the pod, unless the variable is already in the
    template, and does not change running pods when ``authOptions`` changes.
    """
    return _are_all(_ray_auth_modes(pod_spec), "token")


def _are_all(values: list[Any], wanted: str) -> bool:
    return bool(values) and all(value == wanted for value in values)


def _ray_auth_modes(pod_spec: Mapping[str, Any]) -> list[Any]:
    ray: Mapping[str, Any] = next(iter(pod_spec.get("containers") or ()), {})
    return _values_of(ray, _RAY_AUTH_MODE)


def _values_of(container: Mapping[str, Any], variable: str) -> list[Any]:
    """Return the values of the environment variables with this name, of which Ray reads the last one."""
    variables = container.get("env") or ()
    return [item.get("value") for item in variables if item.get("name") == variable]


def is_managed_by_multikueue(cluster: Mapping[str, Any]) -> bool:
    """Return whether MultiKueue runs ``cluster`` in another Kubernetes cluster (``spec.managedBy``)."""
    return _spec(cluster).get("managedBy") == MULTIKUEUE_CONTROLLER


def uses_secure_trusted_network(cluster: Mapping[str, Any]) -> bool:
    """Return whether Open Data Hub's KubeRay is requested to secure the cluster."""
    return annotations_of(cluster).get(SECURE_TRUSTED_NETWORK) == "true"


def uses_network_isolation(cluster: Mapping[str, Any]) -> bool:
    """Return whether ``spec.networkIsolation`` is set; the fork restricts ingress in each of its modes."""
    return _spec(cluster).get("networkIsolation") is not None


def restricts_ingress(cluster: Mapping[str, Any]) -> bool:
    """Return whether ``spec.networkPolicy`` restricts ingress; its mode can be for egress only."""
    policy = _spec(cluster).get("networkPolicy")
    return isinstance(policy, dict) and policy.get("mode") in (None, "DenyAll", "DenyAllIngress")


def enables_ingress(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay exposes the dashboard: it reads ``ingressOptions`` only with ``enableIngress``."""
    head = _spec(cluster).get("headGroupSpec")
    return isinstance(head, dict) and head.get("enableIngress") is True


def cluster_labels(cluster: Mapping[str, Any], *, with_namespace: bool = False) -> dict[str, str]:
    """Return the labels of objects that belong to ``cluster``; cluster-scoped ones need ``with_namespace``."""
    labels = {CLUSTER_LABEL: label_value(name_of(cluster))}
    if with_namespace:
        labels[NAMESPACE_LABEL] = namespace_of(cluster)
    return labels


def child_object(cluster: Mapping[str, Any], gvk: GVK, name: str, **fields: Any) -> Object:
    """Return an object called ``name`` in the namespace of ``cluster``, with its label and further ``fields``."""
    return new_object(gvk, name, namespace_of(cluster), labels=cluster_labels(cluster), **fields)


def has_cluster_labels(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether the labels of ``obj`` name ``cluster``.

    An object in the cluster's namespace needs the label with the cluster's name; a cluster-scoped object also needs the
    label with the cluster's namespace.
    """
    labels = labels_of(obj)
    namespace = namespace_of(obj)
    wanted = cluster_labels(cluster, with_namespace=not namespace)
    return namespace in ("", namespace_of(cluster)) and wanted.items() <= labels.items()


def has_owner_reference(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether an owner reference of ``obj`` has the uid of ``cluster``."""
    uid = uid_of(cluster)
    return any(reference.get("uid") == uid for reference in owner_references_of(obj))


def pod_labels(cluster: Mapping[str, Any], node_type: str = "") -> dict[str, str]:
    """Return the labels that KubeRay sets on the pods of ``cluster``: all pods, or the pods of one ``node_type``."""
    labels = {POD_CLUSTER_LABEL: label_value(name_of(cluster))}
    if node_type:
        labels[NODE_TYPE_LABEL] = node_type
    return labels


class PodGroup(msgspec.Struct, frozen=True):
    """The head group or a worker group.

    ``position`` is the index of a worker group, and -1 for the head group, whose ``name`` is empty. ``pod`` is the pod
    spec of the group's template.
    """

    position: int
    name: str
    is_head: bool
    pod: dict[str, Any]

    @property
    def key(self) -> tuple[bool, str]:
        """Identifies the group in other versions of the RayCluster."""
        return self.is_head, self.name

    def path(self, *steps: str | int) -> str:
        """Return the path of a field of :attr:`pod`."""
        return pod_path(self.position, *steps)


def pod_path(position: int, *steps: str | int) -> str:
    """Return the path of a field in the pod spec of a group (see :class:`PodGroup`), for errors and warnings."""
    group = "headGroupSpec" if position < 0 else f"workerGroupSpecs[{position}]"
    path = f"spec.{group}.template.spec"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}"
    return path


def pod_groups_of(cluster: Mapping[str, Any]) -> list[PodGroup]:
    """Return the groups of ``cluster``, the head group first. Their pod specs are not copied."""
    spec = _spec(cluster)
    head = PodGroup(position=-1, name="", is_head=True, pod=_pod_of(spec.get("headGroupSpec")))
    groups = [head]
    for position, worker in enumerate(spec.get("workerGroupSpecs") or ()):
        name = (worker or {}).get("groupName") or f"#{position}"
        groups.append(PodGroup(position, str(name), is_head=False, pod=_pod_of(worker)))
    return groups


def _pod_of(group: Mapping[str, Any] | None) -> dict[str, Any]:
    pod: dict[str, Any] = ((group or {}).get("template") or {}).get("spec") or {}
    return pod
