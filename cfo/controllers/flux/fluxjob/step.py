"""The input and output of the state machine of FluxJobs: what is known about a job, and the step to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from cfo.controllers.flux.fluxjob.status import Status
from cfo.controllers.flux.queue.verdict import Verdict
from cfo.runtime import EventType, Object, is_controlled_by, is_deleting

__all__ = ["Action", "Observation", "Step"]


class Action(Enum):
    """What to do with the MiniCluster, after the status was written."""

    NONE = "none"
    CREATE = "create"
    LAUNCH = "launch"
    SUSPEND = "suspend"
    RESIZE = "resize"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A FluxJob and what is known about it.

    ``errors`` is the validation message, empty if it is valid. ``cluster`` is the object with the name of its
    MiniCluster. ``verdict`` is what the queue has decided, if that has not been carried out. ``drained``: no pod of the
    job exists or can be created. ``cleanup`` and ``keep_seconds``: whether the MiniCluster is deleted after the end,
    and how long after it.
    """

    job: Object
    now: datetime
    errors: str = ""
    cluster: Object | None = None
    verdict: Verdict | None = None
    drained: bool = False
    cleanup: bool = True
    keep_seconds: int = 0

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the job."""
        return self.job.get("spec") or {}

    @property
    def own_cluster(self) -> Object | None:
        """The MiniCluster of the job, if it exists and is not being deleted."""
        cluster = self.cluster
        if cluster is None or is_deleting(cluster) or not is_controlled_by(cluster, self.job):
            return None
        return cluster


@dataclass(slots=True)
class Step:
    """The step to take: a new status, Events, what to do with the MiniCluster, and when to look again (seconds)."""

    status: Status
    action: Action = Action.NONE
    patch: Object | None = None
    events: list[tuple[EventType, str, str]] = field(default_factory=list)
    requeue_after: float = 0.0
    delete_job: bool = False
    kueue_queue: str = ""

    def normal(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.events.append(("Normal", reason, message))

    def warning(self, reason: str, message: str) -> None:
        """Record a Warning Event."""
        self.events.append(("Warning", reason, message))
