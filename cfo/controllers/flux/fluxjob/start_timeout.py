"""Until when an admitted FluxJob must have its MiniCluster and pods, and these must have started: pure functions.

A ResourceQuota, Pod Security, finalizers and names in use can keep a job from having pods; an image or a Secret that
does not exist, and nodes that are too small, can keep these from starting. Without a limit the job would hold the quota
of all others until it is deleted, at no cost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil
from typing import Final

from cfo.api.flux.facts import fixed_size, is_true, needed_brokers, size_of
from cfo.api.flux.names import (
    BROKERS_READY,
    OBJECTS_READY,
    PODS_MISSING,
    PODS_READY,
    QUOTA_RESERVED,
    STARTING,
    USUAL_CREATION,
    JobState,
)
from cfo.controllers.flux.fluxjob.step import JobObservation, JobStatus
from cfo.controllers.flux.queue.model import ADMITTED, PodCounts
from cfo.runtime import Object, namespace_of
from cfo.runtime.objects import parse_time

_START_TIMEOUT: Final = timedelta(minutes=5)
"""For how long a job holds quota before its MiniCluster has all objects, and while pods of it are missing.

The same as the default of Kueue's ``waitForPodsReady.timeout``."""

_REPLACEMENT_TIMEOUT: Final = timedelta(minutes=15)
"""The same if as many pods have failed as are missing: the Job controller replaces one after up to 10 minutes."""

MISSING_SECONDS: Final = "podsMissingSeconds"
"""The field of the status that says how much longer pods were missing than they all existed, in seconds.

So pods that exist for one job after the other keep the quota of two jobs, and not of any number."""

STARTING_SINCE: Final = "startingSince"
"""The field of the status that says since when a launched job has been starting.

No change of its pods or its MiniCluster begins that time again, except that its pods have started."""


def start_deadline(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return until when a job may hold quota if nothing changes; ``None``: without a limit.

    There is none for jobs that Kueue has admitted.
    """
    reserved = status.find(QUOTA_RESERVED)
    if reserved.get("reason") != ADMITTED:
        return None
    if status.state is not JobState.WAITING and status["startTime"]:
        return _deadline_of_pods(seen, status) or _deadline_of_warmup(seen, status)
    waiting = status.find(JobState.WAITING)
    began = (parse_time(item.get("lastTransitionTime")) for item in (reserved, waiting))
    deadline = max(began) + _START_TIMEOUT
    return min(deadline, _deadline_of_pods(seen, status) or deadline)


def _deadline_of_pods(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return until when pods may be missing; ``None`` if none is."""
    cluster = seen.own_cluster
    if not is_missing_pods(status):
        return None
    timeout = _START_TIMEOUT
    if status.state is not JobState.WAITING and cluster is not None:
        missing = missing_pods(seen, status, cluster)
        if not missing and not _are_being_created(seen, status):
            return None
        if missing and seen.pods is not None and seen.pods.ended >= missing:
            timeout = _REPLACEMENT_TIMEOUT
    since = parse_time(status.find(PODS_READY).get("lastTransitionTime"))
    return since + timeout - _missing_before(status)


def _deadline_of_warmup(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return until when the pods must have started; ``None`` if they have."""
    since = status[STARTING_SINCE]
    if not since or not _is_starting(seen, status):
        return None
    return parse_time(since) + seen.warmup_grace


def _is_starting(seen: JobObservation, status: JobStatus) -> bool:
    """Return whether fewer pods than the brokers need have started, and the brokers were never ready.

    Pods that have started need not be ready: a container that has ended keeps its pod from being ready while the
    command runs.
    """
    cluster = seen.own_cluster
    if cluster is None:
        return True
    if seen.pods is None or brokers_were_ready(seen, status, cluster):
        return False
    spec = cluster.get("spec") or {}
    needed = needed_brokers(spec)
    spare = size_of(spec) - needed
    return seen.pods.started < needed or seen.pods.pending > spare


def brokers_were_ready(seen: JobObservation, status: JobStatus, cluster: Object) -> bool:
    """Return whether the brokers were ready, each in a pod of the job's own.

    The Job of the MiniCluster also counts pods that a user has created with it as their controller. So as many pods of
    the job's own must have started when the status first says that the brokers are ready.
    """
    if not is_true(cluster, JobState.RUNNING):
        return False
    if seen.pods is None:
        return not is_missing_pods(status)
    if status.find(PODS_READY).get("reason") == BROKERS_READY:
        return True
    return seen.pods.started >= needed_brokers(cluster.get("spec") or {})


def record_start(seen: JobObservation, status: JobStatus) -> None:
    """Record since when a launched job that the queue has admitted has been starting, and remove that at the end."""
    is_launched = bool(status["startTime"])
    is_admitted = status.find(QUOTA_RESERVED).get("reason") == ADMITTED
    if not is_launched or not is_admitted or seen.pods is None:
        return
    if not _is_starting(seen, status):
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

    A job whose brokers were ready keeps its quota while it has any pod. The command may have succeeded without one. The
    job holds quota for its own size, also if its MiniCluster was made smaller.
    """
    if seen.pods is None or _are_being_created(seen, status):
        return 0
    size = max(size_of(cluster.get("spec") or {}), fixed_size(seen.spec))
    if not brokers_were_ready(seen, status, cluster):
        return max(0, size - seen.pods.live)
    exit_code = (cluster.get("status") or {}).get("exitCode")
    has_succeeded = exit_code == 0 and seen.pods.ended > 0
    return 0 if seen.pods.live or has_succeeded else size


def describe_missing_pods(pods: PodCounts, missing: int) -> str:
    """Return what is wrong with so many ``missing`` pods."""
    small = min(pods.small, missing)
    absent = missing - small
    sentences = []
    if absent:
        sentences.append(f"{absent} pods do not exist.")
    if small:
        sentences.append(
            f"{small} pods do not count, because they request less than half of the CPU or memory, or fewer devices, "
            "than the job holds quota for."
        )
    return " ".join(sentences)


def _are_being_created(seen: JobObservation, status: JobStatus) -> bool:
    """Return whether pods of a job that was launched may not exist yet, although its MiniCluster may miss them."""
    return seen.now < parse_time(status["startTime"]) + USUAL_CREATION


def obstacle_of_start(seen: JobObservation, status: JobStatus) -> str:
    """Return the message that says why the job does not start."""
    pods = status.find(PODS_READY)
    if pods.get("status") == "False":
        reason = str(pods.get("reason"))
        if reason == STARTING:
            pending = seen.pods.pending if seen.pods is not None else 0
            events = f"kubectl get events -n {namespace_of(seen.job)}"
            return f"{pending} pods have not started, and their Events say why: {events}"
        message = str(pods.get("message"))
        return message if reason == PODS_MISSING else f"{reason}: {message}"
    objects = status.find(OBJECTS_READY)
    if objects.get("status") == "False":
        return str(objects.get("message"))
    return str(status.find(JobState.WAITING).get("message"))


def next_check(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return when a job that holds quota may have to give it back, although no event says so."""
    deadline = start_deadline(seen, status)
    cluster = seen.own_cluster
    if cluster is None or not status["startTime"] or is_missing_pods(status):
        return deadline
    was_ready = brokers_were_ready(seen, status, cluster)
    has_pods = was_ready and (seen.pods is None or seen.pods.live > 0)
    if has_pods or status.find(QUOTA_RESERVED).get("reason") != ADMITTED:
        return deadline
    check = parse_time(status["startTime"]) + USUAL_CREATION
    if check <= seen.now:
        check = seen.now + _START_TIMEOUT
    return check if deadline is None else min(check, deadline)
