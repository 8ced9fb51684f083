"""The records under one name: what they hold of a quota, and what keeps the FluxJob from being queued. Pure functions.

One name identifies a FluxJob, its MiniCluster, the MiniCluster's Job and (by label) its pods. What such a group holds
of the quota is the demand of its FluxJob while that is admitted, and at least what its pods on nodes request. So quota
is not free before these pods are deleted, whichever of the objects is deleted first.

Specs of MiniClusters and Jobs hold nothing: any user can write them, and the queue has not admitted them. So they
must not take quota from other namespaces. Without an admitted FluxJob only pods on nodes count, which nodes and a
ResourceQuota limit.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from cfo.api.quantity import format_quantity
from cfo.controllers.flux.queue.governance import Setup
from cfo.controllers.flux.queue.model import (
    ADMITTED,
    EVICTED_BY_QUEUE,
    FOREVER,
    KUEUE,
    NAME_TAKEN,
    NO_PRIORITY_CLASS,
    NO_SETUP,
    NOTHING,
    REFUSED,
    SUSPENDED,
    Blocked,
    Demand,
    Holding,
    WaitingJob,
)
from cfo.controllers.flux.queue.records import ClusterRecord, JobRecord, PodRecord
from cfo.controllers.flux.queue.shape import add_to, demand_of_job
from cfo.runtime import NamespacedName


class Group(msgspec.Struct, gc=False, eq=False):
    """All records under one name.

    The garbage collector does not track groups, so its run time does not grow with the queue.
    """

    job: JobRecord | None = None
    cluster: ClusterRecord | None = None
    batch_pods: int = 0
    pods: dict[str, PodRecord] | None = None
    present: Demand = NOTHING
    """The sum of all pods."""
    live: Demand = NOTHING
    """The sum of the pods that have not ended."""
    waiting: WaitingJob | None = None
    holding: Holding | None = None
    is_assumed: bool = False
    is_evicting: bool = False
    reason: str = ""
    """What the status of the job is to say about its place in the queue; empty if it says so already."""
    position: int = 0
    _demand: Demand = NOTHING
    _demand_for: tuple[bytes, bytes] = (b"", b"")

    @property
    def is_empty(self) -> bool:
        """Whether nothing with this name exists."""
        return self.job is None and self.cluster is None and not self.batch_pods and not self.pods

    def set_pod(self, name: str, pod: PodRecord | None) -> None:
        """Record a pod; ``None``: it does not exist."""
        pods = self.pods or {}
        before = pods.pop(name, None)
        if pod is not None:
            pods[name] = pod
        self.pods = pods or None
        self.present = _changed(self.present, before, pod)
        self.live = _changed(
            self.live,
            before if before is not None and not before.has_ended else None,
            pod if pod is not None and not pod.has_ended else None,
        )

    def demand_of_job(self, setup: Setup | None) -> Demand:
        """Return what the job demands with the defaults of its setup."""
        if self.job is None:
            return NOTHING
        known = self.job.shape, setup.defaults if setup is not None else b"{}"
        if known != self._demand_for:
            self._demand = demand_of_job(*known)
        self._demand_for = known
        return self._demand


def _changed(total: Demand, before: PodRecord | None, after: PodRecord | None) -> Demand:
    """Return the sum of pods after a pod has changed."""
    old, new = (pod.demand if pod is not None else NOTHING for pod in (before, after))
    if old is new or old == new:
        return total
    if not total.resources and not old.resources and not new.resources:
        return Demand(total.pods - old.pods + new.pods)
    resources = dict(total.resources)
    add_to(resources, old.resources, -1)
    add_to(resources, new.resources)
    return Demand(total.pods - old.pods + new.pods, resources)


def holding_of(
    key: NamespacedName, group: Group, setup: Setup | None, priority: int
) -> Holding | None:
    """Return what the group holds of the quota of its setup."""
    job, cluster = group.job, group.cluster
    by_kueue = (job is not None and job.is_queued_by_kueue) or (
        cluster is not None and cluster.is_queued_by_kueue
    )
    if group.is_assumed or (job is not None and job.is_admitted):
        by_kueue = False  # a label that is added after the admission frees no quota
    if by_kueue and not (setup is not None and setup.kueue_queue):
        return None  # Kueue's quota, not ours
    is_reserved = job is not None and not job.is_finished and (job.is_reserved or group.is_assumed)
    is_own = job is not None and cluster is not None and cluster.job_uid == job.uid
    is_active = (
        cluster is not None
        and cluster.is_valid
        and not cluster.is_stopped
        and not cluster.is_finished
    )
    is_orphan = cluster is not None and bool(cluster.job_uid) and not is_own
    demand = group.demand_of_job(setup) if is_reserved else NOTHING
    demand = demand.at_least(_pods_that_count(group, setup, is_own=is_own, is_orphan=is_orphan))
    if not demand.pods:
        return None
    end = FOREVER
    if job is not None and job.started:
        end = job.started + job.duration
        if cluster is not None and is_own:
            end = max(end, cluster.end)  # its deadline may have been raised directly
    elif cluster is not None:
        end = cluster.end
    created = job.created if job is not None else cluster.created if cluster is not None else 0.0
    is_evicted = group.is_evicting or (job is not None and job.is_reserved and job.is_evicted)
    return Holding(
        key,
        demand,
        priority=priority,
        created=created,
        end=end,
        releasing=(
            is_evicted
            if is_reserved
            else is_orphan or not is_active or bool(cluster and cluster.is_deleting)
        ),
        preemptible=is_reserved and not by_kueue,
    )


def _pods_that_count(group: Group, setup: Setup | None, *, is_own: bool, is_orphan: bool) -> Demand:
    """Return what the pods hold that have not ended, or that are about to be deleted."""
    cluster, job = group.cluster, group.job
    if cluster is None or cluster.is_deleting or is_orphan:
        return group.present
    if is_own and job is not None and job.is_finished:
        cleans_up = job.cleans_up if job.cleans_up is not None else setup is None or setup.cleans_up
        if cleans_up:
            return group.present
    return group.live


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
        return NAME_TAKEN, f"MiniCluster {key.name} exists and does not belong to this FluxJob"
    if job.is_suspended:
        return SUSPENDED, "Suspended by spec.suspend"
    if job.is_refused:
        return REFUSED, "The MiniCluster was refused"
    if job.is_queued_by_kueue or (group.cluster is not None and group.cluster.is_queued_by_kueue):
        return KUEUE, "Waiting for Kueue to admit the job"
    if setup is None:
        return NO_SETUP, f"No FluxSetup covers namespace {key.namespace}"
    if setup.kueue_queue:
        return KUEUE, f"Waiting for LocalQueue {setup.kueue_queue} of Kueue to admit the job"
    if priority is None:
        return NO_PRIORITY_CLASS, f"PriorityClass {job.priority_class} does not exist"
    return None


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
    if reason is Blocked.TOO_LARGE:
        return (
            f"Needs {_amounts(demand, setup)}, which is more than FluxSetup {name} allows in total"
        )
    if reason is Blocked.BEHIND:
        return (
            f"Waiting behind another job in the queue of FluxSetup {name} ({setup.policy.strategy})"
        )
    if reason is Blocked.RELEASING:
        return f"Waiting until evicted jobs have released {_amounts(demand, setup)} of FluxSetup {name}"
    return f"Waiting for {_amounts(demand, setup)} of the quota of FluxSetup {name}"


def _amounts(demand: Demand, setup: Setup) -> str:
    parts = [f"{demand.pods} pod{'' if demand.pods == 1 else 's'}"]
    requested = ((name, demand.resources.get(name, 0)) for name in sorted(setup.policy.resources))
    parts += (
        f"{name} {format_quantity(Decimal(amount) / 1000)}" for name, amount in requested if amount
    )
    return ", ".join(parts)
