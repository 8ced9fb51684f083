"""The controller of RayClusters: one reconcile reads a RayCluster once and passes it to all concerns in turn.

A concern is one responsibility, such as network policies. Those that come later see what earlier ones have written. If
one fails, the others still run; the reconcile then fails at its end and is retried. A concern whose kinds cannot be
listed, because a permission or a CRD is missing, is left out until they can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.children import Children, RecentEvents
from cfo.controllers.raycluster.dashboard_access import Exposure
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.watches import add_indexes, all_clusters, in_first_list
from cfo.runtime import (
    Channel,
    Controller,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    Informer,
    Manager,
    Predicate,
    Request,
    Result,
    is_deleting,
    not_,
)
from cfo.runtime.client import OwnerDeleted
from cfo.runtime.controller import Kind
from cfo.runtime.objects import raise_together


class ObservedCluster:
    """What one reconcile of a RayCluster reads and decides; all concerns share it.

    ``facts`` are those of the state that the reconcile began with, and ``settings`` those of its namespace.
    """

    def __init__(
        self, facts: RayClusterFacts, settings: NamespaceSettings, environment: Environment
    ) -> None:
        self.facts = facts
        self.settings = settings
        self._environment = environment
        self._exposure: Exposure | None = None

    async def exposure(self) -> Exposure:
        """Return the decision about its dashboard; raises :class:`~cfo.runtime.DiscoveryIncomplete`."""
        if self._exposure is None:
            self._exposure = await self._environment.access.exposure_of(self.facts, self.settings)
        return self._exposure


class ClusterConcern:
    """One concern of RayClusters.

    ``name`` is the source of its Events.
    """

    name: ClassVar[str]

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: Environment
    ) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self.events = RecentEvents(manager.events(self.name), manager.clock)
        self._clock = manager.clock
        self._config = config
        self._environment = environment
        self.clusters = manager.cache.informer(RAY_CLUSTER).reader
        """Reads all RayClusters."""
        self.required: list[Informer] = []
        """What must be listed before the concern can be reconciled."""
        self.owned: dict[Informer, Predicate | None] = {}
        """The kinds of its objects, and which of their updates matter (``None``: all)."""

    def own(self, informer: Informer, predicate: Predicate | None = None) -> Informer:
        """Declare the informer of a kind of which each RayCluster owns objects."""
        self.required.append(informer)
        self.owned[informer] = predicate
        return informer

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with what else the concern depends on."""

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring the concern of one RayCluster up to date, through the writes ``children``.

        A :class:`~cfo.runtime.DiscoveryIncomplete` that it raises is no failure, but a reason to try again later.
        """
        raise NotImplementedError

    async def release(self, request: Request, children: Children | None) -> None:
        """Forget a RayCluster that is being deleted or (``children`` is ``None``) does not exist."""


class RayClusterReconciler:
    """Reconciles all ``concerns`` of a RayCluster, in this order."""

    def __init__(
        self, manager: Manager, environment: Environment, concerns: Sequence[ClusterConcern]
    ) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._environment = environment
        self._concerns = concerns
        self._unlisted = set(concerns)
        self._has_begun = False
        self._became_ready = Channel()
        self.clusters = manager.cache.informer(RAY_CLUSTER)
        add_indexes(self.clusters)

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one RayCluster; raises the errors of all concerns that failed."""
        self._has_begun = True
        concerns = (
            [item for item in self._concerns if item not in self._unlisted]
            if self._unlisted
            else self._concerns
        )
        cluster = await self._client.get(RAY_CLUSTER, request)
        observed = None
        if cluster is not None:
            facts = RayClusterFacts(cluster)
            if not is_deleting(cluster):
                settings = await self._environment.profiles.settings(
                    self._client, request.namespace
                )
                observed = ObservedCluster(facts, settings, self._environment)
        errors: list[Exception] = []
        retry_after = 0.0
        for concern in concerns:
            children = (
                Children(self._client, concern.events, cluster, facts)
                if cluster is not None
                else None
            )
            try:
                if children is None or observed is None:
                    await concern.release(request, children)
                else:
                    await concern.reconcile(children, observed)
            except OwnerDeleted:
                raise  # the cache has the cluster's current state now, so that a retry releases it
            except DiscoveryIncomplete:
                if children is not None:
                    children.retry(UNKNOWN_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised below, after the other concerns
                errors.append(error)
            if children is not None:
                errors += children.errors
                if children.retry_after:
                    retry_after = min(retry_after or children.retry_after, children.retry_after)
        raise_together(errors, "failed to reconcile several concerns")
        return Result(requeue_after=retry_after)

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with everything that the concerns depend on, except the RayClusters themselves."""
        manager, owner = self._manager, EnqueueRequestForOwner(RAY_CLUSTER)
        # All RayClusters are enqueued when they are listed, so the first lists of their objects enqueue nothing.
        for informer, predicate in {
            key: value for item in self._concerns for key, value in item.owned.items()
        }.items():
            predicates = (not_(in_first_list), *((predicate,) if predicate is not None else ()))
            controller.watch(
                Kind(informer, owner, *predicates, mapper=manager.mapper, optional=True)
            )
        for informer in {informer for concern in self._concerns for informer in concern.required}:
            informer.add_state_handler(self._on_state)
        self._on_state()
        controller.watch(self._became_ready)
        for concern in self._concerns:
            concern.watch(controller)
        self._environment.profiles.subscribe(controller, self.clusters.reader)
        self._environment.access.subscribe(manager, controller, self.clusters.reader)
        self._environment.routes.enqueue_when_served(
            controller, lambda: all_clusters(self.clusters.reader)
        )

    def _on_state(self) -> None:
        """Include the concerns whose kinds have been listed; those that are late need all RayClusters."""
        ready = {
            item
            for item in self._unlisted
            if all(informer.has_synced for informer in item.required)
        }
        self._unlisted -= ready
        if ready and self._has_begun:
            self._became_ready.enqueue(all_clusters(self.clusters.reader), reason="listed")


ACTOR_EVENTS: Final[Mapping[tuple[Concern, Actor], tuple[str, str]]] = {
    (Concern.NETWORK_POLICY, Actor.KUBERAY): (
        "NetworkPolicyByKubeRay",
        "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
    ),
    (Concern.NETWORK_POLICY, Actor.OPEN_DATA_HUB): (
        "NetworkPolicyByOpenDataHub",
        "The RayCluster uses networkIsolation of Open Data Hub's KubeRay, so the operator creates no NetworkPolicies",
    ),
    (Concern.NETWORK_POLICY, Actor.MULTIKUEUE): (
        "ManagedByMultiKueue",
        "MultiKueue runs the RayCluster in another Kubernetes cluster, so the operator creates nothing for it here",
    ),
    (Concern.MTLS, Actor.KUBERAY): (
        "MTLSByKubeRay",
        "The RayCluster uses KubeRay's tlsOptions, so the operator maintains no CA for it",
    ),
    (Concern.MTLS, Actor.OPEN_DATA_HUB): (
        "MTLSByOpenDataHub",
        "Open Data Hub's KubeRay provides mutual TLS for the RayCluster, so the operator maintains no CA for it",
    ),
    (Concern.AUTHENTICATION, Actor.KUBERAY): (
        "OAuthByKubeRay",
        "The RayCluster uses KubeRay's authOptions, so the operator does not create OAuth objects for it",
    ),
    (Concern.AUTHENTICATION, Actor.OPEN_DATA_HUB): (
        "OAuthByOpenDataHub",
        "Open Data Hub's KubeRay authenticates the users of the RayCluster, so the operator creates no OAuth objects",
    ),
    (Concern.EXPOSURE, Actor.KUBERAY): (
        "ExposedByKubeRay",
        "The RayCluster sets enableIngress, so KubeRay exposes its dashboard and the operator does not",
    ),
    (Concern.EXPOSURE, Actor.OPEN_DATA_HUB): (
        "ExposedByOpenDataHub",
        "Open Data Hub's KubeRay exposes the RayCluster through its Gateway, so the operator does not",
    ),
}
"""The reason and message of the Event that says that another actor provides a concern.

MultiKueue provides all concerns, so only the first one has an Event.
"""


def record_responsibility(
    children: Children, concern: Concern, active_features: Collection[str], kept: str = ""
) -> Actor:
    """Return who provides ``concern`` of the cluster; record it if that is not the operator.

    If the cluster requests another actor whose feature is not known to be active, a Warning Event says that the
    operator's own ``kept`` stays; an empty ``kept`` records nothing.
    """
    actor = children.facts.actor(concern, active_features)
    event = ACTOR_EVENTS.get((concern, actor))
    if event is not None:
        children.record_normal(*event)
    if not kept:
        return actor
    delegation = children.facts.unconfirmed_delegation(concern, active_features)
    if delegation is not None:
        children.record_warning(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {delegation.setting}, but kuberay.kubeRayFeatures in the operator's configuration "
            f"does not contain {delegation.feature}: the operator's own {kept} stays active. If KubeRay's feature is "
            "active, ask the administrator to add it",
        )
    return actor
