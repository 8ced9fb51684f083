"""Creates and deletes the ClusterRoleBindings that allow the proxies of dashboards to check tokens."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from cfo.api.raycluster.cluster import has_cluster_labels
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    label_value,
    may_be_truncated,
    names_of,
)
from cfo.controllers.raycluster.concern import Decision, belongs_to
from cfo.controllers.raycluster.host_collisions import older_colliding_clusters
from cfo.controllers.raycluster.resources import desired_cluster_role_binding
from cfo.controllers.raycluster.watches import clusters_with_label
from cfo.runtime import (
    Client,
    Entry,
    Informer,
    NamespacedName,
    Object,
    Reader,
    Request,
    is_deleting,
    key_of,
)
from cfo.runtime.client import Child
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

_INDEX = "cluster"


class ProxyBindings:
    """The ClusterRoleBinding of each RayCluster. No owner reference can tie it to a namespaced cluster.

    ``bindings`` has all ClusterRoleBindings, and ``clusters`` reads all RayClusters.
    """

    def __init__(self, client: Client, bindings: Informer, clusters: Reader) -> None:
        self._client = client
        self._clusters = clusters
        self._bindings = bindings.add_index(_INDEX, _index_binding).reader

    def clusters_of(self, binding: Entry) -> Collection[Request]:
        """Return the clusters that the labels of a ClusterRoleBinding name.

        They are none if the cache has none and the label may be a truncated name: the cluster can be one that the cache
        leaves out, or that another operator reconciles, and no request can ask for it.
        """
        namespace = binding.meta.labels.get(NAMESPACE_LABEL)
        label = binding.meta.labels.get(CLUSTER_LABEL)
        if not namespace or not label:
            return ()
        existing = clusters_with_label(self._clusters, namespace, label)
        if existing or may_be_truncated(label):
            return existing
        # The binding of a deleted cluster is deleted by a reconcile of the name in its label.
        return (Request(namespace, label),)

    def _of(self, cluster: NamespacedName) -> list[Entry]:
        """Return the ClusterRoleBindings whose labels name ``cluster``, even if the cluster no longer exists."""
        return self._bindings.entries(
            index=(_INDEX, f"{cluster.namespace}/{label_value(cluster.name)}")
        )

    def decide(self, decision: Decision, facts: RayClusterFacts) -> None:
        """Add the ClusterRoleBinding, with the usual name if it is available.

        Two clusters can have the same usual name (``a-b`` in ``c``, ``a`` in ``b-c``). The newer cluster appends its
        hash and keeps that name.
        """
        usual = facts.names.cluster_role_binding
        hashed = facts.names.hashed_cluster_role_binding
        belongs = partial(belongs_to, cluster=facts.cluster)
        with_hash = Child.computed(
            CLUSTER_ROLE_BINDING,
            NamespacedName("", hashed),
            lambda _: desired_cluster_role_binding(facts, hashed),
            belongs=belongs,
            consequence="the OAuth proxy cannot check tokens",
        )
        if self._prefers_hashed_name(facts.cluster, usual, hashed):
            decision.children.append(with_hash)
            return
        decision.add_computed(
            CLUSTER_ROLE_BINDING,
            NamespacedName("", usual),
            lambda _: desired_cluster_role_binding(facts, usual),
            is_trusted=None,
            fallback=with_hash,
        )

    def _prefers_hashed_name(self, cluster: Object, usual: str, hashed: str) -> bool:
        """Return whether an older cluster takes precedence for the usual name."""
        if self._bindings.contains(NamespacedName("", usual)):
            return False  # the write checks the owner
        if self._bindings.contains(NamespacedName("", hashed)):
            return True
        return any(
            names_of(other).cluster_role_binding == usual and not is_deleting(other)
            for other in older_colliding_clusters(self._clusters, cluster)
        )

    def delete(self, decision: Decision) -> None:
        """Delete the cluster's ClusterRoleBindings, regardless of their names."""
        for entry in self._of(key_of(decision.cluster)):
            decision.add_absent(
                CLUSTER_ROLE_BINDING,
                entry.key,
                belongs=partial(has_cluster_labels, cluster=decision.cluster),
            )

    async def collect(self, request: Request) -> None:
        """Delete the ClusterRoleBindings of a cluster that no longer exists.

        They are left over when another client removed the finalizer, and when the Go operator changed the names of a
        cluster's objects.
        """
        for entry in self._of(request):
            if not is_oauth_proxy_binding(entry.object(), request.namespace):
                continue
            if await self._client.get(RAY_CLUSTER, request, live=True) is None:
                await self._client.delete(CLUSTER_ROLE_BINDING, entry.key, uid=entry.meta.uid)


def is_oauth_proxy_binding(binding: Object, namespace: str) -> bool:
    """Return whether a ClusterRoleBinding binds the proxy's role, and only to ServiceAccounts in ``namespace``."""
    if (binding.get("roleRef") or {}).get("name") != "system:auth-delegator":
        return False
    return all(
        subject.get("kind") == "ServiceAccount" and subject.get("namespace") == namespace
        for subject in binding.get("subjects") or ()
    )


def _index_binding(binding: Entry) -> list[str]:
    labels = binding.meta.labels
    if {CLUSTER_LABEL, NAMESPACE_LABEL} <= set(labels):
        return [f"{labels[NAMESPACE_LABEL]}/{labels[CLUSTER_LABEL]}"]
    return []
