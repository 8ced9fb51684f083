"""The records under one name: what they hold of a quota, and what keeps the FluxJob from being queued. Pure functions.

One name identifies a FluxJob, its MiniCluster, the MiniCluster's Job and (by label) its pods. What such a group holds
of the quota is the demand of its FluxJob while that is admitted, and at least what its pods request that occupy a
node. So quota is not free before these pods have ended, whichever of the objects is deleted first. An evicted FluxJob
holds its demand until nothing creates pods for it, at most for :data:`STOP_SECONDS`, and then what these pods request.

Nothing else holds quota, because any user could take it from other namespaces: the queue has not admitted the specs of
MiniClusters and Jobs, and neither nodes nor a ResourceQuota of requests limit the pods that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import structs

from cfo.api.flux.names import COVERS
from cfo.api.pod_requests import format_amount, has_requests
from cfo.controllers.flux.queue.governance import Setup
from cfo.controllers.flux.queue.model import (
    ADMITTED,
    EVICTED_BY_QUEUE,
    FOREVER,
    NAME_TAKEN,
    NO_PRIORITY_CLASS,
    NO_SETUP,
    NOTHING,
    SUSPENDED,
    TOO_COMPLEX,
    WAITING_FOR_KUEUE,
    Blocked,
    Demand,
    Holding,
    PodCounts,
    ServicePod,
    WaitingJob,
)
from cfo.controllers.flux.queue.records import BatchRecord, ClusterRecord, JobRecord, PodRecord
from cfo.controllers.flux.queue.shape import (
    MAX_SHAPE,
    NeededPods,
    demand_of_job,
    needed_pods,
    replace_part,
)
from cfo.runtime import NamespacedName

RELEASE_SECONDS: Final = 300.0
"""For how long other jobs are not evicted because quota is being released. Pods of MiniClusters end within 30 seconds.

Tenants can delay the end of their pods, and label pods that end when they like.
"""

STOP_SECONDS: Final = 30.0
"""For how long something may create pods for an evicted job. Any user can resume its MiniCluster again and again."""


class OwnPods(msgspec.Struct, gc=False, eq=False):
    """How many own pods one owner has: those that it controls, and that request what the FluxJob holds quota for.

    ``owner`` is the uid of the Job, or of the MiniCluster for the service pod; that of the last one if there is none
    any more. ``minimum`` is what they request at least, in thousandths. ``small``: how many live pods that the owner
    controls request less, and so are no own pods.
    """

    owner: str = ""
    minimum: Mapping[str, int] = {}
    live: int = 0
    pending: int = 0
    ended: int = 0
    small: int = 0

    def count(self, pod: PodRecord, number: int) -> None:
        """Add ``number`` to the counts to which ``pod`` belongs, if the owner controls it."""
        if not self.owner or pod.owner != self.owner:
            return
        is_own = has_requests(pod.requests.resources, self.minimum)
        if is_own and pod.has_ended:
            self.ended += number
        elif is_own and pod.is_live:
            self.live += number
            self.pending += number * pod.is_pending
        elif pod.is_live:
            self.small += number


_NO_OWNER: Final = OwnPods()
"""The own pods of all groups without a Job, which are most of a long queue: nothing counts for it."""


class Group(msgspec.Struct, gc=False, eq=False):
    """All records under one name.

    The garbage collector does not track groups, so its run time does not grow with the queue.
    """

    job: JobRecord | None = None
    cluster: ClusterRecord | None = None
    batch: BatchRecord | None = None
    pods: dict[str, PodRecord] | None = None
    held_by_pods: Demand = NOTHING
    """The sum of the pods that occupy nodes."""
    own_pods: OwnPods = msgspec.field(default_factory=lambda: _NO_OWNER)
    """Those of the Job, see :meth:`count_pods`."""
    own_service: OwnPods | None = None
    """The service pod; ``None`` if the FluxJob has no services."""
    had_pods: bool = False
    """Whether all pods of the job existed at once since it was admitted."""
    waiting: WaitingJob | None = None
    holding: Holding | None = None
    ending_since: float = 0.0
    """Since when ``holding`` is being released, in seconds since the epoch; 0 if it is not."""
    releasing_since: float = 0.0
    """Since when ``waiting`` waits for quota that is being released, in seconds since the epoch; 0 if it does not."""
    is_assumed: bool = False
    is_evicting: bool = False
    counts_only_pods: bool = False
    """Whether ``holding`` counts only the pods of an evicted job because of :meth:`must_have_stopped`."""
    reason: str = ""
    """What the status of the job is to say about its place in the queue; empty if it says so already."""
    position: int = 0
    _demand: Demand = NOTHING
    _demand_for: tuple[bytes, bytes] = (b"", b"")
    _needed: NeededPods = NeededPods()
    """The pods that the FluxJob must have; those of the last one if there is none any more."""
    _needed_for: tuple[bytes, bytes, Mapping[str, int]] = (b"", b"", {})

    @property
    def is_empty(self) -> bool:
        """Whether nothing with this name exists."""
        return self.job is None and self.cluster is None and self.batch is None and not self.pods

    @property
    def has_all_pods(self) -> bool:
        """Whether all pods of the MiniCluster exist, or have ended, and not only of one that was made smaller."""
        if self.cluster is None:
            return False
        size = max(self.cluster.size, self._needed.size)
        has_service = self.service_pod not in (ServicePod.MISSING, ServicePod.SMALL)
        return self.own_pods.live + self.own_pods.ended >= size and has_service

    @property
    def has_pods(self) -> tuple[bool, bool]:
        """Whether any pod exists, and whether as many as the MiniCluster has; pods that have ended do not count."""
        size = self.cluster.size if self.cluster is not None else 0
        live = self.own_pods.live
        return live > 0, live >= size

    @property
    def service_pod(self) -> ServicePod | None:
        """What exists of the service pod; ``None`` if the FluxJob has no services."""
        own = self.own_service
        if own is None:
            return None
        if own.live > own.pending:
            return ServicePod.STARTED
        if own.live:
            return ServicePod.PENDING
        if own.ended:
            return ServicePod.ENDED
        return ServicePod.SMALL if own.small else ServicePod.MISSING

    @property
    def pod_counts(self) -> PodCounts:
        """The own pods."""
        return PodCounts(
            live=self.own_pods.live,
            pending=self.own_pods.pending,
            ended=self.own_pods.ended,
            small=self.own_pods.small,
            service=self.service_pod,
            has_large_service=self._needed.has_large_service,
        )

    @property
    def creates_pods(self) -> bool:
        """Whether the MiniCluster, or its Job, may create pods.

        The operator deletes the Job of a MiniCluster that is being deleted, also if a finalizer keeps the MiniCluster.
        """
        cluster = self.cluster
        batch = self.batch
        if cluster is not None and not cluster.is_stopped and not cluster.is_deleting:
            return True
        if batch is None or not batch.creates_pods:
            return False
        return cluster is None or batch.cluster_uid == cluster.uid

    def set_pod(self, name: str, pod: PodRecord | None) -> None:
        """Record a pod; ``None``: it does not exist."""
        pods = self.pods or {}
        before = pods.pop(name, None)
        if before is not None:
            self._count(before, -1)
        if pod is not None:
            pods[name] = pod
            self._count(pod, 1)
        self.pods = pods or None
        old = before.demand if before is not None else NOTHING
        new = pod.demand if pod is not None else NOTHING
        self.had_pods = self.had_pods or self.has_all_pods
        self.held_by_pods = replace_part(self.held_by_pods, old, new)

    def holding_at(self, now: float) -> Holding | None:
        """Return what the group holds at ``now``: what is not released in time does not count as being released."""
        if self.holding is None or not self.is_late(self.ending_since, now):
            return self.holding
        return structs.replace(self.holding, releasing=False)

    def must_have_stopped(self, now: float) -> bool:
        """Return whether the job was evicted so long ago that nothing should create pods for it."""
        job = self.job
        if job is None or not job.evicted_at:
            return False
        return now >= job.evicted_at + STOP_SECONDS

    @staticmethod
    def is_late(since: float, now: float) -> bool:
        """Return whether quota that was to be released ``since`` should have been; ``since`` 0: it was not."""
        return bool(since) and now >= since + RELEASE_SECONDS

    def count_pods(self, setup: Setup | None) -> None:
        """Count the own pods again if they have another owner, or the FluxJob holds quota for something else.

        Own pods are those that the Job controls, by its uid, and the service pod, which the MiniCluster controls, if
        they request what the FluxJob holds quota for, see :func:`.needed_pods`. Any user can create further pods with
        the label, also with these controllers: they hold quota, but they must not keep that of a FluxJob whose own pods
        do not exist.
        """
        self._needed = self._needed_pods(setup)
        job_uid, cluster_uid = self._owners()
        own_pods = OwnPods(job_uid, self._needed.pod) if job_uid else _NO_OWNER
        own_service: OwnPods | None = None
        if self._needed.service is not None:
            own_service = OwnPods(cluster_uid, self._needed.service)
        is_counted = _counts_alike(own_pods, self.own_pods)
        if is_counted and _counts_alike(own_service, self.own_service):
            return
        self.own_pods = own_pods
        self.own_service = own_service
        for pod in (self.pods or {}).values():
            self._count(pod, 1)
        self.had_pods = self.had_pods or self.has_all_pods

    def _owners(self) -> tuple[str, str]:
        """Return the uids of the Job and the MiniCluster, which control the own pods."""
        job_uid = self.own_pods.owner
        cluster_uid = self.own_service.owner if self.own_service is not None else ""
        if self.cluster is not None:
            cluster_uid = self.cluster.uid
        if self.batch is not None and self.cluster is not None:
            job_uid = self.batch.uid if self.batch.cluster_uid == self.cluster.uid else ""
        return job_uid, cluster_uid

    def _count(self, pod: PodRecord, number: int) -> None:
        """Add ``number`` to the counts to which ``pod`` belongs."""
        self.own_pods.count(pod, number)
        if self.own_service is not None:
            self.own_service.count(pod, number)

    def _needed_pods(self, setup: Setup | None) -> NeededPods:
        if self.job is None:
            return self._needed
        defaults = setup.defaults if setup is not None else b"{}"
        counted = setup.policy.resources if setup is not None else {}
        known = (self.job.shape, defaults, counted)
        if known == self._needed_for:
            return self._needed
        self._needed_for = known
        return needed_pods(*known)

    def demand_of_job(self, setup: Setup | None) -> Demand:
        """Return what the job demands with the defaults of its setup."""
        if self.job is None:
            return NOTHING
        shape = self.job.shape
        defaults = setup.defaults if setup is not None else b"{}"
        known = (shape, defaults)
        if known != self._demand_for:
            self._demand = demand_of_job(shape, defaults)
            self._demand_for = known
        return self._demand


def _counts_alike(one: OwnPods | None, other: OwnPods | None) -> bool:
    """Return whether both count the same pods."""
    if one is None or other is None:
        return one is other
    return one.owner == other.owner and one.minimum == other.minimum


class _State(Enum):
    """What a group holds of the quota, and whether it gives that back."""

    ADMITTED = auto()
    """The demand of its FluxJob, which is admitted."""

    EVICTED = auto()
    """The same, until its MiniCluster creates no more pods, or should not."""

    RUNNING = auto()
    """What the pods of its MiniCluster request, which runs without an admitted FluxJob."""

    ENDING = auto()
    """What pods request that remain of a MiniCluster."""


_IS_ADMITTED: Final = (_State.ADMITTED, _State.EVICTED)
_IS_RELEASING: Final = (_State.EVICTED, _State.ENDING)


def holding_of(
    key: NamespacedName, group: Group, setup: Setup | None, priority: int
) -> Holding | None:
    """Return what the group holds of the quota of its setup."""
    by_kueue = _is_queued_by_kueue(group)
    has_kueue_queue = setup is not None and bool(setup.kueue_queue)
    if by_kueue and not has_kueue_queue:
        return None  # Kueue's quota, not ours
    state = _state_of(group)
    is_admitted = state in _IS_ADMITTED
    demand = group.demand_of_job(setup) if is_admitted else NOTHING
    demand = demand.at_least(group.held_by_pods)
    if not demand.pods:
        return None
    return Holding(
        key,
        demand,
        priority=priority,
        created=_creation_of(group),
        end=_end_of(group),
        releasing=state in _IS_RELEASING,
        preemptible=state is _State.ADMITTED and not by_kueue,
    )


def _is_queued_by_kueue(group: Group) -> bool:
    job = group.job
    if group.is_assumed or (job is not None and job.is_admitted):
        return False  # a label that is added after the admission frees no quota
    if job is not None and job.is_queued_by_kueue:
        return True
    return group.cluster is not None and group.cluster.is_queued_by_kueue


def _state_of(group: Group) -> _State:
    job = group.job
    holds = job is not None and (job.holds or (group.is_assumed and not job.is_deleting))
    if job is not None and holds and not job.is_finished:
        is_evicted = job.is_reserved and job.is_evicted
        if is_evicted and (group.counts_only_pods or not group.creates_pods):
            return _State.ENDING
        return _State.EVICTED if is_evicted or group.is_evicting else _State.ADMITTED
    cluster = group.cluster
    if cluster is None or cluster.is_deleting or _is_orphan(group):
        return _State.ENDING
    if cluster.is_stopped or cluster.is_finished or not cluster.is_valid:
        return _State.ENDING
    return _State.RUNNING


def _owns_cluster(group: Group) -> bool:
    """Return whether the MiniCluster is that of the FluxJob."""
    if group.job is None or group.cluster is None:
        return False
    return group.cluster.job_uid == group.job.uid


def _is_orphan(group: Group) -> bool:
    """Return whether the MiniCluster is that of a FluxJob that no longer exists."""
    has_owner = group.cluster is not None and bool(group.cluster.job_uid)
    return has_owner and not _owns_cluster(group)


def _end_of(group: Group) -> float:
    """Return when the group ends at the latest, in seconds since the epoch."""
    job = group.job
    cluster = group.cluster
    if job is None or not job.started:
        return cluster.end if cluster is not None else FOREVER
    return job.started + job.duration


def _creation_of(group: Group) -> float:
    if group.job is not None:
        return group.job.created
    return group.cluster.created if group.cluster is not None else 0.0


def obstacle_of(
    key: NamespacedName, group: Group, setup: Setup | None, *, priority: int | None
) -> tuple[str, str] | None:
    """Return what keeps the job of ``group`` from being queued (reason and message), if anything does.

    ``priority`` is ``None`` if its PriorityClass does not exist.
    """
    job = group.job
    if job is None:
        return None
    if group.cluster is not None and group.cluster.job_uid != job.uid:
        taken = f"MiniCluster {key.name} exists and does not belong to this FluxJob"
        return NAME_TAKEN, taken + _missing_setup_note(key, group, setup)
    if job.is_suspended:
        return SUSPENDED, "Suspended by spec.suspend"
    if job.is_too_complex:
        return (
            TOO_COMPLEX,
            f"The resources of all containers together take more than {MAX_SHAPE} bytes",
        )
    if group.cluster is not None and group.cluster.is_name_taken:
        taken = f"MiniCluster {key} needs the name of another owner's object, which its condition ObjectsReady names"
        return NAME_TAKEN, taken + _missing_setup_note(key, group, setup)
    if job.is_paused:
        return job.reason, "The job could not start"
    if _has_queue_label(group):
        return WAITING_FOR_KUEUE, "Waiting for Kueue to admit the job"
    if setup is None:
        return NO_SETUP, f"No {COVERS} {key.namespace}"
    if setup.kueue_queue:
        return (
            WAITING_FOR_KUEUE,
            f"Waiting for LocalQueue {setup.kueue_queue} of Kueue to admit the job",
        )
    if priority is None:
        return NO_PRIORITY_CLASS, f"PriorityClass {job.priority_class} does not exist"
    return None


def _has_queue_label(group: Group) -> bool:
    """Return whether the FluxJob or its MiniCluster names a LocalQueue of Kueue."""
    job = group.job
    cluster = group.cluster
    return (job is not None and job.is_queued_by_kueue) or (
        cluster is not None and cluster.is_queued_by_kueue
    )


def _missing_setup_note(key: NamespacedName, group: Group, setup: Setup | None) -> str:
    """Return what else keeps a job from being queued whose name is taken: both need someone who acts."""
    if setup is not None or _has_queue_label(group):
        return ""
    return f"; in addition, no {COVERS} {key.namespace}"


def message_of(
    key: NamespacedName, group: Group, setup: Setup | None, *, priority: int | None
) -> str:
    """Return the message for ``group.reason``."""
    if group.waiting is not None and setup is not None:
        return _blocked_message(Blocked(group.reason), group.waiting.demand, setup)
    if group.reason == ADMITTED:
        return f"Admitted by FluxSetup {setup.key}" if setup is not None else "Admitted"
    if group.reason == EVICTED_BY_QUEUE:
        return "Evicted in favor of a job of higher priority"
    obstacle = obstacle_of(key, group, setup, priority=priority)
    return obstacle[1] if obstacle is not None else ""


def _blocked_message(reason: Blocked, demand: Demand, setup: Setup) -> str:
    """Return the message of a job that waits for quota.

    It depends only on the job and its setup, so that it changes as rarely as the reason.
    """
    name = setup.key
    if reason is Blocked.BEHIND:
        strategy = setup.policy.strategy
        return f"Waiting behind another job in the queue of FluxSetup {name} ({strategy})"
    amounts = _amounts(demand, setup)
    if reason is Blocked.TOO_LARGE:
        allowed = _exceeded(demand, setup)
        return f"Needs {amounts}, which is more than FluxSetup {name} allows in total ({allowed})"
    if reason is Blocked.RELEASING:
        return f"Waiting until evicted jobs have released {amounts} of FluxSetup {name}"
    return f"Waiting for {amounts} of the quota of FluxSetup {name}"


def _exceeded(demand: Demand, setup: Setup) -> str:
    """Return the limits of the quota that a demand exceeds, for messages."""
    policy = setup.policy
    parts = []
    if demand.pods > policy.pods:
        parts.append(_pods(policy.pods))
    for name, limit in sorted(policy.resources.items()):
        if demand.resources.get(name, 0) > limit:
            parts.append(f"{name} {format_amount(limit)}")
    return ", ".join(parts)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _amounts(demand: Demand, setup: Setup) -> str:
    """Return the pods and the limited resources of a demand, for messages."""
    parts = [_pods(demand.pods)]
    for name in sorted(setup.policy.resources):
        amount = demand.resources.get(name, 0)
        if amount:
            parts.append(f"{name} {format_amount(amount)}")
    return ", ".join(parts)
