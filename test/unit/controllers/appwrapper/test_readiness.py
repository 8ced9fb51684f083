"""Decisions about pods of AppWrappers that do not run yet: what is reported, and when it is given up."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from cfo.api.appwrapper.names import (
    PODS_READY,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.controllers.appwrapper.decision import WrapperDecision
from cfo.controllers.appwrapper.observer import WrapperObserver
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.controllers.pod_status import PodFailure, PodStatus
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process import printable
from test.support.observations import (
    observe,
    seconds_later,
)
from test.support.wrapper_steps import (
    FAILED_POD,
    PENDING_POD,
    RUNNING_POD,
    SUCCEEDED_POD,
    condition,
    phase,
    queued,
    running_component,
    running_wrapper,
    step,
)


def test_pods_of_a_failed_appwrapper_are_not_ready() -> None:
    """Also while they are kept for their logs."""
    obj = running_wrapper(
        failureGracePeriodDuration="0s",
        retryLimit="0",
        deletionOnFailureGracePeriodDuration="1h",
    )
    obj, _ = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert condition(obj, PODS_READY)["status"] == "True"
    obj, _ = step(obj, pods=[RUNNING_POD, FAILED_POD])
    obj, _ = step(obj, pods=[RUNNING_POD, FAILED_POD])
    ready = condition(obj, PODS_READY)
    assert (ready["status"], ready["reason"]) == ("False", "Failed")
    assert ready["message"] == "The AppWrapper has failed"
    assert phase(obj) == Phase.FAILED


def waiting(reason: str, message: str = "", **fields: Any) -> WrapperPod:
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}, **fields}
    return WrapperPod("Pending", status=msgspec.convert({"containerStatuses": [state]}, PodStatus))


def unschedulable(message: str) -> WrapperPod:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return WrapperPod("Pending", status=msgspec.convert({"conditions": [condition]}, PodStatus))


PULL_BACKOFF = waiting("ImagePullBackOff", 'Back-off "x:9"')


PULLING = 'ImagePullBackOff (container main: Back-off "x:9")'


CRASHED = {"lastState": {"terminated": {"exitCode": 3}}, "restartCount": 2}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([PENDING_POD], ""),
        ([], "; 1 pods missing"),
        ([waiting("ContainerCreating")], "; 1 waiting pods: ContainerCreating (Pod p0)"),
        (
            [
                PULL_BACKOFF,
                waiting("ContainerCreating"),
                RUNNING_POD,
                PULL_BACKOFF,
                unschedulable("0/3 nodes"),
            ],
            f"; 2 waiting pods: {PULLING}; 1 waiting pods: ContainerCreating (Pod p1); 1 more causes",
        ),
        (
            [waiting("CrashLoopBackOff", **CRASHED)],
            "; 1 waiting pods: CrashLoopBackOff (container main exited with code 3, 2 restarts)",
        ),
        (
            [unschedulable("\x1b" + "x" * 9999)],
            f"; 1 waiting pods: Unschedulable (\\x1b{'x' * 296}...)",
        ),
    ],
)
def test_pods_that_did_not_start_leave_their_cause_in_condition_and_event(
    pods: list[WrapperPod], expected: str
) -> None:
    obj, decision = step(
        running_wrapper(*["Pod"] * (len(pods) or 1)), pods=pods, now=seconds_later(300)
    )
    counts = f"{len(pods) - pods.count(RUNNING_POD)} pods pending; {pods.count(RUNNING_POD)} pods running"
    message = f"{counts}; 0 pods succeeded{expected}"
    assert condition(obj, UNHEALTHY)["message"] == f"{message}; retry 1 of 3"
    assert printable(decision.events[0].message) == f"InsufficientPodsReady: {message}"
    obj, _ = step(obj, objects=[None] * (len(pods) or 1), pods=[], now=seconds_later(301))
    assert condition(obj, UNHEALTHY)["message"] == f"{message}; retry 1 of 3", "the reset keeps it"


def test_crash_of_a_running_pod_is_reported_once_although_the_pods_are_ready() -> None:
    container = {
        "name": "main",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    status = msgspec.convert({"containerStatuses": [container]}, PodStatus)
    crashing = WrapperPod("Running", status=status)
    obj, decision = step(running_wrapper("Job"), pods=[crashing])
    cause = "Pod p0: container main exits repeatedly, 3 restarts"
    ready = condition(obj, PODS_READY)
    assert (ready["status"], ready["reason"]) == ("True", "SufficientPodsReady")
    assert ready["message"] == f"1 pods running; 0 pods succeeded; CrashLoopBackOff: {cause}"
    assert [event.reason for event in decision.events] == ["PodsNotReady"]
    again, decision = step(obj, pods=[crashing])
    assert (again, decision.events) == (obj, [])
    recovered, _ = step(obj, pods=[RUNNING_POD])
    assert condition(recovered, PODS_READY)["message"] == "1 pods running; 0 pods succeeded"


def test_failure_of_a_pod_is_reported_once_before_the_warm_up_period_ends() -> None:
    obj, _ = step(running_wrapper("Pod"), pods=[PENDING_POD])
    before = condition(obj, PODS_READY)
    obj, decision = step(obj, pods=[PULL_BACKOFF], now=seconds_later(10))
    after = condition(obj, PODS_READY)
    assert after["message"].startswith("A pod cannot start: ImagePullBackOff: Pod ")
    assert after["lastTransitionTime"] == before["lastTransitionTime"], "the deadline is the same"
    assert [event.reason for event in decision.events] == ["PodsNotReady"]
    attempt = waiting("ErrImagePull", "not found")
    again, decision = step(obj, pods=[attempt], now=seconds_later(20))
    assert (condition(again, PODS_READY), decision.events) == (after, [])
    solved, _ = step(again, pods=[PENDING_POD], now=seconds_later(30))
    assert (
        condition(solved, PODS_READY)["message"]
        == "1 pods pending; 0 pods running; 0 pods succeeded"
    )


def test_ray_cluster_is_ready_without_the_workers_that_its_autoscaler_may_remove() -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    groups = [
        {
            "replicas": 3,
            "minReplicas": 1,
            "numOfHosts": 2,
            "maxReplicas": 3,
            "template": pod_template,
        },
        {"replicas": 3, "suspend": True, "maxReplicas": 9, "template": pod_template},
    ]
    spec = {"headGroupSpec": {"template": pod_template}, "workerGroupSpecs": groups}
    for autoscaling, needed in ((True, 3), (False, 7)):
        obj = running_component(
            apiVersion="ray.io/v1",
            kind="RayCluster",
            spec={**spec, "enableInTreeAutoscaling": autoscaling},
        )
        for running, status in ((needed - 1, "False"), (needed, "True")):
            found, _ = step(obj, pods=[RUNNING_POD] * running)
            assert condition(found, "PodsReady")["status"] == status


def test_rayjob_is_ready_before_its_submitter_exists() -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    cluster = {
        "headGroupSpec": {"template": pod_template},
        "workerGroupSpecs": [{"template": pod_template}],
    }
    spec = {"rayClusterSpec": cluster, "submitterPodTemplate": pod_template}
    obj = running_component(apiVersion="ray.io/v1", kind="RayJob", spec=spec)
    assert len(obj["status"]["componentStatus"][0]["podSets"]) == 3
    obj, decision = step(obj, pods=[RUNNING_POD, PENDING_POD])
    assert decision.deadline == seconds_later(300), "enough pods: the warm-up grace period"
    obj, _ = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert condition(obj, "PodsReady")["status"] == "True"


def test_pods_that_may_exist_are_not_missing() -> None:
    obj, _ = step(running_wrapper("Pod", "Pod"), pods=[RUNNING_POD, RUNNING_POD])
    left_out = PodKnowledge.LEFT_OUT
    later, decision = step(obj, pods=[], knowledge=left_out, now=seconds_later(36_000))
    assert (phase(later), condition(later, "PodsReady")["status"]) == (Phase.RUNNING, "True")
    assert not decision.events
    reset, _ = step(obj, pods=[], now=seconds_later(36_000))
    assert condition(reset, "PodsReady")["status"] == "False"


def test_pods_are_missing_that_a_list_does_not_have_either() -> None:
    """One pod that the cache has no room for must not keep the quota of all AppWrappers of its namespace."""
    obj, _ = step(running_wrapper("Pod", "Pod"), pods=[RUNNING_POD, RUNNING_POD])
    unknown = PodKnowledge.OWNERS_UNKNOWN
    kept, _ = step(obj, pods=[], knowledge=unknown, now=seconds_later(36_030))
    assert condition(kept, "PodsReady")["status"] == "True"
    listed: dict[str, Any] = {"pods": [RUNNING_POD], "knowledge": PodKnowledge.LISTED}
    missing, _ = step(obj, now=seconds_later(36_030), **listed)
    assert condition(missing, "PodsReady")["status"] == "False"
    kept, _ = step(missing, now=seconds_later(36_629), **listed)
    assert phase(kept) == Phase.RUNNING
    reset, _ = step(missing, now=seconds_later(36_631), **listed)
    assert phase(reset) == Phase.RESETTING


def test_listed_pods_that_were_not_read_may_run() -> None:
    obj, _ = step(running_wrapper("Pod", "Pod"), pods=[RUNNING_POD, RUNNING_POD])
    unread = WrapperPod("Pending", has_node=True, is_read=False)
    listed: dict[str, Any] = {"knowledge": PodKnowledge.LISTED, "now": seconds_later(36_000)}
    kept, _ = step(obj, pods=[RUNNING_POD, unread], **listed)
    assert condition(kept, "PodsReady")["status"] == "True"


REFUSAL = PodFailure("FailedCreate", "Job job-1: exceeded quota: none")


@pytest.mark.parametrize(
    ("next_phase", "change", "expected"),
    [
        (Phase.SUSPENDING, {"suspend": True}, ("Suspended", "")),
        (Phase.RESETTING, {}, ("InsufficientPodsReady", "The pods are deleted")),
    ],
)
def test_pods_ready_does_not_name_a_pod_that_is_deleted(
    next_phase: Phase, change: Object, expected: tuple[str, str]
) -> None:
    obj, _ = step(running_wrapper("Pod"), pods=[PULL_BACKOFF], now=seconds_later(10))
    assert "cannot start" in condition(obj, PODS_READY)["message"]
    obj["spec"] |= change
    obj["status"]["phase"] = next_phase.value
    ended, _ = step(obj, pods=[], objects=[None], now=seconds_later(20))
    ready = condition(ended, PODS_READY)
    assert (ready["status"], (ready["reason"], ready["message"])) == ("False", expected)


def test_reason_of_missing_pods_is_asked_for_after_ten_seconds() -> None:
    obj = running_wrapper("Pod", "Job")
    _, decision = step(obj, pods=[RUNNING_POD], now=seconds_later(9))
    assert (decision.unexplained, decision.deadline) == (None, seconds_later(10))
    _, decision = step(obj, pods=[RUNNING_POD], now=seconds_later(10))
    assert decision.unexplained is not None
    assert decision.unexplained.display_name == "Job job-1", "the pod of the first one exists"
    job_pod = dataclasses.replace(PENDING_POD, ancestor="c-1")
    _, decision = step(obj, pods=[RUNNING_POD, job_pod], now=seconds_later(10))
    assert decision.unexplained is None


def test_reason_of_missing_pods_is_reported_once_and_kept_by_the_reset() -> None:
    obj = running_wrapper("Pod", "Job", retryLimit="0")
    obj, decision = step(obj, pods=[RUNNING_POD], refusal=REFUSAL, now=seconds_later(10))
    text = "A pod cannot start: FailedCreate: Job job-1: exceeded quota: none"
    assert condition(obj, PODS_READY)["message"] == text
    assert [(event.reason, event.message) for event in decision.events] == [("PodsNotReady", text)]
    again, decision = step(obj, pods=[RUNNING_POD], refusal=REFUSAL, now=seconds_later(20))
    assert (again, decision.events, decision.unexplained) == (obj, [], None)
    solved, _ = step(obj, pods=[RUNNING_POD, PENDING_POD], now=seconds_later(30))
    assert condition(solved, PODS_READY)["message"].startswith("1 pods pending")
    failed, _ = step(obj, pods=[RUNNING_POD], refusal=REFUSAL, now=seconds_later(60))
    assert condition(failed, UNHEALTHY)["message"].startswith(
        "0 pods pending; 1 pods running; 0 pods succeeded; 1 pods missing "
        "(FailedCreate: Job job-1: exceeded quota: none)"
    )


@pytest.mark.parametrize("pod", [SUCCEEDED_POD, RUNNING_POD], ids=["ended", "running"])
def test_pods_with_only_the_label_keep_no_quota_of_a_job_without_pods(pod: WrapperPod) -> None:
    """Any user can create them, with 1m CPU, while a ResourceQuota refuses the Job's own pods."""
    obj = running_wrapper("Job")
    waiting, decision = step(obj, pods=[pod], owned=False)
    assert condition(waiting, PODS_READY)["status"] == "False"
    assert decision.deadline == seconds_later(10)
    late = seconds_later(24 * 3600)
    reset, _ = step(waiting, pods=[pod], owned=False, refusal=REFUSAL, now=late)
    assert phase(reset) == Phase.RESETTING
    assert "0 pods running; 0 pods succeeded" in condition(reset, UNHEALTHY)["message"]


def test_pods_of_other_kinds_count_by_their_label() -> None:
    """Between a custom resource and its pods can be owners of kinds that the operator cannot read."""
    obj = running_wrapper("Job")
    (component,) = obj["spec"]["components"]
    component["template"] |= {"apiVersion": "example.com/v1", "kind": "Training"}
    obj["status"]["componentStatus"][0] |= {"apiVersion": "example.com/v1", "kind": "Training"}
    ready, _ = step(obj, pods=[RUNNING_POD], owned=False)
    assert condition(ready, PODS_READY)["message"].startswith("1 pods running")


def stateful_set(**spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "a", "image": "b"}]}}
    return running_component(
        apiVersion="apps/v1", kind="StatefulSet", spec={"replicas": 2, "template": template, **spec}
    )


def job_set() -> Object:
    pod = {"spec": {"containers": [{"name": "a", "image": "b"}]}}
    job = {"template": {"spec": {"template": pod}}}
    after = [{"name": "download", "status": "Complete"}]
    jobs = [{"name": "download", **job}, {"name": "train", **job, "dependsOn": after}]
    return running_component(
        apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet", spec={"replicatedJobs": jobs}
    )


def created(seconds: int, pod_phase: str = "Pending") -> WrapperPod:
    return WrapperPod(pod_phase, created=seconds_later(seconds).strftime("%Y-%m-%dT%H:%M:%SZ"))


def ended(seconds: int) -> WrapperPod:
    at = seconds_later(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
    return dataclasses.replace(created(0, "Succeeded"), terminated=(Termination("main", 0, at=at),))


DAY = 24 * 3600


@pytest.mark.parametrize(
    ("pod", "is_asked"),
    [(created(0), False), (created(0, "Running"), False), (ended(20), True)],
    ids=["starting", "running", "ended"],
)
def test_pods_that_wait_for_the_end_of_others_are_not_missing(
    pod: WrapperPod, *, is_asked: bool
) -> None:
    _, decision = step(job_set(), pods=[pod], now=seconds_later(30))
    assert (decision.unexplained is not None) is is_asked


@pytest.mark.parametrize(
    ("obj", "pods", "reset_after"),
    [
        (stateful_set(podManagementPolicy="Parallel"), [created(50, "Running")], 60),
        (stateful_set(), [], 60),
        (stateful_set(), [created(50)], 350),
        (stateful_set(), [created(50, "Running")], 350),
        (stateful_set(), [created(50, "Running"), created(290)], 590),
        (stateful_set(), [created(DAY - 100)], DAY),
        (job_set(), [created(50)], 350),
        (job_set(), [created(50, "Running")], DAY),
        (job_set(), [ended(7000)], 7300),
        (job_set(), [ended(7000), created(7010)], 7310),
        (job_set(), [created(0, "Running"), created(10)], 310),
    ],
    ids=[
        "at once",
        "none exists",
        "after readiness, not started",
        "after readiness, not ready",
        "last one",
        "created again and again",
        "after completion, not started",
        "after completion, running",
        "after completion, next one missing",
        "after completion, last one",
        "after completion, none missing",
    ],
)
def test_pods_that_wait_for_others_have_the_warmup_period_each(
    obj: Object, pods: list[WrapperPod], reset_after: int
) -> None:
    before, _ = step(obj, pods=pods, now=seconds_later(reset_after - 1))
    assert phase(before) == Phase.RUNNING
    after, _ = step(before, pods=pods, now=seconds_later(reset_after))
    assert phase(after) == Phase.RESETTING


@pytest.mark.parametrize("is_queued", [False, True])
def test_each_attempt_without_a_queue_has_the_whole_time(is_queued: bool) -> None:
    began = DAY + 3600
    obj = queued(stateful_set()) if is_queued else stateful_set()
    for item in obj["status"]["conditions"]:
        if item["type"] == RESOURCES_DEPLOYED:
            item["lastTransitionTime"] = seconds_later(began).isoformat()
    pods = [created(began + 10)]
    early, _ = step(obj, pods=pods, now=seconds_later(began + 309))
    assert phase(early) == (Phase.FAILED if is_queued else Phase.RUNNING)
    late, _ = step(obj, pods=pods, now=seconds_later(began + 310))
    assert phase(late) == (Phase.FAILED if is_queued else Phase.RESETTING)


@pytest.mark.parametrize("at", [100, DAY])
def test_readiness_is_kept_while_owners_cannot_be_read(at: int) -> None:
    obj, _ = step(queued(running_wrapper("Job")), pods=[RUNNING_POD])
    again = seconds_later(at + 30)
    kept, decision = step(
        obj,
        pods=[],
        now=seconds_later(at),
        knowledge=PodKnowledge.OWNERS_UNKNOWN,
        reads_owners_at=again,
    )
    assert condition(kept, PODS_READY)["status"] == "True"
    assert decision.deadline == again
    assert decision.is_unproven
    lost, _ = step(obj, pods=[], now=seconds_later(at))
    assert condition(lost, PODS_READY)["status"] == "False"


UNREAD_POD = WrapperPod("Pending", has_node=True, is_read=False, ancestor="c-0")


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"knowledge": PodKnowledge.OWNERS_UNKNOWN}, id="owners are not read yet"),
        pytest.param({"knowledge": PodKnowledge.LEFT_OUT}, id="not listed"),
        pytest.param({"pods": [UNREAD_POD]}, id="not read"),
    ],
)
def test_quota_ends_although_it_stays_unknown_whether_pods_run(unknown: dict[str, Any]) -> None:
    more = {"pods": [], "unproven_since": seconds_later(60), **unknown}
    obj, _ = step(queued(running_wrapper("Job")), pods=[RUNNING_POD])
    kept, decision = step(obj, **more, now=seconds_later(60 + 1799))
    assert condition(kept, PODS_READY)["status"] == "True"
    assert decision.deadline == seconds_later(60 + 1800)
    unready, decision = step(kept, **more, now=seconds_later(60 + 1800))
    assert condition(unready, PODS_READY)["status"] == "False"
    assert phase(unready) == Phase.RUNNING
    assert decision.deadline == seconds_later(60 + 1800 + DAY)
    ended, _ = step(unready, **more, now=seconds_later(60 + 1800 + DAY))
    assert phase(ended) == Phase.FAILED


def test_readiness_is_proven_again_when_the_pods_are_known() -> None:
    obj, _ = step(queued(running_wrapper("Job")), pods=[RUNNING_POD])
    since = {"unproven_since": seconds_later(60)}
    lost, _ = step(obj, pods=[UNREAD_POD], **since, now=seconds_later(3600))
    found, decision = step(lost, pods=[RUNNING_POD], **since, now=seconds_later(3630))
    assert condition(found, PODS_READY)["status"] == "True"
    assert decision.is_unproven is False


async def test_observer_remembers_since_when_readiness_is_not_proven() -> None:
    observer = WrapperObserver(*([Mock()] * 7))
    observation = observe(queued(running_wrapper("Job")), now=seconds_later(60))
    wrapper = observation.wrapper
    for second, is_unproven, expected in [
        (60, True, 60),
        (90, True, 60),
        (120, None, 60),
        (150, False, None),
        (180, True, 180),
    ]:
        seen = msgspec.structs.replace(
            observation,
            now=seconds_later(second),
            monotonic=second,
            unproven_since=unproven_since(observer, wrapper),
        )
        decision = WrapperDecision(status=seen.status(), is_unproven=is_unproven)
        observer.note_decision(seen, decision)
        known = unproven_since(observer, wrapper)
        assert known == (None if expected is None else seconds_later(expected))
    assert unproven_since(observer, {**wrapper, "metadata": {"uid": "successor"}}) is None


def unproven_since(observer: WrapperObserver, wrapper: Object) -> datetime | None:
    known = observer._known_before(wrapper)
    since = known.unproven_since if known is not None else None
    return seconds_later(since) if since is not None else None
