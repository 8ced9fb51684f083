"""The controller of RayClusters: one reconcile reads a RayCluster once and passes it to all concerns in turn.

Each concern (:mod:`.concern`) observes and decides, and what it decided is written before the next one observes, so
later ones see what earlier ones have written. If one fails, the others still run; the reconcile then fails at its end
and is retried. A concern whose kinds cannot be listed, because a permission or a CRD is missing, is left out until they
can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.conditions import MISSING_ROLE
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import FIELD_MANAGER, FINALIZER, FINALIZER_MANAGER, RAY_CLUSTER
from cfo.controllers.left_out import all_keys
from cfo.controllers.raycluster.concern import ClusterConcern, Decision, Notice, ObservedCluster
from cfo.controllers.raycluster.condition_writer import ConditionWriter
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.recent_events import RecentEvents
from cfo.controllers.raycluster.watches import add_indexes, in_first_list
from cfo.runtime import (
    BadRequest,
    Channel,
    Controller,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    EventType,
    Forbidden,
    Informer,
    Invalid,
    Manager,
    NotFound,
    Object,
    Predicate,
    Request,
    Result,
    is_deleting,
    namespace_of,
    not_,
    set_finalizer,
)
from cfo.runtime.client import OwnerDeleted, reconcile_children
from cfo.runtime.controller import LOW_PRIORITY, Kind
from cfo.runtime.objects import raise_together


class RayClusterReconciler:
    """Reconciles all ``concerns`` of a RayCluster, in this order."""

    def __init__(
        self,
        manager: Manager,
        environment: ClusterEnvironment,
        concerns: Sequence[ClusterConcern[Any]],
    ) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._finalizer_client = manager.client.with_field_manager(FINALIZER_MANAGER)
        self._conditions = ConditionWriter(self._client, manager.clock)
        self._environment = environment
        self._concerns = concerns
        self._events = {
            concern: RecentEvents(manager.events(concern.name), manager.clock)
            for concern in concerns
        }
        self._unlisted = set(concerns)
        self._forbidden: set[str] = set()
        """Kinds of unlisted concerns that the operator is not allowed to list."""
        self._has_begun = False
        self._became_ready = Channel()
        self.clusters = manager.cache.informer(RAY_CLUSTER)
        add_indexes(self.clusters)

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one RayCluster; raises the errors of all concerns that failed."""
        self._has_begun = True
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return await self._release(request, cluster)
        observed = await self._observed(cluster)
        outcome = _Outcome()
        for concern in self._listed():
            errors_before = len(outcome.errors)
            is_complete = False
            with outcome.collected():
                found = await concern.observe(observed)
                decision = concern.decide(observed, found)
                warnings = observed.warnings_about(concern.condition)
                await self._carry_out(concern, decision, outcome, warnings)
                is_complete = len(outcome.errors) == errors_before
            if not is_complete:
                observed.incomplete.add(concern.condition)
        return outcome.result()

    async def _observed(self, cluster: Object) -> ObservedCluster:
        """Return the RayCluster for one reconcile, and report the concerns of it that are left out."""
        settings = await self._environment.profiles.settings(self._client, namespace_of(cluster))
        observed = ObservedCluster(RayClusterFacts(cluster), settings, self._environment)
        for concern in self._unlisted:
            if concern.applies_to(observed):
                observed.incomplete.add(concern.condition)
                self._report_missing_role(concern, observed)
        return observed

    async def _release(self, request: Request, cluster: Object | None) -> Result:
        """Delete what the garbage collector does not, then the finalizer."""
        if cluster is not None:
            await self._observed(cluster)
        outcome = _Outcome()
        for concern in self._listed():
            with outcome.collected():
                concern.forget(request)
                if cluster is None:
                    await concern.collect(request)
                    continue
                decision = concern.decide_release(cluster)
                if decision is not None:
                    await self._carry_out(concern, decision, outcome, warnings=[])
        return outcome.result()

    def _report_missing_role(self, concern: ClusterConcern[Any], cluster: ObservedCluster) -> None:
        """Report that a concern is left out because its optional role is not installed."""
        kinds = _forbidden_kinds(concern)
        if not concern.component or not kinds:
            return
        warnings = cluster.warnings_about(concern.condition)
        events = _CollectedEvents(self._events[concern], warnings)
        message = _MISSING_ROLE.format(kinds=", ".join(kinds), component=concern.component)
        events.event(cluster.object, "Warning", MISSING_ROLE, message)

    def _listed(self) -> Iterator[ClusterConcern[Any]]:
        for concern in self._concerns:
            if concern not in self._unlisted:
                yield concern

    async def _carry_out(
        self,
        concern: ClusterConcern[Any],
        decision: Decision,
        outcome: _Outcome,
        warnings: list[Notice],
    ) -> None:
        """Write what a concern decided, and then what follows from the results; append its Warnings to ``warnings``."""
        events = _CollectedEvents(self._events[concern], warnings)
        step: Decision | None = decision
        while step is not None:
            cluster = step.cluster
            if step.spec_patch is not None:
                with events.refusals_reported(cluster):
                    is_stored = await self._patch_spec(cluster, step.spec_patch)
                if not is_stored:
                    return
            for notice in step.notices:
                events.event(cluster, notice.type, notice.reason, notice.message, notice.about)
            outcome.retry(step.retry_after)
            if step.needs_finalizer:
                with events.refusals_reported(cluster):
                    may_have_children = await self._set_finalizer(cluster)
                if not may_have_children:
                    return
            results = await reconcile_children(self._client, cluster, step.children, events=events)
            outcome.retry(results.retry_after)
            outcome.errors += results.errors
            if step.removes_finalizer and not results.errors:
                with events.refusals_reported(cluster):
                    await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=False)
            if step.conditions is not None:
                await self._conditions.write(cluster, step.conditions)
            step = step.decide_next(results) if step.decide_next is not None else None

    async def _patch_spec(self, cluster: Object, patch: Mapping[str, Any]) -> bool:
        """Change the spec; return whether the RayCluster still exists.

        Its resourceVersion is no precondition: a user who changes the RayCluster all the time could keep what the
        profile does not allow.
        """
        try:
            await self._client.patch_object(cluster, {"spec": patch})
        except NotFound:
            return False
        return True

    async def _set_finalizer(self, cluster: Object) -> bool:
        """Set the finalizer; return whether children may be written: the cluster exists and may run."""
        stored = await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=True)
        return stored is not None and not is_deleting(stored) and not is_suspended(stored)

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with everything that the concerns depend on, except the RayClusters themselves."""
        manager = self._manager
        owner = EnqueueRequestForOwner(RAY_CLUSTER)
        owned: dict[Informer, Predicate | None] = {}
        required: set[Informer] = set()
        for concern in self._concerns:
            owned.update(concern.owned)
            required.update(concern.required)
        # All RayClusters are enqueued when they are listed, so the first lists of their objects enqueue nothing.
        for informer, predicate in owned.items():
            predicates = [not_(in_first_list)]
            if predicate is not None:
                predicates.append(predicate)
            controller.watch(
                Kind(informer, owner, *predicates, mapper=manager.mapper, optional=True)
            )
        for informer in required:
            informer.add_state_handler(self._on_state)
        self._on_state()
        controller.watch(self._became_ready)
        for concern in self._concerns:
            concern.watch(controller)
        self._environment.profiles.subscribe(controller, self.clusters)
        self._environment.access.subscribe(manager, controller, self.clusters)
        self._environment.routes.enqueue_when_served(controller, lambda: all_keys(self.clusters))

    def _on_state(self) -> None:
        """Include the concerns whose kinds have been listed; those that are late need all RayClusters.

        So does a change of the kinds that must not be listed, which all RayClusters report.
        """
        ready = {
            concern
            for concern in self._unlisted
            if all(informer.has_synced for informer in concern.required)
        }
        self._unlisted -= ready
        forbidden = {kind for concern in self._unlisted for kind in _forbidden_kinds(concern)}
        has_changed = forbidden != self._forbidden
        self._forbidden = forbidden
        if (ready or has_changed) and self._has_begun:
            self._became_ready.enqueue(all_keys(self.clusters), reason="listed")


_MISSING_ROLE: Final = (
    "The operator is not allowed to list {kinds}, so it does not create what the proxies of the dashboard need. Ask "
    "the administrator to install the role {component} (cfo doctor prints the command)"
)


def _forbidden_kinds(concern: ClusterConcern[Any]) -> list[str]:
    """Return the kinds that a concern requires and the operator is not allowed to list."""
    return sorted({informer.gvk.kind for informer in concern.required if informer.is_forbidden})


class _CollectedEvents:
    """Records Events, and appends those of the type Warning to ``warnings``, also if they were recorded recently."""

    def __init__(self, events: RecentEvents, warnings: list[Notice]) -> None:
        self._events = events
        self._warnings = warnings

    def event(
        self, obj: Object, type_: EventType, reason: str, message: str, about: str = ""
    ) -> None:
        if type_ == "Warning":
            self._warnings.append(Notice(type_, reason, message))
        self._events.event(obj, type_, reason, message, about)

    @contextmanager
    def refusals_reported(self, cluster: Object) -> Iterator[None]:
        """Record an Event if the API server refuses a change of the RayCluster itself, as a webhook can; then raise."""
        try:
            yield
        except (BadRequest, Forbidden, Invalid) as error:
            message = f"The operator cannot change the RayCluster: {error.message}"
            self.event(cluster, "Warning", "FailedToReconcile", message)
            raise


class _Outcome:
    """The errors of one reconcile, and when to look again."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.retry_after = 0.0

    def retry(self, seconds: float) -> None:
        if seconds:
            self.retry_after = min(self.retry_after or seconds, seconds)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error, so that the other concerns still run."""
        try:
            yield
        except OwnerDeleted:
            raise  # the cache has the cluster's current state now, so that a retry releases it
        except DiscoveryIncomplete:
            self.retry(UNKNOWN_RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 - raised at the end, after the other concerns
            self.errors.append(error)

    def result(self) -> Result:
        """Return the result of the reconcile; raise the errors.

        The next one has a low priority, which it keeps if another client's change needs it earlier
        (:mod:`cfo.controllers.host_claims`): changes of RayClusters are reconciled first.
        """
        raise_together(self.errors, "failed to reconcile several concerns")
        return Result(requeue_after=self.retry_after, priority=LOW_PRIORITY)
