"""What a concern of RayClusters is: it observes, and decides as a pure function; the reconciler writes.

A concern is one responsibility, such as network policies. Its decision is data: the children that should exist, the
Events to record, and when to reconcile again. What depends on the result of these writes is decided after them, by
``decide_next``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar, Unpack

import msgspec

from cfo.api.raycluster.cluster import has_cluster_labels, has_owner_reference
from cfo.api.raycluster.facts import RayClusterFacts
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
    """A Kubernetes Event about a RayCluster.

    ``about`` is what it reports, if other clients can change the message all the time: then its repetitions are
    recognized by this, not by the message.
    """

    type: EventType
    reason: str
    message: str
    about: str = ""


class Decision(msgspec.Struct, kw_only=True):
    """What a concern decided for one RayCluster.

    The reconciler sends ``spec_patch``, records the notices, sets the finalizer if ``needs_finalizer``, and brings the
    children to their state. ``decide_next`` gets the results, and returns the next decision; ``None``: there is none.
    ``removes_finalizer`` and ``conditions`` come last: all conditions of the status, ``None`` if they do not change.
    ``retry_after`` are the seconds until the next reconcile, 0 if none is needed.
    """

    cluster: Object
    children: list[Child] = msgspec.field(default_factory=list)
    notices: list[Notice] = msgspec.field(default_factory=list)
    retry_after: float = 0.0
    spec_patch: Mapping[str, Any] | None = None
    needs_finalizer: bool = False
    removes_finalizer: bool = False
    conditions: list[Object] | None = None
    decide_next: Callable[[ChildResults], Decision | None] | None = None

    def add_present(self, desired: Object, **options: Unpack[ChildOptions]) -> Child:
        """Add a child that exists as ``desired``."""
        return self._add(Child.present(desired, **self._with_owner(options)))

    def add_computed(
        self,
        gvk: GVK,
        key: NamespacedName,
        compute: Callable[[Object | None], Object],
        **options: Unpack[ChildOptions],
    ) -> Child:
        """Add a child whose content is computed; content without an owner reference to the cluster is not trusted."""
        options = {"is_trusted": partial(has_owner_reference, cluster=self.cluster), **options}
        return self._add(Child.computed(gvk, key, compute, **self._with_owner(options)))

    def add_absent(self, gvk: GVK, key: NamespacedName, **options: Unpack[ChildOptions]) -> Child:
        """Add a child that does not exist."""
        return self._add(Child.absent(gvk, key, **self._with_owner(options)))

    def _with_owner(self, options: ChildOptions) -> ChildOptions:
        """Return ``options`` in which, by default, objects belong to the cluster as :func:`belongs_to` says."""
        return {"belongs": partial(belongs_to, cluster=self.cluster), **options}

    def _add(self, child: Child) -> Child:
        self.children.append(child)
        return child

    def inform(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.notices.append(Notice("Normal", reason, message))

    def warn(self, reason: str, message: str, about: str = "") -> None:
        """Record a Warning Event; see :class:`Notice`."""
        self.notices.append(Notice("Warning", reason, message, about))

    def report_conflict(
        self, reason: str, message: str, about: str = "", *, is_watched: bool = False
    ) -> None:
        """Record that something is not written because of an object of another owner, and schedule a recheck.

        None is needed if changes of that object enqueue the cluster (``is_watched``).
        """
        self.warn(reason, message, about)
        if not is_watched:
            self.retry(NAME_CONFLICT_RETRY_SECONDS)

    def retry(self, seconds: float) -> None:
        """Request another reconcile after at most ``seconds``."""
        self.retry_after = min(self.retry_after or seconds, seconds)


class ObservedCluster:
    """What one reconcile of a RayCluster reads; all concerns share it.

    ``facts`` are those of the state that the reconcile began with, and ``settings`` those of its namespace.
    ``incomplete`` has the types of the conditions of concerns that failed or were left out, so that some Warnings about
    them may be missing.
    """

    def __init__(
        self, facts: RayClusterFacts, settings: NamespaceSettings, environment: ClusterEnvironment
    ) -> None:
        self.facts = facts
        self.settings = settings
        self.incomplete: set[str] = set()
        self._environment = environment
        self._exposure: Exposure | None = None
        self._warnings: dict[str, list[Notice]] = {}

    @property
    def object(self) -> Object:
        """The RayCluster."""
        return self.facts.cluster

    def warnings_about(self, condition: str) -> list[Notice]:
        """Return the Warnings that concerns recorded until now about what a condition of this type describes."""
        return self._warnings.setdefault(condition, [])

    async def exposure(self) -> Exposure:
        """Return how its dashboard is exposed; raises :class:`~cfo.runtime.DiscoveryIncomplete`."""
        if self._exposure is None:
            self._exposure = await self._environment.access.exposure_of(self.facts, self.settings)
        return self._exposure


class ClusterConcern(ABC, Generic[Found]):
    """One concern of RayClusters; ``Found`` is what it observes.

    ``name`` is the source of its Events. ``condition`` is the type of the condition that has its Warnings as reason,
    as long as their causes exist. ``component`` is that of the manifests with the role that lists what is
    :attr:`required`; empty: the role that every operator has.
    """

    name: ClassVar[str]
    condition: ClassVar[str] = ""
    component: ClassVar[str] = ""

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._clock = manager.clock
        self._config = config
        self._environment = environment
        self.cluster_informer = manager.cache.informer(RAY_CLUSTER)
        self.clusters = self.cluster_informer.reader
        """Reads all RayClusters."""
        self.required: list[Informer] = []
        """What must be listed before the concern can be reconciled."""
        self.owned: dict[Informer, Predicate | None] = {}
        """The kinds of its objects, and which of their updates matter (``None``: all)."""

    def own(self, informer: Informer, predicate: Predicate | None = None) -> Informer:
        """Declare the informer of a kind of which each RayCluster owns objects; it is also :attr:`required`."""
        self.required.append(informer)
        self.owned[informer] = predicate
        return informer

    def applies_to(self, cluster: ObservedCluster) -> bool:
        """Return whether a RayCluster has, or should have, anything of this concern."""
        return True

    def watch(self, controller: Controller) -> None:
        """Let ``controller`` watch objects that the concern depends on, besides the RayCluster and :attr:`owned`."""

    @abstractmethod
    async def observe(self, cluster: ObservedCluster) -> Found:
        """Return what the decision depends on.

        A :class:`~cfo.runtime.DiscoveryIncomplete` that it raises is no failure, but a reason to try again later.
        """

    @abstractmethod
    def decide(self, cluster: ObservedCluster, found: Found) -> Decision:
        """Return what should exist for a RayCluster; sends no request."""

    def decide_release(self, cluster: Object) -> Decision | None:
        """Return the decision for a RayCluster that is being deleted: what must be deleted before it, if anything."""
        return None

    def forget(self, request: Request) -> None:
        """Forget a RayCluster that is being deleted or does not exist."""

    async def collect(self, request: Request) -> None:
        """Delete what a RayCluster that does not exist has left over."""
