"""What the state machine of FluxJobs reads and returns: an observation, the next status, and the step to take.

The conditions begin with the five states of the first Flux Operator in its order, each with its type as reason, and
exactly one of them is true. Further conditions follow: ``QuotaReserved`` with the reason why the job waits,
``Evicted``, ``ObjectsReady``, ``PodsReady``, ``Succeeded``, ``Valid``, ``UpToDate`` and ``MiniClusterRefused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from cfo.api.flux.facts import is_true
from cfo.api.flux.names import STATES, JobState
from cfo.controllers.flux.queue.model import PodCounts, Verdict
from cfo.runtime import EventType, Object, is_controlled_by, is_deleting, name_of, uid_of
from cfo.runtime.objects import Conditions, ConditionStatus
from cfo.runtime.process import micro_time

_MESSAGE_LIMIT: Final = 4096

_STATE_ORDER: Final[Mapping[str, int]] = {state: index for index, state in enumerate(STATES)}
"""The position of each state among the conditions; all others come after them."""


def state_of(job: Mapping[str, Any]) -> JobState | None:
    """Return the state of a FluxJob: the first of the five conditions that is true."""
    return next((state for state in STATES if is_true(job, state)), None)


class JobStatus(Conditions):
    """The job's next status, for its current generation: first a copy of the stored one.

    ``now`` is the time of the changes, and :attr:`timestamp` the same time in its wire form.
    """

    def __init__(self, job: Object, now: datetime) -> None:
        super().__init__(job, now=now, time_format=micro_time)
        self.timestamp = micro_time(now)
        self.state = state_of(job)
        self._fields: Object = {
            "jobid": f"{name_of(job)}-{uid_of(job)}",
            **(job.get("status") or {}),  # may have a jobid, which is kept
        }
        self._fields["observedGeneration"] = int(job["metadata"].get("generation") or 0)

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a field of the status; ``None`` removes it."""
        if value is None:
            self._fields.pop(name, None)
        else:
            self._fields[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._fields.get(name)

    def enter(self, state: JobState, message: str = "") -> None:
        """Make ``state`` the only state, with this message (default: its name)."""
        self.state = state
        for condition_type in STATES:
            if condition_type is state:
                self.set(condition_type, True, condition_type, message or condition_type)
            else:
                self.set(condition_type, False, condition_type, condition_type)

    def as_object(self) -> Object:
        """Return the status in its wire form."""
        conditions = sorted(
            self.as_list(), key=lambda item: _STATE_ORDER.get(item["type"], len(_STATE_ORDER))
        )
        return {**self._fields, "conditions": conditions}

    def set(
        self, condition_type: str, status: ConditionStatus, reason: str, message: str = ""
    ) -> bool:
        """Set a condition; its message is cut at 4096 characters."""
        return super().set(condition_type, status, reason, message[:_MESSAGE_LIMIT])


class MiniClusterAction(Enum):
    """What to do with the MiniCluster, after the status was written."""

    NONE = "none"
    CREATE = "create"
    """Create it, suspended until it is launched."""
    LAUNCH = "launch"
    """Resume it, so that its pods start."""
    SUSPEND = "suspend"
    """Suspend it, which deletes its pods."""
    PATCH = "patch"
    """Apply :attr:`JobStep.patch`."""
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObservation:
    """A FluxJob and what is known about it.

    ``validation_error`` is empty if the job is valid. ``named_cluster`` is the object with the name of its MiniCluster,
    also if another object controls it. ``verdict`` is what the queue has decided, if that has not been carried out.
    ``pods``: how many pods the job has; ``None`` if that is not known yet. ``is_drained``: no pod of it occupies a node
    or can be created. ``creates_pods``: its MiniCluster, or the Job of that, may create some. ``deletes_cluster`` and
    ``keep_seconds``: whether the MiniCluster is deleted after the end, and how long after it; ``keep_failed_seconds``:
    how long after it if the job failed with its MiniCluster. ``warmup_grace``: how long the pods may take to start.
    ``kueue_queue``: the LocalQueue of Kueue to which its FluxSetup leaves its jobs now; that of the verdict is the one
    that was used when it was admitted. ``default_size``: the size of jobs that have none, in the FluxSetup.
    """

    job: Object
    now: datetime
    validation_error: str = ""
    named_cluster: Object | None = None
    verdict: Verdict | None = None
    pods: PodCounts | None = None
    is_drained: bool = False
    creates_pods: bool = False
    deletes_cluster: bool = True
    keep_seconds: int = 0
    keep_failed_seconds: int = 0
    warmup_grace: timedelta = timedelta(minutes=15)
    kueue_queue: str = ""
    default_size: int = 0

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the job."""
        return self.job.get("spec") or {}

    @property
    def own_cluster(self) -> Object | None:
        """The MiniCluster of the job, if it exists and is not being deleted."""
        cluster = self.named_cluster
        if cluster is None or is_deleting(cluster) or not is_controlled_by(cluster, self.job):
            return None
        return cluster


@dataclass(slots=True)
class JobStep:
    """The step to take: the next status and Events, what to do with the MiniCluster, and when to reconcile again.

    ``patch`` is for :attr:`MiniClusterAction.PATCH`. ``size``, for :attr:`MiniClusterAction.LAUNCH`, is the one that
    the MiniCluster gets, or 0 if it keeps its own. ``requeue_after`` is in seconds. ``delete_job``: delete the job
    itself, whose time to live has passed. ``keeps_failure``: the MiniCluster of a failed job is kept, although its spec
    does not say so. ``exceeds_quota``: a ResourceQuota refuses objects or pods of its MiniCluster. ``kueue_queue`` is
    the LocalQueue of a MiniCluster that is created.
    """

    status: JobStatus
    action: MiniClusterAction = MiniClusterAction.NONE
    patch: Object | None = None
    size: int = 0
    events: list[tuple[EventType, str, str]] = field(default_factory=list)
    requeue_after: float = 0.0
    delete_job: bool = False
    keeps_failure: bool = False
    exceeds_quota: bool = False
    kueue_queue: str = ""

    @property
    def starts_pods(self) -> bool:
        """Whether the MiniCluster may create pods after this step."""
        return self.action in (MiniClusterAction.CREATE, MiniClusterAction.LAUNCH)

    def normal(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.events.append(("Normal", reason, message))

    def warning(self, reason: str, message: str) -> None:
        """Record a Warning Event."""
        self.events.append(("Warning", reason, message))
