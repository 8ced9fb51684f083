"""What a failed pod means for its Job: the rules of ``podFailurePolicy``, failure counts of indexes, and back-off.

All functions are pure; messages are those of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object, annotations_of, find_condition
from envtest.controllers.pod_state import phase

__all__ = [
    "INDEX",
    "Backoff",
    "Verdict",
    "fails_index",
    "failure_count_annotations",
    "finish_time",
    "index_of",
    "is_failed",
    "policy_verdict",
    "replaces_only_failed",
    "restarts_exceed_limit",
    "seconds_until_retry",
    "total_index_failures",
]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"

FIRST_DELAY: Final = 10.0
MAX_DELAY: Final = 600.0
_MAX_INT32: Final = 2**31 - 1


class Verdict(NamedTuple):
    """What the policy says about a failed pod; ``message`` is set if the pod fails the Job."""

    action: str = ""
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the back-off limit."""
        return self.action != "Ignore"


def index_of(pod: Mapping[str, Any]) -> int:
    """Return the completion index of a pod; -1 if it has none."""
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdecimal() else -1


def replaces_only_failed(job: Mapping[str, Any]) -> bool:
    """Return whether pods that are being deleted are replaced only when they have ended."""
    spec = job["spec"]
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


def is_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a pod counts as failed: one that is being deleted does, unless only failed pods are replaced."""
    if phase(pod) == "Failed":
        return True
    deleting = bool(pod["metadata"].get("deletionTimestamp"))
    return deleting and phase(pod) != "Succeeded" and not replaces_only_failed(job)


def policy_verdict(job: Mapping[str, Any], pod: Mapping[str, Any]) -> Verdict:
    """Return what the first matching rule of the Job's ``podFailurePolicy`` says about a failed pod."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    for number, rule in enumerate(rules):
        action = rule.get("action", "")
        requirement = rule.get("onExitCodes")
        if requirement is not None:
            container = _matching_container(pod, requirement)
            if container is None:
                continue
            code = container["state"]["terminated"]["exitCode"]
            cause = f"Container {container['name']} for pod {name} failed with exit code {code}"
        else:
            condition = _matching_condition(pod, rule.get("onPodConditions") or ())
            if condition is None:
                continue
            cause = f"Pod {name} has condition {condition['type']}"
        is_final = action == "FailJob"
        message = f"{cause} matching {action} rule at index {number}" if is_final else ""
        return Verdict(action, message)
    return Verdict()


def _matching_container(
    pod: Mapping[str, Any], requirement: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the status of the first container whose exit code satisfies the requirement; 0 never does."""
    status = pod.get("status") or {}
    values = requirement.get("values") or ()
    for each in (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ):
        terminated = (each.get("state") or {}).get("terminated")
        if not terminated or requirement.get("containerName") not in (None, each.get("name")):
            continue
        code = terminated.get("exitCode", 0)
        if code and (code in values) == (requirement.get("operator") == "In"):
            return dict(each)
    return None


def _matching_condition(
    pod: Mapping[str, Any], patterns: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    wanted = {(pattern.get("type"), pattern.get("status", "True")) for pattern in patterns}
    conditions: Iterable[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if (one.get("type"), one.get("status")) in wanted), None)


def _number(pod: Mapping[str, Any], annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    number = int(text) if text.isdecimal() and len(text) <= len(str(_MAX_INT32)) else 0
    return number if number <= _MAX_INT32 else 0


def total_index_failures(pod: Mapping[str, Any]) -> int:
    """Return how many pods of this index failed before this one, including ignored failures."""
    return _number(pod, FAILURES) + _number(pod, IGNORED_FAILURES)


def fails_index(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether the failure of a pod exceeds ``backoffLimitPerIndex``, or a rule makes its index fail."""
    if not is_failed(job, pod):
        return False
    verdict = policy_verdict(job, pod)
    if verdict.action == "FailIndex":
        return True
    return verdict.counts and _number(pod, FAILURES) >= int(job["spec"]["backoffLimitPerIndex"])


def failure_count_annotations(
    job: Mapping[str, Any], replaced: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the annotations of a new pod of an index, with the failures up to the pod that it replaces."""
    if replaced is None:
        return {FAILURES: "0"}
    counted = policy_verdict(job, replaced).counts
    failures = _number(replaced, FAILURES) + counted
    ignored = _number(replaced, IGNORED_FAILURES) + (not counted)
    return {FAILURES: str(failures), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}


def restarts_exceed_limit(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether containers of unfinished pods restarted too often (``restartPolicy: OnFailure`` only)."""
    if ((job["spec"].get("template") or {}).get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in pods:
        status = pod.get("status") or {}
        if phase(pod) in ("Running", "Pending"):
            for name in ("initContainerStatuses", "containerStatuses"):
                restarts += sum(
                    int(each.get("restartCount") or 0) for each in status.get(name) or ()
                )
    limit = int(job["spec"].get("backoffLimit", 6))
    return restarts >= limit if limit else restarts > 0


def finish_time(pod: Mapping[str, Any]) -> datetime:
    """Return when a pod ended: when its last container did, when it became unready, or when it was deleted."""
    metadata = pod["metadata"]
    status = pod.get("status") or {}
    containers = [_finished_at(each) for each in status.get("containerStatuses") or ()]
    ended = [moment for moment in containers if moment is not None]
    if ended and len(ended) == len(containers):
        return max(ended)
    ready = find_condition(status.get("conditions"), "Ready") or {}
    if ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return datetime.fromisoformat(ready["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        grace = timedelta(seconds=int(metadata.get("deletionGracePeriodSeconds") or 0))
        return datetime.fromisoformat(metadata["deletionTimestamp"]) - grace
    return datetime.fromisoformat(metadata["creationTimestamp"])


def _finished_at(container: Mapping[str, Any]) -> datetime | None:
    moment = ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
    return datetime.fromisoformat(moment) if moment else None


def seconds_until_retry(failures: int, last: datetime | None, now: datetime) -> float:
    """Return the seconds until a pod may be replaced after ``failures`` in a row: 10, 20, 40 to 600 after the last."""
    if not failures or last is None:
        return 0.0
    delay = min(FIRST_DELAY * 2.0 ** min(failures - 1, 10), MAX_DELAY)
    return max(0.0, delay - (now - last).total_seconds())


@dataclass(frozen=True, slots=True)
class Backoff:
    """The failures of a Job since its last success."""

    failures: int = 0
    last: datetime | None = None

    def after(self, succeeded: Sequence[Object], failed: Sequence[Object]) -> Backoff:
        """Return the failures after these pods ended."""
        ended = sorted(map(finish_time, failed))
        if not succeeded:
            return Backoff(self.failures + len(ended), ended[-1]) if ended else self
        since = max(map(finish_time, succeeded))
        later = [moment for moment in ended if moment > since]
        last = later[-1] if later else None
        return Backoff(len(later), last)
