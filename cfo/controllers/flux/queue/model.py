"""The input and output of the queue.

Input are the policy of a FluxSetup, the jobs that wait, and the jobs that hold quota. Output is the decision for all
jobs, and the verdict about each of them.

Times are seconds since the epoch. Amounts of resources are whole thousandths of the unit (``500m`` is 500), so that the
sums are exact and fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec

from cfo.api.flux.names import QueueingStrategy
from cfo.runtime import NamespacedName

FOREVER: Final = float("inf")
"""The end of a job without a deadline, in seconds since the epoch."""

# Reasons for verdicts and for conditions of FluxJobs. Why the queue does not admit a job is in Blocked.
ADMITTED: Final = "Admitted"
EVICTED_BY_QUEUE: Final = "Preempted"
MINICLUSTER_REFUSED: Final = "MiniClusterRefused"
NAME_TAKEN: Final = "NameTaken"
NO_PRIORITY_CLASS: Final = "PriorityClassNotFound"
NO_SETUP: Final = "NoFluxSetup"
START_TIMEOUT: Final = "StartTimeout"
SUSPENDED: Final = "Suspended"
TOO_COMPLEX: Final = "TooComplex"
WAITING_FOR_KUEUE: Final = "WaitingForKueue"

PAUSES: Final = frozenset({MINICLUSTER_REFUSED, START_TIMEOUT})
"""The reasons for which an admitted job that could not start has released its quota, to be admitted after a pause."""

LOSES_PLACE: Final = frozenset({START_TIMEOUT, SUSPENDED})
"""The reasons of an eviction after which a job comes behind those that wait.

Otherwise two jobs that take turns could hold quota without pods forever."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What a job takes of a quota: the number of its pods, and ``resources``, the sums of their requests."""

    pods: int = 0
    resources: Mapping[str, int] = {}

    def at_least(self, other: Demand) -> Demand:
        """Return this demand, with each amount raised to that of ``other`` if that is larger."""
        if not other.resources and other.pods <= self.pods:  # the common case, without a new object
            return self
        names = self.resources.keys() | other.resources.keys()
        resources = {
            name: max(self.resources.get(name, 0), other.resources.get(name, 0)) for name in names
        }
        return Demand(max(self.pods, other.pods), resources)


NOTHING: Final = Demand()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The quota of a FluxSetup and its rules.

    The quota is ``pods``, ``jobs`` (``None``: any number) and ``resources``, the sums of requests.

    ``strategy``: with Backfill (EASY backfilling), the first job that does not fit gets a start time, computed from the
    deadlines of the running jobs; jobs behind it are admitted first if they do not delay it. ``shares_by_namespace``:
    the next job is one of the namespace with the smallest share of the quota, divided by its weight (default 1).
    ``preempts``: jobs of lower priority are evicted; with ``shares_by_namespace``, only those of the same namespace.
    """

    pods: int
    jobs: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    shares_by_namespace: bool = False
    weights: Mapping[str, int] = field(default_factory=dict)
    preempts: bool = False


class WaitingJob(msgspec.Struct, frozen=True, gc=False):
    """A job that waits for quota.

    ``queued``: since when it has its place in the queue, in seconds since the epoch. ``duration``: seconds after which
    it ends at the latest, :data:`FOREVER` without a deadline.
    """

    key: NamespacedName
    demand: Demand
    priority: int = 0
    queued: float = 0.0
    duration: float = FOREVER

    @property
    def rank(self) -> tuple[int, float, NamespacedName]:
        """The sort key of the queue: higher priority first, then the earlier one, then namespace and name."""
        return -self.priority, self.queued, self.key


class Holding(msgspec.Struct, frozen=True, gc=False):
    """The quota that a job holds: of all its pods, or of those that are not deleted yet (``releasing``).

    ``end``: when the job ends at the latest. ``releasing``: it has ended or is being evicted, and holds quota only
    until its pods are deleted. ``preemptible``: the queue may evict it.
    """

    key: NamespacedName
    demand: Demand
    priority: int = 0
    created: float = 0.0
    end: float = FOREVER
    releasing: bool = False
    preemptible: bool = True


class Blocked(Enum):
    """Why a job is not admitted.

    The reason depends on the job's place in the queue and not on how much quota is free at the moment, so that the
    statuses of thousands of waiting jobs are not rewritten whenever another job ends.
    """

    TOO_LARGE = "TooLarge"
    """It exceeds the quota as a whole, and would not fit even if no other job ran."""

    QUOTA = "InsufficientQuota"
    """It does not fit in the quota that is free."""

    BEHIND = "BehindOtherJobs"
    """A job before it in the queue does not fit, and must be admitted first."""

    RELEASING = "QuotaIsBeingReleased"
    """Enough quota for it is being released and is reserved for it. Only with preemption."""


class ServicePod(Enum):
    """What exists of the pod that runs the services of a job, and that must request what the job holds quota for."""

    STARTED = auto()
    PENDING = auto()
    """It exists, and has not started."""

    ENDED = auto()
    SMALL = auto()
    """It requests too little."""

    MISSING = auto()


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The pods of a job's own: those that exist and are neither ended nor being deleted, and those that have ended.

    ``pending``: how many of the live ones have not started. Other pods with the label of its MiniCluster do not count.
    ``small``: how many live pods of its Job do not count, because they request too little. ``service``: its service
    pod, which is none of them; ``None`` if it has no services. ``has_large_service``: that pod requests more than one
    of the others.
    """

    live: int = 0
    pending: int = 0
    ended: int = 0
    small: int = 0
    service: ServicePod | None = None
    has_large_service: bool = False

    @property
    def started(self) -> int:
        """How many of the live ones have started."""
        return self.live - self.pending


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """The jobs to admit, those to evict, and the others with the reasons why they wait, in the order of the queue."""

    admit: tuple[NamespacedName, ...] = ()
    preempt: tuple[NamespacedName, ...] = ()
    blocked: Mapping[NamespacedName, Blocked] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the queue has decided about a FluxJob.

    ``reason`` is one of this module's constants, or the value of a :class:`.Blocked`. ``position`` is its place in the
    queue, from 1; 0 if it has none. ``setup`` is the FluxSetup that governs it. ``kueue_queue``: the LocalQueue of
    Kueue that admits it instead.
    """

    reason: str
    message: str
    position: int = 0
    setup: str = ""
    kueue_queue: str = ""


def position_changed(written: int, current: int) -> bool:
    """Return whether the position in the queue has changed so much that it is written.

    It is written when it has halved or doubled. Otherwise each admission would write the status of each waiting job.
    A position of 0 means that the job has none.
    """
    if written == 0 or current == 0:
        return written != current
    return current * 2 <= written or current >= written * 2
