"""What proves that a FluxJob uses the quota that it holds, or until when it may hold it without: pure functions.

A ResourceQuota, Pod Security, finalizers and names in use can keep a job from having pods; an image or a Secret that
does not exist, and nodes that are too small, can keep these from starting. Without a limit the job would hold the quota
of all others until it is deleted, at no cost. So :class:`Hold` names each state in which a job holds quota: only pods
of its own that run keep it without a limit.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto
from math import ceil
from typing import Final

from cfo.api.flux.facts import (
    fixed_size,
    is_false,
    is_true,
    message_of,
    needed_brokers,
    size_of,
)
from cfo.api.flux.names import (
    BROKERS_READY,
    EVICTED,
    OBJECTS_READY,
    PODS_MISSING,
    PODS_PER_SECOND,
    PODS_READY,
    QUOTA_RESERVED,
    STARTING,
    UP_TO_DATE,
    USUAL_CREATION,
    JobState,
)
from cfo.controllers.flux.fluxjob.step import JobObservation, JobStatus
from cfo.controllers.flux.minicluster.plan import service_pod_name
from cfo.controllers.flux.queue.group import STOP_SECONDS
from cfo.controllers.flux.queue.model import ADMITTED, PodCounts, ServicePod
from cfo.runtime import Object, name_of, namespace_of
from cfo.runtime.objects import parse_time

_START_TIMEOUT: Final = timedelta(minutes=5)
"""For how long a job holds quota before its MiniCluster has all objects, and while pods of it are missing.

The same as the default of Kueue's ``waitForPodsReady.timeout``."""

_REPLACEMENT_TIMEOUT: Final = timedelta(minutes=15)
"""The same if as many pods have failed as are missing: the Job controller replaces one after up to 10 minutes."""

TIME_TO_STOP: Final = timedelta(seconds=STOP_SECONDS)
"""For how long after its eviction, or without quota, the MiniCluster of a job is suspended if it is not.

Then it is deleted, and only pods that occupy a node hold quota of an evicted job."""

MISSING_SECONDS: Final = "podsMissingSeconds"
"""The field of the status that says how much longer pods were missing than they all existed, in seconds.

So pods that exist for one job after the other keep the quota of two jobs, and not of any number."""

STARTING_SINCE: Final = "startingSince"
"""The field of the status that says since when a launched job has been starting.

No change of its pods or its MiniCluster begins that time again, except that its pods have started."""

READY_SINCE: Final = "brokersReadySince"
"""The field of the status that says since when the brokers were ready, in pods of the job's own that all existed."""


_LIVE: Final = (ServicePod.STARTED, ServicePod.PENDING)

_TOO_LITTLE: Final = (
    "less than a quarter of the CPU or memory, or fewer devices, than the job holds quota for"
)


class Hold(Enum):
    """Why a job holds quota that the queue has given to it, and what ends that."""

    RELEASING = auto()
    """It is evicted: until nothing creates pods for it, or for 30 seconds, and until none occupies a node.

    See :mod:`cfo.controllers.flux.queue.group`.
    """

    CREATING = auto()
    """Objects of its MiniCluster do not exist: for 5 minutes, of which the time without pods counts once."""

    MISSING = auto()
    """Pods of its own do not exist: for 5 minutes in all, or 15 if as many have failed, which its Job replaces."""

    SUCCEEDED = auto()
    """Pods do not exist after its command has succeeded: for 5 minutes in all. Then the job ends, with or without its
    Job."""

    STARTING = auto()
    """Pods of its own exist that have not started: for the warm-up grace period."""

    RUNNING = auto()
    """Pods of its own run: all of them, or any after the brokers were ready, and always a service pod that requests
    more than a broker. Without a limit."""


def hold_of(seen: JobObservation, status: JobStatus) -> Hold | None:
    """Return why a job holds quota; ``None`` if it has none of this queue."""
    if not _is_admitted(status):
        return None
    if status.is_true(EVICTED):
        return Hold.RELEASING
    cluster = seen.own_cluster
    if cluster is None or status.state is JobState.WAITING or not status["startTime"]:
        return Hold.CREATING
    if lacks_pods(seen, status, cluster) or _awaits_missing_pods(seen, status):
        return Hold.SUCCEEDED if has_succeeded(cluster) else Hold.MISSING
    return Hold.STARTING if _is_starting(seen, status, cluster) else Hold.RUNNING


def hold_deadline(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return until when a job may hold quota if nothing changes; ``None``: without a limit."""
    hold = hold_of(seen, status)
    if hold is Hold.CREATING:
        return _deadline_of_objects(status)
    if hold is Hold.MISSING:
        return _deadline_of_pods(status, _time_to_replace(seen, status))
    if hold is Hold.SUCCEEDED:
        return _deadline_of_pods(status, _START_TIMEOUT)
    if hold is Hold.STARTING:
        return _deadline_of_warmup(seen, status)
    return None


def _is_admitted(status: JobStatus) -> bool:
    """Return whether the job holds quota that this queue, and not Kueue, has given to it."""
    reserved = status.find(QUOTA_RESERVED)
    return reserved.get("status") == "True" and reserved.get("reason") == ADMITTED


def _deadline_of_objects(status: JobStatus) -> datetime | None:
    """Return until when objects may be missing, and pods of a job that was launched before."""
    of_pods = _deadline_of_pods(status, _START_TIMEOUT)
    if status.state is not JobState.WAITING:
        return of_pods  # this step begins to wait
    reserved = status.find(QUOTA_RESERVED)
    waiting = status.find(JobState.WAITING)
    began = max(parse_time(item["lastTransitionTime"]) for item in (reserved, waiting))
    deadline = began + _START_TIMEOUT
    return deadline if of_pods is None else min(deadline, of_pods)


def _deadline_of_pods(status: JobStatus, timeout: timedelta) -> datetime | None:
    """Return until when pods may be missing; ``None`` if the status does not say that any is."""
    if not is_missing_pods(status):
        return None
    since = parse_time(status.find(PODS_READY).get("lastTransitionTime"))
    return since + timeout - _missing_before(status)


def _deadline_of_warmup(seen: JobObservation, status: JobStatus) -> datetime | None:
    since = status[STARTING_SINCE]
    return parse_time(since) + seen.warmup_grace if since else None


def _awaits_missing_pods(seen: JobObservation, status: JobStatus) -> bool:
    """Return whether the status says that pods are missing that may be created in a moment."""
    return is_missing_pods(status) and _are_being_created(seen, status)


def _time_to_replace(seen: JobObservation, status: JobStatus) -> timedelta:
    """Return for how long pods may be missing: longer if the Job controller replaces as many that have failed."""
    cluster = seen.own_cluster
    if cluster is not None and lacks_service_pod(seen, status, cluster):
        return _START_TIMEOUT  # nothing replaces one that has ended
    missing = missing_pods(seen, status, cluster) if cluster is not None else 0
    has_failed = missing and seen.pods is not None and seen.pods.ended >= missing
    return _REPLACEMENT_TIMEOUT if has_failed else _START_TIMEOUT


def _is_starting(seen: JobObservation, status: JobStatus, cluster: Object) -> bool:
    """Return whether fewer pods than the brokers need have started; none, if the brokers were ready before.

    The service pod must have started, too; if they were ready, only one that requests more than a broker. Pods that
    have started need not be ready: a container that has ended keeps its pod from being ready while the command runs.
    """
    if seen.pods is None:
        return False
    is_service_pending = seen.pods.service is ServicePod.PENDING
    if brokers_were_ready(seen, status, cluster):
        return not seen.pods.started or (is_service_pending and seen.pods.has_large_service)
    spec = cluster.get("spec") or {}
    needed = needed_brokers(spec)
    spare = size_of(spec) - needed
    return seen.pods.started < needed or seen.pods.pending > spare or is_service_pending


def has_succeeded(cluster: Object) -> bool:
    """Return whether the command of a MiniCluster has succeeded, although its Job may not have ended."""
    return (cluster.get("status") or {}).get("exitCode") == 0


def brokers_were_ready(seen: JobObservation, status: JobStatus, cluster: Object) -> bool:
    """Return whether the brokers were ready, each in a pod of the job's own, while all its pods existed.

    The Job of the MiniCluster also counts pods that a user has created with it as their controller. So as many pods of
    the job's own must have started when the status first says that the brokers are ready. With a ``minSize`` these are
    fewer than the job holds quota for, and nothing else shows that the others, and the service pod, can exist.
    """
    if not is_true(cluster, JobState.RUNNING):
        return False
    if status[READY_SINCE] or status.find(PODS_READY).get("reason") == BROKERS_READY:
        return True
    if seen.pods is None:
        return False
    if seen.pods.started < needed_brokers(cluster.get("spec") or {}):
        return False
    if not _is_admitted(status):
        return True
    had_service = seen.pods.service not in (ServicePod.MISSING, ServicePod.SMALL)
    return seen.pods.live >= _size(seen, cluster) and had_service


def record_readiness(seen: JobObservation, status: JobStatus, cluster: Object) -> None:
    """Record since when the brokers were ready, and remove that if the MiniCluster starts again."""
    if not brokers_were_ready(seen, status, cluster):
        status[READY_SINCE] = None
    elif not status[READY_SINCE]:
        status[READY_SINCE] = status.timestamp


def record_start(seen: JobObservation, status: JobStatus) -> None:
    """Record since when a launched job that the queue has admitted has been starting, and remove that at the end."""
    is_launched = bool(status["startTime"])
    if not is_launched or not _is_admitted(status) or seen.pods is None:
        return
    cluster = seen.own_cluster
    if cluster is not None and not _is_starting(seen, status, cluster):
        status[STARTING_SINCE] = None
    elif not status[STARTING_SINCE]:
        status[STARTING_SINCE] = status.timestamp


def is_missing_pods(status: JobStatus) -> bool:
    """Return whether the status says that pods are missing."""
    return status.find(PODS_READY).get("reason") == PODS_MISSING


def record_missing_pods(status: JobStatus, now: datetime, *, are_missing: bool) -> None:
    """Prepare ``PodsReady`` for its next value: its time is that from which pods are missing, or all exist again.

    The time in which pods were missing counts until they have all existed for as long.
    """
    if are_missing == is_missing_pods(status):
        return
    since = status.find(PODS_READY).get("lastTransitionTime")
    elapsed = now - parse_time(since) if since else timedelta()
    missing = _missing_before(status)
    missing += -elapsed if are_missing else elapsed
    status[MISSING_SECONDS] = max(0, ceil(missing.total_seconds())) or None
    status.remove(PODS_READY)


def _missing_before(status: JobStatus) -> timedelta:
    return timedelta(seconds=status[MISSING_SECONDS] or 0)


def missing_pods(seen: JobObservation, status: JobStatus, cluster: Object) -> int:
    """Return how many pods of a job that was launched should exist and do not.

    A job whose brokers were ready keeps its quota while it has any pod.
    """
    if seen.pods is None or _are_being_created(seen, status):
        return 0
    size = _size(seen, cluster)
    if brokers_were_ready(seen, status, cluster):
        return 0 if seen.pods.live else size
    return max(0, size - seen.pods.live)


def lacks_pods(seen: JobObservation, status: JobStatus, cluster: Object) -> bool:
    """Return whether any pod of a job that was launched should exist and does not."""
    return missing_pods(seen, status, cluster) > 0 or lacks_service_pod(seen, status, cluster)


def lacks_service_pod(seen: JobObservation, status: JobStatus, cluster: Object) -> bool:
    """Return whether a job that was launched holds quota for a service pod that should exist and does not.

    One that requests no more than a broker counts as one more of them: it must have existed before they were ready. A
    larger one must run on: otherwise a small broker could hold any quota.
    """
    if seen.pods is None or not _is_admitted(status) or _are_being_created(seen, status):
        return False
    service = seen.pods.service
    if service is None or service in _LIVE:
        return False
    if brokers_were_ready(seen, status, cluster):
        # Without a pod that runs, all are missing, and the Job may have ended.
        return seen.pods.has_large_service and seen.pods.live > 0
    return seen.pods.has_large_service or service is not ServicePod.ENDED


def _size(seen: JobObservation, cluster: Object) -> int:
    """Return how many pods a job must have: its own size, also if its MiniCluster was made smaller."""
    return max(size_of(cluster.get("spec") or {}), fixed_size(seen.spec, seen.default_size))


def describe_missing_pods(seen: JobObservation, status: JobStatus, cluster: Object) -> str:
    """Return which pods are missing, and what is wrong with them; empty if none is."""
    pods = seen.pods or PodCounts()
    missing = missing_pods(seen, status, cluster)
    small = min(pods.small, missing)
    absent = missing - small
    sentences = []
    if absent:
        sentences.append(_describe_absent_pods(seen, cluster, absent))
    if small:
        sentences.append(f"{small} pods do not count, because they request {_TOO_LITTLE}.")
    if lacks_service_pod(seen, status, cluster):
        sentences.append(_describe_service_pod(pods, status, cluster))
    return " ".join(sentences)


def _describe_absent_pods(seen: JobObservation, cluster: Object, absent: int) -> str:
    """Return how many pods do not exist, and that the MiniCluster is too small for them, if it is."""
    sentence = "1 pod does not exist." if absent == 1 else f"{absent} pods do not exist."
    size = size_of(cluster.get("spec") or {})
    wanted = fixed_size(seen.spec, seen.default_size)
    if size >= wanted:
        return sentence
    command = f"kubectl scale minicluster {name_of(cluster)} -n {namespace_of(cluster)} --replicas {wanted}"
    return f"{sentence} The MiniCluster was scaled to {size} of {wanted} pods before all had started: {command}."


def _describe_service_pod(pods: PodCounts, status: JobStatus, cluster: Object) -> str:
    """Return why the service pod does not count."""
    subject = f"The service pod {service_pod_name(name_of(cluster))}"
    if pods.service is ServicePod.ENDED:
        return f"{subject} has ended, and the job holds quota for it."
    if pods.service is ServicePod.SMALL:
        return f"{subject} does not count, because it requests {_TOO_LITTLE}."
    obstacle = ""
    if not (cluster.get("spec") or {}).get("services"):
        obstacle = "the MiniCluster has no services"
    elif status.find(OBJECTS_READY).get("status") == "False":
        obstacle = str(status.find(OBJECTS_READY).get("message"))
    elif is_false(cluster, UP_TO_DATE):
        obstacle = message_of(cluster, UP_TO_DATE)
    reason = f": {obstacle.removesuffix('.')}" if obstacle else ""
    return f"{subject} does not exist{reason}."


def _are_being_created(seen: JobObservation, status: JobStatus) -> bool:
    """Return whether pods of a job that was launched may not exist yet, although its MiniCluster may miss them."""
    return seen.now < _end_of_creation(seen, status)


def _end_of_creation(seen: JobObservation, status: JobStatus) -> datetime:
    """Return until when pods of a job that was launched are usually created."""
    pods = _size(seen, seen.own_cluster or {})
    creation = USUAL_CREATION + timedelta(seconds=pods // PODS_PER_SECOND)
    return parse_time(status["startTime"]) + creation


def obstacle_of_start(seen: JobObservation, status: JobStatus) -> str:
    """Return the message that says why the job does not start."""
    pods = status.find(PODS_READY)
    if pods.get("status") == "False":
        reason = str(pods.get("reason"))
        if reason == STARTING:
            return _describe_pending_pods(seen)
        message = str(pods.get("message"))
        return message if reason == PODS_MISSING else f"{reason}: {message}"
    if pods.get("status") == "True":  # the brokers were ready
        return _describe_pending_pods(seen)
    objects = status.find(OBJECTS_READY)
    if objects.get("status") == "False":
        return str(objects.get("message"))
    return str(status.find(JobState.WAITING).get("message"))


def _describe_pending_pods(seen: JobObservation) -> str:
    """Return which pods have not started, and how to find out why."""
    pods = seen.pods or PodCounts()
    events = f"kubectl get events -n {namespace_of(seen.job)}"
    if pods.service is not ServicePod.PENDING:
        return f"{pods.pending} pods have not started, and their Events say why: {events}"
    subject = f"The service pod {service_pod_name(name_of(seen.job))}"
    if not pods.pending:
        return f"{subject} has not started, and its Events say why: {events}"
    return (
        f"{subject} and {pods.pending} others have not started, and their Events say why: {events}"
    )


def next_check(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return when a job that holds quota may have to give it back, although no event says so."""
    deadline = hold_deadline(seen, status)
    cluster = seen.own_cluster
    if cluster is None or not status["startTime"] or is_missing_pods(status):
        return deadline
    was_ready = brokers_were_ready(seen, status, cluster)
    pods = seen.pods or PodCounts()
    has_pods = was_ready and pods.live > 0
    if pods.has_large_service:
        has_pods = has_pods and pods.service in _LIVE
    if has_pods or not _is_admitted(status):
        return deadline
    check = _end_of_creation(seen, status)
    if check <= seen.now:
        check = seen.now + _START_TIMEOUT
    return check if deadline is None else min(check, deadline)
