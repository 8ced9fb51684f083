"""Maintains the NetworkPolicies of a RayCluster: one for its head, one for its workers.

KubeRay can also create policies, if ``spec.networkPolicy`` is set and its feature gate is enabled, and so can Open Data
Hub's KubeRay (``spec.networkIsolation``). Each of our policies is deleted, or left to KubeRay, once KubeRay's policies
for the same pods exist and restrict the same directions. Until then it stays, whatever the configuration says: there is
no moment without a policy. A policy with neither our label nor our field manager is never changed.

KubeRay names its policies ``<cluster>-head`` and ``<cluster>-workers-<group>`` (in Open Data Hub's fork:
``<cluster>-workers``), and changes or deletes policies that have these names. They are also our names for a cluster
with old-style names, so ours get other names as soon as KubeRay uses these.

A RayCluster that MultiKueue runs in another Kubernetes cluster gets no policies. Those that exist are deleted only if
it was created like that: if ``spec.managedBy`` was set later, pods that KubeRay started before may still run.

Who can create NetworkPolicies in a namespace can open any pod in it anyway, because policies only add to each other.
Therefore an imitation of KubeRay's policy gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfo.api.raycluster.authentication import Authentication
from cfo.api.raycluster.cluster import has_cluster_labels
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import CREATED_BY_LABEL, FIELD_MANAGER, KUBERAY, digest, fit
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces
from cfo.controllers.raycluster.policies import (
    desired_head_policy,
    desired_workers_policy,
    policy_types,
)
from cfo.controllers.raycluster.reconciler import (
    ClusterConcern,
    ObservedCluster,
    record_responsibility,
)
from cfo.controllers.raycluster.watches import CHILD_CHANGED, all_clusters
from cfo.runtime import (
    NETWORK_POLICY,
    READ,
    Controller,
    EnqueueRequestsFromMapFunc,
    Entry,
    Manager,
    NamespacedName,
    Object,
    Rule,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.cache import Meta
from cfo.runtime.client import NameTaken, create_or_read
from cfo.runtime.controller import Kind

_POLICY_FEATURES = frozenset({"networkPolicy", "networkIsolation"})


class NetworkPolicies(ClusterConcern):
    """Maintains the two policies of a cluster, and keeps the KubeRay operator's namespaces in them current.

    It reads all NetworkPolicies, because another owner's policy may have the same name as ours.
    """

    name = "raycluster-networkpolicy"
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "networkpolicies", (*READ, "create", "patch", "delete")),
        *OperatorNamespaces.rules,
    )

    def __init__(
        self,
        manager: Manager,
        config: KubeRayConfiguration,
        environment: Environment,
        *,
        own_account: NamespacedName | None,
    ) -> None:
        super().__init__(manager, config, environment)
        # An operator limited to some namespaces is not allowed to read cluster-scoped objects.
        needs_roles = not config.operator_namespaces and manager.options.namespaces is None
        cache = manager.cache if needs_roles else None
        self._namespaces = OperatorNamespaces(config, environment, cache, own_account=own_account)
        policies = manager.cache.informer(NETWORK_POLICY, max_bytes=MAX_CACHED_BYTES)
        self._policies = self.own(policies, CHILD_CHANGED).reader

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with all RayClusters when the KubeRay operator's namespaces change."""
        namespaces, mapper = self._namespaces, self._manager.mapper
        changed = EnqueueRequestsFromMapFunc(
            lambda entry: all_clusters(self.clusters) if namespaces.update(entry) else ()
        )
        for informer in namespaces.informers():
            controller.watch(Kind(informer, changed, mapper=mapper, optional=True))
        self._environment.dsc_initializations.subscribe(controller, changed)

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring the policies of one cluster up to date."""
        facts, settings = cluster.facts, cluster.settings
        if facts.is_managed_by_multikueue:
            record_responsibility(children, Concern.NETWORK_POLICY, ())
            if children.cluster["metadata"].get("generation") == 1:
                await self._delete(children, *self._policy_names(facts, "head"))
                await self._delete(children, *self._policy_names(facts, "workers"))
            return
        workers_observed = head_observed = frozenset[str]()
        if Concern.NETWORK_POLICY.value not in settings.enforced:
            directions = policy_types(settings.kuberay)
            workers_observed = self._observed_features(facts, "workers", directions)
            head_observed = self._observed_features(facts, "head", directions)
            self._record_actor(children, workers_observed & head_observed)
        if _provider(facts, workers_observed) is Actor.OPERATOR:
            await self._apply(children, "workers", desired_workers_policy(facts, settings.kuberay))
        else:
            await self._delete(children, *self._policy_names(facts, "workers"))
        if _provider(facts, head_observed) is not Actor.OPERATOR:
            await self._delete(children, *self._policy_names(facts, "head"))
            return
        if facts.ports.refused:
            ports = "; ".join(facts.ports.refused)
            children.record_warning(
                "PortRefused", f"The NetworkPolicies do not open all ports: {ports}"
            )
        namespaces = await self._namespaces.current()
        exposure = await cluster.exposure()
        await self._apply(
            children,
            "head",
            desired_head_policy(
                facts,
                settings.kuberay,
                namespaces,
                behind_proxy=exposure.authentication is Authentication.AUTH_PROXY
                and exposure.backend is not None,
                requires_token=exposure.head_requires_token,
                direct_ingress=exposure.backend is not None and not exposure.backend.tls,
            ),
        )

    def _observed_features(
        self, facts: RayClusterFacts, node_type: str, directions: Sequence[str]
    ) -> frozenset[str]:
        """Return the features whose policies for the ``head`` or ``workers`` exist and restrict the ``directions``."""
        if _provider(facts, _POLICY_FEATURES) is Actor.OPERATOR:
            return frozenset()  # it requests none
        groups = (facts.cluster.get("spec") or {}).get("workerGroupSpecs") or ()
        # Without worker groups, KubeRay has a policy of the head only.
        by_group = [*dict.fromkeys(f"workers-{group.get('groupName')}" for group in groups)] or [
            "head"
        ]
        for names in [["head"]] if node_type == "head" else [["workers"], by_group]:
            if all(
                self._is_restricted_by_kuberay(facts.cluster, name, directions) for name in names
            ):
                return _POLICY_FEATURES
        return frozenset()

    def _is_restricted_by_kuberay(
        self, cluster: Object, name: str, directions: Sequence[str]
    ) -> bool:
        """Return whether KubeRay's policy ``<cluster>-<name>`` exists and restricts the ``directions``."""
        policy = self._policies.entry(
            NamespacedName(namespace_of(cluster), f"{name_of(cluster)}-{name}")
        )
        if policy is None or not _is_by_kuberay(policy, cluster):
            return False
        return set(_types_of(policy)).issuperset(directions)

    def _record_actor(self, children: Children, observed: frozenset[str]) -> None:
        record_responsibility(children, Concern.NETWORK_POLICY, observed)
        delegation = children.facts.unconfirmed_delegation(Concern.NETWORK_POLICY, observed)
        if delegation is not None:
            children.record_normal(
                "KubeRayFeatureUnconfirmed",
                f"The RayCluster sets {delegation.setting}, but KubeRay has not created NetworkPolicies that restrict "
                "the ingress to its head and workers: the operator's own NetworkPolicies stay until then",
            )

    def _policy_names(self, facts: RayClusterFacts, node_type: str) -> tuple[str, str]:
        """Return the name of our policy, and the other name that it can have; both can be the same."""
        cluster, names = facts.cluster, facts.names
        usual = names.head_policy if node_type == "head" else names.workers_policy
        kuberay_name = f"{names.cluster}-{node_type}"
        other = fit(f"{kuberay_name}-{digest(kuberay_name)}")
        current = (
            self._policies.entry(NamespacedName(names.namespace, kuberay_name))
            if usual == kuberay_name
            else None
        )
        is_taken = usual == kuberay_name and (
            "networkIsolation" in self._config.kuberay_features
            or (current is not None and _is_by_kuberay(current, cluster))
        )
        return (other, usual) if is_taken else (usual, other)

    async def _apply(self, children: Children, node_type: str, desired: Object) -> None:
        """Apply ``desired`` with its current name, then delete the policy with the other name."""
        name, other = self._policy_names(children.facts, node_type)
        desired["metadata"]["name"] = name
        if await self._claim(children, desired) and other != name:
            await self._delete(children, other)

    async def _claim(self, children: Children, desired: Object) -> bool:
        """Apply ``desired`` and return ``True``, unless another owner has an object of this name or it is refused."""
        current = self._policies.entry(key_of(desired))
        if current is not None and not _is_ours(current, children.cluster):
            children.record_conflict(
                "NameTaken",
                f"NetworkPolicy {name_of(desired)} already exists and does not belong to this RayCluster: "
                "it is left unchanged",
            )
            return False
        write = self._write(children, desired, current.meta.uid if current is not None else "")
        name, consequence = name_of(desired), "it is left unchanged"
        return (
            await children.attempt(write, NETWORK_POLICY, name, consequence=consequence) is not None
        )

    async def _write(self, children: Children, desired: Object, uid: str) -> Object:
        """Apply ``desired`` to the policy with this uid; without one, create it, or restore one that is too large."""
        if not uid:
            current, is_new = await create_or_read(
                children.client, children.owned(desired), by_apply=True
            )
            if is_new:
                return current
            if not has_cluster_labels(current, children.cluster):
                raise NameTaken(current, children.cluster)
            uid = uid_of(current)
        return await children.apply_to(desired, uid)

    async def _delete(self, children: Children, *names: str) -> None:
        for name in names:
            current = self._policies.entry(NamespacedName(namespace_of(children.cluster), name))
            if current is not None and _is_ours(current, children.cluster):
                await children.delete(NETWORK_POLICY, current.object())


def _provider(facts: RayClusterFacts, observed: frozenset[str]) -> Actor:
    return facts.actor(Concern.NETWORK_POLICY, observed)


_types_of = field_reader("spec", "policyTypes", kind=tuple[str, ...], default=())


def _is_by_kuberay(policy: Entry, cluster: Object) -> bool:
    """Return whether KubeRay created ``policy`` for ``cluster`` or took it over: it replaces all labels by its own."""
    meta = policy.meta
    return (
        meta.labels.get(CREATED_BY_LABEL) == KUBERAY
        and meta.controller is not None
        and meta.controller.uid == uid_of(cluster)
        and not _has_cluster_labels(meta, cluster)
    )


def _has_cluster_labels(meta: Meta, cluster: Object) -> bool:
    return has_cluster_labels(
        {"metadata": {"namespace": meta.namespace, "labels": meta.labels}}, cluster
    )


def _is_ours(policy: Entry, cluster: Object) -> bool:
    """Return whether the label or field manager is ours; KubeRay's policy has the same owner reference.

    If KubeRay took over a policy of ours, it replaced the labels, but our field manager still owns other fields.
    """
    meta = policy.meta
    if _has_cluster_labels(meta, cluster):
        return True
    if meta.labels.get(CREATED_BY_LABEL) == KUBERAY:
        return False
    return any(field.get("manager") == FIELD_MANAGER for field in policy.managers)
