"""The status of a Deployment: counts, conditions and the progress deadline, with kube-controller-manager's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from envtest.apimachinery.objects import Object, find_condition, format_time
from envtest.controllers.replicasets import REPLICA_FAILURE
from envtest.controllers.rollouts import desired_replicas, replicas_of, surge_and_unavailable

__all__ = [
    "COMPLETE",
    "PROGRESSING",
    "TIMED_OUT",
    "counts",
    "has_deadline",
    "is_complete",
    "rollout_conditions",
    "seconds_to_deadline",
    "with_condition",
    "without_condition",
]

PROGRESSING: Final = "Progressing"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"

_NO_DEADLINE: Final = 2**31 - 1


def has_deadline(spec: Mapping[str, Any]) -> bool:
    """Return whether the controller estimates the progress of rollouts."""
    return int(spec.get("progressDeadlineSeconds", _NO_DEADLINE)) != _NO_DEADLINE


def without_condition(conditions: Sequence[Object], kind: str) -> list[Object]:
    """Return the conditions of other types."""
    return [one for one in conditions if one.get("type") != kind]


def with_condition(
    conditions: Sequence[Object], kind: str, status: str, reason: str, message: str, now: datetime
) -> list[Object]:
    """Return the conditions with this one at their end; unchanged if its status and reason are already the same."""
    current = find_condition(conditions, kind)
    if current is not None and (current.get("status"), current.get("reason")) == (status, reason):
        return list(conditions)
    moment = format_time(now)
    same_status = current is not None and current.get("status") == status
    condition = {
        "type": kind,
        "status": status,
        "lastUpdateTime": moment,
        "lastTransitionTime": current.get("lastTransitionTime", moment)
        if same_status and current
        else moment,
        "reason": reason,
        "message": message,
    }
    return [*without_condition(conditions, kind), condition]


def counts(
    deployment: Object, new: Object | None, all_sets: Sequence[Object], now: datetime
) -> dict[str, Any]:
    """Return the status with the condition Available, and with the other conditions as they are.

    Counts of zero are ``None``, apart from the terminating replicas.
    """

    def total(name: str, replica_sets: Sequence[Object]) -> int:
        return sum(int((each.get("status") or {}).get(name) or 0) for each in replica_sets)

    spec = deployment["spec"]
    status = deployment.get("status") or {}
    available = total("availableReplicas", all_sets)
    terminating = [(each.get("status") or {}).get("terminatingReplicas") for each in all_sets]
    has_minimum = available >= desired_replicas(spec) - surge_and_unavailable(spec)[1]
    return {
        "observedGeneration": deployment["metadata"].get("generation"),
        "replicas": total("replicas", all_sets) or None,
        "updatedReplicas": total("replicas", [new] if new else []) or None,
        "readyReplicas": total("readyReplicas", all_sets) or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(0, sum(map(replicas_of, all_sets)) - available) or None,
        "terminatingReplicas": None
        if None in terminating
        else sum(each or 0 for each in terminating),
        "conditions": with_condition(
            status.get("conditions") or (),
            "Available",
            "True" if has_minimum else "False",
            "MinimumReplicasAvailable" if has_minimum else "MinimumReplicasUnavailable",
            f"Deployment {'has' if has_minimum else 'does not have'} minimum availability.",
            now,
        ),
    }


def is_complete(deployment: Object, status: Mapping[str, Any]) -> bool:
    """Return whether all pods are of the current template and available, and no others exist."""
    desired = desired_replicas(deployment["spec"])
    numbers = {
        int(status.get(name) or 0) for name in ("updatedReplicas", "replicas", "availableReplicas")
    }
    observed = int(status.get("observedGeneration") or 0)
    return numbers == {desired} and observed >= int(deployment["metadata"].get("generation") or 0)


def _is_progressing(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether pods were created, removed or became ready."""

    def number(status: Mapping[str, Any], name: str) -> int:
        return int(status.get(name) or 0)

    def old(status: Mapping[str, Any]) -> int:
        return number(status, "replicas") - number(status, "updatedReplicas")

    names = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return any(number(after, name) > number(before, name) for name in names) or old(after) < old(
        before
    )


def seconds_to_deadline(
    deployment: Object, conditions: Sequence[Object], now: datetime
) -> float | None:
    """Return the seconds until the rollout exceeds its deadline; ``None`` if it is complete or has no deadline."""
    spec = deployment["spec"]
    condition = find_condition(conditions, PROGRESSING)
    if (
        not has_deadline(spec)
        or condition is None
        or condition.get("reason") in (COMPLETE, TIMED_OUT)
    ):
        return None
    since = datetime.fromisoformat(condition["lastUpdateTime"])
    return (since + timedelta(seconds=int(spec["progressDeadlineSeconds"])) - now).total_seconds()


def rollout_conditions(
    deployment: Object,
    status: Mapping[str, Any],
    new: Object | None,
    all_sets: Sequence[Object],
    now: datetime,
) -> list[Object]:
    """Return the conditions for a new ``status``, with the progress of the rollout and failures of ReplicaSets."""
    before: Mapping[str, Any] = deployment.get("status") or {}
    conditions: list[Object] = list(status["conditions"])
    current = find_condition(before.get("conditions"), PROGRESSING)
    name = new["metadata"]["name"] if new else deployment["metadata"]["name"]
    subject = f'{"ReplicaSet" if new else "Deployment"} "{name}"'
    was_complete = current is not None and current.get("reason") == COMPLETE
    if not has_deadline(deployment["spec"]):
        conditions = without_condition(conditions, PROGRESSING)
    elif was_complete and (status.get("replicas") or 0) == (status.get("updatedReplicas") or 0):
        pass
    elif is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        conditions = with_condition(conditions, PROGRESSING, "True", COMPLETE, message, now)
    elif _is_progressing(before, status):
        moment = format_time(now)
        since = (
            current["lastTransitionTime"] if current and current.get("status") == "True" else moment
        )
        conditions = without_condition(conditions, PROGRESSING)
        message = f"{subject} is progressing."
        progress = with_condition((), PROGRESSING, "True", "ReplicaSetUpdated", message, now)
        conditions.append({**progress[0], "lastTransitionTime": since})
    elif _is_timed_out(deployment, conditions, now):
        message = f"{subject} has timed out progressing."
        conditions = with_condition(conditions, PROGRESSING, "False", TIMED_OUT, message, now)
    failure = _replica_failure(new, all_sets)
    if failure is None:
        return without_condition(conditions, REPLICA_FAILURE)
    return _with_failure(conditions, failure)


def _is_timed_out(deployment: Object, conditions: Sequence[Object], now: datetime) -> bool:
    condition = find_condition(conditions, PROGRESSING)
    if condition is not None and condition.get("reason") == TIMED_OUT:
        return True
    remaining = seconds_to_deadline(deployment, conditions, now)
    return remaining is not None and remaining < 0


def _replica_failure(new: Object | None, all_sets: Sequence[Object]) -> Mapping[str, Any] | None:
    """Return the failure of a ReplicaSet, of the new one first."""
    for each in ([new] if new else []) + list(all_sets):
        failure = find_condition((each.get("status") or {}).get("conditions"), REPLICA_FAILURE)
        if failure is not None:
            return failure
    return None


def _with_failure(conditions: Sequence[Object], failure: Mapping[str, Any]) -> list[Object]:
    since = datetime.fromisoformat(failure["lastTransitionTime"])
    return with_condition(
        conditions, REPLICA_FAILURE, failure["status"], failure["reason"], failure["message"], since
    )
