"""Maintains the NetworkPolicies of a RayCluster: one for its head, one for its workers.

KubeRay can also create policies, and names the policy of the head ``<cluster>-head``, which is also our name for a
cluster with old-style names. If ``spec.networkPolicy`` is used, our policies are deleted. A policy with neither our
label nor our field manager is never changed.
"""

from __future__ import annotations

from cfo.api.raycluster.cluster import has_cluster_labels, uses_kuberay_network_policy
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.clusters import all_clusters
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces, RoleInformers, service_account_of
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.predicates import CHILD_CHANGED, CLUSTER_CHANGED
from cfo.controllers.raycluster.resources import desired_head_policy, desired_workers_policy
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
    is_deleting,
    key_of,
    name_of,
    namespace_of,
)

__all__ = ["NetworkPolicyReconciler", "setup"]


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
        policies: Reader,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._namespaces = namespaces
        self._policies = policies

    async def reconcile(self, request: Request) -> Result:
        """Bring the policies of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        children = Children(self._client, self._events, cluster)
        if uses_kuberay_network_policy(cluster):
            children.record_normal(
                "NetworkPolicyByKubeRay",
                "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
            )
            await self._delete(children)
            return children.result()
        await self._apply(children, desired_workers_policy(cluster))
        try:
            namespaces = await self._namespaces.current()
        except DiscoveryIncomplete:
            return children.result(requeue_after=UNKNOWN_RETRY_SECONDS)
        await self._apply(children, desired_head_policy(cluster, self._config, namespaces))
        return children.result()

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

    async def _delete(self, children: Children) -> None:
        names = names_of(children.cluster)
        for name in (names.head_policy, names.workers_policy):
            current = self._policies.entry(NamespacedName(namespace_of(children.cluster), name))
            if current is not None and _is_ours(current, children.cluster):
                await children.delete(NETWORK_POLICY, current.object())


def _is_ours(policy: Entry, cluster: Object) -> bool:
    """Return whether the label or field manager is ours; KubeRay's policy has the same owner reference."""
    if has_cluster_labels({"metadata": {"namespace": policy.key.namespace, "labels": policy.meta.labels}}, cluster):
        return True
    return any(field.get("manager") == FIELD_MANAGER for field in policy.managers)


async def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of NetworkPolicies to ``manager``.

    Raises the errors of reading the operator's credentials.
    """
    name = "raycluster-networkpolicy"
    clusters = manager.cache.informer(RAY_CLUSTER).reader
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
        manager.cache.informer(NETWORK_POLICY).reader,
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, CLUSTER_CHANGED)
        .owns(NETWORK_POLICY, CHILD_CHANGED)
        .complete(reconciler)
    )
    enqueue_all_if_changed = EnqueueRequestsFromMapFunc(
        lambda entry: all_clusters(clusters) if namespaces.update(entry) else ()
    )
    for informer in roles or ():
        controller.watch(Kind(informer, enqueue_all_if_changed, mapper=manager.mapper, optional=True))
    environment.dsc_initializations.subscribe(controller, enqueue_all_if_changed)
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters))
