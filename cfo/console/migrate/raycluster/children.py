"""Which objects belong to a RayCluster, and which of them the Go operator or this one created.

An object is the operator's if the RayCluster owns it, and it has a name that the operator gives to that kind. KubeRay
controls its objects by the same owner reference, and may use the same name for a NetworkPolicy, so its label decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.gateway import BACKEND_TLS_POLICIES, HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.cluster import has_cluster_labels, has_owner_reference, pod_labels
from cfo.api.raycluster.names import (
    CREATED_BY_LABEL,
    KUBERAY,
    NAMESPACE_LABEL,
    ROUTE,
    VERSION_ANNOTATION,
    names_of,
)
from cfo.controllers.raycluster.proxy_bindings import is_oauth_proxy_binding
from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
    gvk_of,
    is_controlled_by,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

CHILD_KINDS: Final = (
    HTTP_ROUTE,
    *TLS_ROUTES,
    *BACKEND_TLS_POLICIES,
    ROUTE,
    INGRESS,
    SERVICE,
    NETWORK_POLICY,
    SERVICE_ACCOUNT,
    SECRET,
    CONFIG_MAP,
)
"""The namespaced kinds that the operator creates; those that expose a RayCluster come first."""

_GROUP_LABEL: Final = "ray.io/group"

_NEEDED_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")

_MAX_SELECTOR_LABELS: Final = 10
"""More labels than KubeRay's own policies select pods by."""


def title(obj: Mapping[str, Any]) -> str:
    """Return kind and name of an object."""
    return f"{obj.get('kind')} {name_of(obj)}"


def is_by_kuberay(obj: Mapping[str, Any]) -> bool:
    """Return whether KubeRay created the object, or took it over: it then replaces all labels."""
    return labels_of(obj).get(CREATED_BY_LABEL) == KUBERAY


def is_operators(obj: Object, cluster: Object) -> bool:
    """Return whether an operator created ``obj``, which is of one of the :data:`CHILD_KINDS`, for ``cluster``.

    Labels do not suffice: users can write them to their own objects. Both operators set the owner reference.
    """
    is_named = name_of(obj) in _names(str(obj.get("kind")), cluster)
    return is_named and has_owner_reference(obj, cluster) and not is_by_kuberay(obj)


def is_binding_of(binding: Object, cluster: Object) -> bool:
    """Return whether the labels or the name of a ClusterRoleBinding refer to ``cluster``."""
    if has_cluster_labels(binding, cluster):
        return True
    is_of_another = NAMESPACE_LABEL in labels_of(binding)
    return name_of(binding) in _names(CLUSTER_ROLE_BINDING.kind, cluster) and not is_of_another


def is_operators_binding(binding: Object, cluster: Object) -> bool:
    """Return whether an operator created this ClusterRoleBinding for ``cluster``."""
    return is_binding_of(binding, cluster) and is_oauth_proxy_binding(
        binding, namespace_of(cluster)
    )


def is_read_with_content(gvk: GVK) -> bool:
    """Return whether a plan needs the content, too, if ``gvk`` is one of the :data:`CHILD_KINDS`."""
    return gvk in (NETWORK_POLICY, INGRESS)


def needed_part(cluster: Object, obj: Object) -> Object | None:
    """Return what the plan for ``cluster`` needs of an object with its label; ``None`` if that is nothing.

    Users can label any number of large objects. NetworkPolicies and Ingresses with the operator's names, which are few,
    are kept as they are. A small part is kept of other objects with its names, and of KubeRay's policies.
    """
    is_named = name_of(obj) in _names(str(obj.get("kind")), cluster)
    if is_named and is_read_with_content(gvk_of(obj)):
        return obj
    metadata: dict[str, Any] = {
        name: obj["metadata"][name] for name in _NEEDED_METADATA if name in obj["metadata"]
    }
    owners = [each for each in owner_references_of(obj) if each.get("uid") == uid_of(cluster)]
    metadata["ownerReferences"] = sorted(owners, key=lambda each: not each.get("controller"))[:1]
    if is_by_kuberay(obj):
        metadata["labels"] = {CREATED_BY_LABEL: KUBERAY}
    part = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
    if is_named:
        return part
    if obj["kind"] != NETWORK_POLICY.kind or not is_by_kuberay(obj):
        return None
    spec = obj.get("spec") or {}
    labels = (spec.get("podSelector") or {}).get("matchLabels") or {}
    if not is_controlled_by(obj, cluster) or len(labels) > _MAX_SELECTOR_LABELS:
        return None
    types = [each for each in spec.get("policyTypes") or () if each == "Ingress"]
    return {**part, "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": types[:1]}}


def _names(kind: str, cluster: Object) -> Collection[str]:
    """Return the names of the operator's objects of a kind, in both naming generations.

    An edit by the Go operator annotates a RayCluster with old names, which then has objects of both generations.
    """
    found: set[str] = set()
    metadata = cluster["metadata"]
    for generation in ({}, {VERSION_ANNOTATION: ""}):
        names = names_of({**cluster, "metadata": {**metadata, "annotations": generation}})
        found |= {
            SECRET.kind: {names.ca_secret, names.cookie_secret, names.proxy_tls_secret},
            SERVICE.kind: {names.proxy_service},
            SERVICE_ACCOUNT.kind: {names.proxy_service_account},
            NETWORK_POLICY.kind: {names.head_policy, names.workers_policy},
            ROUTE.kind: {names.dashboard, names.client},
            INGRESS.kind: {names.dashboard, names.client},
            HTTP_ROUTE.kind: {names.dashboard},
            TLS_ROUTES[0].kind: {names.client},
            BACKEND_TLS_POLICIES[0].kind: {names.dashboard},
            CONFIG_MAP.kind: {names.proxy_tls_secret},
            CLUSTER_ROLE_BINDING.kind: {
                names.cluster_role_binding,
                names.hashed_cluster_role_binding,
            },
        }.get(kind, set())
    return found


def binding_names(cluster: Object) -> Collection[str]:
    """Return the possible names of the ClusterRoleBindings of ``cluster``."""
    return _names(CLUSTER_ROLE_BINDING.kind, cluster)


def references_of(cluster: Object) -> frozenset[tuple[str, str]]:
    """Return kind and name of the Secrets and ServiceAccounts that the pod templates of ``cluster`` use."""
    return frozenset(_references(cluster.get("spec") or {}))


def _references(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("secretName", "serviceAccountName") and isinstance(item, str):
                yield ("Secret" if key == "secretName" else "ServiceAccount"), item
            elif (
                key in ("secretKeyRef", "secretRef", "secret")
                and isinstance(item, Mapping)
                and "name" in item
            ):
                yield "Secret", str(item["name"])
            yield from _references(item)


def are_restricted_by_kuberay(cluster: Object, policies: Iterable[Object]) -> bool:
    """Return whether KubeRay's own policies restrict the ingress to the head and to all worker groups of ``cluster``.

    KubeRay 1.7 creates one policy for the head and one for each worker group; the fork of Open Data Hub creates one for
    all workers.
    """
    selectors = [
        (policy.get("spec") or {}).get("podSelector", {}).get("matchLabels") or {}
        for policy in policies
        if is_by_kuberay(policy)
        and is_controlled_by(policy, cluster)
        and "Ingress" in ((policy.get("spec") or {}).get("policyTypes") or ())
    ]
    workers = pod_labels(cluster, "worker")
    groups = [
        group.get("groupName")
        for group in (cluster.get("spec") or {}).get("workerGroupSpecs") or ()
    ]
    return pod_labels(cluster, "head") in selectors and (
        workers in selectors
        or all({**workers, _GROUP_LABEL: group} in selectors for group in groups)
    )
