"""One reconciliation of a Job: what its pods are, which of them end, and which indexes are missing.

All functions are pure, apart from those that change the status in a :class:`JobSync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object, format_time, has_finalizer
from envtest.controllers.job_failures import (
    INDEX,
    Backoff,
    finish_time,
    index_of,
    is_failed,
    policy_verdict,
    replaces_only_failed,
    total_index_failures,
)
from envtest.controllers.job_indexes import Intervals, contains, pending, union
from envtest.controllers.job_outcome import (
    FAILED,
    TRACKING,
    Outcome,
    failed_indexes,
    is_indexed,
    is_suspended,
    outcome,
    succeeded_indexes,
)
from envtest.controllers.pod_state import deletion_order, is_active, is_ready, is_terminating, phase

__all__ = [
    "JobSync",
    "add_index_variable",
    "examine",
    "list_uncounted",
    "pending_indexes",
    "surplus",
]

_MAX_UNCOUNTED: Final = 500


@dataclass(slots=True)
class JobSync:
    """One reconciliation of a Job: what its pods are, and what its status becomes."""

    job: Object
    status: dict[str, Any]
    pods: list[Object]
    active: list[Object]
    succeeded: Intervals
    failed: Intervals | None
    backoff: Backoff
    replaced: dict[int, Object]
    terminating: int
    ready: int
    count: int
    """The number of active pods."""
    outcome: Outcome | None = None
    error: StatusError | None = None
    delay: float | None = None
    """The seconds until a pod may be created."""


def examine(job: Object, pods: list[Object], before: Backoff, now: datetime) -> JobSync:
    """Return the state of a Job, whose pods failed as in ``before``, and its outcome if it has one."""
    status = dict(job.get("status") or {})
    status["uncountedTerminatedPods"] = _without_counted(status, pods)
    if not status.get("startTime") and not is_suspended(job):
        status["startTime"] = format_time(now)
    job = {**job, "status": status}
    uncounted = status["uncountedTerminatedPods"]
    tracked = [pod for pod in pods if has_finalizer(pod, TRACKING) and _has_valid_index(job, pod)]
    succeeded = [
        pod
        for pod in tracked
        if phase(pod) == "Succeeded"
        and pod["metadata"]["uid"] not in uncounted.get("succeeded", ())
    ]
    failed = [
        pod
        for pod in tracked
        if is_failed(job, pod) and pod["metadata"]["uid"] not in uncounted.get("failed", ())
    ]
    failures = int(status.get("failed") or 0) + len(uncounted.get("failed", ()))
    failures += sum(policy_verdict(job, pod).counts for pod in failed)
    indexed = is_indexed(job)
    active = [pod for pod in pods if is_active(pod)]
    sync = JobSync(
        job=job,
        status=status,
        pods=pods,
        active=active,
        succeeded=succeeded_indexes(job, pods) if indexed else (),
        failed=failed_indexes(job, pods) if indexed else None,
        backoff=before.after(succeeded, failed),
        replaced={},
        terminating=sum(map(is_terminating, pods)),
        ready=sum(map(is_ready, active)),
        count=len(active),
    )
    sync.replaced = _replaced_pods(sync, tracked) if sync.failed is not None else {}
    sync.outcome = outcome(job, pods, failures, sync.succeeded, sync.failed, now)
    if not indexed:
        number = (
            int(status.get("succeeded") or 0) + len(uncounted.get("succeeded", ())) + len(succeeded)
        )
        sync.succeeded = ((0, number - 1),) if number else ()
    return sync


def list_uncounted(sync: JobSync) -> tuple[list[Object], bool]:
    """Add ended pods to the uncounted ones; return the pods to release, and whether that is all of them."""
    job = sync.job
    final = sync.outcome
    uncounted = sync.status["uncountedTerminatedPods"]
    lists = {name: list(uncounted.get(name, ())) for name in ("succeeded", "failed")}
    # then pods that have not ended count as failed, too
    fails = final is not None and final.kind == FAILED
    released = []
    complete = True
    for pod in sync.pods:
        if not has_finalizer(pod, TRACKING):
            continue
        failed = is_failed(job, pod)
        uid = pod["metadata"]["uid"]
        if not _is_releasable(sync, pod, failed=failed):
            continue
        if sum(map(len, lists.values())) >= _MAX_UNCOUNTED:
            complete = False
            break
        released.append(pod)
        if phase(pod) == "Succeeded" and uid not in lists["failed"]:
            if not is_indexed(job) and uid not in lists["succeeded"]:
                lists["succeeded"].append(uid)
        elif (failed or fails) and uid not in lists["failed"] and _counts(job, pod):
            lists["failed"].append(uid)
    sync.status["uncountedTerminatedPods"] = {name: uids for name, uids in lists.items() if uids}
    return released, complete


def _has_valid_index(job: Object, pod: Object) -> bool:
    return not is_indexed(job) or 0 <= index_of(pod) < int(job["spec"].get("completions") or 0)


def _counts(job: Object, pod: Object) -> bool:
    """Return whether the failure of a pod counts."""
    return _has_valid_index(job, pod) and policy_verdict(job, pod).counts


def _without_counted(status: dict[str, Any], pods: Sequence[Object]) -> dict[str, list[str]]:
    """Count uncounted pods that have no finalizer any more, in ``status``; return the other uncounted pods."""
    tracked = {pod["metadata"]["uid"] for pod in pods if has_finalizer(pod, TRACKING)}
    uncounted = status.get("uncountedTerminatedPods") or {}
    remaining = {}
    for name in ("succeeded", "failed"):
        uids = [uid for uid in uncounted.get(name) or () if uid in tracked]
        counted = len(uncounted.get(name) or ()) - len(uids)
        if counted:
            status[name] = int(status.get(name) or 0) + counted
        if uids:
            remaining[name] = uids
    return remaining


def _replaced_pods(sync: JobSync, tracked: Sequence[Object]) -> dict[int, Object]:
    """Return the last failed pod of each index that gets another pod; it is kept until that pod exists."""
    active: set[int] = {index_of(pod) for pod in sync.active}
    found: dict[int, Object] = {}
    for pod in tracked:
        index = index_of(pod)
        ended = (
            contains(sync.succeeded, index) or contains(sync.failed or (), index) or index in active
        )
        if ended or not is_failed(sync.job, pod):
            continue
        key = (total_index_failures(pod), finish_time(pod))
        if index not in found or key >= (
            total_index_failures(found[index]),
            finish_time(found[index]),
        ):
            found[index] = pod
    return found


def pending_indexes(sync: JobSync, count: int) -> list[int]:
    """Return the first indexes that have neither a result nor a pod."""
    occupied = {index_of(pod) for pod in sync.active}
    if replaces_only_failed(sync.job):
        occupied |= {index_of(pod) for pod in sync.pods if is_terminating(pod)}
    done = union(sync.succeeded, (index for index in occupied if index >= 0), sync.failed or ())
    return pending(done, count, int(sync.job["spec"].get("completions") or 0))


def surplus(job: Object, active: Sequence[Object], at_least: int) -> list[Object]:
    """Return the pods to delete: those without a valid index, all but one of each index, and then any others."""
    surplus: list[Object] = []
    left = list(active)
    if is_indexed(job):
        by_index: dict[int, list[Object]] = {}
        for pod in active:
            index = index_of(pod) if _has_valid_index(job, pod) else -1
            by_index.setdefault(index, []).append(pod)
        surplus = by_index.pop(-1, [])
        left = []
        for pods in by_index.values():
            *repeated, last = deletion_order(pods)
            surplus += repeated
            left.append(last)
    missing = at_least - len(surplus)
    return surplus + deletion_order(left)[:missing] if missing > 0 else surplus


def _is_releasable(sync: JobSync, pod: Object, *, failed: bool) -> bool:
    """Return whether the finalizer of a pod can be removed, because the pod is counted or need not be counted."""
    if (
        sync.job["metadata"].get("deletionTimestamp")
        or sync.outcome is not None
        or phase(pod) == "Succeeded"
    ):
        return True
    replaced = sync.replaced.get(index_of(pod))
    return failed and (replaced is None or replaced["metadata"]["uid"] != pod["metadata"]["uid"])


def add_index_variable(spec: Object) -> None:
    """Set ``JOB_COMPLETION_INDEX`` in containers that do not set it."""
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        variables = container.setdefault("env", [])
        if all(variable.get("name") != "JOB_COMPLETION_INDEX" for variable in variables):
            variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})
