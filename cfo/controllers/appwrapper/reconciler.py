"""Executes the decisions of :mod:`.transition`: observes an AppWrapper, decides, creates and writes.

A reconcile takes one step: it writes the status at most once, and the next reconcile starts from that status. All other
writes are idempotent: an object that was created is found again by its name and owner, and deletions specify the uid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import structlog

from cfo.api.appwrapper.kinds import RAY_RESOURCES
from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    DELETING_RESOURCES,
    FIELD_MANAGER,
    FINALIZER,
    NOT_CONTROLLED,
    OWN_CONDITIONS,
    Phase,
)
from cfo.api.reading import text
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.controllers.appwrapper.active_pods import ActivePods
from cfo.controllers.appwrapper.admission import ValidationGate
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import (
    Component,
    InjectionError,
    desired_object,
    specified_infos,
)
from cfo.controllers.appwrapper.creation import Creation, after_creation, missing_components
from cfo.controllers.appwrapper.decision import Deletion, WrapperDecision, WrapperObservation
from cfo.controllers.appwrapper.deletions import DELETIONS_PER_STEP, delete_objects
from cfo.controllers.appwrapper.kueue import KueueReconciler
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.appwrapper.namespace_pods import NamespacePods
from cfo.controllers.appwrapper.nodes import NodeHealth
from cfo.controllers.appwrapper.observer import WrapperObserver
from cfo.controllers.appwrapper.owners import OwnerReads
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WRAPPERS, pod_of, pods_on_node
from cfo.controllers.appwrapper.refused_pods import RefusedPods
from cfo.controllers.appwrapper.reservations import Reservations
from cfo.controllers.appwrapper.transition import (
    decide,
    needs_list,
    releases,
    takes_excess_back,
)
from cfo.controllers.appwrapper.workload import is_terminated
from cfo.controllers.appwrapper.workload_decision import QueueState, queue_state_without_workloads
from cfo.controllers.pod_status import failure_of
from cfo.runtime import (
    CRUD,
    POD,
    READ,
    APIError,
    BadRequest,
    Builder,
    Client,
    Conflict,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Entry,
    EventRecorder,
    Forbidden,
    Informer,
    Invalid,
    Manager,
    Object,
    Request,
    ResourceVersionChanged,
    Result,
    Rule,
    TerminalError,
    TransportError,
    UnknownKind,
    controller_of,
    has_finalizer,
    is_deleting,
    namespace_of,
    on_update,
    set_finalizer,
    uid_of,
)
from cfo.runtime.client import (
    Child,
    ChildResult,
    NameTaken,
    Outcome,
    Update,
    apply_status,
    is_too_large,
    reconcile_children,
    replace_status,
)
from cfo.runtime.controller import Kind
from cfo.runtime.objects import NODE, VALIDATING_WEBHOOK_CONFIGURATION

_log = structlog.get_logger("cfo.controllers.appwrapper")

_UNWATCHED_RETRY: Final = timedelta(seconds=2)
"""How long to wait before rechecking an object whose deletion is not watched, because it lacks the label."""


_UNLABELLED_RETRY: Final = timedelta(seconds=10)
"""How long to wait before rechecking active pods that are not watched, because they lost the label."""


class AppWrapperReconciler(msgspec.Struct, frozen=True, eq=False):
    """Drives AppWrappers through their phases."""

    rules = (
        Rule("workload.codeflare.dev", "appwrappers", ("get", "list", "patch", "update", "watch")),
        Rule("workload.codeflare.dev", "appwrappers/status", ("get", "patch", "update")),
        Rule("workload.codeflare.dev", "appwrappers/finalizers", ("update",)),
        Rule(VALIDATING_WEBHOOK_CONFIGURATION.group, "validatingwebhookconfigurations", READ),
        Rule(
            "", "namespaces", "get"
        ),  # if the webhook is registered for namespaces with OLM's labels
        Rule("", ("pods", "services"), CRUD),
        Rule("", "nodes", READ),
        Rule("apps", ("deployments", "statefulsets"), CRUD),
        Rule("apps", "replicasets", ("get",)),
        Rule("batch", "jobs", CRUD),
        Rule("jobset.x-k8s.io", "jobsets", CRUD),
        Rule("scheduling.sigs.k8s.io", "podgroups", CRUD),
        Rule("scheduling.x-k8s.io", "podgroups", CRUD),
        Rule("kubeflow.org", ("mpijobs", "pytorchjobs"), CRUD),
        Rule("leaderworkerset.x-k8s.io", "leaderworkersets", CRUD),
        Rule("ray.io", RAY_RESOURCES, CRUD),
        Rule("trainer.kubeflow.org", "trainjobs", CRUD),
    )

    client: Client
    events: EventRecorder
    observer: WrapperObserver
    creator: ComponentCreator
    metrics: PhaseMetrics
    namespaces: NamespacePods
    refused: RefusedPods
    read_queue: Callable[[Object], Awaitable[QueueState]]
    reservations: Reservations | None = None

    async def reconcile(self, request: Request) -> Result:
        """Take one step. Raises :class:`TerminalError` for an unknown phase."""
        wrapper = await self.client.get(APPWRAPPER, request)
        if wrapper is None:
            return await self._forget(request)
        queue = await self.read_queue(wrapper)
        if not queue.is_followed or _is_done(wrapper, queue):
            return await self._forget(request)
        await self.observer.hand_over_pods(request, uid_of(wrapper))
        phase = (wrapper.get("status") or {}).get("phase") or ""
        if phase not in {known.value for known in Phase}:
            raise TerminalError(f"status.phase: {phase!r}: unknown phase")
        observation = await self.observer.observe(wrapper, queue)
        decision = decide(observation)
        if decision.unexplained is not None:
            observation, decision = await self._explained(
                observation, decision, decision.unexplained
            )
        if releases(observation, decision):
            listed = await self.namespaces.read_for(request, uid_of(wrapper), releases=True)
            if listed is None:
                return Result(requeue_after=self.namespaces.retry_after(request.namespace))
            observation, decision = await self._confirmed(observation, decision, listed)
        elif needs_list(observation, decision):
            listed = await self.namespaces.read_for(request, uid_of(wrapper))
            retry_after = self.namespaces.retry_after(request.namespace)
            if listed is not None:
                observation, decision = await self._confirmed(observation, decision, listed)
                if _is_deleted_early(observation, decision):
                    return Result(requeue_after=retry_after)
            elif takes_excess_back(observation, decision) or observation.is_overdue:
                return Result(requeue_after=retry_after)
            decision.requeue_at(observation.now + timedelta(seconds=retry_after))
        self.observer.note_decision(observation, decision)
        if decision.create:
            decision = after_creation(observation, await self.creator.create_missing(observation))
        await self._carry_out(observation, decision)
        if decision.deadline is None:
            return Result()
        return Result(
            requeue_after=max(
                (decision.deadline - self.observer.clock.now()).total_seconds(), 0.001
            )
        )

    async def _forget(self, request: Request) -> Result:
        """Forget an AppWrapper that does not exist, or that this operator does not reconcile any more."""
        await self.observer.hand_over_pods(request)
        self.observer.components.forget(request)
        self.namespaces.forget(request)
        self.refused.forget(request)
        return Result()

    async def _explained(
        self, observation: WrapperObservation, decision: WrapperDecision, component: Component
    ) -> tuple[WrapperObservation, WrapperDecision]:
        """Decide again, if the API server refuses the pods that ``component`` lacks."""
        refusal = await self.refused.failure_of(observation, component)
        if refusal is None:
            return observation, decision
        explained = msgspec.structs.replace(observation, refusal=refusal)
        return explained, decide(explained)

    async def _confirmed(
        self,
        observation: WrapperObservation,
        decision: WrapperDecision,
        listed: ActivePods,
    ) -> tuple[WrapperObservation, WrapperDecision]:
        """Decide again with the pods that the observation lacks, because labels do not prove that no pod is active."""
        complete = await self.observer.with_listed_pods(
            observation, listed, self.namespaces.read_pods
        )
        has_more = len(complete.pods) > len(observation.pods)
        if complete.knowledge is observation.knowledge and not has_more:
            return observation, decision
        decision = decide(complete)
        if has_more or complete.knowledge is PodKnowledge.OWNERS_UNKNOWN:
            decision.requeue_at(observation.now + _UNLABELLED_RETRY)
        return complete, decision

    async def _carry_out(self, observation: WrapperObservation, decision: WrapperDecision) -> None:
        try:
            await self._write(observation, decision)
        except (APIError, TransportError):
            if decision.remove_finalizer and self.reservations is not None:
                # Nothing runs any more, so the quota does not depend on whether the AppWrapper can be written.
                await self.reservations.delete_workload(observation.wrapper)
            raise

    async def _write(self, observation: WrapperObservation, decision: WrapperDecision) -> None:
        wrapper = observation.wrapper
        if decision.add_finalizer:
            stored = await set_finalizer(self.client, wrapper, FINALIZER, present=True)
            if stored is None:
                return  # it was deleted in the meantime
            wrapper = stored
        if decision.deletions:
            await self.observer.remember_owned_pods(observation)
        if decision.remove_finalizer and self.reservations is not None:
            await self.reservations.release(wrapper)
        if is_deleting(wrapper):
            # Its deletion is stored. Its user can change it all the time, which delays each write of the status.
            try:
                await self._delete(wrapper, decision)
            except Exception:
                await self._report(wrapper, observation, decision)
                raise
            wrapper = await self._report(wrapper, observation, decision)
        else:
            wrapper = await self._report(wrapper, observation, decision)
            await self._delete(wrapper, decision)
        deleting = decision.status.is_true(DELETING_RESOURCES)
        if deleting and self.observer.has_unwatched_objects(observation):
            decision.requeue_at(observation.now + _UNWATCHED_RETRY)
        if max(len(decision.deletions), len(decision.others)) > DELETIONS_PER_STEP:
            decision.requeue_at(observation.now)
        if decision.remove_finalizer:
            await set_finalizer(self.client, wrapper, FINALIZER, present=False)
            self.observer.forget(wrapper)

    async def _delete(self, wrapper: Object, decision: WrapperDecision) -> None:
        """Delete the first objects of those that are to be deleted."""
        await delete_objects(self.client, decision.deletions[:DELETIONS_PER_STEP])
        await self._delete_others(wrapper, decision.others[:DELETIONS_PER_STEP])

    async def _delete_others(self, wrapper: Object, others: Iterable[Deletion]) -> None:
        """Delete objects that users made the AppWrapper control: they would replace the pods that are deleted."""
        for other in others:
            try:
                await delete_objects(self.client, [other])
            except Forbidden:
                # Its kind may not be one of this operator's components. Its pods are deleted.
                _log.warning("Permission denied", kind=other.gvk.kind, object=str(other.key))
            self.observer.forget_other(wrapper, other)

    async def _report(
        self, wrapper: Object, observation: WrapperObservation, decision: WrapperDecision
    ) -> Object:
        """Write the status, and then record the Events; return the AppWrapper as stored."""
        written = await self._write_status(wrapper, observation, decision)
        for notice in decision.events:
            self.events.event(written, notice.type, notice.reason, notice.message)
        return written

    async def _write_status(
        self, wrapper: Object, observation: WrapperObservation, decision: WrapperDecision
    ) -> Object:
        """Apply the status if it changed; return the AppWrapper as stored.

        Unless the AppWrapper itself is deleted, nothing is deleted before the status is written. So of an AppWrapper
        that is full, the small form is written.
        """
        is_shrunk = decision.status.shrink_pod_sets()
        status = decision.status.as_object()
        before = observation.status()
        is_corrected = before.has_corrected_times
        if status == before.as_object() and not is_shrunk and not is_corrected:
            return wrapper
        try:
            written = await self._store_status(wrapper, status)
        except APIError as error:
            if not is_too_large(error):
                raise
            small = decision.status.as_small_object()
            if small == before.as_object() and not is_corrected:
                return wrapper
            written = await self._store_status(wrapper, small)
        phase = decision.status.phase
        if phase is not before.phase:
            self.metrics.transitions.labels(namespace_of(wrapper), phase.value).inc()
            _log.info("Phase changed", phase=phase.value, before=before.phase.value)
        return written

    async def _store_status(self, wrapper: Object, status: Object) -> Object:
        """Apply the status, or replace it if users change the AppWrapper all the time to keep its quota."""
        try:
            return await apply_status(self.client, wrapper, status)
        except Conflict as error:
            if error.causes:
                raise  # another field manager owns a field
        others = [
            condition
            for condition in (wrapper.get("status") or {}).get("conditions") or ()
            if condition.get("type") not in OWN_CONDITIONS
        ]
        conditions = [*status.get("conditions", ()), *others]
        return await replace_status(self.client, wrapper, {**status, "conditions": conditions})


def _is_deleted_early(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether a deletion is complete by a list that may have begun before it: the next one confirms that."""
    is_deleting = observation.status().is_true(DELETING_RESOURCES)
    return is_deleting and releases(observation, decision)


def _is_done(wrapper: Object, queue: QueueState) -> bool:
    """Return whether nothing is left to delete of an AppWrapper that is being deleted.

    Without a queue, users may remove the operator's finalizer and orphan the components, which then stay.
    """
    if is_terminated(wrapper):
        return True
    if not is_deleting(wrapper) or has_finalizer(wrapper, FINALIZER):
        return False
    return has_finalizer(wrapper, "orphan") and not queue.is_queued


_FATAL: Final = (Invalid, BadRequest)

_CREATIONS_PER_STEP: Final = 20
"""How many components one reconcile creates, so that AppWrappers with many components do not delay others."""


PodSetInfos = Sequence[Sequence[Mapping[str, Any]]]
"""The changes to pod templates that a queue requires, by component and pod set."""


class ComponentCreator:
    """Creates components with ``client``; objects created by an earlier attempt are reused.

    ``infos_of`` returns what the queue of an AppWrapper with a Workload (``None``: without one) requires. Raises
    :class:`LookupError` while that is not known.
    """

    def __init__(
        self,
        client: Client,
        config: AppWrapperConfiguration,
        components: ComponentInformers,
        infos_of: Callable[[Object, Object | None], PodSetInfos],
    ) -> None:
        self._client = client
        self._config = config
        self._components = components
        self._infos_of = infos_of

    async def create_missing(self, observation: WrapperObservation) -> list[Creation]:
        """Create the first missing components in order, up to one that is rejected or to the limit of a step."""
        wrapper = observation.wrapper
        missing = missing_components(observation)[:_CREATIONS_PER_STEP]
        try:
            infos = self._infos_of(wrapper, observation.workload)
        except LookupError as error:
            return [Creation(component, error=str(error).strip("'")) for component in missing[:1]]
        creations: list[Creation] = []
        for component in missing:
            creations.append(await self._create(wrapper, component, infos[component.index]))
            if creations[-1].error:
                break
        return creations

    async def _create(
        self, wrapper: Object, component: Component, infos: Iterable[Mapping[str, Any]]
    ) -> Creation:
        try:
            obj = self._desired(wrapper, component, infos)
            if not (await self._client.mapper.resource(component.gvk)).namespaced:
                problem = f"{component.display_name} is cluster-scoped, so it cannot belong to an AppWrapper"
                return Creation(component, error=problem, fatal=True)
            await self._components.synced(component.gvk)
            # An object that an earlier attempt created is used.
            child = Child.present(obj, update=Update.KEEP)
            results = await reconcile_children(
                self._client, wrapper, [child], block_owner_deletion=True
            )
        except UnknownKind:
            return _unserved(component)
        except (InjectionError, ValueError) as error:
            return Creation(component, error=str(error), fatal=True)
        except DiscoveryIncomplete as error:
            return Creation(component, error=str(error))
        (result,) = results
        return creation_of(component, result)

    def _desired(
        self, wrapper: Object, component: Component, infos: Iterable[Mapping[str, Any]]
    ) -> Object:
        try:
            return desired_object(wrapper, component, infos, self._config)
        except (AttributeError, KeyError, TypeError) as error:
            # Admission does not read all fields. An exception in each reconcile would keep the quota for good.
            problem = f"{component.display_name}: a field of the template has a wrong type"
            raise InjectionError(problem) from error


def creation_of(component: Component, result: ChildResult) -> Creation:
    """Return what became of a component whose object was written."""
    name = component.key.name
    match result.outcome:
        case Outcome.DONE if result.obj is not None:
            return Creation(component, uid=uid_of(result.obj), warnings=result.warnings)
        case Outcome.UNSERVED:
            return _unserved(component)
        case Outcome.WAITING if not isinstance(result.error, NameTaken):
            return Creation(component, error=f"resource {name} is being deleted")
        case Outcome.WAITING | Outcome.TAKEN:
            problem = f"resource {name} {NOT_CONTROLLED}: {_owner_of(component, result.obj)}"
            return Creation(component, error=problem, fatal=result.outcome is Outcome.TAKEN)
    error = result.error
    message = error.message if isinstance(error, APIError) else str(error)
    return Creation(component, error=message, fatal=isinstance(error, _FATAL))


def _owner_of(component: Component, obj: Object | None) -> str:
    """Return which object has the name of a component, and to what it belongs."""
    subject = f"{component.gvk.kind} {component.key.name}"
    owner = controller_of(obj) if obj is not None else None
    if owner is None:
        return f"{subject} has no controller"
    return f"{subject} belongs to {text(owner.get('kind'), 63)} {text(owner.get('name'), 253)}"


def _unserved(component: Component) -> Creation:
    gvk = component.gvk
    problem = f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"'
    return Creation(component, error=problem, fatal=True)


async def _state_without_workloads(wrapper: Object) -> QueueState:
    return queue_state_without_workloads(wrapper)


def _infos_without_workloads(wrapper: Object, _: Object | None) -> PodSetInfos:
    return specified_infos(wrapper)


def setup(
    manager: Manager,
    config: AppWrapperConfiguration,
    components: ComponentInformers,
    pods: Informer,
    namespaces: NamespacePods,
    owners: OwnerReads,
    queueing: KueueReconciler | None,
    reservations: Reservations | None,
) -> None:
    """Add the controller of AppWrappers to ``manager``; ``pods`` are those with their label, ``namespaces`` all others.

    ``owners`` reads the owners of pods.
    With ``queueing``, AppWrappers wait for their Workloads. ``reservations`` keep what is known of pods whose
    AppWrapper is deleted before its Workload.
    """
    name = "appwrappers"
    client = manager.client.with_field_manager(FIELD_MANAGER)
    nodes = manager.cache.informer(NODE) if config.autopilot.monitor_nodes else None
    health = NodeHealth(config.autopilot, nodes)
    configurations = None
    if config.require_admission_webhook:
        configurations = manager.cache.informer(VALIDATING_WEBHOOK_CONFIGURATION)
    gate = ValidationGate(client, configurations, manager.clock)
    read_queue = queueing.read_state if queueing is not None else _state_without_workloads
    infos_of = queueing.required_infos if queueing is not None else _infos_without_workloads
    reconciler = AppWrapperReconciler(
        client,
        manager.events(name),
        WrapperObserver(
            owners,
            manager.clock,
            config,
            pods.reader,
            components,
            health,
            gate,
            reservations,
        ),
        ComponentCreator(client, config, components, infos_of),
        PhaseMetrics(manager.metrics.registry, manager.cache.informer(APPWRAPPER).reader),
        namespaces,
        RefusedPods(client),
        read_queue,
        reservations,
    )

    def requests_on(node: Entry) -> Iterable[Request]:
        return [
            request
            for pod in pods_on_node(pods.reader, node.name)
            for request in WRAPPERS.requests(pod)
        ]

    def state_of(pod: Entry) -> tuple[object, ...]:
        decoded = pod_of(pod)
        return decoded, failure_of(decoded.status), *WRAPPERS.requests(pod)

    builder = (
        Builder(manager, "AppWrapper")  # the name in the Go operator's metrics
        .for_(APPWRAPPER, ResourceVersionChanged())
        .watches(
            POD,
            EnqueueRequestsFromMapFunc(WRAPPERS.requests),
            on_update(lambda old, new: state_of(old) != state_of(new)),
            label_selector=APPWRAPPER_LABEL,
        )
    )
    if configurations is not None:
        waiting = EnqueueRequestsFromMapFunc(lambda _: gate.waiting())
        builder.watches_source(Kind(configurations, waiting, mapper=manager.mapper, optional=True))
    if nodes is not None:
        builder.watches(NODE, EnqueueRequestsFromMapFunc(requests_on), health.no_execute_changed)
    if queueing is not None:
        builder.watches(queueing.workload, EnqueueRequestForOwner(APPWRAPPER))
    components.attach(builder.complete(reconciler))
