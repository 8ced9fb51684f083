"""What a concern of RayClusters is: it observes, and decides as a pure function; the reconciler writes.

A concern is one responsibility, such as network policies. Its decision is data: the children that should exist, the
Events to record, and when to look again. What depends on the result of these writes is decided after them, in ``then``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar, Unpack

import msgspec

from cfo.api.raycluster.cluster import has_cluster_labels, has_owner_reference
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.dashboard_access import Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.runtime import (
    GVK,
    Controller,
    EventType,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Predicate,
    Request,
    controller_of,
)
from cfo.runtime.client import (
    NAME_CONFLICT_RETRY_SECONDS,
    Child,
    ChildOptions,
    ChildResults,
)

Found = TypeVar("Found")

SYNC_RETRY_SECONDS: Final = 0.5
"""How long to wait for an informer that has not listed its objects yet."""


def belongs_to(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` belongs to ``cluster``: by an owner reference with its uid, or by its labels.

    An object that another controller owns never belongs to it, regardless of its labels.
    """
    if has_owner_reference(obj, cluster):
        return True
    return controller_of(obj) is None and has_cluster_labels(obj, cluster)


class Notice(msgspec.Struct, frozen=True):
    """A Kubernetes Event about a RayCluster."""

    type: EventType
    reason: str
    message: str


class Decision(msgspec.Struct, kw_only=True):
    """What a concern decided for one RayCluster.

    The reconciler sends ``spec_patch``, records the notices, sets the finalizer if ``needs_finalizer``, and brings the
    children to their state. ``then`` gets the results, and returns what follows from them; ``None``: nothing.
    ``removes_finalizer`` and ``conditions`` (those of the status) come last.
    """

    cluster: Object
    children: list[Child] = msgspec.field(default_factory=list)
    notices: list[Notice] = msgspec.field(default_factory=list)
    retry_after: float = 0.0
    spec_patch: Mapping[str, Any] | None = None
    needs_finalizer: bool = False
    removes_finalizer: bool = False
    conditions: list[Object] | None = None
    then: Callable[[ChildResults], Decision | None] | None = None

    def present(self, desired: Object, **options: Unpack[ChildOptions]) -> Child:
        """Add a child that exists as ``desired``."""
        options = {"belongs": partial(belongs_to, cluster=self.cluster), **options}
        child = Child.present(desired, **options)
        self.children.append(child)
        return child

    def computed(
        self,
        gvk: GVK,
        key: NamespacedName,
        compute: Callable[[Object | None], Object],
        **options: Unpack[ChildOptions],
    ) -> Child:
        """Add a child whose content is computed; content without an owner reference to the cluster is not trusted."""
        options = {
            "belongs": partial(belongs_to, cluster=self.cluster),
            "is_trusted": partial(has_owner_reference, cluster=self.cluster),
            **options,
        }
        child = Child.computed(gvk, key, compute, **options)
        self.children.append(child)
        return child

    def absent(self, gvk: GVK, key: NamespacedName, **options: Unpack[ChildOptions]) -> Child:
        """Add a child that does not exist."""
        options = {"belongs": partial(belongs_to, cluster=self.cluster), **options}
        child = Child.absent(gvk, key, **options)
        self.children.append(child)
        return child

    def inform(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.notices.append(Notice("Normal", reason, message))

    def warn(self, reason: str, message: str) -> None:
        """Record a Warning Event."""
        self.notices.append(Notice("Warning", reason, message))

    def report_conflict(self, reason: str, message: str) -> None:
        """Record that something is not written because of an object of another owner, and schedule a recheck."""
        self.warn(reason, message)
        self.retry(NAME_CONFLICT_RETRY_SECONDS)

    def retry(self, seconds: float) -> None:
        """Request another reconcile after at most ``seconds``."""
        self.retry_after = min(self.retry_after or seconds, seconds)


class ObservedCluster:
    """What one reconcile of a RayCluster reads; all concerns share it.

    ``facts`` are those of the state that the reconcile began with, and ``settings`` those of its namespace.
    """

    def __init__(
        self, facts: RayClusterFacts, settings: NamespaceSettings, environment: ClusterEnvironment
    ) -> None:
        self.facts = facts
        self.settings = settings
        self._environment = environment
        self._exposure: Exposure | None = None

    @property
    def object(self) -> Object:
        """The RayCluster."""
        return self.facts.cluster

    async def exposure(self) -> Exposure:
        """Return the decision about its dashboard; raises :class:`~cfo.runtime.DiscoveryIncomplete`."""
        if self._exposure is None:
            self._exposure = await self._environment.access.exposure_of(self.facts, self.settings)
        return self._exposure


class ClusterConcern(ABC, Generic[Found]):
    """One concern of RayClusters; ``Found`` is what it observes.

    ``name`` is the source of its Events.
    """

    name: ClassVar[str]

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
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

    @abstractmethod
    async def observe(self, cluster: ObservedCluster) -> Found:
        """Return what the decision depends on.

        A :class:`~cfo.runtime.DiscoveryIncomplete` that it raises is no failure, but a reason to try again later.
        """

    @abstractmethod
    def decide(self, cluster: ObservedCluster, found: Found) -> Decision:
        """Return what should exist for a RayCluster; sends no request."""

    def decide_release(self, cluster: Object) -> Decision | None:
        """Return what must be deleted before a RayCluster that is being deleted; ``None``: nothing."""
        return None

    def forget(self, request: Request) -> None:
        """Forget a RayCluster that is being deleted or does not exist."""

    async def collect(self, request: Request) -> None:
        """Delete what a RayCluster that does not exist has left over."""


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
    decision: Decision,
    facts: RayClusterFacts,
    concern: Concern,
    active_features: Collection[str],
    kept: str = "",
) -> Actor:
    """Return who provides ``concern`` of the cluster; record it if that is not the operator.

    If the cluster requests another actor whose feature is not known to be active, a Warning Event says that the
    operator's own ``kept`` stays; an empty ``kept`` records nothing.
    """
    actor = facts.actor(concern, active_features)
    event = ACTOR_EVENTS.get((concern, actor))
    if event is not None:
        decision.inform(*event)
    if not kept:
        return actor
    delegation = facts.unconfirmed_delegation(concern, active_features)
    if delegation is not None:
        decision.warn(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {delegation.setting}, but kuberay.kubeRayFeatures in the operator's configuration "
            f"does not contain {delegation.feature}: the operator's own {kept} stays active. If KubeRay's feature is "
            "active, ask the administrator to add it",
        )
    return actor
