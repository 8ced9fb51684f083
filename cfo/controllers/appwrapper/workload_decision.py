"""Decides what happens next between an AppWrapper and its Workload, and what is written to both.

Pure functions of both objects; :mod:`.kueue` reads and writes. The order of the rules is that of Kueue's own
integrations: the end of the AppWrapper first, then the existence of the Workload, its eviction and its admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.names import (
    FINALIZER,
    PODS_READY,
    QUOTA_FINALIZER,
    has_quota,
    is_managed_here,
)
from cfo.controllers.appwrapper.admission import is_held
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.workload import (
    completion,
    eviction,
    has_left,
    has_queue,
    is_admitted,
    is_terminated,
    queue_of,
)
from cfo.runtime import Object, find_condition, has_finalizer, is_deleting
from cfo.runtime.objects import Conditions
from cfo.runtime.process import micro_time

REQUEUED_REASONS: Final = (
    "Preempted",
    "AdmissionCheck",
    "NodeFailures",
    "LocalQueueStopped",
    "ClusterQueueStopped",
)
"""The reasons of evictions after which Kueue can admit the Workload again immediately."""

_READY: Final = ("Started", "All pods reached readiness and the workload is running")
_READY_AGAIN: Final = ("Recovered", _READY[1])
_NOT_READY: Final = ("WaitForStart", "Not all pods are ready or succeeded")
_NOT_READY_ANY_MORE: Final = (
    "WaitForRecovery",
    "At least one pod has failed, waiting for recovery",
)
"""With this reason, Kueue's timeout counts from the failure; with the other one, from the admission."""


class QueueAction(Enum):
    """The next step between an AppWrapper and its Workload."""

    NOTHING = auto()
    FINISH = auto()
    """Mark the Workload as finished."""
    CREATE = auto()
    """Create the Workload."""
    STOP = auto()
    """Suspend the AppWrapper, which must not run now."""
    RELEASE = auto()
    """Release the quota of an evicted Workload, whose resources are deleted."""
    START = auto()
    """Resume the AppWrapper with the pod template changes that the admission requires."""
    REPORT = auto()
    """Report in the Workload whether the pods are ready, and how many need no quota any more."""
    MOVE = auto()
    """Move the Workload to the queue of the AppWrapper."""
    DELETE = auto()
    """Delete the Workload of an AppWrapper that is deleted or has left its queue, and of which nothing runs."""


class QueueDecision(msgspec.Struct, frozen=True):
    """The next step; ``reason`` is that of a condition, and ``message`` that of a condition or an Event.

    ``is_pending`` is whether the Workload waits for its admission.
    """

    action: QueueAction
    reason: str = ""
    message: str = ""
    is_pending: bool = False


class QueueState(msgspec.Struct, frozen=True):
    """What applies to an AppWrapper in one reconcile because of its queue; ``workload`` is its own, if it has one.

    ``is_followed``: whether this operator reconciles it. ``is_queued``: whether a queue decides about it.
    ``awaits_admission``: whether it must not be deployed yet, even if ``spec.suspend`` is not set.
    """

    is_followed: bool
    is_queued: bool
    awaits_admission: bool
    workload: Object | None = None


def queue_state(wrapper: Mapping[str, Any], workload: Object | None) -> QueueState:
    """Return the state of an AppWrapper that waits for its Workload; ``workload`` is ``None`` if it has none."""
    return QueueState(
        is_followed(wrapper, workload),
        is_queued(wrapper, workload),
        awaits_admission(wrapper, workload),
        workload,
    )


def queue_state_without_workloads(wrapper: Mapping[str, Any]) -> QueueState:
    """Return the state of an AppWrapper that only ``spec.suspend`` delays, which Kueue's own integration sets."""
    return QueueState(is_followed(wrapper, None), is_queued(wrapper, None), awaits_admission=False)


def is_queued(wrapper: Mapping[str, Any], workload: Object | None) -> bool:
    """Return whether a queue decides about an AppWrapper; ``workload`` is its own, or ``None`` if it has none.

    While its Workload exists, one does, because the Workload can hold quota: users can remove the label.
    """
    return workload is not None or has_queue(wrapper)


def is_followed(wrapper: Mapping[str, Any], workload: Object | None) -> bool:
    """Return whether this operator reconciles an AppWrapper: ``managedBy`` says so, or a Workload that it has created.

    Without the webhook, users can change ``managedBy`` of an AppWrapper that has quota, and no other controller would
    give that back. Another controller's Workload, such as MultiKueue's, lacks the finalizer. An AppWrapper that is
    being deleted and has the operator's finalizer is followed as well: no other controller would remove that.
    """
    if is_managed_here(wrapper):
        return True
    if is_deleting(wrapper) and has_finalizer(wrapper, FINALIZER):
        return True
    return workload is not None and has_finalizer(workload, QUOTA_FINALIZER)


def is_synchronized_here(wrapper: Mapping[str, Any], workload: Object | None) -> bool:
    """Return whether this operator synchronizes an AppWrapper with a Workload.

    One that is being deleted is synchronized once nothing of it remains. A finalizer of its user can keep it then, and
    so keep its Workload, which the garbage collector deletes only after it.
    """
    if not is_followed(wrapper, workload):
        return False
    if is_deleting(wrapper):
        return workload is not None and is_terminated(wrapper)
    return workload is not None or _wants_admission(wrapper)


def awaits_admission(wrapper: Mapping[str, Any], workload: Object | None) -> bool:
    """Return whether an AppWrapper must not be deployed yet, even if ``spec.suspend`` is not set.

    One that has left its queue is deployed without a queue once its Workload is deleted.
    """
    if workload is None:
        return has_queue(wrapper)
    has_left = not _wants_admission(wrapper) and not has_quota(wrapper)
    return has_left or not is_admitted(workload)


def _wants_admission(wrapper: Mapping[str, Any]) -> bool:
    """Return whether an AppWrapper has a queue, and is allowed to run here once the queue admits it."""
    return has_queue(wrapper) and is_managed_here(wrapper) and not is_held(wrapper)


def decide_action(wrapper: Object, workload: Object | None) -> QueueDecision:
    """Return the next step of an AppWrapper that is synchronized; ``workload`` is ``None`` if it has none."""
    if workload is not None and is_terminated(wrapper):
        return _deletion_of(workload)
    is_suspended = bool(wrapper["spec"].get("suspend"))
    ended = completion(wrapper)
    if ended is not None:
        return QueueDecision(QueueAction.FINISH, *ended)
    if workload is not None and not _wants_admission(wrapper):
        return _decide_without_queue(wrapper, workload, is_suspended=is_suspended)
    if workload is None:
        if is_suspended:
            return QueueDecision(QueueAction.CREATE)
        message = "Suspended until a matching Workload exists and is admitted"
        return QueueDecision(QueueAction.STOP, message=message)
    evicted = eviction(workload)
    if evicted is not None:
        reason, message = evicted
        if not is_suspended:
            return QueueDecision(QueueAction.STOP, message=message)
        if has_quota(wrapper):
            return QueueDecision(QueueAction.NOTHING)  # its resources are being deleted
        return QueueDecision(QueueAction.RELEASE, reason, message)
    if is_admitted(workload):
        return QueueDecision(QueueAction.START if is_suspended else QueueAction.REPORT)
    if not is_suspended:
        message = "Not admitted by cluster queue"
        return QueueDecision(QueueAction.STOP, message=message, is_pending=True)
    if workload["spec"].get("queueName") != queue_of(wrapper):
        return QueueDecision(QueueAction.MOVE, is_pending=True)
    return QueueDecision(QueueAction.NOTHING, is_pending=True)


def must_delete_left(wrapper: Object, workload: Object) -> bool:
    """Return whether to delete the Workload of an AppWrapper that this operator does not reconcile.

    Its quota is kept until the pods of the AppWrapper have ended (:mod:`.reservations`).
    """
    if is_deleting(workload):
        return False
    if has_left(wrapper, workload):
        return True
    if not is_synchronized_here(wrapper, workload):
        return False
    return decide_action(wrapper, workload).action is QueueAction.DELETE


def _decide_without_queue(
    wrapper: Object, workload: Object, *, is_suspended: bool
) -> QueueDecision:
    """Return the next step of an AppWrapper that has left its queue, or may not run, but still has a Workload.

    It runs as long as its Workload is admitted, and then never again with it.
    """
    if not has_quota(wrapper):
        return _deletion_of(workload)
    if is_suspended:
        return QueueDecision(QueueAction.NOTHING)  # its resources are being deleted
    if is_admitted(workload):
        return QueueDecision(QueueAction.REPORT)
    _, message = eviction(workload) or ("", "Not admitted by cluster queue")
    return QueueDecision(QueueAction.STOP, message=message)


def _deletion_of(workload: Object) -> QueueDecision:
    return QueueDecision(QueueAction.NOTHING if is_deleting(workload) else QueueAction.DELETE)


def spec_changes(
    wrapper: Object, infos: Sequence[Sequence[Object]] | None, *, suspend: bool
) -> list[Object]:
    """Return the JSON patch that suspends or resumes an AppWrapper.

    ``podSetInfos`` of its components become ``infos``, or are removed. It applies whatever users have changed since
    the AppWrapper was read: it contains no other field, and each field may exist or not.
    """
    changes: list[Object] = [{"op": "add", "path": "/spec/suspend", "value": suspend}]
    for index, component in enumerate(wrapper["spec"]["components"]):
        field = f"/spec/components/{index}/podSetInfos"
        wanted = list(infos[index]) if infos is not None else []
        if wanted == component.get("podSetInfos"):
            continue
        if wanted:
            changes.append({"op": "add", "path": field, "value": wanted})
        elif "podSetInfos" in component:
            # A field that does not exist cannot be removed.
            changes.append({"op": "add", "path": field, "value": []})
            changes.append({"op": "remove", "path": field})
    return changes


def reported_status(wrapper: Object, workload: Object, now: datetime) -> Object:
    """Return what has changed in the status of the Workload of a running AppWrapper; empty if nothing has.

    No quota is given back before the AppWrapper ends, unlike for Jobs: a retry needs it again, and users can let a Job
    create more pods.
    """
    status: Object = {}
    is_ready = is_true(_conditions_of(wrapper), PODS_READY)
    if is_ready != is_true(_conditions_of(workload), PODS_READY):
        reason, message = _reported_readiness(workload, is_ready=is_ready)
        status["conditions"] = _changed(workload, now, (PODS_READY, is_ready, reason, message))
    return status


def _reported_readiness(workload: Object, *, is_ready: bool) -> tuple[str, str]:
    """Return reason and message of ``PodsReady``, which changes, as Kueue's own integrations report them."""
    if not is_ready:
        return _NOT_READY_ANY_MORE
    before = find_condition(_conditions_of(workload), PODS_READY) or {}
    return _READY_AGAIN if before.get("reason") == _NOT_READY_ANY_MORE[0] else _READY


def released_status(workload: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the change of an evicted Workload's status that releases the quota; empty if it has none."""
    if not is_true(_conditions_of(workload), "QuotaReserved"):
        return {}
    changes: list[tuple[str, bool, str, str]] = [
        ("Requeued", reason in REQUEUED_REASONS, reason, message),
        ("QuotaReserved", False, "Pending", message),
        ("Admitted", False, "NoReservation", "The workload has no reservation"),
    ]
    if find_condition(_conditions_of(workload), PODS_READY):
        changes.append((PODS_READY, False, *_NOT_READY))  # the next admission waits for the start
    conditions = _changed(workload, now, *changes)
    released: Object = {"admission": None, "conditions": conditions}
    if workload["status"].get("reclaimablePods"):
        # Written by an earlier release; the next admission would reserve less.
        released["reclaimablePods"] = None
    return released


def finished_status(workload: Object | None, reason: str, message: str, now: datetime) -> Object:
    """Return the change of a Workload's status that marks it as finished; empty if it is, or does not exist."""
    if workload is None or is_true(_conditions_of(workload), "Finished"):
        return {}
    return {"conditions": _changed(workload, now, ("Finished", True, reason, message))}


def _conditions_of(obj: Mapping[str, Any]) -> Any:
    return (obj.get("status") or {}).get("conditions")


def _changed(workload: Object, now: datetime, *changes: tuple[str, bool, str, str]) -> list[Object]:
    conditions = Conditions(workload, now=now, time_format=micro_time)
    for kind, value, reason, message in changes:
        conditions.set(kind, value, reason, message)
    return conditions.as_list()
