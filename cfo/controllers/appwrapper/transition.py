"""The state machine of an AppWrapper: decides the next step from the state of its components, pods and nodes.

All functions are pure. :func:`decide` takes one step, and the next step starts from the returned status, so an operator
that stops between two writes resumes where it stopped. If components must be created, it requests that, and
:func:`.creation.after_creation` continues with the result. Phases, conditions, reasons and messages are the same as in
the Go operator; docs/differences.md lists the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from cfo.api.appwrapper.kinds import MPI_JOBS, known_kind
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
from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.kueue import SUSPENDED_WITHOUT_QUEUE
from cfo.config.appwrapper_settings import DELETION_ON_FAILURE
from cfo.controllers.appwrapper.completion import success_message
from cfo.controllers.appwrapper.component_deletion import delete_components, has_unknown_owners
from cfo.controllers.appwrapper.components import Component, ComponentObject, initial_status
from cfo.controllers.appwrapper.decision import (
    EXCESS,
    MAX_NAME_LENGTH,
    MAX_SHOWN_COMPONENTS,
    Deletion,
    WrapperDecision,
    WrapperObservation,
)
from cfo.controllers.appwrapper.excess import (
    EXCESS_RETRIES,
    excess_message,
    own_pods_with_resources,
    tolerate_excess,
)
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import (
    PodCounts,
    WrapperPod,
    count_pods,
    failed_pods_message,
    reported_failure,
    time_or_none,
)
from cfo.controllers.appwrapper.readiness import await_pods, follow_readiness
from cfo.controllers.appwrapper.retries import (
    fail_overdue,
    limited_by_readiness,
    report_unhealthy,
    reset_or_fail,
    retry_pause,
)
from cfo.controllers.appwrapper.status import WrapperStatus
from cfo.controllers.appwrapper.workload import has_queue
from cfo.runtime import POD, has_finalizer, is_deleting
from cfo.runtime.objects import format_duration
from cfo.runtime.process import printable

_KEEPING_PHASES: Final = (Phase.SUSPENDED, Phase.RESUMING, Phase.RUNNING, Phase.RESETTING)
"""The phases in which an AppWrapper is to run, so that nothing else ends the time for which it keeps quota.

One that its user suspends is to run while its Workload is admitted.
"""

_EVACUATION_INTERVAL: Final = timedelta(minutes=1)
"""The shortest time between two evacuations without ready pods in between."""

_DELETED_AFTER_FAILURE: Final = "Resources deleted for failed AppWrapper"


def releases(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether ``decision`` gives back quota, or allows another deployment, because no pods are active."""
    before = observation.status()
    return any(
        before.is_true(kind) and not decision.status.is_true(kind)
        for kind in (QUOTA_RESERVED, RESOURCES_DEPLOYED)
    )


def needs_list(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether pods that the cache leaves out can exceed the quota, not use it, or run after it was returned."""
    if not decision.status.is_true(RESOURCES_DEPLOYED):
        return False
    return observation.is_queued and observation.knowledge is PodKnowledge.LEFT_OUT


def takes_excess_back(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Return whether ``decision`` goes on as if no more pods were found than its queue admitted, as were before."""
    before = observation.status()
    after = decision.status
    had_excess = before.reason(UNHEALTHY) == EXCESS
    return had_excess and after.reason(UNHEALTHY) != EXCESS and after.phase is before.phase


def decide(observation: WrapperObservation) -> WrapperDecision:
    """Decide the next step of an AppWrapper. Raises :class:`ValueError` for an unknown phase."""
    if is_deleting(observation.wrapper):
        return _terminate(observation)
    decision = WrapperDecision(status=observation.status())
    _record_validation(observation, decision)
    _STEPS[decision.status.phase](observation, decision)
    _end_unused_quota(observation, decision)
    if observation.reads_owners_at is not None:
        decision.requeue_at(observation.reads_owners_at)
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
    status.set(UNHEALTHY, True, "InsufficientPodsReady", message, restart=True)
    decision.record_warning("Failed", f"InsufficientPodsReady: {message}")
    decision.create = False
    decision.add_finalizer = False  # an AppWrapper without room for it can still be written smaller
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
    except PodSetError as error:
        # Admission rejects it. Without admission, it must not be retried forever.
        report_unhealthy(decision, "CreateFailed", f"error creating components: {error}")
        status.phase = Phase.FAILED
    else:
        status.phase = Phase.SUSPENDED
        _report_missing_queue(observation, decision)
        # Nothing has been created yet, so no write is needed in between.
        _stay_suspended(observation, decision)


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
    excess = excess_message(observation)
    if not decision.status.may_create_components:
        _fail_creation(decision)
    elif excess:
        tolerate_excess(observation, decision, excess)
    elif not observation.awaits_admission:  # it may have been evicted since it was resumed
        decision.create = True


def _fail_creation(decision: WrapperDecision) -> None:
    """Fail an AppWrapper whose components were changed without validation after it had been resumed."""
    report_unhealthy(
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
    excess = excess_message(observation)
    success = success_message(observation, completed, unfinished)
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
    if excess or counts.failed:
        follow_readiness(observation, decision, counts, unfinished)
    if len(deployed) != len(observation.components):
        report_unhealthy(
            decision, "MissingComponent", _missing_components_message(observation, len(deployed))
        )
        status.phase = Phase.FAILED
    elif failed:
        message = f"Found {len(failed)} failed components: {', '.join(failed)}"
        causes = f"; {failed_pods_message(observation.pods)}" if counts.failed else ""
        report_unhealthy(decision, "FailedComponent", message + causes)
        reset_or_fail(
            observation,
            decision,
            terminal=counts.terminal_failure,
            max_retries=EXCESS_RETRIES if excess else None,
        )
    elif success:
        _succeed(status, success)
    elif excess:
        tolerate_excess(observation, decision, excess)
    elif counts.failed:
        _tolerate_failed_pods(observation, decision, counts)
    elif counts.no_execute_nodes:
        _evacuate(observation, decision, counts)
    else:
        if retried:
            status.set(UNHEALTHY, False, "RetriedByComponent", failed_pods_message(retried))
        else:
            status.clear(UNHEALTHY, "FoundNoFailedPods")
        await_pods(observation, decision, counts, unfinished, retried)


def _evacuate(
    observation: WrapperObservation, decision: WrapperDecision, counts: PodCounts
) -> None:
    """Create the pods again, because some run on nodes whose resources they should no longer use.

    That does not count against the retry limit. They may return to such nodes each time, before they are ready.
    """
    status = decision.status
    nodes = ", ".join(sorted(counts.no_execute_nodes))
    message = f"Workload contains pods using NoExecute resources on Nodes: {nodes}"
    status.set(UNHEALTHY, True, "AutopilotNoExecute", message, restart=True)
    if fail_overdue(observation, decision):
        return
    deployed_at = status.last_transition(RESOURCES_DEPLOYED)
    if not status.is_true(PODS_READY) and observation.now < deployed_at + _EVACUATION_INTERVAL:
        decision.requeue_at(deployed_at + _EVACUATION_INTERVAL)
        return
    decision.record_warning(UNHEALTHY, message)
    status.phase = Phase.RESETTING


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
        names = ", ".join(sorted(remaining)[:MAX_SHOWN_COMPONENTS])
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
    names = ", ".join(printable(name, MAX_NAME_LENGTH) for name in missing[:MAX_SHOWN_COMPONENTS])
    message += f"; missing: {names}"
    if len(missing) > MAX_SHOWN_COMPONENTS:
        message += f" and {len(missing) - MAX_SHOWN_COMPONENTS} more"
    unserved = [observation.components[index].gvk for index in sorted(observation.unserved)]
    if unserved:
        kinds = ", ".join(dict.fromkeys(f"{gvk.kind} ({gvk.api_version})" for gvk in unserved))
        return f"{message}; the API server no longer serves {kinds}"
    return message


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
    deadline = limited_by_readiness(observation, status, deadline)
    if observation.now < deadline:
        decision.requeue_at(deadline)
        return
    decision.record_warning(UNHEALTHY, f"FoundFailedPods: {message}")
    reset_or_fail(observation, decision, terminal=counts.terminal_failure)


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
        attempt = limited_by_readiness(
            observation, status, observation.now + retry_pause(observation, status)
        )
        message = f"Resources deleted for resetting AppWrapper; next attempt at {attempt:%Y-%m-%d %H:%M:%S} UTC"
        status.set(RESOURCES_DEPLOYED, False, "Resetting", message)
    if not status.may_create_components:
        _fail_creation(decision)
        return
    if fail_overdue(observation, decision):
        return
    deadline = status.last_transition(RESOURCES_DEPLOYED) + retry_pause(observation, status)
    deadline = limited_by_readiness(observation, status, deadline)
    if observation.now < deadline:
        decision.requeue_at(deadline)
        return
    _begin_deployment(observation, decision, "Reset complete; resuming")


def _forget_pods(status: WrapperStatus, reason: str) -> None:
    """Let ``PodsReady`` be false, without the pod that it names, which is deleted."""
    status.clear(PODS_READY, reason)
    if reported_failure(status.message(PODS_READY)) is not None:
        status.set(PODS_READY, False, status.reason(PODS_READY), "The pods are deleted")


def _stay_failed(observation: WrapperObservation, decision: WrapperDecision) -> None:
    status = decision.status
    status.clear(PODS_READY, "Failed", "The AppWrapper has failed")
    if status.reason(PODS_READY) == "Resuming":  # it failed before its pods were awaited
        status.set(PODS_READY, False, "Failed", "The AppWrapper has failed")
    delay = observation.settings.deletion_on_failure_grace
    if status.is_true(RESOURCES_DEPLOYED):
        if delay and not observation.suspended and not status.is_true(DELETING_RESOURCES):
            message = f"{DELETION_ON_FAILURE} has value {format_duration(delay)}"
            status.set(DELETING_RESOURCES, False, "DeletionPaused", message, restart=True)
            deadline = observation.limited(status.last_transition(DELETING_RESOURCES) + delay)
            deadline = limited_by_readiness(observation, status, deadline)
            excess = excess_message(observation)
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
    return bool(own_pods_with_resources(observation))


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
