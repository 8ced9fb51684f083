"""Maintains the NetworkPolicies of a RayCluster: one for its head, one for its workers.

KubeRay can also create policies, if ``spec.networkPolicy`` is set and its feature gate is enabled. It names them
``<cluster>-head`` and ``<cluster>-workers``, which are also our names for a cluster with old-style names: KubeRay then
replaces the spec and the labels of our policies. Each of our policies is deleted, or left to KubeRay, once KubeRay's
policy for the same pods exists and restricts the same directions. Until then it stays: KubeRay ignores the field if
its feature gate is disabled. A policy with neither our label nor our field manager is never changed.

Who can create NetworkPolicies in a namespace can open any pod in it anyway, because policies only add to each other.
Therefore an imitation of KubeRay's policy gains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.authentication import Authentication
from cfo.api.raycluster.cluster import has_cluster_labels, uses_kuberay_network_policy
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.api.raycluster.ports import ports_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, Children
from cfo.controllers.raycluster.clusters import add_indexes, all_clusters
from cfo.controllers.raycluster.dashboard_access import DashboardAccess
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces, RoleInformers, service_account_of
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.policies import desired_head_policy, desired_workers_policy, policy_types
from cfo.controllers.raycluster.predicates import CHILD_CHANGED, CLUSTER_CHANGED
from cfo.runtime import (
    NETWORK_POLICY,
    READ,
    Builder,
    Client,
    DiscoveryIncomplete,
    EnqueueRequestsFromMapFunc,
    Entry,
    EventRecorder,
    Kind,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
)

__all__ = ["NetworkPolicyReconciler", "setup"]

_CREATED_BY_LABEL = "app.kubernetes.io/created-by"
_KUBERAY = "kuberay-operator"


class NetworkPolicyReconciler:
    """Maintains the two policies of a cluster, and keeps the KubeRay operator's namespaces in them current.

    ``policies`` reads all NetworkPolicies, because another owner's policy may have the same name as ours.
    """

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "networkpolicies", (*READ, "create", "patch", "delete")),
        *OperatorNamespaces.rules,
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        config: KubeRayConfiguration,
        namespaces: OperatorNamespaces,
        access: DashboardAccess,
        policies: Reader,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._namespaces = namespaces
        self._access = access
        self._policies = policies

    async def reconcile(self, request: Request) -> Result:
        """Bring the policies of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        children = Children(self._client, self._events, cluster)
        names = names_of(cluster)
        workers_by_kuberay = self._is_restricted_by_kuberay(cluster, "workers")
        head_by_kuberay = self._is_restricted_by_kuberay(cluster, "head")
        self._record_kuberay_policies(children, workers_by_kuberay and head_by_kuberay)
        if workers_by_kuberay:
            await self._delete(children, names.workers_policy)
        else:
            await self._apply(children, desired_workers_policy(cluster, self._config))
        if head_by_kuberay:
            await self._delete(children, names.head_policy)
            return children.result()
        self._record_refused_ports(children)
        try:
            namespaces = await self._namespaces.current()
            exposure = await self._access.exposure_of(cluster)
        except DiscoveryIncomplete:
            return children.result(requeue_after=UNKNOWN_RETRY_SECONDS)
        await self._apply(
            children,
            desired_head_policy(
                cluster,
                self._config,
                namespaces,
                behind_proxy=exposure.authentication is Authentication.AUTH_PROXY and exposure.backend is not None,
                requires_token=exposure.head_requires_token,
            ),
        )
        return children.result()

    def _is_restricted_by_kuberay(self, cluster: Object, group: str) -> bool:
        """Return whether KubeRay's policy for the head (``head``) or the ``workers`` restricts what ours would."""
        if not uses_kuberay_network_policy(cluster):
            return False
        if "networkPolicy" in self._config.kuberay_features:
            return True
        entry = self._policies.entry(NamespacedName(namespace_of(cluster), f"{name_of(cluster)}-{group}"))
        policy = entry.object() if entry is not None else {}
        restricted = set((policy.get("spec") or {}).get("policyTypes") or ())
        return restricted.issuperset(policy_types(self._config)) and _is_by_kuberay(policy, cluster)

    def _record_kuberay_policies(self, children: Children, active: bool) -> None:
        if active:
            children.record_normal(
                "NetworkPolicyByKubeRay",
                "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
            )
        elif uses_kuberay_network_policy(children.cluster):
            children.record_normal(
                "KubeRayFeatureUnconfirmed",
                "The RayCluster sets spec.networkPolicy, but KubeRay has not created NetworkPolicies that restrict the "
                "ingress to its head and workers: the operator's own NetworkPolicies stay until then",
            )

    def _record_refused_ports(self, children: Children) -> None:
        refused = ports_of(children.cluster).refused
        if refused:
            children.record_warning("PortRefused", f"The NetworkPolicies do not open all ports: {'; '.join(refused)}")

    async def _apply(self, children: Children, desired: Object) -> None:
        current = self._policies.entry(key_of(desired))
        if current is not None and not _is_ours(current, children.cluster):
            children.record_conflict(
                "NameTaken",
                f"NetworkPolicy {name_of(desired)} already exists and does not belong to this RayCluster: "
                "it is left unchanged",
            )
            return
        await children.apply(desired, current.meta.uid if current is not None else "")

    async def _delete(self, children: Children, name: str) -> None:
        current = self._policies.entry(NamespacedName(namespace_of(children.cluster), name))
        if current is None or not _is_ours(current, children.cluster):
            return
        await children.delete(NETWORK_POLICY, current.object())


def _is_by_kuberay(policy: Mapping[str, Any], cluster: Object) -> bool:
    """Return whether KubeRay created ``policy`` for ``cluster`` or took it over: it replaces all labels by its own."""
    return (
        is_controlled_by(policy, cluster)
        and labels_of(policy).get(_CREATED_BY_LABEL) == _KUBERAY
        and not has_cluster_labels(policy, cluster)
    )


def _is_ours(policy: Entry, cluster: Object) -> bool:
    """Return whether the label or field manager is ours; KubeRay's policy has the same owner reference.

    If KubeRay took over a policy of ours, it replaced the labels, but our field manager still owns other fields.
    """
    if has_cluster_labels({"metadata": {"namespace": policy.key.namespace, "labels": policy.meta.labels}}, cluster):
        return True
    if policy.meta.labels.get(_CREATED_BY_LABEL) == _KUBERAY:
        return False
    return any(field.get("manager") == FIELD_MANAGER for field in policy.managers)


async def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of NetworkPolicies to ``manager``.

    Raises the errors of reading the operator's credentials.
    """
    name = "raycluster-networkpolicy"
    cluster_informer = manager.cache.informer(RAY_CLUSTER)
    add_indexes(cluster_informer)
    clusters = cluster_informer.reader
    credentials = await manager.transport.config.authenticate()
    # An operator limited to some namespaces is not allowed to read cluster-scoped objects.
    needs_roles = not config.operator_namespaces and manager.options.namespaces is None
    roles = RoleInformers.of(manager.cache) if needs_roles else None
    namespaces = OperatorNamespaces(
        config, environment, roles, own_account=service_account_of(credentials.authorization)
    )
    reconciler = NetworkPolicyReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config,
        namespaces,
        environment.access,
        manager.cache.informer(NETWORK_POLICY, max_bytes=MAX_CACHED_BYTES).reader,
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, CLUSTER_CHANGED)
        .owns(NETWORK_POLICY, CHILD_CHANGED, max_bytes=MAX_CACHED_BYTES)
        .complete(reconciler)
    )
    enqueue_all_if_changed = EnqueueRequestsFromMapFunc(
        lambda entry: all_clusters(clusters) if namespaces.update(entry) else ()
    )
    for informer in roles or ():
        controller.watch(Kind(informer, enqueue_all_if_changed, mapper=manager.mapper, optional=True))
    environment.access.subscribe(manager, controller, clusters)
    environment.dsc_initializations.subscribe(controller, enqueue_all_if_changed)
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters))
