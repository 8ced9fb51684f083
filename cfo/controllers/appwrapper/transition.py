"""The life of an AppWrapper: from its state and what was seen of its components, pods and nodes to what to do now.

Pure functions. :func:`decide` takes one step; the status that it asks for is what the next step starts from, so that an
operator which dies between any two writes goes on where it was. Where components are to be created it says so, and
:func:`after_creation` goes on with what came of it. The phases, conditions, reasons and messages are those of the Go
operator; docs/differences.md says where this is otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from cfo.api.appwrapper import Phase, PodSetError, expected_pods
from cfo.config.durations import format_duration
from cfo.controllers.appwrapper.components import CREATED, CREATION_ERRORED, Component, identity, initial_status
from cfo.controllers.appwrapper.decision import Decision, View
from cfo.controllers.appwrapper.deletion import delete_components
from cfo.controllers.appwrapper.names import (
    DELETING_RESOURCES,
    FINALIZER,
    PODS_READY,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
)
from cfo.controllers.appwrapper.pods import PodCounts, count_pods
from cfo.controllers.appwrapper.settings import DELETION_ON_FAILURE
from cfo.controllers.appwrapper.status import Status
from cfo.runtime.kinds import JOB
from cfo.runtime.objects import has_finalizer, is_deleting

__all__ = ["Creation", "after_creation", "decide"]

_CREATION_RETRY: Final = timedelta(seconds=1)
"""How long after a refused creation the next try is."""


@dataclass(frozen=True, slots=True)
class Creation:
    """What came of creating a component: its object's uid, or an error. ``fatal``: trying again is pointless."""

    component: Component
    uid: str = ""
    error: str = ""
    fatal: bool = False


def decide(view: View) -> Decision:
    """What to do about an AppWrapper now. Raises :class:`ValueError` for a phase that nobody knows."""
    if is_deleting(view.wrapper):
        return _terminate(view)
    decision = Decision(status=view.status())
    _STEPS[decision.status.phase](view, decision)
    return decision


def _initialise(view: View, decision: Decision) -> None:
    status = decision.status
    try:
        status.components = initial_status(view.wrapper)
    except PodSetError as error:  # admission refuses it; where there is none, it must not be retried for ever
        _unhealthy(decision, "CreateFailed", f"error creating components: {error}")
        status.phase = Phase.FAILED
    else:
        status.phase = Phase.SUSPENDED
        _stay_suspended(view, decision)  # nothing was begun yet, so nothing is lost without a write in between


def _stay_suspended(view: View, decision: Decision) -> None:
    if view.suspended or view.awaits_admission:
        return
    status = decision.status
    decision.add_finalizer = not has_finalizer(view.wrapper, FINALIZER)
    status.forget_retries()
    for kind, value in ((QUOTA_RESERVED, True), (RESOURCES_DEPLOYED, True), (PODS_READY, False), (UNHEALTHY, False)):
        status.set(kind, value, "Resuming", "Suspend is false")
    _begin_deployment(view, decision, "Suspend is false")


def _begin_deployment(view: View, decision: Decision, message: str) -> None:
    problems = "; ".join(view.settings.problems)
    if problems:
        decision.warn("MalformedAnnotations", problems)
    status = decision.status
    status.set(RESOURCES_DEPLOYED, True, "Resuming", f"{message}; {problems}" if problems else message)
    status.forget_components()
    status.phase = Phase.RESUMING


def _resume(view: View, decision: Decision) -> None:
    if not _give_way(view, decision):
        decision.create = True


def _give_way(view: View, decision: Decision) -> bool:
    """Begins to suspend, if that is wanted; returns whether it is."""
    if view.suspended:
        phase = decision.status.phase
        decision.tell("Suspending", f"Externally suspended while in the {phase} phase")
        decision.status.phase = Phase.SUSPENDING
    return view.suspended


def after_creation(view: View, creations: Sequence[Creation]) -> Decision:
    """What to do once the components were created, or one (the last of ``creations``) was refused."""
    decision = Decision(status=view.status())
    status = decision.status
    for creation in creations:
        component = creation.component
        status.note_component(component.index, component.gvk, component.key.name)
        if creation.error:
            status.set_component(component.index, False, CREATION_ERRORED, creation.error)
        else:
            status.set_component(component.index, True, CREATED, identity(component, creation.uid))
    failed = next((creation for creation in creations if creation.error), None)
    if failed is None:
        status.phase = Phase.RUNNING
        return decision
    deadline = status.since(RESOURCES_DEPLOYED) + view.settings.admission_grace
    if not failed.fatal and view.now < deadline:
        decision.look_again(min(view.now + _CREATION_RETRY, deadline))
        return decision
    _unhealthy(decision, "CreateFailed", f"error creating components: {failed.error}")
    if failed.fatal:
        status.phase = Phase.FAILED
    else:
        _reset_or_fail(view, status)
    return decision


def _run(view: View, decision: Decision) -> None:
    if _give_way(view, decision):
        return
    status = decision.status
    counts = count_pods((labelled.pod for labelled in view.pods), view.settings, view.no_execute)
    expected = sum(expected_pods(component.pod_sets) for component in view.components)
    deployed = [seen for seen in view.seen if seen is not None and seen.ours and not seen.deleting]
    failed = sum(seen.failed for seen in deployed)
    if len(deployed) != len(view.components):
        _unhealthy(decision, "MissingComponent", _missing(view, len(deployed)))
        status.phase = Phase.FAILED
    elif failed:
        _unhealthy(decision, "FailedComponent", f"Found {failed} failed components")
        _reset_or_fail(view, status, terminal=counts.terminal_failure)
    elif counts.succeeded == counts.existing and not counts.failed and counts.succeeded >= _needed(view):
        _succeed(status, counts)
    elif counts.failed:
        _bear_failed_pods(view, decision, counts)
    elif counts.no_execute_nodes:
        nodes = ", ".join(sorted(counts.no_execute_nodes))
        message = f"Workload contains pods using NoExecute resources on Nodes: {nodes}"
        status.set(UNHEALTHY, True, "AutopilotNoExecute", message, restart=True)
        decision.warn(UNHEALTHY, message)
        status.phase = Phase.RESETTING  # an evacuation is nobody's failure: it is no retry, and never the last one
    else:
        status.clear(UNHEALTHY, "FoundNoFailedPods")
        _await_pods(view, decision, counts, expected)


def _missing(view: View, deployed: int) -> str:
    message = f"Only found {deployed} deployed components, but was expecting {len(view.components)}"
    gone = [view.components[index].gvk for index in sorted(view.unserved)]
    if gone:
        kinds = ", ".join(dict.fromkeys(f"{gvk.kind} ({gvk.api_version})" for gvk in gone))
        return f"{message}; the API server does not serve {kinds} any more"
    return message


def _needed(view: View) -> int:
    """How many pods must have succeeded: at least those that there are at a time, of a Job as many as it completes."""
    needed = 0
    for component, seen in zip(view.components, view.seen, strict=True):
        pods = expected_pods(component.pod_sets)
        if component.gvk == JOB and not (seen is not None and seen.completed):
            completions = _completions(view.wrapper, component.index)
            pods = max(pods, completions)
        needed += pods
    return max(needed, 1)


def _completions(wrapper: Mapping[str, Any], index: int) -> int:
    spec = (wrapper["spec"]["components"][index].get("template") or {}).get("spec") or {}
    completions = spec.get("completions")
    return completions if isinstance(completions, int) else 0


def _succeed(status: Status, counts: PodCounts) -> None:
    message = f"{counts.succeeded} pods succeeded and no running, pending, or failed pods"
    status.set(QUOTA_RESERVED, False, "Succeeded", message)
    status.set(RESOURCES_DEPLOYED, True, "Succeeded", message)
    status.phase = Phase.SUCCEEDED


def _bear_failed_pods(view: View, decision: Decision, counts: PodCounts) -> None:
    status = decision.status
    status.set(UNHEALTHY, True, "FoundFailedPods", restart=True)
    deadline = status.since(UNHEALTHY) + view.settings.failure_grace
    if view.now < deadline:
        decision.look_again(deadline)
        return
    decision.warn(UNHEALTHY, f"FoundFailedPods: {counts.failed} failed pods")
    _reset_or_fail(view, status, terminal=counts.terminal_failure)


def _await_pods(view: View, decision: Decision, counts: PodCounts, expected: int) -> None:
    status, settings = decision.status, view.settings
    if counts.running + counts.succeeded >= expected:
        message = f"{counts.running} pods running; {counts.succeeded} pods succeeded"
        status.set(PODS_READY, True, "SufficientPodsReady", message)
        return
    message = f"{counts.pending} pods pending; {counts.running} pods running; {counts.succeeded} pods succeeded"
    status.clear(PODS_READY, "InsufficientPodsReady", message)
    # pods that were ready and went are given as long as the first ones had
    began = max(status.since(RESOURCES_DEPLOYED), status.since(PODS_READY))
    deadline = began + (settings.warmup_grace if counts.existing >= expected else settings.admission_grace)
    if view.now < deadline:
        decision.look_again(deadline)
        return
    _unhealthy(decision, "InsufficientPodsReady", message)
    _reset_or_fail(view, status, terminal=counts.terminal_failure)


def _suspend(view: View, decision: Decision) -> None:
    """Undeploys to the end, whatever is wanted by now."""
    status = decision.status
    if status.is_true(RESOURCES_DEPLOYED):
        if not delete_components(view, decision):
            return
        status.set(RESOURCES_DEPLOYED, False, "Suspended", "Suspend is true")
    status.set(QUOTA_RESERVED, False, "Suspended", "Suspend is true")
    status.clear(PODS_READY, "Suspended")
    status.clear(UNHEALTHY, "Suspended")
    status.phase = Phase.SUSPENDED


def _reset(view: View, decision: Decision) -> None:
    if _give_way(view, decision):
        return
    status = decision.status
    status.clear(PODS_READY, "Resetting")
    if status.is_true(RESOURCES_DEPLOYED):
        if not delete_components(view, decision):
            return
        status.set(RESOURCES_DEPLOYED, False, "Resetting", "Resources deleted for resetting AppWrapper")
    deadline = status.since(RESOURCES_DEPLOYED) + view.settings.retry_pause
    if view.now < deadline:
        decision.look_again(deadline)
        return
    _begin_deployment(view, decision, "Reset complete; resuming")


def _stay_failed(view: View, decision: Decision) -> None:
    status, delay = decision.status, view.settings.deletion_on_failure_grace
    if status.is_true(RESOURCES_DEPLOYED):
        if delay and not view.suspended and not status.is_true(DELETING_RESOURCES):
            message = f"{DELETION_ON_FAILURE} has value {format_duration(delay)}"
            status.set(DELETING_RESOURCES, False, "DeletionPaused", message, restart=True)
            deadline = status.since(DELETING_RESOURCES) + delay
            if view.now < deadline:
                decision.look_again(deadline)
                return
        if not delete_components(view, decision):
            return
        message = "Resources deleted for failed AppWrapper"
        if delay and view.suspended:
            message = "Kueue forced resource deletion by suspending AppWrapper"
        status.set(RESOURCES_DEPLOYED, False, "Failed", message)
    status.set(QUOTA_RESERVED, False, "Failed", "No resources deployed")


def _stay_succeeded(view: View, decision: Decision) -> None:
    status, delay = decision.status, view.settings.success_ttl
    if not status.is_true(RESOURCES_DEPLOYED):
        return
    deadline = status.since(QUOTA_RESERVED) + delay  # given back at the moment of the success
    if view.now < deadline:
        decision.look_again(deadline)
        return
    if delete_components(view, decision):
        message = f"Time to live after success of {format_duration(delay)} expired"
        status.set(RESOURCES_DEPLOYED, False, "Succeeded", message)


def _terminate(view: View) -> Decision:
    decision = Decision(status=view.status())
    status = decision.status
    if not has_finalizer(view.wrapper, FINALIZER):
        return decision
    if status.is_true(RESOURCES_DEPLOYED):
        status.phase = Phase.TERMINATING
        if not delete_components(view, decision):
            return decision
        status.set(RESOURCES_DEPLOYED, False, "Terminating", "Resources successfully deleted")
    if status.is_true(QUOTA_RESERVED):
        status.set(QUOTA_RESERVED, False, "Terminating", "No resources deployed")
    decision.remove_finalizer = True
    return decision


def _unhealthy(decision: Decision, reason: str, message: str) -> None:
    decision.status.set(UNHEALTHY, True, reason, message, restart=True)
    decision.warn(UNHEALTHY, f"{reason}: {message}")


def _reset_or_fail(view: View, status: Status, *, terminal: bool = False) -> None:
    if terminal or status.retries >= view.settings.retry_limit:
        status.phase = Phase.FAILED
    else:
        status.count_retry()
        status.phase = Phase.RESETTING


def _nothing(view: View, decision: Decision) -> None:
    """Nothing is to be done."""


_STEPS: Final[Mapping[Phase, Callable[[View, Decision], None]]] = {
    Phase.EMPTY: _initialise,
    Phase.SUSPENDED: _stay_suspended,
    Phase.RESUMING: _resume,
    Phase.RUNNING: _run,
    Phase.SUSPENDING: _suspend,
    Phase.RESETTING: _reset,
    Phase.FAILED: _stay_failed,
    Phase.SUCCEEDED: _stay_succeeded,
    Phase.TERMINATING: _nothing,
}
