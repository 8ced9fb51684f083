"""The NetworkPolicies of a RayCluster: one for its head, one for its workers.

KubeRay can make policies too, and calls the head's ``<cluster>-head`` like ours of a cluster with old names: where
``spec.networkPolicy`` is used, ours step aside; what carries neither our label nor our field manager is never
touched.
"""

from __future__ import annotations

from cfo.api.raycluster.cluster import has_cluster_labels, uses_kuberay_network_policy
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.resources import desired_head_policy, desired_workers_policy
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.events import EventRecorder
from cfo.runtime.kinds import NETWORK_POLICY
from cfo.runtime.objects import NamespacedName, Object, is_deleting, key_of, name_of, namespace_of
from cfo.runtime.reconcile import READ, Request, Result, Rule

__all__ = ["NetworkPolicyReconciler"]


class NetworkPolicyReconciler:
    """Makes the two policies, and follows from where the KubeRay operator comes.

    ``policies`` are all NetworkPolicies, for somebody else's may have the name of ours.
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
        *,
        policies: Informer,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._namespaces = namespaces
        self._policies = policies.reader

    async def reconcile(self, request: Request) -> Result:
        """Brings the policies of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        children = Children(self._client, self._events, cluster)
        if uses_kuberay_network_policy(cluster):
            children.tell("NetworkPolicyByKubeRay", "KubeRay's own networkPolicy is used: no policies are made here")
            await self._step_aside(children)
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
        if current is not None:
            if not _is_ours(current, children.cluster):
                children.refuse(
                    "NameTaken",
                    f"NetworkPolicy {name_of(desired)} exists and is not this cluster's: it is left as it is",
                )
                return
            desired["metadata"]["uid"] = current.meta.uid
        await children.apply(desired)

    async def _step_aside(self, children: Children) -> None:
        names = names_of(children.cluster)
        for name in (names.head_policy, names.workers_policy):
            current = self._policies.entry(NamespacedName(namespace_of(children.cluster), name))
            if current is not None and _is_ours(current, children.cluster):
                await children.delete(NETWORK_POLICY, current.object())


def _is_ours(policy: Entry, cluster: Object) -> bool:
    """Whether its label or its field manager says that we made it; KubeRay's has the same owner."""
    if has_cluster_labels({"metadata": {"namespace": policy.key.namespace, "labels": policy.meta.labels}}, cluster):
        return True
    return any(field.get("manager") == FIELD_MANAGER for field in policy.managers)
