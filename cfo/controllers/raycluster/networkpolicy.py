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

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cfo.api.raycluster.cluster import has_cluster_labels
from cfo.api.raycluster.conditions import NETWORK_POLICIES
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import CREATED_BY_LABEL, FIELD_MANAGER, KUBERAY, digest, fit
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.left_out import all_keys
from cfo.controllers.raycluster.concern import (
    ClusterConcern,
    Decision,
    ObservedCluster,
)
from cfo.controllers.raycluster.dashboard_access import Authentication, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.operator_namespaces import OperatorNamespaces
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.policies import (
    desired_head_policy,
    desired_workers_policy,
    policy_types,
)
from cfo.controllers.raycluster.responsibility import find_actor
from cfo.controllers.raycluster.watches import CHILD_CHANGED
from cfo.runtime import (
    NETWORK_POLICY,
    READ,
    Controller,
    DiscoveryIncomplete,
    EnqueueRequestsFromMapFunc,
    Entry,
    Manager,
    NamespacedName,
    Object,
    Rule,
    uid_of,
)
from cfo.runtime.cache import Meta
from cfo.runtime.client import ObjectID
from cfo.runtime.controller import Kind

_POLICY_FEATURES: Final = frozenset({"networkPolicy", "networkIsolation"})


class FoundPolicies(msgspec.Struct, frozen=True):
    """What the decision about the policies of a RayCluster depends on.

    ``policies`` are the NetworkPolicies with the names that ours and KubeRay's can have. ``kuberay_features`` are those
    of the operator's configuration. ``exposure`` and ``namespaces``, those of the KubeRay operator, are ``None`` while
    the platform is not known; the head's policy is then decided later.
    """

    policies: Mapping[str, Entry]
    kuberay_features: frozenset[str]
    exposure: Exposure | None = None
    namespaces: Sequence[str] | None = None


class NetworkPolicies(ClusterConcern[FoundPolicies]):
    """Maintains the two policies of a cluster, and keeps the KubeRay operator's namespaces in them current.

    It reads all NetworkPolicies, because another owner's policy may have the same name as ours.
    """

    name = "raycluster-networkpolicy"
    condition = NETWORK_POLICIES
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "networkpolicies", (*READ, "create", "patch", "delete")),
        *OperatorNamespaces.rules,
    )

    def __init__(
        self,
        manager: Manager,
        config: KubeRayConfiguration,
        environment: ClusterEnvironment,
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
        self._kuberay_features = frozenset(config.kuberay_features)

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with all RayClusters when the KubeRay operator's namespaces change."""
        namespaces = self._namespaces
        mapper = self._manager.mapper
        changed = EnqueueRequestsFromMapFunc(
            lambda entry: all_keys(self.cluster_informer) if namespaces.update(entry) else ()
        )
        for informer in namespaces.informers():
            controller.watch(Kind(informer, changed, mapper=mapper, optional=True))
        self._environment.dsc_initializations.subscribe(controller, changed)

    async def observe(self, cluster: ObservedCluster) -> FoundPolicies:
        """Return the policies with the names that matter and, once the platform is known, the rest."""
        names = cluster.facts.names
        policies = {}
        for name in relevant_names(cluster.facts):
            entry = self._policies.entry(NamespacedName(names.namespace, name))
            if entry is not None:
                policies[name] = entry
        found = FoundPolicies(policies, self._kuberay_features)
        if not needs_head_policy(cluster.facts, cluster.settings, found):
            return found
        try:
            namespaces = await self._namespaces.current()
            exposure = await cluster.exposure()
        except DiscoveryIncomplete:
            return found
        return FoundPolicies(policies, self._kuberay_features, exposure, namespaces)

    def decide(self, cluster: ObservedCluster, found: FoundPolicies) -> Decision:
        """Return the policies of one cluster."""
        return decide_policies(cluster.facts, cluster.settings, found)


def decide_policies(
    facts: RayClusterFacts, settings: NamespaceSettings, found: FoundPolicies
) -> Decision:
    """Return which policies should exist for a cluster in a namespace with ``settings``."""
    decision = Decision(cluster=facts.cluster)
    if facts.is_managed_by_multikueue:
        find_actor(decision, facts, Concern.NETWORK_POLICY, ())
        if facts.cluster["metadata"].get("generation") == 1:
            _remove(decision, facts, found, "head")
            _remove(decision, facts, found, "workers")
        return decision
    head_observed = _observed_features(facts, settings, found, "head")
    workers_observed = _observed_features(facts, settings, found, "workers")
    if not _is_enforced(settings):
        _record_actor(decision, facts, workers_observed & head_observed)
    if _provider(facts, workers_observed) is Actor.OPERATOR:
        workers = desired_workers_policy(facts, settings.kuberay)
        _apply(decision, facts, found, "workers", workers)
    else:
        _remove(decision, facts, found, "workers")
    if _provider(facts, head_observed) is not Actor.OPERATOR:
        _remove(decision, facts, found, "head")
        return decision
    if facts.ports.refused:
        ports = "; ".join(facts.ports.refused)
        decision.warn(
            "PortRefused",
            f"Ports are refused: {ports}. The NetworkPolicies do not open them",
        )
    exposure = found.exposure
    if exposure is None or found.namespaces is None:
        decision.retry(UNKNOWN_RETRY_SECONDS)
        return decision
    backend = exposure.backend
    has_proxy = exposure.authentication is Authentication.AUTH_PROXY
    head = desired_head_policy(
        facts,
        settings.kuberay,
        found.namespaces,
        behind_proxy=has_proxy and backend is not None,
        requires_token=exposure.head_requires_token,
        direct_ingress=backend is not None and not backend.tls,
    )
    _apply(decision, facts, found, "head", head)
    return decision


def needs_head_policy(
    facts: RayClusterFacts, settings: NamespaceSettings, found: FoundPolicies
) -> bool:
    """Return whether the operator provides the head's policy."""
    if facts.is_managed_by_multikueue:
        return False
    observed = _observed_features(facts, settings, found, "head")
    return _provider(facts, observed) is Actor.OPERATOR


def relevant_names(facts: RayClusterFacts) -> Iterator[str]:
    """Yield the names of our policies, and those of KubeRay's for the same pods."""
    for node_type in ("head", "workers"):
        yield from _own_names(facts, node_type)
        for names in _kuberay_names(facts, node_type):
            yield from names


def _own_names(facts: RayClusterFacts, node_type: str) -> tuple[str, str]:
    """Return the usual name of our policy, and its name if KubeRay's policy has the usual one."""
    names = facts.names
    usual = names.head_policy if node_type == "head" else names.workers_policy
    kuberay_name = f"{names.cluster}-{node_type}"
    return usual, fit(f"{kuberay_name}-{digest(kuberay_name)}")


def _kuberay_names(facts: RayClusterFacts, node_type: str) -> list[list[str]]:
    """Return the sets of names that KubeRay's policies for these nodes have; one set is complete if all exist."""
    cluster = facts.names.cluster
    if node_type == "head":
        return [[f"{cluster}-head"]]
    groups = (facts.cluster.get("spec") or {}).get("workerGroupSpecs") or ()
    group_names = dict.fromkeys(group.get("groupName") for group in groups)
    by_group = [f"{cluster}-workers-{name}" for name in group_names]
    # Without worker groups, KubeRay has a policy of the head only.
    return [[f"{cluster}-workers"], by_group or [f"{cluster}-head"]]


def _is_enforced(settings: NamespaceSettings) -> bool:
    return Concern.NETWORK_POLICY.value in settings.enforced


def _observed_features(
    facts: RayClusterFacts, settings: NamespaceSettings, found: FoundPolicies, node_type: str
) -> frozenset[str]:
    """Return the features whose policies for the ``head`` or ``workers`` exist and restrict the same directions."""
    if _is_enforced(settings) or _provider(facts, _POLICY_FEATURES) is Actor.OPERATOR:
        return frozenset()  # its profile does not allow them, or it requests none
    directions = policy_types(settings.kuberay)
    for names in _kuberay_names(facts, node_type):
        policies = [found.policies.get(name) for name in names]
        if all(_is_restricted_by_kuberay(policy, facts.cluster, directions) for policy in policies):
            return _POLICY_FEATURES
    return frozenset()


def _is_restricted_by_kuberay(
    policy: Entry | None, cluster: Object, directions: Sequence[str]
) -> bool:
    """Return whether a policy is KubeRay's for ``cluster`` and restricts the ``directions``."""
    if policy is None or not _is_by_kuberay(policy, cluster):
        return False
    return set(_types_of(policy)).issuperset(directions)


def _record_actor(decision: Decision, facts: RayClusterFacts, observed: frozenset[str]) -> None:
    find_actor(decision, facts, Concern.NETWORK_POLICY, observed)
    delegation = facts.unconfirmed_delegation(Concern.NETWORK_POLICY, observed)
    if delegation is not None:
        decision.inform(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {delegation.setting}, but KubeRay has not created NetworkPolicies that restrict "
            "the ingress to its head and workers: the operator's own NetworkPolicies stay until then",
        )


def _policy_names(facts: RayClusterFacts, found: FoundPolicies, node_type: str) -> tuple[str, str]:
    """Return the name of our policy, and the other name that it can have; both can be the same."""
    usual, other = _own_names(facts, node_type)
    if usual != f"{facts.names.cluster}-{node_type}":
        return usual, other
    current = found.policies.get(usual)
    is_by_kuberay = current is not None and _is_by_kuberay(current, facts.cluster)
    if "networkIsolation" in found.kuberay_features or is_by_kuberay:
        return other, usual
    return usual, other


def _apply(
    decision: Decision,
    facts: RayClusterFacts,
    found: FoundPolicies,
    node_type: str,
    desired: Object,
) -> None:
    """Apply ``desired`` with its current name, then delete the policy with the other name."""
    name, other = _policy_names(facts, found, node_type)
    desired["metadata"]["name"] = name
    ours = _uid_if_ours(found.policies.get(name), facts.cluster)
    policy = decision.add_present(
        desired,
        consequence="it is left unchanged",
        belongs=lambda obj: has_cluster_labels(obj, facts.cluster) or uid_of(obj) == ours,
    )
    if other != name:
        _remove_one(decision, facts, found, other, requires=(policy.id,))


def _remove(
    decision: Decision, facts: RayClusterFacts, found: FoundPolicies, node_type: str
) -> None:
    for name in dict.fromkeys(_policy_names(facts, found, node_type)):
        _remove_one(decision, facts, found, name)


def _remove_one(
    decision: Decision,
    facts: RayClusterFacts,
    found: FoundPolicies,
    name: str,
    requires: tuple[ObjectID, ...] = (),
) -> None:
    ours = _uid_if_ours(found.policies.get(name), facts.cluster)
    if ours is None:
        return
    key = NamespacedName(facts.names.namespace, name)
    decision.add_absent(
        NETWORK_POLICY, key, belongs=lambda obj: uid_of(obj) == ours, requires=requires
    )


def _uid_if_ours(policy: Entry | None, cluster: Object) -> str | None:
    if policy is None or not _is_ours(policy, cluster):
        return None
    return policy.meta.uid


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
