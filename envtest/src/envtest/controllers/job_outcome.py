"""When a Job is finished, and why; the messages are those of kube-controller-manager. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object, find_condition, has_finalizer
from envtest.controllers.job_failures import (
    fails_index,
    index_of,
    is_failed,
    policy_verdict,
    restarts_exceed_limit,
)
from envtest.controllers.job_indexes import Intervals, intersect, parse_intervals, total, union
from envtest.controllers.pod_state import phase

__all__ = [
    "COMPLETE",
    "FAILED",
    "TRACKING",
    "Outcome",
    "failed_indexes",
    "finished_condition",
    "is_indexed",
    "is_suspended",
    "outcome",
    "seconds_to_deadline",
    "succeeded_indexes",
    "with_condition",
]

TRACKING: Final = "batch.kubernetes.io/job-tracking"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

_INTERIM: Final = {COMPLETE: "SuccessCriteriaMet", FAILED: "FailureTarget"}


class Outcome(NamedTuple):
    """The final condition of a Job: ``kind`` is :data:`COMPLETE` or :data:`FAILED`."""

    kind: str
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition that a Job has until its pods have ended."""
        return _INTERIM[self.kind]


REACHED: Final = Outcome(
    COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods"
)


def is_indexed(job: Object) -> bool:
    """Return whether each pod has a completion index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def is_suspended(job: Object) -> bool:
    """Return whether the Job has to have no pods."""
    return bool(job["spec"].get("suspend"))


def finished_condition(job: Object) -> Any:
    """Return the condition of a finished Job, or ``None``."""
    conditions = (job.get("status") or {}).get("conditions")
    for kind in (COMPLETE, FAILED):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            return condition
    return None


def with_condition(
    conditions: Sequence[Object], kind: str, status: str, reason: str, message: str, now: str
) -> list[Object]:
    """Return the conditions with this one; a false condition is only added to replace one of its type."""
    condition = {
        "type": kind,
        "status": status,
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    result = []
    found = False
    for one in conditions:
        found |= one.get("type") == kind
        same = all(
            one.get(name, "") == condition[name] for name in ("type", "status", "reason", "message")
        )
        is_replaced = one.get("type") == kind and not same
        result.append(condition if is_replaced else one)
    return result if found or status == "False" else [*result, condition]


def _completions(job: Object) -> int:
    return int(job["spec"].get("completions") or 0)


def succeeded_indexes(job: Object, pods: Sequence[Object]) -> Intervals:
    """Return the indexes that succeeded, with those of pods that are not counted yet."""
    before = parse_intervals((job.get("status") or {}).get("completedIndexes"), _completions(job))
    new = {
        index_of(pod) for pod in pods if phase(pod) == "Succeeded" and has_finalizer(pod, TRACKING)
    }
    return union(before, (index for index in new if 0 <= index < _completions(job)))


def failed_indexes(job: Object, pods: Sequence[Object]) -> Intervals | None:
    """Return the indexes that failed; ``None`` if the Job has no ``backoffLimitPerIndex``."""
    if job["spec"].get("backoffLimitPerIndex") is None:
        return None
    before = parse_intervals((job.get("status") or {}).get("failedIndexes"), _completions(job))
    new = {index_of(pod) for pod in pods if has_finalizer(pod, TRACKING) and fails_index(job, pod)}
    return union(before, (index for index in new if 0 <= index < _completions(job)))


def seconds_to_deadline(job: Object, now: datetime) -> float | None:
    """Return the seconds until the Job exceeds ``activeDeadlineSeconds``; ``None`` if it cannot."""
    limit = job["spec"].get("activeDeadlineSeconds")
    started = (job.get("status") or {}).get("startTime")
    if limit is None or not started or is_suspended(job):
        return None
    moment = datetime.fromisoformat(started) + timedelta(seconds=int(limit))
    return max(0.0, (moment - now).total_seconds())


def outcome(
    job: Object,
    pods: Sequence[Object],
    failures: int,
    succeeded: Intervals,
    failed: Intervals | None,
    now: datetime,
) -> Outcome | None:
    """Return the outcome of a Job that has enough results, apart from one that has reached its completions.

    ``failures`` is the number of failed pods that count; ``succeeded`` and ``failed`` are its indexes, if it has any.
    """
    conditions = (job.get("status") or {}).get("conditions")
    for kind, interim in _INTERIM.items():
        condition = find_condition(conditions, interim)
        if condition is not None and condition.get("status") == "True":
            return Outcome(kind, condition.get("reason") or "", condition.get("message") or "")
    if job["spec"].get("podFailurePolicy") is not None:
        for pod in pods:
            if is_failed(job, pod):
                message = policy_verdict(job, pod).message
                if message:
                    return Outcome(FAILED, "PodFailurePolicy", message)
    if failures > int(job["spec"].get("backoffLimit", 6)) or restarts_exceed_limit(job, pods):
        return Outcome(
            FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        )
    if seconds_to_deadline(job, now) == 0.0:
        return Outcome(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
    if not is_indexed(job):
        return None
    return _failed_indexes_outcome(job, succeeded, failed) or _success_policy_outcome(
        job, succeeded
    )


def _failed_indexes_outcome(
    job: Object, succeeded: Intervals, failed: Intervals | None
) -> Outcome | None:
    if not failed:
        return None
    limit = job["spec"].get("maxFailedIndexes")
    if limit is not None and total(failed) > int(limit):
        text = "Job has exceeded the specified maximal number of failed indexes"
        return Outcome(FAILED, "MaxFailedIndexesExceeded", text)
    if total(failed) + total(succeeded) >= _completions(job):
        return Outcome(FAILED, "FailedIndexes", "Job has failed indexes")
    return None


def _success_policy_outcome(job: Object, succeeded: Intervals) -> Outcome | None:
    if not succeeded:
        return None
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        count = rule.get("succeededCount")
        matching = succeeded
        if rule.get("succeededIndexes") is not None:
            expected = parse_intervals(rule["succeededIndexes"], _completions(job))
            matching = intersect(succeeded, expected)
            count = total(expected) if count is None else count
        if count is not None and total(matching) >= int(count):
            return Outcome(COMPLETE, "SuccessPolicy", f"Matched rules at index {number}")
    return None
