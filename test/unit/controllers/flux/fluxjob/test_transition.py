"""The steps of FluxJobs that the integration tests do not reach, or reach only by chance."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.api.flux.names import SUSPEND_ANNOTATION, JobState
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.flux.fluxjob.rendering import desired_minicluster
from cfo.controllers.flux.fluxjob.step import (
    JobObservation,
    JobStatus,
    JobStep,
    MiniClusterAction,
    state_of,
)
from cfo.controllers.flux.fluxjob.transition import decide_step, failed_step, refused_step
from cfo.controllers.flux.queue.model import PodCounts, ServicePod, Verdict
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.clock import rfc3339
from test.support.flux_environment import condition, flux_job, state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(
    current: JobState | None = JobState.WAITING,
    *,
    reserved: bool = False,
    generation: int = 1,
    **spec: Any,
) -> Object:
    """Return a FluxJob in the state ``current``."""
    obj = flux_job(**spec)
    obj["metadata"] |= {"uid": "1", "generation": 1}
    status = JobStatus(obj, NOW)
    if current is not None:
        status.enter(current)
        status.set(
            "QuotaReserved", reserved, "Admitted" if reserved else "InsufficientQuota", "message"
        )
        obj["status"] = status.as_object()
    obj["metadata"]["generation"] = generation
    return obj


def cluster_of(obj: Object, *true: str, suspended: bool = True, **status: Any) -> Object:
    """Return the MiniCluster of a FluxJob; the conditions ``true`` are true."""
    cluster = desired_minicluster(obj, {})
    cluster["metadata"] |= {"uid": "2", "generation": 1}
    if "suspend" in cluster["spec"]:
        cluster["spec"]["suspend"] = suspended
    conditions = [
        {"type": kind, "status": "True", "observedGeneration": 1, "message": kind} for kind in true
    ]
    cluster["status"] = {"conditions": conditions, **status}
    return cluster


def step(obj: Object, *, now: datetime = NOW, **seen: Any) -> tuple[JobStep, Object]:
    """Return the next step, and the job with the status that it writes."""
    result = decide_step(JobObservation(job=obj, now=now, **seen))
    after = {**obj, "status": result.status.as_object()}
    assert len(state(after)) == 1
    return result, after


def test_exactly_one_state_is_true_and_the_order_is_that_of_the_first_operator() -> None:
    _, after = step(job(None))
    kinds = [item["type"] for item in after["status"]["conditions"]]
    assert kinds == [
        "JobRequested",
        "JobWaitingForResources",
        "JobRunning",
        "JobMiniClusterReady",
        "JobFinished",
    ]
    assert all(item["reason"] == item["type"] for item in after["status"]["conditions"])
    assert after["status"]["jobid"] == "job-1"


@pytest.mark.parametrize("current", [JobState.REQUESTED, JobState.WAITING])
def test_job_without_verdict_does_not_change(current: JobState) -> None:
    obj = job(current)
    result, after = step(obj)
    assert after["status"] == obj["status"]
    assert result.action is MiniClusterAction.NONE


def test_job_that_changed_between_admission_and_creation_waits_again() -> None:
    _, after = step(job(reserved=True, generation=2, size=9))
    assert condition(after, "QuotaReserved")["reason"] == "SpecChanged"
    assert state(after) == [JobState.WAITING]


def test_job_that_gets_a_queue_label_between_admission_and_creation_is_left_to_kueue() -> None:
    obj = job(reserved=True)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    result, after = step(obj)
    assert (result.action, condition(after, "QuotaReserved")["status"]) == (
        MiniClusterAction.NONE,
        "False",
    )


def test_queue_label_of_the_minicluster_releases_no_quota_of_an_admitted_job() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    cluster = cluster_of(obj, "JobWaitingForResources", suspended=False)
    cluster["spec"]["jobLabels"] = {QUEUE_NAME_LABEL: "lq"}
    assert condition(step(obj, named_cluster=cluster)[1], "QuotaReserved")["status"] == "True"


def test_job_is_ready_only_when_the_objects_of_the_current_generation_exist() -> None:
    obj = job(reserved=True)
    cluster = cluster_of(obj, "ObjectsReady")
    assert state(step(obj, named_cluster=cluster)[1]) == [JobState.READY]
    cluster["metadata"]["generation"] = 2
    assert state(step(obj, named_cluster=cluster)[1]) == [JobState.WAITING]


def test_launch_is_visible_before_the_state_is_running() -> None:
    obj = job(JobState.READY, reserved=True)
    result, after = step(obj, named_cluster=cluster_of(obj, "ObjectsReady"))
    assert (result.action, state(after)) == (MiniClusterAction.LAUNCH, [JobState.READY])
    result, after = step(obj, named_cluster=cluster_of(obj, "ObjectsReady", suspended=False))
    assert (result.action, state(after)) == (MiniClusterAction.NONE, [JobState.RUNNING])
    assert after["status"]["startTime"]


def test_minicluster_that_was_made_smaller_is_launched_with_the_size_of_the_job() -> None:
    obj = job(JobState.READY, reserved=True, size=4)
    cluster = cluster_of(obj, "ObjectsReady")
    cluster["spec"]["size"] = 1
    result, _ = step(obj, named_cluster=cluster)
    assert (result.action, result.size) == (MiniClusterAction.LAUNCH, 4)
    cluster["spec"]["size"] = 4
    assert step(obj, named_cluster=cluster)[0].size == 0
    obj["spec"]["template"] = {"maxSize": 8}
    cluster["spec"]["size"] = 1
    assert step(obj, named_cluster=cluster)[0].size == 0, "an elastic job keeps its size"


def test_job_is_launched_if_the_crd_of_the_go_operator_has_no_suspend_field() -> None:
    obj = job(JobState.READY, reserved=True)
    cluster = cluster_of(obj, "ObjectsReady")
    del cluster["spec"]["suspend"]
    assert step(obj, named_cluster=cluster)[0].action is MiniClusterAction.LAUNCH
    cluster["metadata"]["annotations"][SUSPEND_ANNOTATION] = "false"
    assert state(step(obj, named_cluster=cluster)[1]) == [JobState.RUNNING]


def test_evicted_job_keeps_its_quota_until_it_is_drained() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    verdict = Verdict(reason="Preempted", message="Evicted")
    result, after = step(obj, named_cluster=cluster_of(obj, suspended=False), verdict=verdict)
    assert result.action is MiniClusterAction.SUSPEND
    assert condition(after, "QuotaReserved")["status"] == "True"
    result, after = step(after, named_cluster=cluster_of(obj), is_drained=False)
    assert condition(after, "QuotaReserved")["status"] == "True"
    result, after = step(after, named_cluster=cluster_of(obj), is_drained=True)
    assert condition(after, "QuotaReserved") | {"lastTransitionTime": ""} == {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Preempted",
        "message": "Evicted",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }


@pytest.mark.parametrize("errors", ["", "spec.size: 0"])
def test_resumed_minicluster_of_a_job_without_quota_is_suspended_again(errors: str) -> None:
    obj = job()
    result, after = step(
        obj, named_cluster=cluster_of(obj, suspended=False), validation_error=errors
    )
    assert (result.action, condition(after, "QuotaReserved")["status"]) == (
        MiniClusterAction.SUSPEND,
        "False",
    )
    assert (
        step(obj, named_cluster=cluster_of(obj), validation_error=errors)[0].action
        is MiniClusterAction.NONE
    )
    kueue = cluster_of(obj, suspended=False)
    kueue["spec"]["jobLabels"] = {QUEUE_NAME_LABEL: "lq"}
    assert step(obj, named_cluster=kueue, kueue_queue="lq")[0].action is MiniClusterAction.NONE
    for queue in ("", "other"):  # its FluxSetup has changed
        assert (
            step(obj, named_cluster=kueue, kueue_queue=queue)[0].action is MiniClusterAction.DELETE
        )


def evicted_job() -> Object:
    """Return a job that was evicted at NOW, and holds quota until its pods have ended."""
    obj = job(JobState.RUNNING, reserved=True)
    verdict = Verdict(reason="Preempted", message="Evicted")
    return step(obj, named_cluster=cluster_of(obj, suspended=False), verdict=verdict)[1]


def overdue_job() -> Object:
    """Return a job that has ended at NOW because of its deadline, although its MiniCluster had not."""
    obj = job(JobState.RUNNING, reserved=True, deadlineSeconds=60)
    obj["status"]["startTime"] = rfc3339(NOW - timedelta(minutes=3))
    ended, after = step(obj, named_cluster=cluster_of(obj, suspended=False), deletes_cluster=False)
    assert ended.action is MiniClusterAction.SUSPEND
    return after


@pytest.mark.parametrize("build", [evicted_job, job, overdue_job])
def test_minicluster_that_is_resumed_without_quota_is_deleted_after_30_seconds(
    build: Callable[[], Object],
) -> None:
    """A tenant that resumes it after each suspension must not keep the quota of others."""
    obj = build()
    resumed = cluster_of(obj, suspended=False)
    for seconds, action in (
        (1, MiniClusterAction.SUSPEND),
        (29, MiniClusterAction.SUSPEND),
        (30, MiniClusterAction.DELETE),
    ):
        now = NOW + timedelta(seconds=seconds)
        result, _ = step(obj, now=now, named_cluster=resumed, deletes_cluster=False)
        assert result.action is action
    assert [event[:2] for event in result.events] == [("Warning", "MiniClusterDeleted")]
    suspended = cluster_of(obj)
    result, _ = step(obj, now=now, named_cluster=suspended, deletes_cluster=False)
    assert result.action is MiniClusterAction.NONE
    waiting = job()
    finished = cluster_of(waiting, "JobFinished", suspended=False)
    result, _ = step(waiting, now=now, named_cluster=finished, deletes_cluster=False)
    assert result.action is MiniClusterAction.NONE


def test_evicted_job_is_released_although_its_minicluster_does_not_stop() -> None:
    obj = evicted_job()
    resumed = cluster_of(obj, suspended=False)
    for seconds, drained, reserved, requeue_after in (
        (10, False, "True", 20),
        (29, True, "True", 1),
        (30, False, "True", 0),
        (30, True, "False", 0),
    ):
        now = NOW + timedelta(seconds=seconds)
        result, after = step(obj, now=now, named_cluster=resumed, is_drained=drained)
        assert condition(after, "QuotaReserved")["status"] == reserved
        assert result.requeue_after == requeue_after


def test_suspended_minicluster_of_an_evicted_job_is_deleted_if_its_job_creates_pods() -> None:
    """Another webhook can refuse the suspension of the Job."""
    obj = evicted_job()
    for seconds, action in ((29, MiniClusterAction.NONE), (30, MiniClusterAction.DELETE)):
        now = NOW + timedelta(seconds=seconds)
        result, _ = step(obj, now=now, named_cluster=cluster_of(obj), creates_pods=True)
        assert result.action is action


def test_job_that_ends_before_its_eviction_is_finished() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    cluster = cluster_of(obj, "JobFinished", "Succeeded", suspended=False, exitCode=0)
    _, after = step(obj, named_cluster=cluster, verdict=Verdict(reason="Preempted", message=""))
    assert state(after) == [JobState.FINISHED]
    assert after["status"]["exitCode"] == 0


def test_exit_code_that_is_seen_after_the_end_of_a_failed_job_is_copied() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    cluster = cluster_of(obj, "JobFinished", suspended=False)
    ended = rfc3339(NOW - timedelta(seconds=2))
    cluster["status"]["completionTime"] = ended
    failed = {
        "type": "Succeeded",
        "status": "False",
        "reason": "BackoffLimitExceeded",
        "message": "The Job failed: m",
    }
    cluster["status"]["conditions"].append(failed)
    result, after = step(obj, named_cluster=cluster)
    assert state(after) == [JobState.FINISHED]
    assert "exitCode" not in after["status"]
    assert (result.action, result.requeue_after) == (MiniClusterAction.NONE, 8)

    cluster["status"]["exitCode"] = 3
    failed["message"] = "The command failed with exit code 3: m"
    result, completed = step(after, named_cluster=cluster)
    assert completed["status"]["exitCode"] == 3
    assert completed["status"]["completionTime"] == ended
    assert condition(completed, "Succeeded")["message"] == failed["message"]
    assert condition(completed, "JobFinished")["message"] == failed["message"]
    assert (result.action, result.events) == (MiniClusterAction.DELETE, [])
    assert step(completed, named_cluster=cluster)[1]["status"] == completed["status"]


def test_failed_minicluster_without_exit_code_is_deleted_after_some_seconds() -> None:
    obj = job(JobState.FINISHED)
    obj["status"]["completionTime"] = rfc3339(NOW - timedelta(seconds=10))
    failed = {"type": "Succeeded", "status": "False", "reason": "DeadlineExceeded", "message": "m"}
    obj["status"]["conditions"].append(failed)
    cluster = cluster_of(obj, "JobFinished")
    cluster["status"]["conditions"].append(failed)
    assert step(obj, named_cluster=cluster)[0].action is MiniClusterAction.DELETE


def test_exit_code_of_a_minicluster_that_did_not_end_the_job_is_not_copied() -> None:
    obj = job(JobState.FINISHED)
    obj["status"]["completionTime"] = rfc3339(NOW)
    failed = {"type": "Succeeded", "status": "False", "reason": "DeadlineExceeded", "message": "m"}
    obj["status"]["conditions"].append(failed)
    cluster = cluster_of(obj, "JobFinished", exitCode=137)
    cluster["status"]["conditions"].append({**failed, "reason": "BackoffLimitExceeded"})
    result, after = step(obj, named_cluster=cluster)
    assert "exitCode" not in after["status"]
    assert result.action is MiniClusterAction.DELETE


def failed_job(ended: datetime, *conditions: str) -> tuple[Object, Object]:
    """Return a job that failed at ``ended``, and its MiniCluster, whose Job has failed, with further conditions."""
    obj = job(JobState.FINISHED)
    failed = {"type": "Succeeded", "status": "False", "reason": "Failed", "message": "m"}
    obj["status"] |= {"exitCode": 3, "completionTime": rfc3339(ended)}
    obj["status"]["conditions"].append(failed)
    cluster = cluster_of(obj, *conditions, exitCode=3)
    cluster["status"]["conditions"].append(failed)
    return obj, cluster


def test_failed_minicluster_is_kept_for_some_time() -> None:
    obj, cluster = failed_job(NOW - timedelta(seconds=10), "JobFinished")
    kept = step(obj, named_cluster=cluster, keep_failed_seconds=60)[0]
    assert (kept.action, kept.requeue_after, kept.keeps_failure) == (
        MiniClusterAction.NONE,
        50,
        True,
    )
    for seconds in (0, 10):
        released = step(obj, named_cluster=cluster, keep_failed_seconds=seconds)[0]
        assert (released.action, released.keeps_failure) == (MiniClusterAction.DELETE, False)


def test_minicluster_that_may_have_running_pods_is_not_kept_after_a_failure() -> None:
    obj, cluster = failed_job(NOW, "JobRunning")
    released = step(obj, named_cluster=cluster, keep_failed_seconds=60)[0]
    assert (released.action, released.keeps_failure) == (MiniClusterAction.DELETE, False)


def test_minicluster_of_a_successful_job_is_not_kept_like_a_failed_one() -> None:
    obj, cluster = failed_job(NOW, "JobFinished")
    obj["status"]["conditions"][-1] = {"type": "Succeeded", "status": "True", "reason": "Succeeded"}
    result = step(obj, named_cluster=cluster, keep_failed_seconds=60)[0]
    assert result.action is MiniClusterAction.DELETE


def test_evicted_job_that_was_changed_gets_another_minicluster() -> None:
    obj = job()
    cluster = cluster_of(obj)
    obj["spec"]["size"] = 7
    assert step(obj, named_cluster=cluster)[0].action is MiniClusterAction.DELETE


def test_finished_job_is_cleaned_up_after_its_time() -> None:
    obj = job(JobState.FINISHED, ttlSecondsAfterFinished=60)
    obj["status"]["completionTime"] = rfc3339(NOW - timedelta(seconds=10))
    cluster = cluster_of(obj)
    result, _ = step(obj, named_cluster=cluster, keep_seconds=30)
    assert (result.action, result.requeue_after, result.delete_job) == (
        MiniClusterAction.NONE,
        20,
        False,
    )
    assert step(obj, named_cluster=cluster)[0].action is MiniClusterAction.DELETE
    assert (
        step(obj, named_cluster=cluster, deletes_cluster=False)[0].action is MiniClusterAction.NONE
    )
    obj["status"]["completionTime"] = rfc3339(NOW - timedelta(seconds=60))
    assert step(obj)[0].delete_job


def test_job_with_a_rejected_minicluster_fails() -> None:
    obj = job(reserved=True)
    after = {
        **obj,
        "status": failed_step(obj, NOW, "InvalidMiniCluster", "spec.size: 0").status.as_object(),
    }
    assert state_of(after) is JobState.FINISHED
    assert condition(after, "Succeeded")["message"] == "spec.size: 0"
    cluster = cluster_of(obj)
    cluster["status"]["conditions"].append(
        {"type": "Valid", "status": "False", "message": "spec.size: 0"}
    )
    assert state(step(obj, named_cluster=cluster)[1]) == [JobState.FINISHED]


def test_job_with_a_refused_minicluster_holds_no_quota_and_is_retried_after_a_pause() -> None:
    obj = job(reserved=True)
    refused = refused_step(obj, NOW, "exceeded quota")
    assert [event[:2] for event in refused.events] == [("Warning", "MiniClusterRefused")]
    obj["status"] = refused.status.as_object()
    result, after = step(obj, verdict=Verdict(reason="Admitted", message="Admitted"))
    assert (result.action, result.requeue_after, after["status"]) == (
        MiniClusterAction.NONE,
        60,
        obj["status"],
    )
    assert (
        condition(after, "QuotaReserved")["message"]
        == "The MiniCluster was refused: exceeded quota"
    )
    later = NOW + timedelta(seconds=60)
    obj["status"] = decide_step(JobObservation(job=obj, now=later)).status.as_object()
    assert condition(obj, "QuotaReserved")["reason"] == "Retrying"
    admitted, after = step(obj, verdict=Verdict(reason="Admitted", message="Admitted"))
    again = refused_step(after, later, "exceeded quota")
    assert admitted.events == again.events == []  # reported once
    _, after = step(after, named_cluster=cluster_of(obj))
    assert condition(after, "MiniClusterRefused") == {}


def launched(*true: str, **status: Any) -> tuple[Object, Object]:
    """Return a running job that was launched at NOW, and its MiniCluster with ``true`` conditions."""
    obj = job(JobState.RUNNING, reserved=True, size=4)
    obj["metadata"]["creationTimestamp"] = rfc3339(NOW)
    obj["status"]["startTime"] = rfc3339(NOW)
    return obj, cluster_of(obj, *true, suspended=False, **status)


def after(obj: Object, seconds: float, **seen: Any) -> JobStep:
    """Return the step ``seconds`` after NOW; the job then has the status that it writes."""
    result = decide_step(JobObservation(job=obj, now=NOW + timedelta(seconds=seconds), **seen))
    obj["status"] = result.status.as_object()
    return result


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        pytest.param(PodCounts(), 300, id="none"),
        pytest.param(PodCounts(live=3), 300, id="some"),
        pytest.param(PodCounts(live=2, ended=1), 300, id="more are missing than have failed"),
        pytest.param(PodCounts(live=2, ended=2), 900, id="failed ones are replaced"),
    ],
)
def test_quota_of_a_launched_job_without_its_pods_is_released(
    pods: PodCounts, seconds: int
) -> None:
    obj, cluster = launched("JobMiniClusterReady")
    assert after(obj, 10, named_cluster=cluster, pods=pods).requeue_after == 20
    assert condition(obj, "PodsReady")["reason"] == "Starting"
    found = after(obj, 30, named_cluster=cluster, pods=pods)
    assert (condition(obj, "PodsReady")["reason"], found.requeue_after) == ("PodsMissing", seconds)
    waiting = after(obj, 29 + seconds, named_cluster=cluster, pods=pods)
    assert (waiting.action, waiting.requeue_after) == (MiniClusterAction.NONE, 1)
    evicted = after(obj, 30 + seconds, named_cluster=cluster, pods=pods)
    assert evicted.action is MiniClusterAction.SUSPEND
    assert [event[:2] for event in evicted.events] == [("Warning", "StartTimeout")]
    suspended = cluster_of(obj, suspended=True)
    after(obj, 31 + seconds, named_cluster=suspended, is_drained=True)
    reserved = condition(obj, "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "StartTimeout")
    missing = 4 - pods.live
    assert re.search(f"{missing} pods? do(es)? not exist", reserved["message"])


def test_pods_that_the_minicluster_misses_a_moment_earlier_have_the_same_deadline() -> None:
    """The startTime of a Job has no fractions."""
    obj, cluster = launched("JobMiniClusterReady")
    problem = {"type": "PodsReady", "status": "False", "reason": "PodsMissing", "message": "none"}
    cluster["status"]["conditions"].append(problem)
    missed = after(obj, 29.5, named_cluster=cluster, pods=PodCounts())
    assert (condition(obj, "PodsReady")["reason"], missed.requeue_after) == ("PodsMissing", 300)
    assert not missed.exceeds_quota
    problem["message"] = "1 of 4 pods cannot be created: exceeded quota: q, requested: pods=1"
    assert after(obj, 30, named_cluster=cluster, pods=PodCounts()).exceeds_quota
    after(obj, 329.5, named_cluster=cluster, pods=PodCounts())
    assert condition(obj, "Evicted")["reason"] == "StartTimeout"


WARMUP = 900
PENDING = PodCounts(live=4, pending=4)


@pytest.mark.parametrize(
    ("problem", "obstacle"),
    [
        pytest.param(
            {"reason": "ImagePullBackOff", "message": "Pod job-0-x: container job: not found"},
            "ImagePullBackOff: Pod job-0-x: container job: not found",
            id="image",
        ),
        pytest.param(
            {"reason": "Unschedulable", "message": "Pod job-0-x: 0/1 nodes are available"},
            "Unschedulable: Pod job-0-x: 0/1 nodes are available",
            id="no node",
        ),
        pytest.param(
            None,
            "4 pods have not started, and their Events say why: kubectl get events -n ns",
            id="containers are not created",
        ),
    ],
)
def test_quota_of_a_job_with_pods_that_do_not_start_is_released(
    problem: Object | None, obstacle: str
) -> None:
    obj, cluster = launched("JobMiniClusterReady")
    if problem is not None:
        condition_of_pods = {"type": "PodsReady", "status": "False", **problem}
        cluster["status"]["conditions"].append(condition_of_pods)
    after(obj, 0, named_cluster=cluster, pods=PodCounts())
    waiting = after(obj, WARMUP - 1, named_cluster=cluster, pods=PENDING)
    assert (waiting.action, waiting.requeue_after) == (MiniClusterAction.NONE, 1)
    evicted = after(obj, WARMUP, named_cluster=cluster, pods=PENDING)
    assert evicted.action is MiniClusterAction.SUSPEND
    message = f"The job could not start in time: {obstacle}"
    assert evicted.events[0] == ("Warning", "StartTimeout", message)
    suspended = cluster_of(obj, suspended=True)
    after(obj, WARMUP + 1, named_cluster=suspended, is_drained=True)
    reserved = condition(obj, "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "StartTimeout")
    assert reserved["message"] == message
    assert "startingSince" not in obj["status"]


@pytest.mark.parametrize(
    ("pods", "true", "spec", "holds"),
    [
        pytest.param(PodCounts(live=4), [], {}, True, id="not ready, but all have started"),
        pytest.param(
            PodCounts(live=4, pending=1), ["JobRunning"], {"minSize": 3}, True, id="ready brokers"
        ),
        pytest.param(PENDING, ["JobRunning"], {}, False, id="brokers are ready in other pods"),
        pytest.param(PodCounts(live=4, pending=1), [], {"minSize": 3}, True, id="a quorum"),
        pytest.param(PodCounts(live=4, pending=2), [], {"minSize": 3}, False, id="no quorum"),
        pytest.param(PodCounts(live=8, pending=4), [], {}, False, id="further pods have started"),
        pytest.param(None, [], {}, True, id="the queue has not started"),
    ],
)
def test_job_of_which_enough_pods_have_started_keeps_its_quota(
    pods: PodCounts | None, true: list[str], spec: Object, holds: bool
) -> None:
    obj, cluster = launched("JobMiniClusterReady", *true)
    cluster["spec"] |= spec
    obj["status"]["startingSince"] = rfc3339(NOW)
    after(obj, WARMUP, named_cluster=cluster, pods=pods)
    assert bool(condition(obj, "Evicted")) is not holds
    has_started = holds and pods is not None
    assert ("startingSince" in obj["status"]) is not has_started


def test_time_for_the_start_is_configurable() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    grace = timedelta(hours=2)
    after(obj, 0, named_cluster=cluster, pods=PENDING)
    after(obj, 7199, named_cluster=cluster, pods=PENDING, warmup_grace=grace)
    assert condition(obj, "Evicted") == {}
    after(obj, 7200, named_cluster=cluster, pods=PENDING, warmup_grace=grace)
    assert condition(obj, "Evicted")["reason"] == "StartTimeout"


def test_changes_of_pods_and_minicluster_do_not_prolong_the_start() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    for start in (0, 400):
        after(obj, start + 50, named_cluster=cluster, pods=PENDING)
        after(obj, start + 100, pods=PodCounts())  # its MiniCluster was deleted
        after(obj, start + 110, named_cluster=cluster_of(obj, "ObjectsReady"), pods=PodCounts())
        after(obj, start + 120, named_cluster=cluster, pods=PENDING)
        after(obj, start + 300, named_cluster=cluster, pods=PodCounts(live=3, pending=3))
        after(obj, start + 310, named_cluster=cluster, pods=PENDING)
    assert condition(obj, "Evicted") == {}
    after(obj, 50 + WARMUP, named_cluster=cluster, pods=PENDING)
    assert condition(obj, "Evicted")["reason"] == "StartTimeout"


def test_pods_that_are_replaced_later_get_the_time_for_the_start_again() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    after(obj, 0, named_cluster=cluster, pods=PENDING)
    after(obj, 60, named_cluster=cluster, pods=PodCounts(live=4))
    after(obj, 5000, named_cluster=cluster, pods=PodCounts(live=4, pending=1))
    replaced = after(obj, 5000 + WARMUP - 1, named_cluster=cluster, pods=PENDING)
    assert (condition(obj, "Evicted"), replaced.requeue_after) == ({}, 1)


def test_job_with_pods_that_are_created_late_keeps_its_quota() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    after(obj, 30, named_cluster=cluster, pods=PodCounts(live=1))
    late = after(obj, 200, named_cluster=cluster, pods=PodCounts(live=4))
    assert (condition(obj, "PodsReady")["reason"], late.requeue_after) == ("Starting", 300)
    after(obj, 500, named_cluster=cluster, pods=PodCounts(live=3))
    assert condition(obj, "QuotaReserved")["status"] == "True"


@pytest.mark.parametrize(
    ("missing", "existing", "holds"),
    [
        pytest.param(110, 2, False, id="pods exist for moments"),
        pytest.param(200, 150, False, id="pods exist for less than half of the time"),
        pytest.param(0.5, 0.2, False, id="changes within a second"),
        pytest.param(200, 200, True, id="pods exist for half of the time"),
        pytest.param(10, 600, True, id="pods are replaced at times"),
    ],
)
def test_pods_that_exist_for_one_job_after_the_other_keep_no_quota(
    missing: float, existing: float, holds: bool
) -> None:
    obj, cluster = launched("JobMiniClusterReady")

    def pass_time(start: float, seconds: float, pods: PodCounts) -> None:
        """Take steps at ``start``, by the event of its own write, and when a step has asked for it."""
        moment = start
        while moment < start + seconds and not condition(obj, "Evicted"):
            after(obj, moment, named_cluster=cluster, pods=pods)
            taken = after(obj, moment, named_cluster=cluster, pods=pods)
            moment += taken.requeue_after or seconds

    start = 30.0
    while start < 3600:
        pass_time(start, missing, PodCounts(live=3))
        pass_time(start + missing, existing, PodCounts(live=4))
        start += missing + existing
    assert bool(condition(obj, "Evicted")) is not holds
    if not holds:
        after(obj, start, named_cluster=cluster_of(obj, suspended=True), is_drained=True)
        assert condition(obj, "QuotaReserved")["reason"] == "StartTimeout"
    else:
        after(obj, start, named_cluster=cluster_of(obj, "JobFinished"))
    assert "podsMissingSeconds" not in obj["status"]


def test_job_with_a_smaller_minicluster_needs_the_pods_of_its_own_size() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    cluster["spec"]["size"] = 1
    after(obj, 30, named_cluster=cluster, pods=PodCounts(live=1))
    assert condition(obj, "PodsReady")["message"].startswith("3 pods do not exist")
    evicted = after(obj, 330, named_cluster=cluster, pods=PodCounts(live=1))
    assert [event[1] for event in evicted.events] == ["StartTimeout"]


def test_job_with_a_smaller_minicluster_needs_the_pods_of_the_default_size() -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning")
    del obj["spec"]["size"]
    cluster["spec"]["size"] = 1
    after(obj, 30, named_cluster=cluster, pods=PodCounts(live=1), default_size=4)
    assert condition(obj, "PodsReady")["message"].startswith("3 pods do not exist")


def launched_with_services(*true: str, problem: str = "") -> tuple[Object, Object]:
    """Return a launched job with services, and its MiniCluster; ``problem``: why objects are missing."""
    obj, cluster = launched("JobMiniClusterReady", *true)
    cluster["spec"]["services"] = [{"name": "db", "image": "db"}]
    if problem:
        refused = {"reason": "FailedToWrite", "message": problem}
        objects_ready = {"type": "ObjectsReady", "status": "False", **refused}
        cluster["status"]["conditions"].append(objects_ready)
    return obj, cluster


def with_service(service: ServicePod, *, is_large: bool = True) -> PodCounts:
    """Return the pods of a job whose brokers run."""
    return PodCounts(live=4, service=service, has_large_service=is_large)


@pytest.mark.parametrize(
    ("service", "problem", "message"),
    [
        pytest.param(
            ServicePod.MISSING,
            'pods "job-services" is forbidden: exceeded quota: gpus',
            'The service pod job-services does not exist: pods "job-services" is forbidden: exceeded quota: gpus. ',
            id="refused",
        ),
        pytest.param(
            ServicePod.MISSING, "", "The service pod job-services does not exist. ", id="deleted"
        ),
        pytest.param(
            ServicePod.ENDED,
            "",
            "The service pod job-services has ended, and the job holds quota for it. ",
            id="ended",
        ),
        pytest.param(
            ServicePod.SMALL,
            "",
            "The service pod job-services does not count, because it requests less than a quarter of the CPU or ",
            id="small",
        ),
    ],
)
@pytest.mark.parametrize("was_ready", [False, True])
def test_quota_of_a_job_without_its_service_pod_is_released(
    service: ServicePod, problem: str, message: str, was_ready: bool
) -> None:
    obj, cluster = launched_with_services("JobRunning", problem=problem)
    if was_ready:
        after(obj, 10, named_cluster=cluster, pods=with_service(ServicePod.STARTED))
        assert condition(obj, "PodsReady")["reason"] == "BrokersReady"
    pods = with_service(service)
    found = after(obj, 30, named_cluster=cluster, pods=pods)
    missing = condition(obj, "PodsReady")
    assert (missing["reason"], found.requeue_after) == ("PodsMissing", 300)
    assert missing["message"].startswith(message)
    after(obj, 329, named_cluster=cluster, pods=pods)
    assert condition(obj, "Evicted") == {}
    evicted = after(obj, 330, named_cluster=cluster, pods=pods)
    assert evicted.action is MiniClusterAction.SUSPEND
    ((kind, reason, text),) = (item for item in evicted.events if item[1] == "StartTimeout")
    assert (kind, reason) == ("Warning", "StartTimeout")
    assert message in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "no services",
            "The service pod job-services does not exist: the MiniCluster has no services. ",
        ),
        ("UpToDate", "The service pod job-services does not exist: The spec was changed. "),
    ],
)
def test_message_names_the_change_of_the_minicluster_that_has_no_service_pod(
    change: str, message: str
) -> None:
    obj, cluster = launched_with_services()
    if change == "no services":
        del cluster["spec"]["services"]
    else:
        changed = {"type": "UpToDate", "status": "False", "message": "The spec was changed."}
        cluster["status"]["conditions"].append(changed)
    after(obj, 30, named_cluster=cluster, pods=with_service(ServicePod.MISSING))
    assert condition(obj, "PodsReady")["message"].startswith(message)


@pytest.mark.parametrize("was_ready", [False, True])
@pytest.mark.parametrize(
    ("pending", "subject"),
    [
        (0, "The service pod job-services has not started, and its"),
        (2, "The service pod job-services and 2 others have not started, and their"),
    ],
)
def test_quota_for_a_service_pod_that_does_not_start_is_released(
    pending: int, subject: str, was_ready: bool
) -> None:
    obj, cluster = launched_with_services(*(["JobRunning"] if was_ready else []))
    pods = PodCounts(live=4, pending=pending, service=ServicePod.PENDING, has_large_service=True)
    if was_ready:
        after(obj, 0, named_cluster=cluster, pods=with_service(ServicePod.STARTED))
    after(obj, 1, named_cluster=cluster, pods=pods)
    after(obj, WARMUP, named_cluster=cluster, pods=pods)
    assert condition(obj, "Evicted") == {}
    after(obj, 1 + WARMUP, named_cluster=cluster, pods=pods)
    evicted = condition(obj, "Evicted")
    assert evicted["message"] == (
        f"The job could not start in time: {subject} Events say why: kubectl get events -n ns"
    )


def test_service_pod_that_exists_for_moments_keeps_no_quota() -> None:
    obj, cluster = launched_with_services("JobRunning")
    for number in range(7):
        begin = 30 + number * 61
        for _ in range(2):  # the second is by the event of its own write
            after(obj, begin, named_cluster=cluster, pods=with_service(ServicePod.MISSING))
        after(obj, begin + 60, named_cluster=cluster, pods=with_service(ServicePod.PENDING))
    assert condition(obj, "Evicted")["reason"] == "StartTimeout"


def test_brokers_are_ready_while_their_service_pod_exists_or_has_ended() -> None:
    for service in ServicePod:
        obj, cluster = launched_with_services("JobRunning")
        after(obj, 10, named_cluster=cluster, pods=with_service(service, is_large=False))
        is_absent = service in (ServicePod.MISSING, ServicePod.SMALL)
        expected = "Starting" if is_absent else "BrokersReady"
        assert condition(obj, "PodsReady")["reason"] == expected


def test_pods_of_a_job_that_ran_are_counted_again_after_a_restart() -> None:
    """The queue may count them only after the job was reconciled."""
    obj, cluster = launched_with_services("JobRunning")
    running = with_service(ServicePod.STARTED)
    assert after(obj, 60, named_cluster=cluster, pods=running).requeue_after == 0
    assert after(obj, 600, named_cluster=cluster, pods=None).requeue_after == 300


def test_service_pod_that_is_deleted_soon_after_the_launch_is_missed_later() -> None:
    obj, cluster = launched_with_services("JobRunning")
    after(obj, 10, named_cluster=cluster, pods=with_service(ServicePod.STARTED))
    deleted = after(obj, 20, named_cluster=cluster, pods=with_service(ServicePod.MISSING))
    assert deleted.requeue_after == 10


def test_job_that_has_ended_does_not_miss_its_service_pod() -> None:
    """The service pod is deleted before the MiniCluster reports the end."""
    obj, cluster = launched_with_services("JobRunning")
    after(obj, 10, named_cluster=cluster, pods=with_service(ServicePod.STARTED))
    ended = PodCounts(ended=4, service=ServicePod.MISSING, has_large_service=True)
    after(obj, 60, named_cluster=cluster, pods=ended)
    assert "service pod" not in condition(obj, "PodsReady")["message"]


@pytest.mark.parametrize(
    "deadline", [{"deadlineSeconds": 100}, {"template": {"deadlineSeconds": 100}}]
)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_job_ends_after_its_deadline_also_if_its_minicluster_has_a_later_one(
    deadline: dict[str, Any], is_deleted: bool
) -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning")
    obj["spec"] |= deadline
    cluster["spec"]["deadlineSeconds"] = 10**7
    pods = PodCounts(live=4)
    assert after(obj, 0, named_cluster=cluster, pods=pods).requeue_after == 160
    assert after(obj, 159, named_cluster=cluster, pods=pods).requeue_after == 1
    seen = {} if is_deleted else {"named_cluster": cluster}
    ended = after(obj, 160, pods=pods, **seen)
    assert state(obj) == [JobState.FINISHED]
    succeeded = condition(obj, "Succeeded")
    assert (succeeded["status"], succeeded["reason"]) == ("False", "DeadlineExceeded")
    expected = MiniClusterAction.NONE if is_deleted else MiniClusterAction.SUSPEND
    assert ended.action is expected


def test_result_of_a_job_that_ended_at_its_deadline_is_that_of_its_minicluster() -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning", "JobFinished", "Succeeded")
    obj["spec"]["deadlineSeconds"] = 100
    after(obj, 500, named_cluster=cluster)
    assert condition(obj, "Succeeded")["status"] == "True"


def test_pods_count_as_missing_while_a_deleted_minicluster_is_created_again() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    for start in (30, 120, 210):
        after(obj, start, named_cluster=cluster, pods=PodCounts(live=4))
        assert condition(obj, "PodsReady")["reason"] == "Starting"
        deleted = after(obj, start + 5, pods=PodCounts())
        assert deleted.action is MiniClusterAction.CREATE
        assert state(obj) == [JobState.WAITING]
        assert condition(obj, "PodsReady")["reason"] == "PodsMissing"
        after(obj, start + 85, named_cluster=cluster_of(obj, "ObjectsReady"), pods=PodCounts())
        assert state(obj) == [JobState.READY]
    after(obj, 300, named_cluster=cluster, pods=PodCounts(live=4))
    after(obj, 305, pods=PodCounts())
    evicted = after(obj, 305 + 300 - 3 * (85 - 5), named_cluster=cluster_of(obj), pods=PodCounts())
    assert [event[1] for event in evicted.events] == ["StartTimeout"]


@pytest.mark.parametrize(
    ("pods", "status", "reason"),
    [
        (PodCounts(live=1, ended=3), {}, "BrokersReady"),
        (PodCounts(ended=4), {"exitCode": 1}, "PodsMissing"),
        (PodCounts(), {}, "PodsMissing"),
        (None, {}, "BrokersReady"),
    ],
)
def test_job_that_ran_keeps_its_quota_while_it_has_a_pod(
    pods: PodCounts | None, status: Object, reason: str
) -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning", **status)
    after(obj, 10, named_cluster=cluster, pods=PodCounts(live=4))
    assert condition(obj, "PodsReady")["reason"] == "BrokersReady"
    for seconds in (60, 60 + 899):
        after(obj, seconds, named_cluster=cluster, pods=pods)
        assert condition(obj, "PodsReady")["reason"] == reason
        assert condition(obj, "QuotaReserved")["status"] == "True"
        if pods is not None and reason == "PodsMissing" and not pods.ended:
            return  # it is evicted earlier
    after(obj, 60 + 900, named_cluster=cluster, pods=pods)
    assert bool(condition(obj, "Evicted")) is (reason == "PodsMissing")


@pytest.mark.parametrize("pods", [PodCounts(ended=4), PodCounts(small=1, ended=1), PodCounts()])
def test_job_that_has_succeeded_ends_without_its_minicluster_if_it_has_no_pod(
    pods: PodCounts,
) -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning")
    after(obj, 10, named_cluster=cluster, pods=PodCounts(live=4))
    cluster["status"]["exitCode"] = 0
    after(obj, 5000, named_cluster=cluster, pods=PodCounts(live=1, ended=3))
    assert condition(obj, "PodsReady")["reason"] == "BrokersReady"
    waiting = after(obj, 6000, named_cluster=cluster, pods=pods)
    assert (condition(obj, "PodsReady")["reason"], waiting.requeue_after) == ("PodsMissing", 300)
    after(obj, 6299, named_cluster=cluster, pods=pods)
    assert state(obj) == [JobState.RUNNING]
    ended = after(obj, 6300, named_cluster=cluster, pods=pods)
    assert state(obj) == [JobState.FINISHED]
    assert condition(obj, "QuotaReserved")["status"] == "False"
    assert (condition(obj, "Succeeded")["status"], obj["status"]["exitCode"]) == ("True", 0)
    assert ended.action is MiniClusterAction.SUSPEND
    assert "brokersReadySince" not in obj["status"]


def test_brokers_of_a_part_of_the_pods_are_ready_only_when_all_pods_have_existed() -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning")
    cluster["spec"]["minSize"] = 1
    after(obj, 40, named_cluster=cluster, pods=PodCounts(live=3))
    assert condition(obj, "PodsReady")["message"].startswith("1 pod does not exist.")
    after(obj, 60, named_cluster=cluster, pods=PodCounts(live=4, pending=3))
    assert condition(obj, "PodsReady")["reason"] == "BrokersReady"
    problem = {"type": "PodsReady", "status": "False", "reason": "PodsMissing", "message": "m"}
    cluster["status"]["conditions"].append(problem)
    for seconds in (5000, 6000):
        after(obj, seconds, named_cluster=cluster, pods=PodCounts(live=1))
        assert condition(obj, "Evicted") == {}


@pytest.mark.parametrize(
    ("pods", "missing"),
    [
        pytest.param(PodCounts(live=1, small=3), ["3 pods do not count"], id="one own pod"),
        pytest.param(
            PodCounts(small=3), ["1 pod does not exist", "3 pods do not count"], id="too few pods"
        ),
        pytest.param(PodCounts(small=9), ["4 pods do not count"], id="more than the brokers"),
    ],
)
@pytest.mark.parametrize("reported", [False, True])
def test_brokers_that_are_ready_in_other_pods_keep_no_quota(
    pods: PodCounts, missing: list[str], reported: bool
) -> None:
    obj, cluster = launched("JobMiniClusterReady", "JobRunning")
    if reported:
        problem = {"type": "PodsReady", "status": "False", "reason": "PodsMissing", "message": "m"}
        cluster["status"]["conditions"].append(problem)
    after(obj, 10, named_cluster=cluster, pods=pods)
    assert condition(obj, "PodsReady")["reason"] != "BrokersReady"
    after(obj, 40, named_cluster=cluster, pods=pods)
    assert condition(obj, "PodsReady")["reason"] == "PodsMissing"
    after(obj, 100, named_cluster=cluster)  # the queue has not started
    assert condition(obj, "PodsReady")["reason"] != "BrokersReady"
    after(obj, 101, named_cluster=cluster, pods=pods)
    after(obj, 500, named_cluster=cluster, pods=pods)
    evicted = condition(obj, "Evicted")
    assert evicted["reason"] == "StartTimeout"
    for text in missing:
        assert text in evicted["message"]


@pytest.mark.parametrize("exists", [True, False])
def test_quota_of_an_admitted_job_without_its_objects_is_released(exists: bool) -> None:
    obj = job(reserved=True)
    cluster = None
    if exists:
        cluster = cluster_of(obj)
        message = "Job sample is being deleted."
        cluster["status"]["conditions"].append(
            {"type": "ObjectsReady", "status": "False", "reason": "Deleting", "message": message}
        )
    waiting = after(obj, 299, named_cluster=cluster)
    assert waiting.requeue_after == 1
    after(obj, 300, named_cluster=cluster, is_drained=True)
    assert condition(obj, "QuotaReserved")["reason"] == "StartTimeout"


def test_job_that_kueue_admitted_is_left_to_kueue() -> None:
    obj, cluster = launched("JobMiniClusterReady")
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    condition(obj, "QuotaReserved")["reason"] = "AdmittedByKueue"
    for pods in (PodCounts(), PENDING):
        for seconds in (60, 2000):
            step_taken = after(obj, seconds, named_cluster=cluster, pods=pods)
            assert (step_taken.action, step_taken.requeue_after) == (MiniClusterAction.NONE, 0)
    assert condition(obj, "Evicted") == {}


@pytest.mark.parametrize(("age", "pause"), [(0, 60), (400, 400), (5000, 600)])
def test_job_that_could_not_start_is_retried_after_a_pause_that_grows(age: int, pause: int) -> None:
    obj = job()
    obj["metadata"]["creationTimestamp"] = rfc3339(NOW - timedelta(seconds=age))
    reserved = condition(obj, "QuotaReserved")
    reserved["reason"] = "StartTimeout"
    admitted = Verdict(reason="Admitted", message="Admitted")
    assert after(obj, pause - 1, verdict=admitted).requeue_after == 1
    changed = {**obj, "metadata": {**obj["metadata"], "generation": 2}}
    assert condition(step(changed, verdict=admitted)[1], "QuotaReserved")["status"] == "True"
    after(obj, pause, verdict=admitted)
    assert condition(obj, "QuotaReserved")["reason"] == "Retrying"
    after(obj, pause, verdict=admitted)
    assert condition(obj, "QuotaReserved")["status"] == "True"


def test_job_follows_kueue_until_it_ends() -> None:
    obj = job()
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    result, after = step(obj, verdict=Verdict(reason="WaitingForKueue", message="Waiting"))
    assert result.action is MiniClusterAction.CREATE
    _, after = step(after, named_cluster=cluster_of(obj, "JobWaitingForResources"))
    assert state(after) == [JobState.WAITING]
    changed = {**after, "spec": {**after["spec"], "command": "other"}}
    assert (
        step(changed, named_cluster=cluster_of(obj, "JobMiniClusterReady"))[0].action
        is MiniClusterAction.DELETE
    )
    _, after = step(after, named_cluster=cluster_of(obj, "ObjectsReady", "JobMiniClusterReady"))
    assert (state(after), condition(after, "QuotaReserved")["reason"]) == (
        [JobState.READY],
        "AdmittedByKueue",
    )
    _, after = step(after, named_cluster=cluster_of(obj, "ObjectsReady", "JobMiniClusterReady"))
    assert state(after) == [JobState.RUNNING]
    _, after = step(after, named_cluster=cluster_of(obj, "ObjectsReady", "JobWaitingForResources"))
    assert (state(after), condition(after, "QuotaReserved")["status"]) == (
        [JobState.WAITING],
        "False",
    )


def test_job_in_a_queue_of_kueue_names_the_object_that_has_its_name() -> None:
    obj = job()
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    _, after = step(obj, verdict=Verdict(reason="WaitingForKueue", message="Waiting"))
    cluster = cluster_of(obj, "JobWaitingForResources")
    message = "Job sample already exists and does not belong to this MiniCluster."
    cluster["status"]["conditions"].append(
        {"type": "ObjectsReady", "status": "False", "reason": "NameTaken", "message": message}
    )
    result, after = step(after, named_cluster=cluster)
    reserved = condition(after, "QuotaReserved")
    assert (reserved["reason"], reserved["message"]) == ("NameTaken", message)
    assert [text for _, _, text in result.events] == [message]


def test_job_reports_why_a_pod_of_its_minicluster_cannot_start() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    cluster = cluster_of(obj, suspended=False)
    obj["status"]["startTime"] = rfc3339(NOW)
    _, starting = step(obj, named_cluster=cluster)
    assert condition(starting, "PodsReady")["reason"] == "Starting"
    message = "Pod job-0-x: container job: image not found"
    problem = {
        "type": "PodsReady",
        "status": "False",
        "reason": "ImagePullBackOff",
        "message": message,
    }
    cluster["status"]["conditions"].append(problem)
    result, failing = step(starting, named_cluster=cluster)
    assert result.events == [("Warning", "PodsNotReady", message)]
    assert condition(failing, "PodsReady")["message"] == message
    assert condition(failing, "JobRunning")["message"] == message
    again, _ = step(failing, named_cluster=cluster)
    assert again.events == []
    cluster["status"]["conditions"] = [{"type": "JobRunning", "status": "True"}]
    _, ready = step(failing, named_cluster=cluster, pods=PodCounts(live=2))
    assert condition(ready, "PodsReady")["status"] == "True"
    refused = refused_step(failing, NOW, "exceeded quota").status
    assert refused.find("PodsReady") == {}


@pytest.mark.parametrize(
    ("is_previous", "is_deleting", "reason"),
    [(True, True, "Admitted"), (False, True, "NameTaken"), (False, False, "NameTaken")],
    ids=["the previous one is being deleted", "another one is being deleted", "another one"],
)
def test_job_waits_for_its_previous_minicluster_and_releases_its_quota_to_no_other(
    is_previous: bool, is_deleting: bool, reason: str
) -> None:
    obj = job(reserved=True)
    cluster = cluster_of(obj)
    if not is_previous:
        cluster["metadata"]["ownerReferences"] = []
    if is_deleting:
        cluster["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    result, after = step(obj, named_cluster=cluster)
    assert condition(after, "QuotaReserved")["reason"] == reason
    assert state(after) == [JobState.WAITING]
    assert result.action is MiniClusterAction.NONE


def test_deleted_minicluster_of_a_running_job_is_created_again() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    obj["status"]["miniCluster"] = "job"
    result, after = step(obj)
    assert result.action is MiniClusterAction.CREATE
    assert state(after) == [JobState.WAITING]
    assert [reason for _, reason, _ in result.events] == ["MiniClusterDeleted"]


def test_suspended_job_releases_its_quota_when_its_pods_are_deleted() -> None:
    obj = job(JobState.RUNNING, reserved=True, suspend=True)
    result, after = step(obj, named_cluster=cluster_of(obj, suspended=False))
    assert result.action is MiniClusterAction.SUSPEND
    assert condition(after, "QuotaReserved")["status"] == "True"
    _, after = step(after, named_cluster=cluster_of(obj), is_drained=True)
    released = condition(after, "QuotaReserved")
    assert (released["status"], released["reason"]) == ("False", "Suspended")


def test_change_of_a_running_job_is_reported_once_and_ignored() -> None:
    obj = job(JobState.RUNNING, reserved=True)
    cluster = cluster_of(obj, "ObjectsReady", suspended=False)
    obj["spec"]["size"] = 7
    result, after = step(obj, named_cluster=cluster)
    assert condition(after, "UpToDate")["reason"] == "UpdateIgnored"
    assert "UpdateIgnored" in [reason for _, reason, _ in result.events]
    result, after = step(after, named_cluster=cluster)
    assert result.events == []
    after["spec"]["size"] = cluster["spec"]["size"]
    _, reverted = step(after, named_cluster=cluster)
    kinds = [item["type"] for item in reverted["status"]["conditions"]]
    assert "UpToDate" not in kinds
