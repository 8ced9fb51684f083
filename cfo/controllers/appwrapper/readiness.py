"""Whether the pods of an AppWrapper that runs are ready, and what is reported while they are not: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cfo.api.appwrapper.names import PODS_READY, RESOURCES_DEPLOYED
from cfo.api.appwrapper.pod_order import PodOrder
from cfo.api.appwrapper.pod_use import LeastUse
from cfo.controllers.appwrapper.components import Component
from cfo.controllers.appwrapper.decision import WrapperDecision, WrapperObservation
from cfo.controllers.appwrapper.pod_knowledge import UNKNOWN_LIMIT, PodKnowledge
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
    failure_text,
    first_failure,
    last_end,
    reported_failure,
    time_or_none,
    waiting_pods_message,
)
from cfo.controllers.appwrapper.retries import (
    is_overdue,
    latest_readiness,
    limited_by_readiness,
    report_unhealthy,
    reset_or_fail,
)
from cfo.controllers.pod_status import is_same_failure
from cfo.runtime.objects import format_duration

_MAX_JOB_BACKOFF: Final = timedelta(minutes=10)
"""The longest delay after which the controller of Jobs replaces a failed pod (kube-controller-manager)."""

_USUAL_CREATION: Final = timedelta(seconds=10)
"""How long the controllers of components usually need at most until they have created the pods."""


def await_pods(
    observation: WrapperObservation,
    decision: WrapperDecision,
    counts: PodCounts,
    unfinished: Sequence[Component],
    retried: Sequence[WrapperPod],
) -> None:
    """Report whether enough pods run and use the quota, and reset or fail the AppWrapper if they do not in time.

    ``counts`` are those of its pods, ``unfinished`` its components that have not completed, and ``retried`` failed pods
    whose own controllers retry.
    """
    status = decision.status
    settings = observation.settings
    readiness = _readiness_of(observation, counts, unfinished)
    decision.is_unproven = readiness.is_unproven
    expected = readiness.expected
    message = readiness.message
    if readiness.is_complete:
        _report_readiness(observation, decision, counts)
        _end_idleness(observation, decision, readiness.uses, retried)
        return
    if readiness.is_unproven and not is_overdue(observation, status):
        # Those that are not known may run, and request enough. A reset would delete them.
        _await_knowledge(observation, decision, message)
        _report_failure(observation, decision, message)
        return
    lacks_requests = False
    if readiness.shortage:
        existing = [pod for pod in observation.pods if has_started(pod) or pod.phase == "Pending"]
        lacks_requests = bool(describe_shortage(readiness.uses, existing))
    status.clear(PODS_READY, "InsufficientPodsReady", message)
    # Pods that became unready get the full warm-up period again, and so do pods that replace failed ones.
    began = max(status.last_transition(RESOURCES_DEPLOYED), status.last_transition(PODS_READY))
    failed_at = last_end(retried)
    if failed_at is not None:
        began = max(began, failed_at)
    exist_all = counts.existing >= expected and not lacks_requests
    if exist_all:
        grace = settings.warmup_grace
    elif failed_at is not None or observation.knowledge is PodKnowledge.LISTED:
        # Pods that have failed are in no list, and may be replaced.
        grace = max(settings.admission_grace, _MAX_JOB_BACKOFF)
    else:
        grace = settings.admission_grace
    deadline = began + grace
    latest = latest_readiness(observation, status)
    of_order = _deadline_of_order(observation, latest, exist_all=exist_all)
    if of_order is not None:
        deadline = max(deadline, min(of_order, latest))
    deadline = limited_by_readiness(observation, status, deadline)
    if counts.existing < expected:
        _explain_missing_pods(observation, decision, min(began + _USUAL_CREATION, deadline))
    if observation.now < deadline:
        _report_failure(observation, decision, message)
        _report_shortage(decision, readiness.shortage, message)
        decision.requeue_at(deadline)
        return
    # A reset deletes the pods, and then nothing else says why they did not start.
    message += waiting_pods_message(
        observation.pods, expected - counts.existing, observation.refusal
    )
    report_unhealthy(decision, "InsufficientPodsReady", message)
    reset_or_fail(observation, decision, terminal=counts.terminal_failure)


def follow_readiness(
    observation: WrapperObservation,
    decision: WrapperDecision,
    counts: PodCounts,
    unfinished: Sequence[Component],
) -> None:
    """Let ``PodsReady`` of an AppWrapper with failed or excess pods say whether enough others run.

    Without a queue, it stays as it is until these have ended, as in the Go operator.
    """
    if not observation.is_queued:
        return
    readiness = _readiness_of(observation, counts, unfinished)
    decision.is_unproven = readiness.is_unproven
    if readiness.is_complete:
        _report_readiness(observation, decision, counts)
    elif readiness.is_unproven:
        _await_knowledge(observation, decision, readiness.message)
    else:
        decision.status.clear(PODS_READY, "InsufficientPodsReady", readiness.message)


class _Readiness(NamedTuple):
    """Whether enough pods run: ``expected`` of them, which use the quota as ``uses`` says.

    ``is_unproven``: they may, with pods of which too little is known. ``shortage``: which requests are too small, if
    there are enough pods. ``message``: the numbers of pods, and that.
    """

    expected: int
    uses: Sequence[LeastUse]
    shortage: str
    is_complete: bool
    is_unproven: bool
    message: str


def _readiness_of(
    observation: WrapperObservation, counts: PodCounts, unfinished: Sequence[Component]
) -> _Readiness:
    expected = sum(component.expected_pods for component in unfinished)
    message = f"{counts.pending} pods pending; {counts.running} pods running; {counts.succeeded} pods succeeded"
    uses: Sequence[LeastUse] = ()
    shortage = ""
    is_complete = counts.running + counts.succeeded >= expected
    if is_complete:
        uses = uses_of(observation, unfinished)
        shortage = describe_shortage(uses, filter(has_started, observation.pods))
        is_complete = not shortage
    if shortage:
        message += f"; {shortage}"
    is_unproven = not is_complete and _may_be_ready(observation, counts, expected)
    return _Readiness(expected, uses, shortage, is_complete, is_unproven, message)


def _may_be_ready(observation: WrapperObservation, counts: PodCounts, expected: int) -> bool:
    """Return whether pods of which too little is known can make the AppWrapper ready."""
    if observation.knowledge.lacks_pods:
        return True
    unread = [pod for pod in observation.pods if not pod.is_read]
    known = counts.running + counts.succeeded
    others = sum(pod.phase not in ("Running", "Succeeded") for pod in unread)
    return bool(unread) and known + others >= expected


def _await_knowledge(
    observation: WrapperObservation, decision: WrapperDecision, message: str
) -> None:
    """With a queue, let ``PodsReady`` be false if too little has been known of the pods for a long time."""
    if not observation.is_queued:
        return
    status = decision.status
    until = (observation.unproven_since or observation.now) + UNKNOWN_LIMIT
    if observation.now >= until:
        message += "; it is not known whether others run"
        status.clear(PODS_READY, "InsufficientPodsReady", message)
    elif status.is_true(PODS_READY):
        decision.requeue_at(until)
    if not status.is_true(PODS_READY):
        decision.requeue_at(latest_readiness(observation, status))


def _deadline_of_order(
    observation: WrapperObservation, latest: datetime, *, exist_all: bool
) -> datetime | None:
    """Return until when pods may be missing or not ready because they wait for others; ``None`` if none does.

    ``exist_all``: none is missing. Each new pod, and each success of one, begins the warm-up period again, until
    ``latest``.
    """
    settings = observation.settings
    orders = _pod_orders(observation)
    awaited = [pod for pod in observation.pods if pod.ancestor in orders]
    if not exist_all and _awaits_end(observation):
        return latest
    created_at = time_or_none(max((pod.created for pod in awaited), default=""))
    ended_at = last_end(pod for pod in awaited if pod.phase == "Succeeded")
    changes = [at for at in (created_at, ended_at) if at is not None]
    grace = max(settings.admission_grace, settings.warmup_grace)
    return max(changes) + grace if changes else None


def _awaits_end(observation: WrapperObservation) -> bool:
    """Return whether pods run for whose end others may wait."""
    orders = _pod_orders(observation)
    return any(
        pod.phase == "Running" and pod.ancestor in orders and orders[pod.ancestor].awaits_end
        for pod in observation.pods
    )


def _pod_orders(observation: WrapperObservation) -> dict[str, PodOrder]:
    """Return the components whose pods wait for others of their pods, by the uids of their objects."""
    return {
        obj.uid: component.pod_order
        for component, obj in zip(observation.components, observation.objects, strict=True)
        if obj is not None and component.pod_order is not PodOrder.AT_ONCE
    }


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
    report_unhealthy(decision, "InsufficientPodsReady", message)
    reset_or_fail(observation, decision)


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
    """From the time ``due``, ask why the first component that lacks pods does so.

    Pods that wait for the end of others are not asked for: what they need may only be free then.
    """
    if observation.refusal is not None:
        return
    if observation.now < due:
        decision.requeue_at(due)
        return
    pods = Counter(pod.ancestor for pod in observation.pods if pod.phase != "Failed")
    active = {pod.ancestor for pod in observation.pods if pod.phase in ("Pending", "Running")}
    for component, obj in zip(observation.components, observation.objects, strict=True):
        if obj is None or obj.completed or pods[obj.uid] >= component.expected_pods:
            continue
        if component.pod_order.awaits_end and obj.uid in active:
            continue
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
