"""What the controllers that reconcile RayClusters have in common: the first steps of a reconcile, and their watches.

A reconcile reads the RayCluster and asks who provides the concern; if another actor does, an Event says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Final

from cfo.api.raycluster.facts import Actor, Concern
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.config import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.watches import add_indexes, all_clusters
from cfo.runtime import Controller, Manager, Request, is_deleting


class ClusterReconciler:
    """One concern of RayClusters. A subclass has the ``reconcile`` method and, in its module, the function ``setup``.

    ``name`` is the name of the controller and the source of its Events.
    """

    name: ClassVar[str]

    def __init__(self, manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._clock = manager.clock
        self._config = config
        self._environment = environment
        clusters = manager.cache.informer(RAY_CLUSTER)
        add_indexes(clusters)
        self.clusters = clusters.reader
        """Reads all RayClusters."""

    async def existing(self, request: Request) -> Children | None:
        """Return the writes for a RayCluster; ``None`` if it does not exist or is being deleted."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return None  # the garbage collector deletes its objects
        return Children(self._client, self._events, cluster)

    async def settings(self, request: Request) -> NamespaceSettings:
        """Return the configuration with the profile that applies in the namespace of a RayCluster."""
        return await self._environment.profiles.settings(self._client, request.namespace)

    def all_clusters(self) -> Collection[Request]:
        """Return the requests of all RayClusters."""
        return all_clusters(self.clusters)

    def subscribe(self, controller: Controller, *, access: bool = False) -> None:
        """Feed ``controller`` with the RayClusters whose profile changed, or the decision about their dashboard.

        ``access``: whether the controller depends on that decision.
        """
        self._environment.profiles.subscribe(controller, self.clusters)
        if access:
            self._environment.access.subscribe(self._manager, controller, self.clusters)


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
    request = children.facts.unconfirmed_request(concern, active_features) if kept else None
    if request is not None:
        children.record_warning(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {request.setting}, but kuberay.kubeRayFeatures in the operator's configuration does "
            f"not contain {request.feature}: the operator's own {kept} stays active. If KubeRay's feature is active, "
            "ask the administrator to add it",
        )
    return actor
