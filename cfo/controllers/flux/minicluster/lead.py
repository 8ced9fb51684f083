"""The pods of MiniClusters in the informer: missing labels, why a pod cannot start, and how the lead broker ended.

Only the required fields of each pod are decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cfo.api.flux.names import COMPLETION_INDEX, MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.job_pods import controller_uid
from cfo.controllers.flux.minicluster.plan import INDEX_LABEL
from cfo.controllers.naming_label import NamingLabel
from cfo.controllers.pod_status import (
    MAX_WHOLE_MESSAGE,
    PodFailure,
    end_reason,
    failed_by_itself,
    failure_has_changed,
    failure_of,
    status_of_pod,
)
from cfo.runtime import JOB, Entry, Event


@dataclass(frozen=True, slots=True)
class LeadPod:
    """The state of the lead broker's pod.

    ``exit_code`` is that of its last run of Flux, if one has ended. ``has_failed``: that run ended with an error, for
    ``reason``, and not because its pod was deleted, evicted or lost with its node. ``restarts``: how often Flux was
    started again, also in other pods.
    """

    phase: str = ""
    exit_code: int | None = None
    has_failed: bool = False
    reason: str = ""
    restarts: int = 0


CLUSTERS: Final = NamingLabel(MINICLUSTER_LABEL)
"""The MiniClusters that labels of pods and Services name."""


def unlabelled_index(pod: Entry) -> str | None:
    """Return the completion index of a pod of a Job that lacks the label with its index, otherwise ``None``."""
    index = pod.meta.labels.get(COMPLETION_INDEX)
    return None if pod.meta.labels.get(INDEX_LABEL) == index else index


def unlabelled_pods(pods: Iterable[Entry], job_uid: str) -> list[tuple[Entry, str]]:
    """Return the pods of the Job that lack the label with their index, with their index, the lead broker's first."""
    lead: list[tuple[Entry, str]] = []
    others: list[tuple[Entry, str]] = []
    for pod in pods:
        index = unlabelled_index(pod)
        if index is None or pod.meta.is_deleting or _owner_uid(pod) != job_uid:
            continue
        found = lead if _is_lead(pod) else others
        found.append((pod, index))
    return lead + others


def active_pods(pods: Iterable[Entry], job_uid: str) -> list[Entry]:
    """Return the pods of the Job that have not ended and are not being deleted."""
    return [
        pod
        for pod in pods
        if _owner_uid(pod) == job_uid
        and not pod.meta.is_deleting
        and status_of_pod(pod).phase not in ("Succeeded", "Failed")
    ]


def lead_of(pods: Iterable[Entry], job_uid: str, cluster: str) -> LeadPod | None:
    """Return the newest pod with index 0 of the Job; ``cluster`` is the name of its container that runs Flux."""
    found = [pod for pod in pods if _is_lead(pod) and _owner_uid(pod) == job_uid]
    if not found:
        return None
    states = [_state_of(pod, cluster) for pod in sorted(found, key=lambda pod: pod.version)]
    newest = states[-1]
    ended = [state for state in states if state.exit_code is not None]
    last = ended[-1] if ended else newest
    return LeadPod(
        phase=newest.phase,
        exit_code=last.exit_code,
        has_failed=last.has_failed,
        reason=last.reason,
        restarts=len(states) - 1 + sum(state.restarts for state in states),
    )


_MAX_EXAMINED: Final = 200
"""How many pods are examined for a failure at most, so that a large MiniCluster does not occupy a worker."""


def failure_in(pods: Iterable[Entry], owners: Collection[str]) -> PodFailure | None:
    """Return why a pod cannot start: the lead broker's, or else the first one by name; ``None`` if all can.

    ``owners`` are the uids of the Job and the MiniCluster: other pods with the label do not count. Only the first 200
    pods are examined. Pods that have failed do not count either, because the Job replaces them.
    """
    own = [pod for pod in pods if _owner_uid(pod) in owners and not pod.meta.is_deleting]
    own.sort(key=lambda pod: (not _is_lead(pod), pod.key.name))
    for pod in own[:_MAX_EXAMINED]:
        status = status_of_pod(pod)
        if status.phase == "Failed":
            continue
        failure = failure_of(status, MAX_WHOLE_MESSAGE)
        if failure is not None:
            return PodFailure(failure.reason, f"Pod {pod.key.name}: {failure.message}")
    return None


def needs_reconcile(event: Event) -> bool:
    """Return whether the event of a pod concerns its MiniCluster.

    These are a pod without its index label, a pod that was deleted, a change of the lead broker's state, and of the
    reason why a pod cannot start. All other changes are visible in the status of the Job.
    """
    old = event.old
    new = event.new
    if new is None:
        return old is not None
    if unlabelled_index(new) is not None:
        return True
    if failure_has_changed(event):
        return True
    if not _is_lead(new):
        return False
    name = new.meta.labels.get(MINICLUSTER_LABEL, "")
    return old is None or _state_of(old, name) != _state_of(new, name)


def _is_lead(pod: Entry) -> bool:
    return pod.meta.labels.get(COMPLETION_INDEX) == "0"


def _owner_uid(pod: Entry) -> str:
    """Return the uid of the Job or MiniCluster that controls a pod; empty if none does."""
    return controller_uid(pod.meta.controller, JOB, MINICLUSTER)


def _state_of(pod: Entry, container: str) -> LeadPod:
    status = status_of_pod(pod)
    for item in status.container_statuses or ():
        if item.name == container:
            restarts = item.restart_count
            for state in (item.state, item.last_state):
                if state is not None and state.terminated is not None:
                    ended = state.terminated
                    has_failed = not pod.meta.is_deleting and failed_by_itself(status, ended)
                    reason = end_reason(ended) if has_failed else ""
                    return LeadPod(status.phase, ended.exit_code, has_failed, reason, restarts)
            return LeadPod(status.phase, restarts=restarts)
    return LeadPod(status.phase)
