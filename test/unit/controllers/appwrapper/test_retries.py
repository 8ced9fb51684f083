"""Decisions about AppWrappers that are unhealthy: grace periods, retries and their limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cfo.api.appwrapper.kinds import JOB_SET, PYTORCH_JOB, TRAIN_JOB
from cfo.api.appwrapper.names import (
    PODS_READY,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.controllers.appwrapper.component_informers import _from_object
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import GVK
from test.support.observations import (
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
    running_wrapper,
    step,
)

DAY = 24 * 3600


def test_failed_pods_are_tolerated_during_grace_period() -> None:
    obj, decision = step(running_wrapper(failureGracePeriodDuration="2s"), pods=[FAILED_POD])
    assert phase(obj) == Phase.RUNNING
    assert decision.deadline == seconds_later(2)
    before_deadline, _ = step(obj, pods=[FAILED_POD], now=seconds_later(1.999))
    assert phase(before_deadline) == Phase.RUNNING
    recovered, _ = step(obj, pods=[RUNNING_POD], now=seconds_later(1))
    assert condition(recovered, UNHEALTHY)["reason"] == "FoundNoFailedPods"
    obj, decision = step(obj, pods=[FAILED_POD], now=seconds_later(2))
    assert (phase(obj), obj["status"]["resettingCount"]) == (Phase.RESETTING, 1)
    message = "1 failed pods: p0 (container main: exit code 1)"
    assert [(item.type, item.message) for item in decision.events] == [
        ("Warning", f"FoundFailedPods: {message}")
    ]
    assert condition(obj, UNHEALTHY)["message"] == f"{message}; retry 1 of 3"


def test_different_failure_restarts_grace_period() -> None:
    obj = running_wrapper(failureGracePeriodDuration="10s")
    obj["status"]["conditions"] = [
        item
        if item["type"] != UNHEALTHY
        else {
            **item,
            "status": "True",
            "reason": "AutopilotNoExecute",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for item in obj["status"]["conditions"]
    ]
    obj, decision = step(obj, pods=[FAILED_POD])
    assert phase(obj) == Phase.RUNNING
    assert decision.deadline == seconds_later(10)


def test_failed_component_is_named_with_its_pods_and_the_time_of_the_next_attempt() -> None:
    obj = running_wrapper("Pod", "Job", retryPausePeriodDuration="90s")
    failure = "BackoffLimitExceeded: Job has reached the specified backoff limit"
    job = ComponentObject(uid="c-1", failed=True, failure=failure)
    objects = [ComponentObject(uid="c-0"), job]
    obj, _ = step(obj, objects=objects, pods=[RUNNING_POD, FAILED_POD])
    pods = "1 failed pods: p1 (container main: exit code 1)"
    cause = f"Found 1 failed components: Job job-1 ({failure}); {pods}; retry 1 of 3"
    assert (phase(obj), condition(obj, UNHEALTHY)["message"]) == (Phase.RESETTING, cause)
    obj, _ = step(obj, objects=[None, None])
    deleted = "Resources deleted for resetting AppWrapper; next attempt at 2026-01-01 12:01:30 UTC"
    assert condition(obj, RESOURCES_DEPLOYED)["message"] == deleted


@pytest.mark.parametrize(
    ("retries", "pause", "seconds"),
    [(1, "0s", 0.02), (3, "0s", 0.08), (10, "0s", 10.24), (1_000_000, "0s", 81.92), (9, "8s", 8)],
)
def test_pause_before_a_retry_has_a_growing_minimum(
    retries: int, pause: str, seconds: float
) -> None:
    obj = running_wrapper("Pod", retryPausePeriodDuration=pause, retryLimit="2000000")
    obj["status"] |= {"resettingCount": retries, "phase": "Resetting"}
    obj, decision = step(obj, objects=[None])
    assert condition(obj, RESOURCES_DEPLOYED)["status"] == "False"
    assert decision.deadline == seconds_later(seconds)
    obj, _ = step(obj, objects=[None], now=seconds_later(seconds))
    assert phase(obj) == Phase.RESUMING


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        (0, "not retried, because the retry limit is 0"),
        (1, "the only retry failed as well"),
        (3, "all 3 retries failed as well"),
    ],
)
def test_each_retry_limit_reads_right(limit: int, outcome: str) -> None:
    obj = running_wrapper(failureGracePeriodDuration="0s", retryLimit=str(limit))
    obj["status"]["resettingCount"] = limit
    obj, _ = step(obj, pods=[FAILED_POD])
    assert condition(obj, UNHEALTHY)["message"].endswith(f"; {outcome}")
    assert phase(obj) == Phase.FAILED


@pytest.mark.parametrize(
    ("annotations", "code", "refusal"),
    [
        ({"terminalExitCodes": "3,4"}, 4, "exit code 4 is not retried"),
        ({"terminalExitCodes": "3,4"}, 5, ""),
        ({"retryableExitCodes": "3"}, 3, ""),
        ({"retryableExitCodes": "3"}, 4, "exit code 4 is not retried"),
        ({"retryableExitCodes": "3", "terminalExitCodes": "3"}, 3, "exit code 3 is not retried"),
        ({"retryLimit": "0"}, 1, "not retried, because the retry limit is 0"),
        ({"retryLimit": "-1"}, 1, "not retried, because the retry limit is 0"),
    ],
)
def test_failure_is_retried_or_the_refusal_is_reported(
    annotations: dict[str, str], code: int, refusal: str
) -> None:
    obj = running_wrapper(failureGracePeriodDuration="0s", **annotations)
    failed_pod = WrapperPod(
        "Failed", terminated=(Termination("sidecar", 0), Termination("main", code))
    )
    obj, decision = step(obj, pods=[RUNNING_POD, failed_pod])
    message = f"1 failed pods: p1 (container main: exit code {code})"
    message = f"{message}; {refusal or 'retry 1 of 3'}"
    if refusal:
        assert ("Failed", f"FoundFailedPods: {message}") in [
            (item.reason, item.message) for item in decision.events
        ]
    assert condition(obj, UNHEALTHY)["message"] == message
    assert phase(obj) == (Phase.FAILED if refusal else Phase.RESETTING)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([WrapperPod("Failed"), SUCCEEDED_POD], "1 failed pods: p0"),
        ([WrapperPod("Failed", reason="Evicted")], "1 failed pods: p0 (Evicted)"),
        (
            [
                WrapperPod(
                    "Failed",
                    terminated=(Termination("a", 137, "OOMKilled"), Termination("b", 1, "Error")),
                )
            ],
            "1 failed pods: p0 (container a: exit code 137, OOMKilled; container b: exit code 1)",
        ),
        (
            [WrapperPod("Failed", init_terminated=(Termination("fetch", 2),))],
            "1 failed pods: p0 (container fetch: exit code 2)",
        ),
        ([WrapperPod("Failed")] * 5, "5 failed pods: p0, p1, p2, 2 more"),
    ],
)
def test_unhealthy_condition_names_failed_pods(pods: list[WrapperPod], expected: str) -> None:
    obj, _ = step(running_wrapper(failureGracePeriodDuration="1m"), pods=pods)
    assert condition(obj, UNHEALTHY)["message"] == expected


def test_eviction_from_node_is_not_counted_as_retry() -> None:
    obj, _ = step(running_wrapper(retryLimit="0"), pods=[RUNNING_POD])
    on_gpu = WrapperPod("Running", node="b", resources=frozenset({"nvidia.com/gpu"}))
    marked = {"b": frozenset({"nvidia.com/gpu"}), "a": frozenset({"nvidia.com/gpu"})}
    obj, decision = step(obj, pods=[on_gpu], no_execute=marked)
    assert phase(obj) == Phase.RESETTING
    assert "resettingCount" not in obj["status"]
    assert (
        decision.events[0].message == "Workload contains pods using NoExecute resources on Nodes: b"
    )


def test_pods_that_return_to_marked_nodes_are_evicted_once_a_minute_up_to_the_ceiling() -> None:
    obj = queued(running_wrapper("Job"))
    pods = [dataclasses.replace(PENDING_POD, node="b", resources=frozenset({"nvidia.com/gpu"}))]
    marked = {"b": frozenset({"nvidia.com/gpu"})}
    waiting, decision = step(obj, pods=pods, no_execute=marked, now=seconds_later(1))
    assert (phase(waiting), decision.events) == (Phase.RUNNING, [])
    assert decision.deadline is not None
    evicted, _ = step(obj, pods=pods, no_execute=marked, now=decision.deadline)
    assert phase(evicted) == Phase.RESETTING
    ended, _ = step(obj, pods=pods, no_execute=marked, now=seconds_later(DAY))
    assert phase(ended) == Phase.FAILED


def test_retry_pause_starts_after_reset() -> None:
    obj = running_wrapper(failureGracePeriodDuration="0s", retryPausePeriodDuration="8s")
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, decision = step(obj, pods=[FAILED_POD], now=seconds_later(1))
    assert [item.uid for item in decision.deletions] == ["c-0"]
    obj, decision = step(obj, objects=[None], now=seconds_later(20))
    assert (phase(obj), decision.deadline) == (Phase.RESETTING, seconds_later(28))
    obj, _ = step(obj, objects=[None], now=seconds_later(27.9))
    assert phase(obj) == Phase.RESETTING
    obj, _ = step(obj, objects=[None], now=seconds_later(28))
    assert phase(obj) == Phase.RESUMING
    assert "conditions" not in obj["status"]["componentStatus"][0]


def test_retries_are_reset_on_new_admission() -> None:
    obj = running_wrapper(failureGracePeriodDuration="0s")
    obj, _ = step(obj, pods=[FAILED_POD])
    obj["spec"]["suspend"] = True
    obj, decision = step(obj)
    assert (phase(obj), decision.events[0].reason) == (Phase.SUSPENDING, "Suspending")
    obj, _ = step(obj, objects=[None])
    assert (phase(obj), obj["status"]["resettingCount"]) == (Phase.SUSPENDED, 1)
    obj["spec"]["suspend"] = False
    obj, _ = step(obj)
    assert (phase(obj), obj["status"]["resettingCount"]) == (Phase.RESUMING, 0)


@pytest.mark.parametrize(
    ("gvk", "status", "retries"),
    [
        (JOB, {}, False),
        (JOB, {"startTime": "2026-01-01T00:00:00Z"}, True),
        (JOB_SET, {"replicatedJobsStatus": [{"name": "a"}]}, True),
        (JOB_SET, {"startTime": "2026-01-01T00:00:00Z"}, False),
        (TRAIN_JOB, {"jobsStatus": [{"name": "node"}]}, True),
        (TRAIN_JOB, {"jobsStatus": []}, False),
        (PYTORCH_JOB, {"startTime": "2026-01-01T00:00:00Z"}, False),
        *(
            (
                JOB,
                {
                    "startTime": "2026-01-01T00:00:00Z",
                    "conditions": [{"type": kind, "status": "True"}],
                },
                False,
            )
            for kind in ("Failed", "Complete")
        ),
    ],
)
def test_controller_of_jobs_retries_until_it_reports_the_end(
    gvk: GVK, status: Any, retries: bool
) -> None:
    assert _from_object({"metadata": {}, "status": status}, "", gvk).retries is retries


RETRYING = ComponentObject(uid="c-0", retries=True)


def test_failed_pods_are_left_to_the_controller_that_retries_them() -> None:
    """M4: a Job with ``backoffLimit`` was reset before its own retry."""
    first = dataclasses.replace(
        FAILED_POD, terminated=(Termination("main", 1, at="2026-01-01T12:01:00Z"),)
    )
    obj, decision = step(
        running_wrapper("Job"), pods=[first], objects=[RETRYING], now=seconds_later(200)
    )
    assert (phase(obj), decision.events) == (Phase.RUNNING, [])
    assert condition(obj, UNHEALTHY)["status"] == "False"
    assert condition(obj, UNHEALTHY)["message"] == "1 failed pods: p0 (container main: exit code 1)"
    # The controller of Jobs waits at most ten minutes before a retry.
    assert decision.deadline == seconds_later(60 + 600 - 0.25)
    obj, decision = step(obj, pods=[first, PENDING_POD], objects=[RETRYING], now=seconds_later(355))
    assert decision.deadline == seconds_later(60 + 300 - 0.25), "the warm-up grace period"
    late, _ = step(obj, pods=[first], objects=[RETRYING], now=seconds_later(660))
    assert phase(late) == Phase.RESETTING
    ended, _ = step(obj, pods=[first], objects=[ComponentObject(uid="c-0", failed=True)])
    assert condition(ended, UNHEALTHY)["reason"] == "FailedComponent"


def test_terminal_exit_code_is_not_left_to_the_controller_of_a_job() -> None:
    obj = running_wrapper("Job", failureGracePeriodDuration="0s", terminalExitCodes="1")
    obj, _ = step(obj, pods=[FAILED_POD], objects=[RETRYING])
    assert phase(obj) == Phase.FAILED


def test_failed_pods_with_only_the_label_are_no_failure() -> None:
    obj, _ = step(running_wrapper("Job"), pods=[FAILED_POD], owned=False)
    assert condition(obj, UNHEALTHY)["status"] == "False"


def test_no_new_reason_renews_the_time_without_ready_pods() -> None:
    obj = queued(running_wrapper("Job", "Job", failureGracePeriodDuration="24h"))
    other = dataclasses.replace(PENDING_POD, ancestor="c-1", uid="p1")
    additional = dataclasses.replace(PENDING_POD, ancestor="c-1", uid="p2")
    failed = [FAILED_POD, other]
    exceeding = [FAILED_POD, other, additional]
    for hour in range(24):
        assert phase(obj) == Phase.RUNNING
        obj, _ = step(obj, pods=exceeding, now=seconds_later(3600 * hour))
        obj, _ = step(obj, pods=failed, now=seconds_later(3600 * hour + 30))
    obj, _ = step(obj, pods=failed, now=seconds_later(DAY))
    assert phase(obj) == Phase.FAILED
    assert condition(obj, UNHEALTHY)["message"].endswith("have not been ready for 24h")


@pytest.mark.parametrize(
    ("failed_after", "forced_after"),
    [(3600, DAY), (DAY - 60, DAY - 60 + 600)],
    ids=["up to the ceiling", "at least 10 minutes"],
)
def test_pods_are_forced_to_end_at_the_ceiling(failed_after: int, forced_after: int) -> None:
    obj = queued(running_wrapper("Job", retryLimit="0", forcefulDeletionGracePeriodDuration="24h"))
    obj["status"]["phase"] = Phase.FAILED.value
    ending = dataclasses.replace(PENDING_POD, deleting=True)
    obj, decision = step(obj, pods=[ending], now=seconds_later(failed_after))
    assert decision.deadline is not None
    obj, decision = step(obj, pods=[ending], now=seconds_later(forced_after - 1))
    assert POD not in [deletion.gvk for deletion in decision.deletions]
    obj, decision = step(obj, pods=[ending], now=seconds_later(forced_after))
    assert [deletion.force for deletion in decision.deletions if deletion.gvk == POD] == [True]


def test_failed_components_are_not_kept_beyond_the_time_without_ready_pods() -> None:
    settings = {"retryLimit": "0", "deletionOnFailureGracePeriodDuration": "24h"}
    obj = queued(running_wrapper("Job", failureGracePeriodDuration="20h", **settings))
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, _ = step(obj, pods=[FAILED_POD], now=seconds_later(20 * 3600))
    assert phase(obj) == Phase.FAILED
    kept, decision = step(obj, pods=[FAILED_POD], now=seconds_later(21 * 3600))
    assert (decision.deletions, decision.deadline) == ([], seconds_later(DAY))
    _, decision = step(kept, pods=[FAILED_POD], now=seconds_later(DAY))
    assert decision.deletions


@pytest.mark.parametrize("is_queued", [False, True])
def test_failed_pods_of_a_queued_appwrapper_are_not_ready(is_queued: bool) -> None:
    obj = running_wrapper("Job", failureGracePeriodDuration="1h")
    obj, _ = step(queued(obj) if is_queued else obj, pods=[RUNNING_POD])
    assert condition(obj, PODS_READY)["status"] == "True"
    obj, _ = step(obj, pods=[FAILED_POD], now=seconds_later(60))
    assert condition(obj, UNHEALTHY)["reason"] == "FoundFailedPods"
    assert condition(obj, PODS_READY)["status"] == ("False" if is_queued else "True")
    again, _ = step(obj, pods=[FAILED_POD, RUNNING_POD], now=seconds_later(120))
    assert condition(again, UNHEALTHY)["status"] == "True"
    assert condition(again, PODS_READY)["status"] == "True"


def test_overdue_appwrapper_is_not_created_again_after_a_reset() -> None:
    obj = queued(running_wrapper("Job", retryLimit="100", retryPausePeriodDuration="2h"))
    obj["status"]["phase"] = Phase.RESETTING.value
    late = seconds_later(DAY - 60)
    paused, decision = step(obj, objects=[None], pods=[], now=late)
    assert (phase(paused), decision.deadline) == (Phase.RESETTING, seconds_later(DAY))
    ended, _ = step(paused, objects=[None], pods=[], now=seconds_later(DAY))
    assert phase(ended) == Phase.FAILED


@pytest.mark.parametrize("knowledge", [PodKnowledge.LISTED, PodKnowledge.OWNERS_UNKNOWN])
def test_pods_of_which_little_is_known_keep_no_quota_beyond_the_ceiling(
    knowledge: PodKnowledge,
) -> None:
    obj = queued(running_wrapper("Job", "Job", admissionGracePeriodDuration="24h"))
    unread = [dataclasses.replace(SUCCEEDED_POD, is_read=False, ancestor="c-0")]
    ended, _ = step(obj, pods=unread, knowledge=knowledge, now=seconds_later(DAY))
    assert phase(ended) == Phase.FAILED
    enough = [*unread, dataclasses.replace(RUNNING_POD, is_read=False, ancestor="c-1", uid="p1")]
    kept, _ = step(obj, pods=enough, knowledge=knowledge, now=seconds_later(DAY))
    assert phase(kept) == Phase.RUNNING


def test_failed_pods_leave_readiness_as_it_is_while_owners_are_unknown() -> None:
    obj, _ = step(
        queued(running_wrapper("Job", failureGracePeriodDuration="1h")), pods=[RUNNING_POD]
    )
    unknown, _ = step(
        obj, pods=[FAILED_POD], now=seconds_later(60), knowledge=PodKnowledge.OWNERS_UNKNOWN
    )
    assert condition(unknown, UNHEALTHY)["reason"] == "FoundFailedPods"
    assert condition(unknown, PODS_READY)["status"] == "True"
