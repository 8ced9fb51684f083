"""Tests of the states in which a FluxJob holds quota, and of what ends each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cfo.api.flux.names import (
    BROKERS_READY,
    EVICTED,
    PODS_MISSING,
    PODS_READY,
    QUOTA_RESERVED,
    JobState,
)
from cfo.controllers.flux.fluxjob.rendering import desired_minicluster
from cfo.controllers.flux.fluxjob.start_timeout import (
    Hold,
    hold_deadline,
    hold_of,
    lacks_service_pod,
)
from cfo.controllers.flux.fluxjob.step import JobObservation, JobStatus
from cfo.controllers.flux.queue.model import PodCounts, ServicePod
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.clock import rfc3339
from test.support.flux_environment import flux_job

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BEGIN + timedelta(hours=1)
"""One hour after the launch."""
SIZE = 4

MINUTES: dict[Hold, int | None] = {
    Hold.RELEASING: None,  # it has no pod that it keeps
    Hold.CREATING: 5,
    Hold.MISSING: 5,
    Hold.SUCCEEDED: 5,
    Hold.STARTING: 15,
    Hold.RUNNING: None,
}
"""For how long a job may hold quota in each state, from when the state began."""


def held_job(state: JobState, reason: str, *, was_ready: bool) -> Object:
    """Return a job that holds quota, was launched at BEGIN, and has ``reason`` in PodsReady since NOW."""
    job = flux_job(size=SIZE)
    job["metadata"] |= {"uid": "1", "generation": 1}
    status = JobStatus(job, BEGIN)
    status.enter(JobState.RUNNING)
    status.set(QUOTA_RESERVED, True, "Admitted")
    job["status"] = status.as_object()
    status = JobStatus(job, NOW)
    status.enter(state)
    status.set(PODS_READY, reason == BROKERS_READY, reason)
    status["startTime"] = rfc3339(BEGIN)
    status["startingSince"] = rfc3339(NOW)
    if was_ready:
        status["brokersReadySince"] = rfc3339(BEGIN)
    job["status"] = status.as_object()
    return job


def cluster_of(job: Object, *, runs: bool, exit_code: int | None = None) -> Object:
    """Return the MiniCluster of a job, with a ``minSize`` of one pod."""
    cluster = desired_minicluster(job, {})
    cluster["metadata"] |= {"uid": "2", "generation": 1}
    cluster["spec"]["minSize"] = 1
    conditions = [{"type": "JobRunning", "status": "True"}] if runs else []
    cluster["status"] = {"conditions": conditions, "exitCode": exit_code}
    return cluster


def minutes_left(seen: JobObservation, status: JobStatus) -> int | None:
    """Return for how many minutes from NOW the job may hold quota."""
    deadline = hold_deadline(seen, status)
    return None if deadline is None else int((deadline - NOW).total_seconds() / 60)


@pytest.mark.parametrize(
    ("pods", "was_ready", "exit_code", "hold"),
    [
        # The brokers were not ready: the pods of the whole size prove what the job holds.
        (PodCounts(live=4), False, None, Hold.RUNNING),
        (PodCounts(live=4, pending=4), False, None, Hold.STARTING),
        (PodCounts(live=3), False, None, Hold.MISSING),
        (PodCounts(live=1, small=3), False, None, Hold.MISSING),
        (PodCounts(live=2, ended=1), False, 1, Hold.MISSING),
        (PodCounts(live=3, ended=1), False, 0, Hold.SUCCEEDED),
        # They were ready: any pod that runs does.
        (PodCounts(live=4, pending=3), True, None, Hold.RUNNING),
        (PodCounts(live=1, ended=3), True, None, Hold.RUNNING),
        (PodCounts(live=1, ended=3), True, 0, Hold.RUNNING),
        (PodCounts(live=1, pending=1), True, None, Hold.STARTING),
        (PodCounts(live=1, pending=1), True, 0, Hold.STARTING),
        (PodCounts(), True, None, Hold.MISSING),
        (PodCounts(small=4), True, None, Hold.MISSING),
        (PodCounts(ended=3), True, 1, Hold.MISSING),
        (PodCounts(ended=4), True, 0, Hold.SUCCEEDED),
        (PodCounts(ended=1, small=1), True, 0, Hold.SUCCEEDED),
        (PodCounts(), True, 0, Hold.SUCCEEDED),
    ],
)
def test_only_own_pods_that_run_keep_quota_without_a_limit(
    pods: PodCounts, was_ready: bool, exit_code: int | None, hold: Hold
) -> None:
    reason = PODS_MISSING if hold in (Hold.MISSING, Hold.SUCCEEDED) else "Starting"
    job = held_job(JobState.RUNNING, reason, was_ready=was_ready)
    cluster = cluster_of(job, runs=was_ready, exit_code=exit_code)
    seen = JobObservation(job=job, now=NOW, named_cluster=cluster, pods=pods)
    status = JobStatus(job, NOW)
    assert (hold_of(seen, status), minutes_left(seen, status)) == (hold, MINUTES[hold])


@pytest.mark.parametrize(
    ("service", "is_large", "was_ready", "hold"),
    [
        # The brokers were not ready: the service pod proves its part of what the job holds.
        (None, False, False, Hold.RUNNING),
        (ServicePod.STARTED, False, False, Hold.RUNNING),
        (ServicePod.PENDING, False, False, Hold.STARTING),
        (ServicePod.ENDED, False, False, Hold.RUNNING),
        (ServicePod.SMALL, False, False, Hold.MISSING),
        (ServicePod.MISSING, False, False, Hold.MISSING),
        (ServicePod.ENDED, True, False, Hold.MISSING),
        # They were ready: it counts as one more broker.
        (ServicePod.PENDING, False, True, Hold.RUNNING),
        (ServicePod.SMALL, False, True, Hold.RUNNING),
        (ServicePod.MISSING, False, True, Hold.RUNNING),
        # If it requests more than a broker, no broker proves that.
        (ServicePod.STARTED, True, True, Hold.RUNNING),
        (ServicePod.PENDING, True, True, Hold.STARTING),
        (ServicePod.ENDED, True, True, Hold.MISSING),
        (ServicePod.SMALL, True, True, Hold.MISSING),
        (ServicePod.MISSING, True, True, Hold.MISSING),
    ],
)
def test_quota_of_a_service_pod_is_kept_by_that_pod(
    service: ServicePod | None, is_large: bool, was_ready: bool, hold: Hold
) -> None:
    job = held_job(
        JobState.RUNNING, PODS_MISSING if hold is Hold.MISSING else "Starting", was_ready=was_ready
    )
    cluster = cluster_of(job, runs=was_ready)
    pods = PodCounts(live=4, ended=2, service=service, has_large_service=is_large)
    seen = JobObservation(job=job, now=NOW, named_cluster=cluster, pods=pods)
    status = JobStatus(job, NOW)
    assert (hold_of(seen, status), minutes_left(seen, status)) == (hold, MINUTES[hold])


def test_service_pod_of_a_job_of_kueue_holds_nothing_here() -> None:
    """Kueue does not count it."""
    job = held_job(JobState.RUNNING, "Starting", was_ready=False)
    status = JobStatus(job, NOW)
    status.set(QUOTA_RESERVED, True, "AdmittedByKueue")
    pods = PodCounts(live=4, service=ServicePod.MISSING, has_large_service=True)
    cluster = cluster_of(job, runs=False)
    seen = JobObservation(job=job, now=NOW, named_cluster=cluster, pods=pods)
    assert not lacks_service_pod(seen, status, cluster)


def test_pods_that_failed_get_more_time_to_be_replaced() -> None:
    job = held_job(JobState.RUNNING, PODS_MISSING, was_ready=False)
    pods = PodCounts(live=2, ended=2)
    seen = JobObservation(job=job, now=NOW, named_cluster=cluster_of(job, runs=False), pods=pods)
    assert minutes_left(seen, JobStatus(job, NOW)) == 15


@pytest.mark.parametrize("exists", [True, False])
def test_minicluster_that_is_created_again_has_a_limit(exists: bool) -> None:
    job = held_job(JobState.WAITING, PODS_MISSING, was_ready=True)
    cluster = cluster_of(job, runs=True, exit_code=0) if exists else None
    seen = JobObservation(job=job, now=NOW, named_cluster=cluster, pods=PodCounts(live=4))
    status = JobStatus(job, NOW)
    assert (hold_of(seen, status), minutes_left(seen, status)) == (Hold.CREATING, 5)


def test_evicted_job_holds_quota_until_it_is_drained() -> None:
    job = held_job(JobState.WAITING, PODS_MISSING, was_ready=True)
    status = JobStatus(job, NOW)
    status.set(EVICTED, True, "Preempted")
    seen = JobObservation(job=job, now=NOW, pods=PodCounts(live=4))
    assert (hold_of(seen, status), hold_deadline(seen, status)) == (Hold.RELEASING, None)


def test_quota_of_kueue_is_not_held_here() -> None:
    job = held_job(JobState.RUNNING, "Starting", was_ready=False)
    status = JobStatus(job, NOW)
    status.set(QUOTA_RESERVED, True, "AdmittedByKueue")
    assert hold_of(JobObservation(job=job, now=NOW, pods=PodCounts()), status) is None


def test_each_state_has_a_limit_or_pods() -> None:
    assert MINUTES.keys() == set(Hold)
