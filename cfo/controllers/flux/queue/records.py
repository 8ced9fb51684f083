"""What the queue knows of each object: a few fields, decoded once for each state of the object.

Decoding thousands of objects for each decision would take too long, so :mod:`.ledger` keeps these records. They contain
nothing that cannot be read again from the informers.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Final

import msgspec

from cfo.api.flux.names import (
    EVICTED,
    FLUX_JOB,
    MINICLUSTER,
    OBJECTS_READY,
    QUOTA_RESERVED,
    SUCCEEDED,
    SUSPEND_ANNOTATION,
    VALID,
    JobState,
)
from cfo.api.job_pods import controller_uid
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_requests import PodShape
from cfo.controllers.flux.queue.model import (
    ADMITTED,
    LOSES_PLACE,
    MINICLUSTER_REFUSED,
    NAME_TAKEN,
    NOTHING,
    PAUSES,
    START_TIMEOUT,
    Demand,
)
from cfo.controllers.flux.queue.shape import (
    DEFAULT_DEADLINE,
    MAX_SHAPE,
    ClusterShape,
    JobShape,
    demand_of_pod,
    shape_of_job,
    shape_of_pods,
)
from cfo.runtime import GVK, JOB, Entry
from cfo.runtime.cache import Meta
from cfo.runtime.objects import parse_time


class JobRecord(msgspec.Struct, gc=False, frozen=True):
    """A FluxJob. ``shape``, an encoded :class:`.JobShape`, and the defaults of its FluxSetup determine its demand.

    ``reason``, ``position`` and ``setup`` are what its status says about its place in the queue. ``is_observed``: the
    controller has validated this generation. ``evicted_at``: when it was evicted, in seconds since the epoch; 0 if it
    was not, or is admitted again. ``gave_up``: the same if that was because its pods did not exist in time.
    ``is_paused``: it is not admitted again yet, because it could not start; ``is_refused``: because its MiniCluster was
    refused. ``is_too_complex``: its shape is longer than :data:`MAX_SHAPE`, so only its pods are known. ``queued``:
    since when it has its place in the queue, in seconds since the epoch: its creation, or when it was evicted for its
    own reasons.
    """

    uid: str
    generation: int
    created: float
    queued: float
    shape: bytes
    duration: float
    priority: int | None
    priority_class: str
    reason: str
    position: int
    setup: str
    started: float
    gave_up: float
    is_observed: bool
    is_reserved: bool
    is_paused: bool
    is_refused: bool
    has_succeeded: bool
    is_evicted: bool
    evicted_at: float
    is_finished: bool
    is_suspended: bool
    is_deleting: bool
    is_valid: bool
    is_queued_by_kueue: bool
    is_too_complex: bool

    @property
    def holds(self) -> bool:
        """Whether the job holds its demand. A deleted job, which finalizers can keep, holds what its pods request."""
        return self.is_reserved and not self.is_finished and not self.is_deleting

    @property
    def is_admitted(self) -> bool:
        """Whether the job holds quota that this queue, and not Kueue, has given to it."""
        return self.is_reserved and not self.is_finished and self.reason == ADMITTED

    @property
    def is_pending(self) -> bool:
        """Whether the job can be admitted, as far as it says itself."""
        has_place = self.is_observed and self.is_valid and not self.is_deleting
        return has_place and not self.is_reserved and not self.is_finished


class ClusterRecord(msgspec.Struct, gc=False, frozen=True):
    """A MiniCluster. ``job_uid`` is the FluxJob with its name that controls it; empty if it was created by hand.

    ``is_stopped``: it is suspended, and its controller has observed that. ``is_name_taken``: an object of another owner
    has a name that it needs.
    """

    uid: str
    job_uid: str
    size: int
    created: float
    end: float
    is_stopped: bool
    is_finished: bool
    is_valid: bool
    is_name_taken: bool
    is_deleting: bool
    is_queued_by_kueue: bool


class BatchRecord(msgspec.Struct, gc=False, frozen=True):
    """The Job of a MiniCluster. ``cluster_uid`` is the MiniCluster that controls it.

    ``creates_pods``: it may have pods that the Job controller has not deleted, or create some.
    """

    uid: str
    cluster_uid: str
    creates_pods: bool


class _Condition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


_NO_CONDITION: Final = _Condition()


class _JobSpec(JobShape, gc=False, omit_defaults=True, rename="camel"):
    deadline_seconds: int | None = None
    suspend: bool | None = None
    priority: int | None = None
    priority_class_name: str | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    jobid: str = ""
    observed_generation: int = 0
    position: int | None = None
    flux_setup: str | None = None
    start_time: str | None = None
    conditions: tuple[_Condition, ...] | None = None


class _Job(msgspec.Struct, gc=False):
    spec: _JobSpec | None = None
    status: _Status | None = None


class _Cluster(msgspec.Struct, gc=False):
    spec: ClusterShape | None = None
    status: _Status | None = None


class _BatchSpec(msgspec.Struct, gc=False):
    parallelism: int | None = None
    suspend: bool | None = None


class _BatchStatus(msgspec.Struct, gc=False, rename="camel"):
    active: int | None = None
    start_time: str | None = None
    conditions: tuple[_Condition, ...] | None = None


class _BatchJob(msgspec.Struct, gc=False):
    spec: _BatchSpec | None = None
    status: _BatchStatus | None = None


class _PodStatus(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    spec: PodShape | None = None
    status: _PodStatus | None = None


class PodRecord(msgspec.Struct, gc=False, frozen=True):
    """A pod. ``requests``: what it takes of a node while it has one. ``has_ended``: it takes nothing any more.

    ``has_started``: all its containers have been created. ``owner``: the uid of its controller; empty if it has none.
    """

    uid: str
    owner: str
    requests: Demand
    has_node: bool
    has_started: bool
    has_ended: bool
    is_deleting: bool

    @property
    def is_live(self) -> bool:
        """Whether the pod counts in a ResourceQuota of pods: a finalizer can keep a deleted one for any time."""
        return not self.has_ended and not self.is_deleting

    @property
    def is_pending(self) -> bool:
        """Whether the pod is live and has not started."""
        return self.is_live and not self.has_started

    @property
    def demand(self) -> Demand:
        """What the pod takes of a node."""
        return self.requests if self.has_node and not self.has_ended else NOTHING


_MAX_NAME: Final = 253
"""The maximum length of names in the API. A text that is cut after one more character is none."""

_shapes: Final = msgspec.json.Encoder()
_jobs: Final = msgspec.json.Decoder(_Job)
_clusters: Final = msgspec.json.Decoder(_Cluster)
_batch_jobs: Final = msgspec.json.Decoder(_BatchJob)
_pods: Final = msgspec.json.Decoder(_Pod)


def job_record(entry: Entry) -> JobRecord:
    """Return the record of a FluxJob. Raises :class:`msgspec.DecodeError` for values that no CRD allows."""
    job = _jobs.decode(entry.raw)
    meta = entry.meta
    spec = job.spec or _JobSpec()
    status = job.status or _Status()
    template = spec.template or ClusterShape()
    shape = _shapes.encode(shape_of_job(spec.size, spec.resources, template))
    is_too_complex = len(shape) > MAX_SHAPE
    if is_too_complex:
        shape = _shapes.encode(shape_of_pods(spec.size, template))
    deadline = spec.deadline_seconds or template.deadline_seconds or DEFAULT_DEADLINE
    reserved = _find(status.conditions, QUOTA_RESERVED)
    is_current = reserved.observed_generation == meta.generation
    evicted = _find(status.conditions, EVICTED)
    created = _seconds(meta.creation_timestamp)
    queued = created
    evicted_at = 0.0
    gave_up = 0.0
    if evicted.status == "True":
        evicted_at = _seconds(evicted.last_transition_time or "")
    if evicted.status == "True" and evicted.reason in LOSES_PLACE:
        queued = max(created, evicted_at)
    if evicted.status == "True" and evicted.reason == START_TIMEOUT:
        gave_up = queued
    queue = meta.labels.get(QUEUE_NAME_LABEL) or (template.job_labels or {}).get(QUEUE_NAME_LABEL)
    return JobRecord(
        uid=meta.uid,
        generation=meta.generation,
        created=created,
        queued=queued,
        shape=shape,
        duration=float(deadline),
        priority=spec.priority,
        priority_class=_name(spec.priority_class_name or ""),
        reason=_name(reserved.reason),
        position=status.position or 0,
        setup=_name(status.flux_setup or ""),
        started=_seconds(status.start_time or reserved.last_transition_time or ""),
        gave_up=gave_up,
        is_observed=bool(status.jobid) and status.observed_generation == meta.generation,
        is_reserved=reserved.status == "True",
        is_paused=reserved.reason in PAUSES and is_current,
        is_refused=reserved.reason == MINICLUSTER_REFUSED,
        has_succeeded=_is_true(status.conditions, SUCCEEDED),
        is_evicted=evicted.status == "True",
        evicted_at=evicted_at,
        is_finished=_is_true(status.conditions, JobState.FINISHED),
        is_suspended=bool(spec.suspend),
        is_deleting=meta.is_deleting,
        is_valid=_is_valid(status.conditions),
        is_queued_by_kueue=bool(queue),
        is_too_complex=is_too_complex,
    )


def cluster_record(entry: Entry) -> ClusterRecord:
    """Return the record of a MiniCluster. Raises :class:`msgspec.DecodeError` for values that no CRD allows."""
    cluster = _clusters.decode(entry.raw)
    meta = entry.meta
    spec = cluster.spec or ClusterShape()
    status = cluster.status or _Status()
    is_suspended = spec.suspend
    if is_suspended is None:  # the CRD has no such field
        is_suspended = meta.annotations.get(SUSPEND_ANNOTATION) == "true"
    started = _seconds(status.start_time or "") or _seconds(meta.creation_timestamp)
    objects_ready = _find(status.conditions, OBJECTS_READY)
    return ClusterRecord(
        uid=meta.uid,
        job_uid=_job_uid(meta),
        size=1 if spec.size is None else spec.size,
        created=_seconds(meta.creation_timestamp),
        end=started + (spec.deadline_seconds or DEFAULT_DEADLINE),
        is_stopped=is_suspended and _observed_generation(status) == meta.generation,
        is_finished=_is_true(status.conditions, JobState.FINISHED),
        is_valid=_is_valid(status.conditions),
        is_name_taken=objects_ready.status == "False" and objects_ready.reason == NAME_TAKEN,
        is_deleting=meta.is_deleting,
        is_queued_by_kueue=bool((spec.job_labels or {}).get(QUEUE_NAME_LABEL)),
    )


def _job_uid(cluster: Meta) -> str:
    """Return the uid of the FluxJob that controls a MiniCluster; empty if none does.

    A FluxJob controls only the MiniCluster with its name; any user can write another owner reference.
    """
    owner = cluster.controller
    if owner is None or owner.name != cluster.name:
        return ""
    gvk = GVK.parse(owner.api_version, owner.kind)
    return _name(owner.uid) if gvk.same_kind(FLUX_JOB) else ""


def _observed_generation(status: _Status) -> int:
    """Return the generation that the controller has observed, also if the CRD has no field for it."""
    if status.observed_generation:
        return status.observed_generation
    return _find(status.conditions, OBJECTS_READY).observed_generation


def batch_record(entry: Entry) -> BatchRecord | None:
    """Return the record of the Job of a MiniCluster; ``None`` if the Job is that of another owner.

    Raises :class:`msgspec.DecodeError` for values that no API server returns.
    """
    meta = entry.meta
    owner = meta.controller
    if owner is None or owner.name != meta.name:
        return None
    if not GVK.parse(owner.api_version, owner.kind).same_kind(MINICLUSTER):
        return None  # a Job that a user has given the label
    # A Job that is being deleted gets no further pods.
    creates_pods = not meta.is_deleting and _creates_pods(_batch_jobs.decode(entry.raw))
    return BatchRecord(meta.uid, _name(owner.uid), creates_pods)


def _creates_pods(job: _BatchJob) -> bool:
    """Return whether the Job controller has not deleted all pods of a Job, or may create some."""
    spec = job.spec or _BatchSpec()
    status = job.status or _BatchStatus()
    if spec.parallelism is not None and spec.parallelism <= 0:
        return False
    if _is_true(status.conditions, "Complete") or _is_true(status.conditions, "Failed"):
        return False
    if not spec.suspend or status.active:
        return True
    has_started = bool(status.start_time)
    return has_started and not _is_true(status.conditions, "Suspended")


def pod_record(entry: Entry) -> PodRecord:
    """Return the record of a pod. Raises :class:`msgspec.DecodeError` for values that no API server returns.

    A pod takes nothing before it has a node, nor after it has ended: any user can create pods for which no node is
    large enough, and with ``spec.nodeName`` a kubelet lets them fail. Users cannot set the status.
    """
    pod = _pods.decode(entry.raw)
    status = pod.status or _PodStatus()
    has_ended = status.phase in ("Succeeded", "Failed")
    has_node = status.phase == "Running" or _is_true(status.conditions, "PodScheduled")
    has_started = status.phase not in ("", "Pending")
    return PodRecord(
        entry.meta.uid,
        owner_of_pod(entry.meta),
        demand_of_pod(pod.spec or PodShape()),
        has_node,
        has_started,
        has_ended,
        entry.meta.is_deleting,
    )


def owner_of_pod(meta: Meta) -> str:
    """Return the uid of the Job or MiniCluster that controls a pod; empty if none does."""
    return _name(controller_uid(meta.controller, JOB, MINICLUSTER))


def _name(text: str) -> str:
    """Return a name or uid, without what is too long for one: users write any text in owner references."""
    return intern(text[: _MAX_NAME + 1])


def _find(conditions: Iterable[_Condition] | None, kind: str) -> _Condition:
    """Return the condition of this type, or one whose fields are empty."""
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return _NO_CONDITION


def _is_true(conditions: Iterable[_Condition] | None, kind: str) -> bool:
    return _find(conditions, kind).status == "True"


def _is_valid(conditions: Iterable[_Condition] | None) -> bool:
    return _find(conditions, VALID).status != "False"


def _seconds(text: str) -> float:
    """Return a time as seconds since the epoch; 0 if there is none."""
    try:
        return parse_time(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0
