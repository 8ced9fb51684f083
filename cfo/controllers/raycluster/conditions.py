"""Writes three conditions to the status of a RayCluster: what this operator provides for it, in the words of users.

They say at which URL the dashboard is exposed, until when the CA for mutual TLS is valid, and which NetworkPolicies
exist. This concern is the last of a reconcile, when the objects that they describe exist, so a new RayCluster costs one
write of its status. An ``observedGeneration`` would cost one for each step of the autoscaler.

KubeRay keeps conditions of other types (``raycluster_controller.go`` of KubeRay 1.7). A RayCluster that MultiKueue
manages has none: MultiKueue overwrites its status with that of another Kubernetes cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cfo.api.raycluster import addresses
from cfo.api.raycluster.certificates import CA_LIFETIME, recorded_renewal
from cfo.api.raycluster.conditions import (
    CONDITION_TYPES,
    EXPOSED,
    HOST_TOO_LONG,
    LASTING_REASONS,
    MISSING_ROLE,
    MUTUAL_TLS,
    NETWORK_POLICIES,
    NOT_INJECTED,
)
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import MAX_MESSAGE, text
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.cached_fields import CachedCondition
from cfo.controllers.cached_fields import conditions_of as stored_conditions
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.concern import (
    SYNC_RETRY_SECONDS,
    ClusterConcern,
    Decision,
    Notice,
    ObservedCluster,
    belongs_to,
)
from cfo.controllers.raycluster.dashboard_access import Exposure, ingress_selection
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.controllers.raycluster.watches import CHILD_CHANGED, OPENSHIFT_ROUTE_CHANGED
from cfo.runtime import (
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    Controller,
    EnqueueRequestForOwner,
    Entry,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Rule,
    find_condition,
    name_of,
    on_update,
)

_MAX_WARNINGS: Final = 10
"""How many warnings a condition has at most."""


def _own_conditions(cluster: Entry) -> list[CachedCondition]:
    """Return the operator's conditions without messages of problems.

    These can quote the API server, whose answer may differ each time: if the write of such a message caused the next
    reconcile, the operator would never stop.
    """
    conditions = []
    for item in stored_conditions(cluster):
        if item.type in CONDITION_TYPES:
            if item.reason in LASTING_REASONS:
                item.message = ""
            conditions.append(item)
    return conditions


OWN_CONDITIONS_CHANGED = on_update(lambda old, new: _own_conditions(old) != _own_conditions(new))
"""Passes updates in which another client changed the conditions that the operator writes."""


_BY: Final = {
    Actor.OPERATOR: "Operator",
    Actor.KUBERAY: "KubeRay",
    Actor.OPEN_DATA_HUB: "OpenDataHub",
    Actor.MULTIKUEUE: "MultiKueue",
}
"""The reason of a condition for each actor that can be responsible."""


def _condition(type_: str, reason: str, message: str, *, is_true: bool = False) -> Object:
    return {"type": type_, "status": str(is_true), "reason": reason, "message": message}


def conditions_of(
    facts: RayClusterFacts,
    children: Mapping[GVK, Sequence[Object]],
    exposure: Exposure,
    config: KubeRayConfiguration,
) -> list[Object]:
    """Return the conditions of a cluster, without times.

    ``children`` are its objects, of Secrets only the metadata. ``exposure`` is the decision about its dashboard, and
    ``config`` the configuration of its namespace.
    """
    exposing = facts.actor(Concern.EXPOSURE, config.kuberay_features)
    securing = facts.actor(Concern.MTLS, config.kuberay_features)
    return [
        _exposed(facts, children, exposure, exposing),
        _mutual_tls(facts, children.get(SECRET, ()), securing, is_enabled=config.mtls_enabled),
        _network_policies(facts, children.get(NETWORK_POLICY, ())),
    ]


def _exposed(
    facts: RayClusterFacts,
    children: Mapping[GVK, Sequence[Object]],
    exposure: Exposure,
    actor: Actor,
) -> Object:
    url = addresses.dashboard_url(facts, children)
    if url and not addresses.is_resolvable(url):
        message = f"DNS cannot resolve the host of {url}, because a label of it has more than 63 characters"
        return _condition(EXPOSED, HOST_TOO_LONG, message)
    if url:
        message = f"Dashboard: {url}"
        client = addresses.client_address(facts, children)
        if client:
            message += f"; Ray client: {client}"
        return _condition(EXPOSED, "Exposed", message, is_true=True)
    if exposure.reason:
        return _condition(EXPOSED, exposure.reason, exposure.message)
    if actor is not Actor.OPERATOR:
        return _condition(EXPOSED, _BY[actor], f"{actor.value} exposes the dashboard")
    if facts.is_suspended:
        return _condition(EXPOSED, "Suspended", "The RayCluster is suspended")
    return _condition(EXPOSED, "NotExposed", "The dashboard has no Route, Ingress or HTTPRoute")


def _mutual_tls(
    facts: RayClusterFacts, secrets: Sequence[Object], actor: Actor, *, is_enabled: bool
) -> Object:
    if actor is not Actor.OPERATOR and not facts.has_injected_tls:
        return _condition(MUTUAL_TLS, _BY[actor], f"{actor.value} provides mutual TLS")
    if not facts.has_injected_tls and is_enabled:
        return _condition(MUTUAL_TLS, NOT_INJECTED, "The RayCluster was created without it")
    if not facts.has_injected_tls:
        message = "The RayCluster has none: kuberay.mTLSEnabled is false"
        return _condition(MUTUAL_TLS, "Disabled", message)
    name = facts.names.ca_secret
    secret = next((item for item in secrets if name_of(item) == name), None)
    if secret is None:
        return _condition(MUTUAL_TLS, "NoCertificateAuthority", f"The Secret {name} does not exist")
    renewal = recorded_renewal(secret)
    if renewal is None:
        message = f"The CA in the Secret {name} exists"
    else:
        end = renewal + CA_LIFETIME / 3  # it is renewed when a third of its lifetime remains
        message = f"The CA in the Secret {name} is valid until {end:%Y-%m-%d} and is renewed on {renewal:%Y-%m-%d}"
    return _condition(MUTUAL_TLS, "CertificateAuthority", message, is_true=True)


def _network_policies(facts: RayClusterFacts, policies: Sequence[Object]) -> Object:
    ours = {facts.names.head_policy, facts.names.workers_policy}
    names = sorted(name_of(policy) for policy in policies)
    if not names:
        message = "No NetworkPolicy of the operator or of KubeRay protects the pods"
        return _condition(NETWORK_POLICIES, "NoNetworkPolicy", message)
    actor = Actor.OPERATOR if ours.intersection(names) else Actor.KUBERAY
    message = f"By {actor.value}: {', '.join(names)}"
    return _condition(NETWORK_POLICIES, _BY[actor], message, is_true=True)


def with_warnings(condition: Object, warnings: Sequence[Notice]) -> Object:
    """Return ``condition`` with the lasting ones of ``warnings``; the first of them is its reason.

    A missing role comes first, also before a lasting reason of ``condition`` itself, which has no other warnings. A
    condition that is true, such as that of a dashboard whose host another object uses as well, keeps its message after
    them.
    """
    lasting = list(dict.fromkeys(each for each in warnings if each.reason in LASTING_REASONS))
    if condition["reason"] in LASTING_REASONS:
        lasting = [each for each in lasting if each.reason == MISSING_ROLE]
        if lasting:
            lasting.append(Notice("Warning", condition["reason"], condition["message"]))
    if not lasting:
        return condition
    lasting.sort(key=lambda each: each.reason != MISSING_ROLE)
    first, *others = lasting[:_MAX_WARNINGS]
    sentences = [text(first.message, MAX_MESSAGE)]
    sentences += [f"{other.reason}: {text(other.message, MAX_MESSAGE)}" for other in others]
    if condition["status"] == "True":
        sentences.append(condition["message"])
    message = ". ".join(sentence.removesuffix(".") for sentence in sentences)
    return {**condition, "reason": first.reason, "message": message}


class FoundChildren(msgspec.Struct, frozen=True):
    """The decision about the dashboard of a RayCluster, and its objects by kind; of Secrets only the metadata."""

    exposure: Exposure
    children: Mapping[GVK, Sequence[Object]]


class ClusterConditions(ClusterConcern[FoundChildren | None]):
    """Decides about the conditions of RayClusters."""

    name = "raycluster-conditions"
    rules = (Rule("ray.io", "rayclusters/status", "patch"),)

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        super().__init__(manager, config, environment)
        cache = manager.cache
        ingresses = cache.informer(INGRESS, **ingress_selection(config))
        policies = cache.informer(NETWORK_POLICY, max_bytes=MAX_CACHED_BYTES)
        self._informers = {
            INGRESS: self.own(ingresses, CHILD_CHANGED),
            NETWORK_POLICY: self.own(policies, CHILD_CHANGED),
            SECRET: self.own(secret_informer(manager)),
        }

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with routes, once they are served."""
        owner = EnqueueRequestForOwner(RAY_CLUSTER)
        environment = self._environment
        environment.routes.subscribe(controller, owner, OPENSHIFT_ROUTE_CHANGED)
        for kind in (environment.gateway_kinds.http_routes, environment.gateway_kinds.tls_routes):
            kind.subscribe(controller, owner, CHILD_CHANGED)

    async def observe(self, cluster: ObservedCluster) -> FoundChildren | None:
        """Return the objects of one cluster; ``None`` while not all kinds are listed."""
        informers = dict(self._informers)
        gateway = self._environment.gateway_kinds
        for kind in (self._environment.routes, gateway.http_routes, gateway.tls_routes):
            served = kind.served
            if served is None:
                continue
            if not served.has_synced and not served.is_forbidden:
                return None  # an object that is not listed yet looks like one that is missing
            informers[served.gvk] = served
        exposure = await cluster.exposure()
        children = {
            gvk: list(_read(informer.reader, gvk, cluster.facts))
            for gvk, informer in informers.items()
        }
        return FoundChildren(exposure, children)

    def decide(self, cluster: ObservedCluster, found: FoundChildren | None) -> Decision:
        """Return the conditions of one cluster."""
        facts = cluster.facts
        decision = Decision(cluster=facts.cluster)
        if facts.is_managed_by_multikueue:
            return decision
        if found is None:
            decision.retry(SYNC_RETRY_SECONDS)
            return decision
        config = cluster.settings.kuberay
        decision.conditions = []
        for condition in conditions_of(facts, found.children, found.exposure, config):
            described = with_warnings(condition, cluster.warnings_about(condition["type"]))
            if not _may_hide_problem(described, cluster):
                decision.conditions.append(described)
        return decision


def _may_hide_problem(condition: Object, cluster: ObservedCluster) -> bool:
    """Return whether ``condition`` has no problem only because a concern that would find it again failed."""
    if condition["type"] not in cluster.incomplete or condition["reason"] in LASTING_REASONS:
        return False
    conditions = (cluster.object.get("status") or {}).get("conditions") or ()
    stored = find_condition(conditions, condition["type"])
    return stored is not None and text(stored.get("reason"), MAX_MESSAGE) in LASTING_REASONS


def _read(reader: Reader, gvk: GVK, facts: RayClusterFacts) -> Iterator[Object]:
    """Yield the objects of a kind with the names that the operator uses, and KubeRay's policies."""
    for name in dict.fromkeys(_names_of(gvk, facts)):
        obj = reader.get(NamespacedName(facts.names.namespace, name))
        if obj is not None and belongs_to(obj, facts.cluster):
            yield obj


def _names_of(gvk: GVK, facts: RayClusterFacts) -> tuple[str, ...]:
    names = facts.names
    if gvk == SECRET:
        return (names.ca_secret,)
    if gvk == NETWORK_POLICY:  # also those that KubeRay 1.7 creates for nodes of each kind
        return (
            names.head_policy,
            names.workers_policy,
            f"{names.cluster}-head",
            f"{names.cluster}-workers",
        )
    return (names.dashboard, names.client)
