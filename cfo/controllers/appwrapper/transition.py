"""The state machine of an AppWrapper: decides the next step from the state of its components, pods and nodes.

All functions are pure. :func:`decide` takes one step, and the next step starts from the returned status, so an operator
that stops between two writes resumes where it stopped. If components must be created, it requests that, and
:func:`after_creation` continues with the result. Phases, conditions, reasons and messages are the same as in the Go
operator; docs/differences.md lists the exceptions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from cfo.api.appwrapper.created_components import CREATED, identity_message
from cfo.api.appwrapper.kinds import MPI_JOBS, SERVICES, known_kind
from cfo.api.appwrapper.names import (
    ANNOTATION_PROBLEM,
    DELETING_RESOURCES,
    FINALIZER,
    PODS_READY,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    VALIDATED,
    Phase,
)
from cfo.api.appwrapper.pod_use import LeastUse
from cfo.api.appwrapper.podsets import PodSetError, replicas_of
from cfo.api.kueue import SUSPENDED_WITHOUT_QUEUE
from cfo.config.appwrapper_settings import DELETION_ON_FAILURE
from cfo.controllers.appwrapper.components import (
    CREATION_ERRORED,
    Component,
    ComponentObject,
    initial_status,
    unknown_fields,
    warnings_message,
)
from cfo.controllers.appwrapper.decision import (
    EXCESS,
    EXCESS_GRACE,
    MAX_NAME_LENGTH,
    Deletion,
    WrapperDecision,
    WrapperObservation,
    delete_components,
    has_unknown_owners,
)
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pod_use import (
    IDLE_LIMIT,
    describe_shortage,
    has_started,
    idle_since,
    uses_of,
)
from cfo.controllers.appwrapper.pods import (
    PodCounts,
    WrapperPod,
    count_pods,
    failed_pods_message,
    failure_text,
    first_failure,
    last_end,
    reported_failure,
    time_or_none,
    waiting_pods_message,
)
from cfo.controllers.appwrapper.status import WrapperStatus
from cfo.controllers.appwrapper.unused_quota import unused_parts
from cfo.controllers.appwrapper.workload import has_queue
from cfo.controllers.pod_status import is_same_failure
from cfo.runtime import POD, has_finalizer, is_deleting
from cfo.runtime.objects import format_duration
from cfo.runtime.process import printable

_KEEPING_PHASES: Final = (Phase.SUSPENDED, Phase.RESUMING, Phase.RUNNING, Phase.RESETTING)
"""The phases in which an AppWrapper is to run, so that nothing else ends the time for which it keeps quota.

One that its user suspends is to run while its Workload is admitted.
"""

_DELETED_AFTER_FAILURE: Final = "Resources deleted for failed AppWrapper"

_EXCESS_RETRIES: Final = 3
"""How many retries are allowed at most if a component has more pods than were admitted."""

_MAX_JOB_BACKOFF: Final = timedelta(minutes=10)
"""The longest delay after which the controller of Jobs replaces a failed pod (kube-controller-manager)."""

_USUAL_CREATION: Final = timedelta(seconds=10)
"""How long the controllers of components usually need at most until they have created the pods."""

_MAX_SHOWN_COMPONENTS: Final = 3
_FIRST_PAUSE: Final = timedelta(milliseconds=10)
_PAUSE_DOUBLINGS: Final = 13
"""How often the shortest pause between two attempts doubles with the retries: up to 82 s."""

_CREATION_RETRY: Final = timedelta(seconds=1)
"""The delay before a rejected creation is retried."""


class Creation(msgspec.Struct, frozen=True):
    """The result of creating a component: its object's uid, or an error. ``fatal``: a retry cannot succeed.

    ``warnings`` are those of the API server.
    """

    component: Component
    uid: str = ""
    error: str = ""
    fatal: bool = False
    warnings: tuple[str, ...] = ()


def releases(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether ``decision`` gives back quota, or allows another deployment, because no pods are active."""
    before = observation.status()
    return any(
        before.is_true(kind) and not decision.status.is_true(kind)
        for kind in (QUOTA_RESERVED, RESOURCES_DEPLOYED)
    )


def needs_list(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether pods that the cache leaves out can exceed the quota, or not use it."""
    status = decision.status
    if not status.is_true(RESOURCES_DEPLOYED) or not status.is_true(QUOTA_RESERVED):
        return False
    return observation.is_queued and observation.knowledge is PodKnowledge.LEFT_OUT


def has_excess(observation: WrapperObservation) -> bool:
    """Return whether more pods than its queue admitted were found before."""
    return observation.status().reason(UNHEALTHY) == EXCESS


def decide(observation: WrapperObservation) -> WrapperDecision:
    """Decide the next step of an AppWrapper. Raises :class:`ValueError` for an unknown phase."""
    if is_deleting(observation.wrapper):
        return _terminate(observation)
    decision = WrapperDecision(status=observation.status())
    _record_validation(observation, decision)
    _STEPS[decision.status.phase](observation, decision)
    _end_unused_quota(observation, decision)
    return decision


def _end_unused_quota(observation: WrapperObservation, decision: WrapperDecision) -> None:
    """Fail an AppWrapper that has kept quota for too long without pods that request it."""
    status = decision.status
    if observation.unused_until is None or status.phase not in _KEEPING_PHASES:
        return
    is_evicted = observation.workload is None or observation.awaits_admission
    if status.phase is Phase.SUSPENDED and is_evicted:
        return  # its quota is given back
    if not observation.is_overdue:
        decision.requeue_at(observation.unused_until)
        return
    limit = format_duration(observation.settings.unused_quota_limit)
    message = (
        f"not retried any more, because its pods have not requested the quota for {limit} in all"
    )
    if status.is_true(UNHEALTHY):
        message = f"{status.message(UNHEALTHY)}; {message}"
    elif status.message(PODS_READY):
        message = f"{status.message(PODS_READY)}; {message}"
    unused = unused_parts(observation)
    if unused:
        message += f": {'; '.join(unused[:_MAX_SHOWN_COMPONENTS])}"
    status.set(UNHEALTHY, True, "InsufficientPodsReady", message, restart=True)
    decision.record_warning("Failed", f"InsufficientPodsReady: {message}")
    decision.create = False
    decision.unexplained = None
    if not status.is_true(RESOURCES_DEPLOYED):
        status.set(RESOURCES_DEPLOYED, False, "Failed", _DELETED_AFTER_FAILURE)
    status.phase = Phase.FAILED


def _record_validation(observation: WrapperObservation, decision: WrapperDecision) -> None:
    validation = observation.validation
    if validation is None:
        return
    before = decision.status.reason(VALIDATED)
    decision.status.set(VALIDATED, validation.status, validation.reason, validation.message)
    if not validation.status and validation.reason != before:
        decision.record_warning("NotValidated", validation.message)


def _initialize(observation: WrapperObservation, decision: WrapperDecision) -> None:
    status = decision.status
    try:
        status.components = initial_status(observation.wrapper)
    except (
        PodSetError
    ) as error:  # admission rejects it; without admission it must not be retried forever
        _unhealthy(decision, "CreateFailed", f"error creating components: {error}")
        status.phase = Phase.FAILED
    else:
        status.phase = Phase.SUSPENDED
        _report_missing_queue(observation, decision)
        _stay_suspended(
            observation, decision
        )  # nothing has been created yet, so no write is needed in between


def _report_missing_queue(observation: WrapperObservation, decision: WrapperDecision) -> None:
    """Report, once for each time that it is suspended, that nothing resumes an AppWrapper without a queue."""
    if observation.suspended and not has_queue(observation.wrapper):
        decision.record_normal("Suspended", SUSPENDED_WITHOUT_QUEUE)


def _stay_suspended(observation: WrapperObservation, decision: WrapperDecision) -> None:
    status = decision.status
    if observation.suspended or observation.awaits_admission or not status.may_create_components:
        return
    decision.add_finalizer = not has_finalizer(observation.wrapper, FINALIZER)
    status.reset_retries()
    for kind, value in (
        (QUOTA_RESERVED, True),
        (RESOURCES_DEPLOYED, True),
        (PODS_READY, False),
        (UNHEALTHY, False),
    ):
        status.set(kind, value, "Resuming", "Suspend is false")
    _begin_deployment(observation, decision, "Suspend is false")


def _begin_deployment(
    observation: WrapperObservation, decision: WrapperDecision, message: str
) -> None:
    status = decision.status
    status.set(RESOURCES_DEPLOYED, True, "Resuming", message)
    _report_annotations(observation, decision)
    status.clear_component_conditions()
    status.phase = Phase.RESUMING


def _report_annotations(observation: WrapperObservation, decision: WrapperDecision) -> None:
    """Add what is wrong with the annotations to ``ResourcesDeployed``, also if they change after the deployment."""
    status = decision.status
    if not status.is_true(RESOURCES_DEPLOYED):
        return
    problems = observation.settings.problems
    message = status.message(RESOURCES_DEPLOYED)
    if not problems and ANNOTATION_PROBLEM not in message:
        return
    rest, _, _ = message.partition(ANNOTATION_PROBLEM)
    reported = "; ".join([rest, *problems])
    if reported == message:
        return
    status.set(RESOURCES_DEPLOYED, True, status.reason(RESOURCES_DEPLOYED), reported)
    if problems:
        decision.record_warning("MalformedAnnotations", "; ".join(problems))


def _resume(observation: WrapperObservation, decision: WrapperDecision) -> None:
    if _begin_suspending(observation, decision):
        return
    excess = _excess_message(observation)
    if not decision.status.may_create_components:
        _fail_creation(decision)
    elif excess:
        _tolerate_excess(observation, decision, excess)
    elif not observation.awaits_admission:  # it may have been evicted since it was resumed
        decision.create = True


def _fail_creation(decision: WrapperDecision) -> None:
    """Fail an AppWrapper whose components were changed without validation after it had been resumed."""
    _unhealthy(
        decision,
        "CreateFailed",
        "error creating components: the AppWrapper was changed without validation",
    )
    decision.status.phase = Phase.FAILED


def _begin_suspending(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Begin to suspend the AppWrapper, if ``spec.suspend`` is set; return whether it is."""
    if observation.suspended:
        phase = decision.status.phase
        decision.record_normal("Suspending", f"Externally suspended while in the {phase} phase")
        decision.status.phase = Phase.SUSPENDING
    return observation.suspended


def missing_components(observation: WrapperObservation) -> list[Component]:
    """Return the components whose creation has not been recorded yet."""
    return [component for component in observation.components if component.deployed != "True"]


def after_creation(
    observation: WrapperObservation, creations: Sequence[Creation]
) -> WrapperDecision:
    """Decide the next step after components were created, or one (the last of ``creations``) was rejected."""
    decision = WrapperDecision(status=observation.status())
    status = decision.status
    for creation in creations:
        component = creation.component
        status.set_component_identity(component.index, component.gvk, component.key.name)
        if creation.error:
            status.set_component_condition(component.index, False, CREATION_ERRORED, creation.error)
        else:
            status.set_component_condition(
                component.index,
                True,
                CREATED,
                identity_message(component.display_name, creation.uid),
            )
        _report_warnings(decision, creation)
    failed = next((creation for creation in creations if creation.error), None)
    if failed is None:
        if len(creations) == len(missing_components(observation)):
            status.phase = Phase.RUNNING
        else:
            decision.requeue_at(observation.now)
        return decision
    deadline = status.last_transition(RESOURCES_DEPLOYED) + observation.settings.admission_grace
    if not failed.fatal and observation.now < deadline:
        if failed.component.reason != CREATION_ERRORED:
            message = (
                f"{failed.component.display_name} cannot be created, will retry: {failed.error}"
            )
            decision.record_warning(CREATION_ERRORED, message)
        decision.requeue_at(min(observation.now + _CREATION_RETRY, deadline))
        return decision
    _unhealthy(decision, "CreateFailed", f"error creating components: {failed.error}")
    if failed.fatal:
        status.phase = Phase.FAILED
    else:
        _reset_or_fail(observation, decision)
    return decision


def _report_warnings(decision: WrapperDecision, creation: Creation) -> None:
    """Report the API server's warnings about a component; those about dropped fields hold as long as its object."""
    if not creation.warnings:
        return
    component = creation.component
    decision.record_warning(
        "ComponentWarning",
        f"The API server warns about {component.display_name}: {warnings_message(creation.warnings)}",
    )
    dropped = unknown_fields(creation.warnings)
    if dropped:
        decision.status.set_unknown_fields(component.index, warnings_message(dropped))


def _run(observation: WrapperObservation, decision: WrapperDecision) -> None:
    if _begin_suspending(observation, decision):
        return
    status = decision.status
    _report_annotations(observation, decision)
    deployed = [
        (component, obj)
        for component, obj in zip(observation.components, observation.objects, strict=True)
        if obj is not None and _is_created_object(component, obj) and not obj.deleting
    ]
    # What a component's own controller reports decides; of those that have completed, pods no longer matter.
    failed = [_failure(component, obj) for component, obj in deployed if obj.failed]
    completed = {obj.uid: component for component, obj in deployed if obj.completed}
    unfinished = [component for component, obj in deployed if not obj.completed]
    _record_started(observation, decision, deployed)
    excess = _excess_message(observation)
    success = _success(observation, completed, unfinished)
    _end_remaining_pods(observation, decision, completed)
    retried = _retried_pods(observation, deployed)
    ignored = {pod.uid for pod in retried}
    ignored.update(pod.uid for pod in observation.pods if pod.ancestor in completed)
    if not has_unknown_owners(unfinished):
        ignored.update(pod.uid for pod in observation.pods if not pod.ancestor)
    if ignored:
        pods = [pod for pod in observation.pods if pod.uid not in ignored]
        observation = replace(observation, pods=pods)
    counts = count_pods(observation.pods, observation.settings, observation.no_execute)
    if len(deployed) != len(observation.components):
        _unhealthy(
            decision, "MissingComponent", _missing_components_message(observation, len(deployed))
        )
        status.phase = Phase.FAILED
    elif failed:
        message = f"Found {len(failed)} failed components: {', '.join(failed)}"
        causes = f"; {failed_pods_message(observation.pods)}" if counts.failed else ""
        _unhealthy(decision, "FailedComponent", message + causes)
        _reset_or_fail(observation, decision, terminal=counts.terminal_failure)
    elif success:
        _succeed(status, success)
    elif excess:
        _tolerate_excess(observation, decision, excess)
    elif counts.failed:
        _tolerate_failed_pods(observation, decision, counts)
    elif counts.no_execute_nodes:
        nodes = ", ".join(sorted(counts.no_execute_nodes))
        message = f"Workload contains pods using NoExecute resources on Nodes: {nodes}"
        status.set(UNHEALTHY, True, "AutopilotNoExecute", message, restart=True)
        decision.record_warning(UNHEALTHY, message)
        status.phase = Phase.RESETTING  # an evacuation does not count against the retry limit
    else:
        if retried:
            status.set(UNHEALTHY, False, "RetriedByComponent", failed_pods_message(retried))
        else:
            status.clear(UNHEALTHY, "FoundNoFailedPods")
        _await_pods(observation, decision, counts, unfinished, retried)


def _record_started(
    observation: WrapperObservation,
    decision: WrapperDecision,
    deployed: Sequence[tuple[Component, ComponentObject]],
) -> None:
    """Record which components have pods that use what was admitted for them, before they complete."""
    if not observation.is_queued:
        return
    status = decision.status
    unrecorded = [
        (component, obj)
        for component, obj in deployed
        if component.expected_pods and not component.has_started
    ]
    if not unrecorded:
        return
    is_recorded = any(component.has_started for component in observation.components)
    is_unfinished = any(
        component.expected_pods and not obj.completed for component, obj in deployed
    )
    # Earlier versions recorded nothing. If the pods of unfinished components are ready, this version has.
    is_of_earlier_version = status.is_true(PODS_READY) and is_unfinished and not is_recorded
    pods: defaultdict[str, list[WrapperPod]] = defaultdict(list)
    for pod in observation.pods:
        if pod.is_read and has_started(pod):
            pods[pod.ancestor].append(pod)
    for component, obj in unrecorded:
        if is_of_earlier_version or _use_quota(observation, component, pods[obj.uid]):
            status.set_pods_started(component.index)


def _use_quota(
    observation: WrapperObservation, component: Component, pods: Sequence[WrapperPod]
) -> bool:
    """Return whether ``pods`` of a component, which have started, are enough and request what was admitted for it."""
    if len(pods) < component.expected_pods:
        return False
    return not describe_shortage(uses_of(observation, [component]), pods)


def _is_created_object(component: Component, obj: ComponentObject) -> bool:
    """Return whether ``obj`` was created for ``component``.

    One that a user created in its place has other pods than those that the queue admitted: these may still run.
    """
    return obj.owned and component.uid in ("", obj.uid)


def _failure(component: Component, obj: ComponentObject) -> str:
    """Return the name of a failed component, and why it has failed if its own controller says so."""
    if not obj.failure:
        return component.display_name
    return f"{component.display_name} ({obj.failure})"


def _retried_pods(
    observation: WrapperObservation, deployed: Sequence[tuple[Component, ComponentObject]]
) -> list[WrapperPod]:
    """Return the failed pods of components whose own controllers retry, except those with a terminal exit code."""
    retrying = {obj.uid for _, obj in deployed if obj.retries}
    return [
        pod
        for pod in observation.pods
        if pod.phase == "Failed"
        and pod.ancestor in retrying
        and not any(map(observation.settings.is_terminal, pod.exit_codes))
    ]


def _excess_message(observation: WrapperObservation) -> str:
    """Return which components have more pods than their queue admitted; empty if none has.

    As many pods as admitted may be ending in addition, because their controllers replace them at once. More of them
    count: users choose how long their pods take to end. Other pods that descend from the AppWrapper count as well; they
    can be those of components whose creation is not recorded yet.
    """
    if not observation.is_queued:
        return ""
    holding = [pod for pod in observation.pods if pod.ancestor and pod.holds_resources]
    active = Counter(pod.ancestor for pod in holding if not pod.deleting)
    ending = Counter(pod.ancestor for pod in holding if pod.deleting)
    found: list[str] = []
    recorded: set[str] = set()
    unrecorded = 0
    for component, obj in zip(observation.components, observation.objects, strict=True):
        uid = component.uid or (obj.uid if obj is not None else "")
        admitted = component.admitted_pods
        if not uid:
            unrecorded += admitted
            continue
        recorded.add(uid)
        pods = active[uid] + max(0, ending[uid] - admitted)
        if pods > admitted:
            found.append(
                f"{component.display_name} has {pods} pods, but its queue admitted {admitted}"
            )
    # Those that are being deleted by force may remain from an earlier attempt.
    others = [pod for pod in holding if pod.ancestor not in recorded and not pod.forced]
    if len(others) > unrecorded:
        message = f"{len(others)} pods are of no component, but its queue admitted {unrecorded}"
        found.insert(0, message)
    return "; ".join(found[:_MAX_SHOWN_COMPONENTS])


def _tolerate_excess(
    observation: WrapperObservation, decision: WrapperDecision, message: str
) -> None:
    status = decision.status
    is_reported = status.is_true(UNHEALTHY) and status.reason(UNHEALTHY) == EXCESS
    status.set(UNHEALTHY, True, EXCESS, message, restart=True)
    grace = min(observation.settings.failure_grace, EXCESS_GRACE)
    deadline = status.last_transition(UNHEALTHY) + grace
    if observation.now < deadline:
        if not is_reported:
            decision.record_warning(
                EXCESS,
                f"{message}; unless it is scaled back, all pods are deleted at {deadline:%H:%M:%S} UTC",
            )
        decision.requeue_at(deadline)
        return
    decision.record_warning(UNHEALTHY, f"{EXCESS}: {message}")
    _reset_or_fail(observation, decision, max_retries=_EXCESS_RETRIES)


def _end_remaining_pods(
    observation: WrapperObservation,
    decision: WrapperDecision,
    completed: Mapping[str, Component],
) -> None:
    """Delete pods that a completed MPIJob leaves, and by force all of the AppWrapper that do not terminate in time."""
    grace = observation.settings.forceful_deletion_grace
    remaining: list[str] = []
    for pod in observation.pods:
        if not pod.ancestor or not pod.holds_resources or pod.forced:
            continue
        if pod.deleting:
            deadline = (time_or_none(pod.end_requested_for) or observation.now) + grace
            if observation.now >= deadline:
                decision.deletions.append(Deletion(POD, pod.key, pod.uid, force=True))
            else:
                decision.requeue_at(deadline)
            continue
        component = completed.get(pod.ancestor)
        if component is not None and known_kind(component.gvk) in MPI_JOBS:
            remaining.append(pod.key.name)
            decision.deletions.append(Deletion(POD, pod.key, pod.uid))
    if remaining:
        names = ", ".join(sorted(remaining)[:_MAX_SHOWN_COMPONENTS])
        decision.record_normal(
            "DeletingRemainingPods",
            f"An MPIJob has completed, and {len(remaining)} of its pods still need quota; deleting pods: {names}",
        )


def _missing_components_message(observation: WrapperObservation, deployed: int) -> str:
    message = f"Only found {deployed} deployed components, but was expecting {len(observation.components)}"
    missing = [
        component.display_name
        for component, obj in zip(observation.components, observation.objects, strict=True)
        if obj is None or not _is_created_object(component, obj) or obj.deleting
    ]
    names = ", ".join(printable(name, MAX_NAME_LENGTH) for name in missing[:_MAX_SHOWN_COMPONENTS])
    message += f"; missing: {names}"
    if len(missing) > _MAX_SHOWN_COMPONENTS:
        message += f" and {len(missing) - _MAX_SHOWN_COMPONENTS} more"
    unserved = [observation.components[index].gvk for index in sorted(observation.unserved)]
    if unserved:
        kinds = ", ".join(dict.fromkeys(f"{gvk.kind} ({gvk.api_version})" for gvk in unserved))
        return f"{message}; the API server no longer serves {kinds}"
    return message


def _success(
    observation: WrapperObservation,
    completed: Mapping[str, Component],
    unfinished: Sequence[Component],
) -> str:
    """Return that all components have ended successfully; empty if not.

    ``completed`` has the components that report that, by uid. Pods need quota until they have ended, whatever is
    reported, and no pods may be created again.
    """
    if observation.knowledge is PodKnowledge.OWNERS_UNKNOWN:
        return ""
    # Anyone can create a pod with the label, so only pods with an owner of this AppWrapper prove that it has ended.
    own = [pod for pod in observation.pods if pod.ancestor]
    if any(pod.holds_resources for pod in own):
        return ""
    settings = observation.settings
    rest = count_pods((pod for pod in own if pod.ancestor not in completed), settings, {})
    have_reported = completed and not any(component.expected_pods for component in unfinished)
    if not have_reported:
        if rest.failed or rest.succeeded < _required_successes(unfinished):
            return ""
        if any(
            known_kind(component.gvk) in SERVICES and component.expected_pods
            for component in unfinished
        ):
            return ""
    counts = count_pods(own, settings, {})
    if have_reported and (counts.failed or not counts.succeeded):
        return "All components with pods report that they have completed"
    return f"{counts.succeeded} pods succeeded and no running, pending, or failed pods"


def _required_successes(unfinished: Sequence[Component]) -> int:
    """Return the number of pods that must succeed: at least 1, and none only if all pod sets have no pods.

    These are the pods that run at a time or, for a Job, its completions, if those are more.
    """
    pod_sets = [pod_set for component in unfinished for pod_set in component.pod_sets]
    if pod_sets and not any(map(replicas_of, pod_sets)):
        return 0
    return max(
        sum(max(component.expected_pods, component.completions) for component in unfinished), 1
    )


def _succeed(status: WrapperStatus, message: str) -> None:
    _, separator, problems = status.message(RESOURCES_DEPLOYED).partition(ANNOTATION_PROBLEM)
    status.set(QUOTA_RESERVED, False, "Succeeded", message)
    status.set(RESOURCES_DEPLOYED, True, "Succeeded", message + separator + problems)
    status.phase = Phase.SUCCEEDED


def _tolerate_failed_pods(
    observation: WrapperObservation, decision: WrapperDecision, counts: PodCounts
) -> None:
    status = decision.status
    message = failed_pods_message(observation.pods)
    status.set(UNHEALTHY, True, "FoundFailedPods", message, restart=True)
    deadline = status.last_transition(UNHEALTHY) + observation.settings.failure_grace
    if observation.now < deadline:
        decision.requeue_at(deadline)
        return
    decision.record_warning(UNHEALTHY, f"FoundFailedPods: {message}")
    _reset_or_fail(observation, decision, terminal=counts.terminal_failure)


def _await_pods(
    observation: WrapperObservation,
    decision: WrapperDecision,
    counts: PodCounts,
    unfinished: Sequence[Component],
    retried: Sequence[WrapperPod],
) -> None:
    status = decision.status
    settings = observation.settings
    expected = sum(component.expected_pods for component in unfinished)
    shortage = ""
    lacks_requests = False
    if counts.running + counts.succeeded >= expected:
        uses = uses_of(observation, unfinished)
        shortage = describe_shortage(uses, filter(has_started, observation.pods))
        if not shortage:
            _report_readiness(observation, decision, counts)
            _record_all_started(observation, decision, unfinished)
            _end_idleness(observation, decision, uses, retried)
            return
        existing = [pod for pod in observation.pods if has_started(pod) or pod.phase == "Pending"]
        lacks_requests = bool(describe_shortage(uses, existing))
    message = f"{counts.pending} pods pending; {counts.running} pods running; {counts.succeeded} pods succeeded"
    if shortage:
        message += f"; {shortage}"
    has_unread = not all(pod.is_read for pod in observation.pods)
    if observation.knowledge.lacks_pods or has_unread:
        # Those that are not known may run, and request enough. A reset would delete them.
        _report_failure(observation, decision, message)
        return
    status.clear(PODS_READY, "InsufficientPodsReady", message)
    # Pods that became unready get the full warm-up period again, and so do pods that replace failed ones.
    began = max(status.last_transition(RESOURCES_DEPLOYED), status.last_transition(PODS_READY))
    failed_at = last_end(retried)
    if failed_at is not None:
        began = max(began, failed_at)
    if counts.existing >= expected and not lacks_requests:
        grace = settings.warmup_grace
    elif failed_at is not None or observation.knowledge is PodKnowledge.LISTED:
        # Pods that have failed are in no list, and may be replaced.
        grace = max(settings.admission_grace, _MAX_JOB_BACKOFF)
    else:
        grace = settings.admission_grace
    deadline = began + grace
    if counts.existing < expected:
        _explain_missing_pods(observation, decision, min(began + _USUAL_CREATION, deadline))
    if observation.now < deadline:
        _report_failure(observation, decision, message)
        _report_shortage(decision, shortage, message)
        decision.requeue_at(deadline)
        return
    # A reset deletes the pods, and then nothing else says why they did not start.
    message += waiting_pods_message(
        observation.pods, expected - counts.existing, observation.refusal
    )
    _unhealthy(decision, "InsufficientPodsReady", message)
    _reset_or_fail(observation, decision, terminal=counts.terminal_failure)


def _report_readiness(
    observation: WrapperObservation, decision: WrapperDecision, counts: PodCounts
) -> None:
    status = decision.status
    message = f"{counts.running} pods running; {counts.succeeded} pods succeeded"
    crash = first_failure(observation.pods, "Running")
    if crash is not None:
        # Its phase is still Running, which is enough to be ready.
        message += f"; {crash.reason}: {crash.message}"
        if crash.reason not in status.message(PODS_READY):
            decision.record_warning("PodsNotReady", failure_text(crash))
    status.set(PODS_READY, True, "SufficientPodsReady", message)


def _record_all_started(
    observation: WrapperObservation, decision: WrapperDecision, unfinished: Iterable[Component]
) -> None:
    """Record that the pods of ``unfinished`` components are ready; owners may not lead from a pod to its component."""
    if not observation.is_queued:
        return
    for component in unfinished:
        if component.expected_pods:
            decision.status.set_pods_started(component.index)


def _end_idleness(
    observation: WrapperObservation,
    decision: WrapperDecision,
    uses: Sequence[LeastUse],
    retried: Sequence[WrapperPod],
) -> None:
    """Reset an AppWrapper of which no pod has run for too long, although enough have succeeded.

    Its components would need further pods, such as a Job with more completions than pods at a time.
    """
    status = decision.status
    since = idle_since(observation, uses, status.last_transition(PODS_READY))
    if since is None:
        return
    failed_at = last_end(retried)
    if failed_at is not None:
        since = max(since, failed_at)
    limit = max(observation.settings.warmup_grace, IDLE_LIMIT)
    if observation.now < since + limit:
        decision.requeue_at(since + limit)
        return
    message = f"{status.message(PODS_READY)}; no pod that uses the quota has run for {format_duration(limit)}"
    message += waiting_pods_message(observation.pods, 0)
    status.set(PODS_READY, False, "InsufficientPodsReady", message)
    _unhealthy(decision, "InsufficientPodsReady", message)
    _reset_or_fail(observation, decision)


def _report_shortage(decision: WrapperDecision, shortage: str, message: str) -> None:
    """Report that pods request too little to use the quota, unless the report is about a pod that cannot start."""
    status = decision.status
    reported = status.message(PODS_READY)
    if not shortage or shortage in reported or reported_failure(reported) is not None:
        return
    status.set(PODS_READY, False, "InsufficientPodsReady", message)
    decision.record_warning("PodsNotReady", message)


def _explain_missing_pods(
    observation: WrapperObservation, decision: WrapperDecision, due: datetime
) -> None:
    """From the time ``due``, ask why the first component that lacks pods does so."""
    if observation.refusal is not None:
        return
    if observation.now < due:
        decision.requeue_at(due)
        return
    pods = Counter(pod.ancestor for pod in observation.pods if pod.phase != "Failed")
    for component, obj in zip(observation.components, observation.objects, strict=True):
        if obj is not None and not obj.completed and pods[obj.uid] < component.expected_pods:
            decision.unexplained = component
            return


def _report_failure(
    observation: WrapperObservation, decision: WrapperDecision, message: str
) -> None:
    """Report why a pod cannot start, or cannot be created, long before the warm-up period ends.

    That report leaves out ``message``, the numbers of pods, so that each pod of many does not cause a write.
    """
    status = decision.status
    known = reported_failure(status.message(PODS_READY))
    failure = first_failure(observation.pods, "Pending") or observation.refusal
    if failure is None:
        if known is not None:
            status.set(PODS_READY, False, "InsufficientPodsReady", message)
        return
    if known is not None and (known == failure or is_same_failure(known, failure)):
        return
    text = failure_text(failure)
    status.set(PODS_READY, False, "InsufficientPodsReady", text)
    decision.record_warning("PodsNotReady", text)


def _suspend(observation: WrapperObservation, decision: WrapperDecision) -> None:
    """Delete the components completely, even if ``spec.suspend`` was unset in the meantime."""
    status = decision.status
    if status.is_true(RESOURCES_DEPLOYED):
        if not delete_components(observation, decision):
            return
        status.set(RESOURCES_DEPLOYED, False, "Suspended", "Suspend is true")
    status.set(QUOTA_RESERVED, False, "Suspended", "Suspend is true")
    if status.reason(PODS_READY):
        status.set(PODS_READY, False, "Suspended")
    status.clear(UNHEALTHY, "Suspended")
    status.phase = Phase.SUSPENDED
    _report_missing_queue(observation, decision)


def _reset(observation: WrapperObservation, decision: WrapperDecision) -> None:
    if _begin_suspending(observation, decision):
        return
    status = decision.status
    _forget_pods(status, "Resetting")
    if status.is_true(RESOURCES_DEPLOYED):
        if not delete_components(observation, decision):
            return
        attempt = observation.now + _retry_pause(observation, status)
        message = f"Resources deleted for resetting AppWrapper; next attempt at {attempt:%Y-%m-%d %H:%M:%S} UTC"
        status.set(RESOURCES_DEPLOYED, False, "Resetting", message)
    if not status.may_create_components:
        _fail_creation(decision)
        return
    deadline = status.last_transition(RESOURCES_DEPLOYED) + _retry_pause(observation, status)
    if observation.now < deadline:
        decision.requeue_at(deadline)
        return
    _begin_deployment(observation, decision, "Reset complete; resuming")


def _forget_pods(status: WrapperStatus, reason: str) -> None:
    """Let ``PodsReady`` be false, without the pod that it names, which is deleted."""
    status.clear(PODS_READY, reason)
    if reported_failure(status.message(PODS_READY)) is not None:
        status.set(PODS_READY, False, status.reason(PODS_READY), "The pods are deleted")


def _retry_pause(observation: WrapperObservation, status: WrapperStatus) -> timedelta:
    """Return the pause before the next attempt: that of the settings, or a longer one after many retries."""
    doublings = min(status.retries, _PAUSE_DOUBLINGS)
    shortest: timedelta = _FIRST_PAUSE * 2**doublings
    return max(observation.settings.retry_pause, shortest)


def _stay_failed(observation: WrapperObservation, decision: WrapperDecision) -> None:
    status = decision.status
    status.clear(PODS_READY, "Failed", "The AppWrapper has failed")
    delay = observation.settings.deletion_on_failure_grace
    if status.is_true(RESOURCES_DEPLOYED):
        if delay and not observation.suspended and not status.is_true(DELETING_RESOURCES):
            message = f"{DELETION_ON_FAILURE} has value {format_duration(delay)}"
            status.set(DELETING_RESOURCES, False, "DeletionPaused", message, restart=True)
            deadline = observation.limited(status.last_transition(DELETING_RESOURCES) + delay)
            excess = _excess_message(observation)
            if observation.now < deadline and not excess:
                decision.requeue_at(deadline)
                return
            if excess:
                _end_pause(decision, excess)
        if not delete_components(observation, decision):
            return
        message = _DELETED_AFTER_FAILURE
        if delay and observation.suspended:
            message = "Kueue forced resource deletion by suspending AppWrapper"
        status.set(RESOURCES_DEPLOYED, False, "Failed", message)
    status.set(QUOTA_RESERVED, False, "Failed", "No resources deployed")


def _end_pause(decision: WrapperDecision, excess: str) -> None:
    """Report why the components of a failed AppWrapper are not kept any longer, and still why it failed."""
    status = decision.status
    failure = f"{status.reason(UNHEALTHY)}: {status.message(UNHEALTHY)}"
    status.set(UNHEALTHY, True, EXCESS, f"{excess}; failed before with {failure}")
    decision.record_warning(UNHEALTHY, f"{EXCESS}: {excess}; deleting all resources")


def _stay_succeeded(observation: WrapperObservation, decision: WrapperDecision) -> None:
    status = decision.status
    delay = observation.settings.success_ttl
    if not status.is_true(RESOURCES_DEPLOYED):
        return
    _report_annotations(observation, decision)
    # It becomes false when the AppWrapper succeeds.
    deadline = status.last_transition(QUOTA_RESERVED) + delay
    message = f"Time to live after success of {format_duration(delay)} expired"
    if observation.now < deadline:
        if not _is_revived(observation, status):
            decision.requeue_at(deadline)
            return
        message = "Pods were created after the success, without quota"
        if not status.is_true(DELETING_RESOURCES):
            decision.record_warning("PodsAfterSuccess", f"{message}; deleting all resources")
    if delete_components(observation, decision):
        status.set(RESOURCES_DEPLOYED, False, "Succeeded", message)


def _is_revived(observation: WrapperObservation, status: WrapperStatus) -> bool:
    """Return whether pods exist that were created after the success, or are being deleted for that reason."""
    if status.is_true(DELETING_RESOURCES):
        return True
    if not observation.is_queued:
        return False
    return any(pod.ancestor and pod.holds_resources for pod in observation.pods)


def _terminate(observation: WrapperObservation) -> WrapperDecision:
    decision = WrapperDecision(status=observation.status())
    status = decision.status
    if status.is_true(RESOURCES_DEPLOYED):
        status.phase = Phase.TERMINATING
        if not delete_components(observation, decision):
            return decision
        status.set(RESOURCES_DEPLOYED, False, "Terminating", "Resources successfully deleted")
    if status.is_true(QUOTA_RESERVED):
        status.set(QUOTA_RESERVED, False, "Terminating", "No resources deployed")
    decision.remove_finalizer = True
    return decision


def _unhealthy(decision: WrapperDecision, reason: str, message: str) -> None:
    decision.status.set(UNHEALTHY, True, reason, message, restart=True)
    decision.record_warning(UNHEALTHY, f"{reason}: {message}")


def _reset_or_fail(
    observation: WrapperObservation,
    decision: WrapperDecision,
    *,
    terminal: bool = False,
    max_retries: int | None = None,
) -> None:
    """Retry or fail, and add which retry it is, or why there is none, to the condition ``Unhealthy``.

    ``max_retries`` is the greatest retry limit, whatever the AppWrapper asks for.
    """
    status = decision.status
    limit = observation.settings.retry_limit
    if max_retries is not None:
        limit = min(limit, max_retries)
    refusal = _retry_refusal(observation, status, limit, terminal=terminal)
    if not refusal:
        status.count_retry()
        status.phase = Phase.RESETTING
    outcome = refusal or f"retry {status.retries} of {limit}"
    message = "; ".join(filter(None, (status.message(UNHEALTHY), outcome)))
    status.set(UNHEALTHY, True, status.reason(UNHEALTHY), message)
    if not refusal:
        return
    decision.record_warning("Failed", f"{status.reason(UNHEALTHY)}: {message}")
    status.phase = Phase.FAILED


def _retry_refusal(
    observation: WrapperObservation, status: WrapperStatus, limit: int, *, terminal: bool
) -> str:
    """Return why an AppWrapper is not retried after ``limit`` retries; empty if it is.

    ``terminal``: a container ended with an exit code that makes the failure terminal.
    """
    settings = observation.settings
    if terminal:
        failed = (pod for pod in observation.pods if pod.phase == "Failed")
        codes = {code for pod in failed for code in pod.exit_codes if settings.is_terminal(code)}
        return f"exit code {', '.join(map(str, sorted(codes)))} is not retried"
    if status.retries < limit:
        return _overdue(observation, status)
    if limit < 1:
        return f"not retried, because the retry limit is {limit}"
    return "the only retry failed as well" if limit == 1 else f"all {limit} retries failed as well"


def _overdue(observation: WrapperObservation, status: WrapperStatus) -> str:
    """Return why an AppWrapper that keeps quota is not retried any more; empty if it is.

    Its user chooses the number of retries, and all of them keep the quota, also if no pod ever runs.
    """
    settings = observation.settings
    if not observation.is_queued or status.is_true(PODS_READY):
        return ""
    since = max(status.last_transition(QUOTA_RESERVED), status.last_transition(PODS_READY))
    ceiling = settings.grace_period_ceiling
    if status.retries < settings.default_retry_limit or observation.now < since + ceiling:
        return ""
    return (
        f"not retried any more, because its pods have not been ready for {format_duration(ceiling)}"
    )


_STEPS: Final[Mapping[Phase, Callable[[WrapperObservation, WrapperDecision], None]]] = {
    Phase.EMPTY: _initialize,
    Phase.SUSPENDED: _stay_suspended,
    Phase.RESUMING: _resume,
    Phase.RUNNING: _run,
    Phase.SUSPENDING: _suspend,
    Phase.RESETTING: _reset,
    Phase.FAILED: _stay_failed,
    Phase.SUCCEEDED: _stay_succeeded,
    Phase.TERMINATING: lambda observation, decision: None,
}
