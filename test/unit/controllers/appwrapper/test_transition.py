"""Decisions about AppWrappers: the transitions between phases, without a server."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from cfo.api.appwrapper.kinds import JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB
from cfo.api.appwrapper.names import (
    DELETING_RESOURCES,
    FINALIZER,
    PODS_READY,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.appwrapper.component_informers import _REPORTING, _from_entry, _from_object
from cfo.controllers.appwrapper.components import (
    ComponentObject,
    components_of,
    desired_object,
)
from cfo.controllers.appwrapper.decision import Deletion, WrapperDecision
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.controllers.appwrapper.transition import Creation, after_creation, decide
from cfo.controllers.pod_status import PodFailure, PodStatus
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, find_condition
from cfo.runtime.process import printable
from test.support.observations import (
    CONFIG,
    NOW,
    UID,
    observe,
    seconds_later,
    with_decided_status,
    wrapper,
)

RUNNING_POD, PENDING_POD, FAILED_POD, SUCCEEDED_POD = (
    WrapperPod("Running"),
    WrapperPod("Pending"),
    WrapperPod("Failed", terminated=(Termination("main", 1),)),
    WrapperPod("Succeeded"),
)


def step(obj: Object, **observed: Any) -> tuple[Object, WrapperDecision]:
    decision = decide(observe(obj, **observed))
    return with_decided_status(obj, decision), decision


def resumed_wrapper(*kinds: str, **annotations: str) -> Object:
    obj, decision = step(wrapper(*kinds, **annotations))
    assert decision.add_finalizer
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def running_wrapper(*kinds: str, **annotations: str) -> Object:
    obj = resumed_wrapper(*kinds, **annotations)
    observation = observe(obj)
    created = [
        Creation(component, uid=f"c-{component.index}") for component in observation.components
    ]
    return with_decided_status(obj, after_creation(observation, created))


def phase(obj: Object) -> str:
    return str(obj["status"]["phase"])


def condition(obj: Object, kind: str) -> dict[str, Any]:
    return dict(find_condition(obj["status"]["conditions"], kind) or {})


def test_phases_from_creation_to_success() -> None:
    obj = running_wrapper("Pod", "Job")
    assert phase(obj) == Phase.RUNNING
    assert [item["name"] for item in obj["status"]["componentStatus"]] == ["pod-0", "job-1"]
    obj, decision = step(obj, pods=[PENDING_POD])
    assert decision.deadline == seconds_later(10), "too few pods: ask for the reason"
    _, decision = step(obj, pods=[PENDING_POD], now=seconds_later(10))
    assert decision.deadline == seconds_later(60), "still too few pods: the admission grace period"
    obj, decision = step(obj, pods=[PENDING_POD, RUNNING_POD])
    assert decision.deadline == seconds_later(300), "enough pods: the warm-up grace period"
    obj, decision = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert condition(obj, "PodsReady")["message"] == "2 pods running; 0 pods succeeded"
    assert decision.deadline is None
    obj, decision = step(obj, pods=[SUCCEEDED_POD, SUCCEEDED_POD], now=seconds_later(5))
    assert phase(obj) == Phase.SUCCEEDED
    obj, decision = step(obj, now=seconds_later(10))
    assert decision.deadline == seconds_later(5 + 7 * 24 * 3600)


def test_unchanged_observation_keeps_status() -> None:
    obj = running_wrapper()
    obj, _ = step(obj, pods=[RUNNING_POD])
    repeated, _ = step(obj, pods=[RUNNING_POD], now=seconds_later(3600))
    assert repeated == obj


def test_transition_times_have_microseconds() -> None:
    assert (
        condition(running_wrapper(), RESOURCES_DEPLOYED)["lastTransitionTime"]
        == "2026-01-01T12:00:00.250000Z"
    )


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
        ([waiting("ContainerCreating")], "; 1 waiting pods: ContainerCreating"),
        (
            [
                PULL_BACKOFF,
                waiting("ContainerCreating"),
                RUNNING_POD,
                PULL_BACKOFF,
                unschedulable("0/3 nodes"),
            ],
            f"; 2 waiting pods: {PULLING}; 1 waiting pods: ContainerCreating; 1 more causes",
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


def test_eviction_from_node_is_not_counted_as_retry() -> None:
    obj = running_wrapper(retryLimit="0")
    on_gpu = WrapperPod("Running", node="b", resources=frozenset({"nvidia.com/gpu"}))
    marked = {"b": frozenset({"nvidia.com/gpu"}), "a": frozenset({"nvidia.com/gpu"})}
    obj, decision = step(obj, pods=[on_gpu], no_execute=marked)
    assert phase(obj) == Phase.RESETTING
    assert "resettingCount" not in obj["status"]
    assert (
        decision.events[0].message == "Workload contains pods using NoExecute resources on Nodes: b"
    )


def test_missing_component_fails_and_unserved_kind_is_reported() -> None:
    obj, _ = step(
        running_wrapper("Pod", "Job"),
        objects=[ComponentObject(uid="c-0"), None],
        unserved=frozenset({1}),
    )
    assert phase(obj) == Phase.FAILED
    assert condition(obj, UNHEALTHY)["message"] == (
        "Only found 1 deployed components, but was expecting 2; missing: Job job-1; "
        "the API server no longer serves Job (batch/v1)"
    )


def test_unowned_object_is_not_a_component() -> None:
    obj, _ = step(running_wrapper("Pod"), objects=[ComponentObject(uid="other", owned=False)])
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    obj, decision = step(obj, objects=[ComponentObject(uid="other", owned=False)])
    assert decision.deletions == []
    assert condition(obj, RESOURCES_DEPLOYED)["status"] == "False"


def created_with(*warnings: str) -> tuple[Object, WrapperDecision]:
    """Return an AppWrapper whose only component was created with these warnings, and the decision after that."""
    obj = resumed_wrapper("Job")
    observation = observe(obj)
    (component,) = observation.components
    decision = after_creation(observation, [Creation(component, uid="u", warnings=warnings)])
    return with_decided_status(obj, decision), decision


def test_dropped_fields_of_a_component_are_reported_until_it_is_created_again() -> None:
    obj, decision = created_with('unknown field "spec.paralelism"', "batch/v1 is deprecated")
    text = 'unknown field "spec.paralelism"; batch/v1 is deprecated'
    assert [(event.type, event.reason, event.message) for event in decision.events] == [
        ("Warning", "ComponentWarning", f"The API server warns about Job job-0: {text}")
    ]
    dropped = find_condition(obj["status"]["componentStatus"][0]["conditions"], "UnknownFields")
    assert dropped is not None
    assert (dropped["status"], dropped["message"]) == ("True", 'unknown field "spec.paralelism"')
    obj, _ = step(obj, objects=[None])
    obj["status"] |= {"phase": "Resetting"}
    for at in (1, 2, 200):
        obj, _ = step(obj, objects=[None], now=seconds_later(at))
    assert "conditions" not in obj["status"]["componentStatus"][0]


def test_warnings_about_a_component_are_bounded_and_printable() -> None:
    hostile = [f'unknown field "spec.{number}\n{"x" * 5000}"' for number in range(300)]
    _, decision = created_with(*hostile)
    (event,) = decision.events
    assert event.message.endswith("; 295 more")
    assert event.message.isprintable()
    assert len(event.message) < 1000
    _, decision = created_with("batch/v1 is deprecated")
    assert find_condition(decision.status.components[0]["conditions"], "UnknownFields") is None


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


def test_failed_components_are_kept_once_from_failure_on() -> None:
    obj = running_wrapper(
        failureGracePeriodDuration="0s", retryLimit="0", deletionOnFailureGracePeriodDuration="4s"
    )
    obj["status"]["conditions"].append(
        {
            "type": DELETING_RESOURCES,
            "status": "False",
            "reason": "DeletionComplete",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    )
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, decision = step(obj, pods=[FAILED_POD])
    assert (condition(obj, DELETING_RESOURCES)["reason"], decision.deadline) == (
        "DeletionPaused",
        seconds_later(4),
    )
    obj, decision = step(obj, pods=[FAILED_POD], now=seconds_later(4))
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionInitiated"
    obj, _ = step(
        obj,
        objects=[ComponentObject(uid="c-0", deleting=True)],
        pods=[FAILED_POD],
        now=seconds_later(5),
    )
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionInitiated"
    obj, _ = step(obj, objects=[None], now=seconds_later(6))
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionComplete"
    assert condition(obj, "QuotaReserved")["status"] == "False"
    repeated, _ = step(obj, objects=[None], now=seconds_later(7))
    assert repeated == obj


def test_event_of_a_forced_deletion_names_at_most_five_pods() -> None:
    obj = running_wrapper(forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    pods = [RUNNING_POD] * 7
    obj, _ = step(obj, pods=pods)
    obj, decision = step(obj, pods=pods)
    assert decision.deadline == seconds_later(6)
    _, decision = step(obj, objects=[None], pods=pods, now=seconds_later(6))
    assert len(decision.deletions) == 7
    (event,) = [event for event in decision.events if event.reason == "ForcefulDeletion"]
    assert event.message.endswith("p0, p1, p2, p3, p4, ...")


def test_object_that_was_created_but_not_recorded_is_recorded_and_deleted() -> None:
    obj = resumed_wrapper("Job", "Job")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    after, decision = step(obj)
    assert [item.uid for item in decision.deletions] == ["c-0", "c-1"]
    recorded = after["status"]["componentStatus"]
    assert [component["name"] for component in recorded] == ["job-0", "job-1"]


def test_only_owned_pods_are_deleted_by_force_and_others_do_not_block() -> None:
    obj = running_wrapper(forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, pods=[RUNNING_POD])
    obj, decision = step(obj, pods=[RUNNING_POD])
    assert decision.deadline == seconds_later(6)
    waiting, decision = step(
        obj, objects=[None], pods=[RUNNING_POD], owned=False, now=seconds_later(5.9)
    )
    assert (phase(waiting), decision.deletions) == (Phase.SUSPENDING, [])
    forced, decision = step(obj, objects=[None], pods=[RUNNING_POD], now=seconds_later(6))
    assert [(item.uid, item.force) for item in decision.deletions] == [("pod-0", True)]
    assert phase(forced) == Phase.SUSPENDING
    _, decision = step(
        obj,
        objects=[None],
        pods=[WrapperPod("Running", has_node=True, deleting=True, forced=True)],
        now=seconds_later(7),
    )
    assert decision.deletions == []
    done, decision = step(
        obj, objects=[None], pods=[RUNNING_POD], owned=False, now=seconds_later(6)
    )
    assert (phase(done), decision.deletions) == (Phase.SUSPENDED, [])


def suspending_wrapper(*kinds: str) -> Object:
    """Return an AppWrapper whose components are being deleted since ``NOW``, with a grace period of 6 s."""
    obj = running_wrapper(*kinds, forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    obj, _ = step(obj)
    return obj


FORCED_POD = WrapperPod("Running", has_node=True, deleting=True, forced=True)


@pytest.mark.parametrize(
    ("changes", "seconds", "expected"),
    [
        ({}, 6, Phase.SUSPENDING),
        ({}, 6000, Phase.SUSPENDING),
        ({"forced_since": seconds_later(7)}, 66.9, Phase.SUSPENDING),
        ({"forced_since": seconds_later(7)}, 67, Phase.SUSPENDED),
        ({"has_node": False}, 5.9, Phase.SUSPENDING),
        ({"has_node": False}, 6, Phase.SUSPENDED),
        ({"phase": "Failed"}, 6, Phase.SUSPENDED),
        ({"has_node": False, "forced": False}, 6, Phase.SUSPENDING),
        ({"forced": False}, 6000, Phase.SUSPENDING),
        ({"created": "2026-01-01T12:10:00Z"}, 6, Phase.SUSPENDING),
        ({"created": "2026-01-01T12:10:01Z"}, 6, Phase.SUSPENDED),
    ],
)
def test_pod_that_a_finalizer_keeps_holds_quota_only_while_it_can_run(
    changes: dict[str, Any], seconds: float, expected: Phase
) -> None:
    pod = dataclasses.replace(FORCED_POD, **changes)
    after, decision = step(
        suspending_wrapper(), objects=[None], pods=[pod], now=seconds_later(seconds)
    )
    assert phase(after) == expected
    assert [item.force for item in decision.deletions] == [True] * (not pod.forced)
    if pod.forced_since is not None and expected is Phase.SUSPENDING:
        assert decision.deadline == seconds_later(67)


@pytest.mark.parametrize(
    ("is_deleting", "seconds", "seen", "expected"),
    [
        (True, 6, 0, Phase.SUSPENDING),
        (True, 9.9, 0, Phase.SUSPENDING),
        (True, 10, 0, Phase.SUSPENDED),
        (True, 3600, 3595, Phase.SUSPENDING),
        (True, 3605, 3595, Phase.SUSPENDED),
        (False, 3600, 0, Phase.SUSPENDING),
    ],
)
def test_component_that_a_finalizer_keeps_holds_no_quota(
    is_deleting: bool, seconds: float, seen: float, expected: Phase
) -> None:
    obj = suspending_wrapper("Job")
    kept = ComponentObject(uid="c-0", deleting=is_deleting)
    seen_at = seconds_later(seen)
    after, decision = step(
        obj, objects=[kept], now=seconds_later(seconds), deletion_seen_at=seen_at
    )
    assert phase(after) == expected
    notes = [event.message for event in decision.events if event.reason == "FinalizersRemain"]
    if expected is Phase.SUSPENDED:
        assert notes == ["No longer waiting for the finalizers of Job job-0"]
        return
    assert notes == []
    if is_deleting:
        assert decision.deadline == seconds_later(seen + 10)
    else:
        assert [item.uid for item in decision.deletions] == ["c-0"]


@pytest.mark.parametrize("queue", ["", "team"])
def test_suspended_wrapper_without_a_queue_reports_what_resumes_it(queue: str) -> None:
    obj = wrapper()
    obj["spec"]["suspend"] = True
    if queue:
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue}
    message = (
        "spec.suspend is true, and no queue resumes it: set spec.suspend to false, or add the label "
        "kueue.x-k8s.io/queue-name with the name of a LocalQueue"
    )
    obj, decision = step(obj)
    expected = [] if queue else [("Normal", "Suspended", message)]
    assert phase(obj) == Phase.SUSPENDED
    assert [(each.type, each.reason, each.message) for each in decision.events] == expected
    assert step(obj)[1].events == []
    running = running_wrapper()
    running["metadata"]["labels"] = obj["metadata"].get("labels") or {}
    running["spec"]["suspend"] = True
    suspending, _ = step(running)
    suspended, decision = step(suspending, objects=[None])
    assert phase(suspended) == Phase.SUSPENDED
    assert [(each.type, each.reason, each.message) for each in decision.events] == expected


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
    ("creation", "seconds", "expected", "retry_after"),
    [
        ({"error": "exceeded quota"}, 0, Phase.RESUMING, 1.0),
        ({"error": "exceeded quota"}, 59.5, Phase.RESUMING, 60.0),
        ({"error": "exceeded quota"}, 60, Phase.RESETTING, None),
        ({"error": "is invalid", "fatal": True}, 0, Phase.FAILED, None),
    ],
)
def test_denied_component_creation(
    creation: dict[str, Any], seconds: float, expected: Phase, retry_after: float | None
) -> None:
    observation = observe(resumed_wrapper(), now=seconds_later(seconds))
    decision = after_creation(observation, [Creation(observation.components[0], **creation)])
    assert decision.status.phase == expected
    assert decision.deadline == (None if retry_after is None else seconds_later(retry_after))
    (event,) = decision.events
    if expected == Phase.RESUMING:
        assert event.message == f"Pod pod-0 cannot be created, will retry: {creation['error']}"
    else:
        assert event.message == f"CreateFailed: error creating components: {creation['error']}"


def test_repeatedly_denied_component_creation_is_reported_once() -> None:
    obj, events = resumed_wrapper(), 0
    for seconds in range(5):
        observation = observe(obj, now=seconds_later(seconds))
        decision = after_creation(
            observation, [Creation(observation.components[0], error="exceeded quota")]
        )
        obj, events = with_decided_status(obj, decision), events + len(decision.events)
    assert events == 1


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")]
)
def test_appwrapper_without_pods_succeeds_at_once(api_version: str, kind: str) -> None:
    obj = wrapper()
    spec = {"replicas": 0, "template": {"spec": {"containers": [{"name": "main"}]}}}
    component = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    obj["spec"]["components"] = [{"template": component}]
    obj, _ = step(obj)
    observation = observe(obj)
    obj = with_decided_status(
        obj, after_creation(observation, [Creation(observation.components[0], uid="u")])
    )
    obj, _ = step(obj)
    assert phase(obj) == Phase.SUCCEEDED


def running_component(**template: Any) -> Object:
    obj = wrapper()
    obj["spec"]["components"] = [{"template": {"metadata": {"name": "x"}, **template}}]
    obj, _ = step(obj)
    observation = observe(obj)
    return with_decided_status(
        obj, after_creation(observation, [Creation(observation.components[0], uid="u")])
    )


def running_mpi_job() -> Object:
    template = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    spec = {"mpiReplicaSpecs": {"Launcher": template, "Worker": {**template, "replicas": 2}}}
    return running_component(apiVersion="kubeflow.org/v2beta1", kind="MPIJob", spec=spec)


COMPLETED_MPI_JOB = ComponentObject(uid="u", completed=True)


def test_workers_of_a_completed_mpi_job_keep_the_quota_and_are_deleted() -> None:
    """M2: with the default ``cleanPodPolicy``, the workers of a completed MPIJob run forever."""
    obj = running_mpi_job()
    deleting = dataclasses.replace(RUNNING_POD, deleting=True)
    pods = [SUCCEEDED_POD, RUNNING_POD, RUNNING_POD]
    running, decision = step(obj, pods=pods, objects=[ComponentObject(uid="u")])
    assert (phase(running), decision.deletions) == (Phase.RUNNING, [])
    for failed in ([], [FAILED_POD]):
        left, decision = step(obj, pods=[*pods, *failed], objects=[COMPLETED_MPI_JOB])
        assert phase(left) == Phase.RUNNING
        assert condition(left, "QuotaReserved")["status"] == "True"
        assert [(item.key.name, item.force) for item in decision.deletions] == [
            ("p1", False),
            ("p2", False),
        ]
        assert [item.reason for item in decision.events] == ["DeletingRemainingPods"]
    left, decision = step(obj, pods=[SUCCEEDED_POD, deleting], objects=[COMPLETED_MPI_JOB])
    assert (phase(left), decision.deletions) == (Phase.RUNNING, [])
    for ended in ([SUCCEEDED_POD], [SUCCEEDED_POD, FAILED_POD], []):
        done, decision = step(obj, pods=ended, objects=[COMPLETED_MPI_JOB])
        assert (phase(done), decision.deletions) == (Phase.SUCCEEDED, [])
    failed_job, _ = step(obj, pods=pods, objects=[ComponentObject(uid="u", failed=True)])
    assert phase(failed_job) == Phase.RESETTING


def test_pods_of_completed_components_that_do_not_end_are_deleted_by_force() -> None:
    stuck = dataclasses.replace(
        RUNNING_POD, deleting=True, end_requested_for="2026-01-01T12:00:00Z"
    )
    obj = running_wrapper("Job", forcefulDeletionGracePeriodDuration="60s")
    waiting, decision = step(obj, pods=[stuck], objects=[FINISHED], now=seconds_later(59))
    assert (phase(waiting), decision.deletions) == (Phase.RUNNING, [])
    assert decision.deadline == seconds_later(59.75)
    waiting, decision = step(obj, pods=[stuck], objects=[FINISHED], now=seconds_later(60))
    assert phase(waiting) == Phase.RUNNING
    assert [(item.key.name, item.force) for item in decision.deletions] == [("p0", True)]
    forced = dataclasses.replace(stuck, forced=True)
    _, decision = step(obj, pods=[forced], objects=[FINISHED], now=seconds_later(61))
    assert decision.deletions == []


@pytest.mark.parametrize(
    "pod",
    [
        WrapperPod("Unknown"),
        WrapperPod("Running", deleting=True),
        WrapperPod("Pending"),
        WrapperPod(),
    ],
)
def test_quota_is_kept_until_each_pod_has_ended(pod: WrapperPod) -> None:
    for objects in ([FINISHED], [ComponentObject(uid="c-0")]):
        obj, _ = step(running_wrapper("Job"), pods=[SUCCEEDED_POD, pod], objects=objects)
        assert condition(obj, "QuotaReserved")["status"] == "True"


@pytest.mark.parametrize("kind", ["RayCluster", "RayService"])
def test_component_with_replaced_pods_does_not_succeed_when_they_end(kind: str) -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    cluster = {"headGroupSpec": {"template": pod_template}}
    spec = {"rayClusterConfig": cluster} if kind == "RayService" else cluster
    obj = running_component(apiVersion="ray.io/v1", kind=kind, spec=spec)
    obj, _ = step(obj, pods=[SUCCEEDED_POD])
    assert phase(obj) == Phase.RUNNING
    assert condition(obj, "QuotaReserved")["status"] == "True"


FINISHED = ComponentObject(uid="c-0", completed=True)


@pytest.mark.parametrize("left", [[], [FAILED_POD], [FAILED_POD, SUCCEEDED_POD]])
def test_job_that_reports_completion_is_not_run_again(left: list[WrapperPod]) -> None:
    obj, decision = step(
        running_wrapper("Job"), pods=left, objects=[FINISHED], now=seconds_later(1000)
    )
    assert phase(obj) == Phase.SUCCEEDED
    assert not decision.events
    assert (
        condition(obj, "QuotaReserved")["message"]
        == "All components with pods report that they have completed"
    )


def test_pods_of_a_completed_job_need_their_quota_until_they_end() -> None:
    template = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    spec = {"pytorchReplicaSpecs": {"Master": template, "Worker": {**template, "replicas": 8}}}
    obj = running_component(apiVersion="kubeflow.org/v1", kind="PyTorchJob", spec=spec)
    for left, expected in (
        ([SUCCEEDED_POD, *[RUNNING_POD] * 8], Phase.RUNNING),
        ([SUCCEEDED_POD, PENDING_POD], Phase.RUNNING),
        ([SUCCEEDED_POD, FAILED_POD], Phase.SUCCEEDED),
    ):
        found, _ = step(obj, pods=left, objects=[FINISHED], now=seconds_later(1000))
        assert phase(found) == expected


def test_pods_of_completed_components_neither_fail_nor_replace_those_of_others() -> None:
    obj = running_wrapper("Job", "Job")
    objects = [FINISHED, ComponentObject(uid="c-1")]
    other = dataclasses.replace(RUNNING_POD, ancestor="c-1")
    for left in ([], [FAILED_POD], [SUCCEEDED_POD]):
        ready, _ = step(obj, pods=[*left, other], objects=objects)
        assert condition(ready, "PodsReady")["message"] == "1 pods running; 0 pods succeeded"
        assert condition(ready, UNHEALTHY)["status"] == "False"
        missing, _ = step(obj, pods=left, objects=objects)
        assert (phase(missing), condition(missing, "PodsReady")["status"]) == (
            Phase.RUNNING,
            "False",
        )
        done, _ = step(
            obj, pods=[*left, dataclasses.replace(SUCCEEDED_POD, ancestor="c-1")], objects=objects
        )
        assert phase(done) == Phase.SUCCEEDED
    failed, _ = step(obj, pods=[dataclasses.replace(FAILED_POD, ancestor="c-1")], objects=objects)
    assert condition(failed, UNHEALTHY)["reason"] == "FoundFailedPods"


def test_job_set_succeeds_with_its_last_pod() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    replicated = {
        "name": "a",
        "replicas": 2,
        "template": {"spec": {"completions": 3, "template": template}},
    }
    obj = running_component(
        apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet", spec={"replicatedJobs": [replicated]}
    )
    for succeeded, expected in ((2, Phase.RUNNING), (5, Phase.RUNNING), (6, Phase.SUCCEEDED)):
        done, _ = step(obj, pods=[SUCCEEDED_POD] * succeeded)
        assert phase(done) == expected
    done, _ = step(
        obj, pods=[SUCCEEDED_POD], objects=[FINISHED]
    )  # its success policy may need fewer
    assert phase(done) == Phase.SUCCEEDED


def test_completed_ray_job_needs_its_quota_until_its_cluster_ends() -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    cluster = {
        "headGroupSpec": {"template": pod_template},
        "workerGroupSpecs": [{"template": pod_template}],
    }
    obj = running_component(apiVersion="ray.io/v1", kind="RayJob", spec={"rayClusterSpec": cluster})
    for left in ([RUNNING_POD, RUNNING_POD], [RUNNING_POD, FAILED_POD], [RUNNING_POD]):
        running, _ = step(obj, pods=left, objects=[FINISHED], now=seconds_later(1000))
        assert phase(running) == Phase.RUNNING
    done, _ = step(obj, pods=[SUCCEEDED_POD], objects=[FINISHED])
    assert phase(done) == Phase.SUCCEEDED


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


@pytest.mark.parametrize(
    ("gvk", "status", "failed", "completed"),
    [
        (JOB, {"startTime": "2026-01-01T00:00:00Z"}, False, False),
        (JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, False, True),
        (JOB, {"conditions": [{"type": "Complete", "status": "False"}]}, False, False),
        (JOB, {"conditions": [{"type": "Failed", "status": "True"}]}, True, False),
        (JOB_SET, {"conditions": [{"type": "Completed", "status": "True"}]}, False, True),
        (TRAIN_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, False, True),
        (TRAIN_JOB, {"conditions": [{"type": "Failed", "status": "True"}]}, True, False),
        (TRAIN_JOB, {"conditions": [{"type": "Suspended", "status": "True"}]}, False, False),
        (PYTORCH_JOB, {"conditions": [{"type": "Succeeded", "status": "True"}]}, False, True),
        (RAY_JOB, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, False, False),
        (RAY_JOB, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, False, True),
        (RAY_JOB, {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}, True, False),
        (RAY_JOB, {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, True, False),
        (RAY_JOB, {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, False, False),
        (
            RAY_JOB._replace(version="v1alpha1"),
            {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"},
            True,
            False,
        ),
        (RAY_CLUSTER, {"conditions": [{"type": "Failed", "status": "True"}]}, False, False),
        (
            JOB,
            {"conditions": ["Complete", 1, {"type": ["Failed"], "status": "True"}]},
            False,
            False,
        ),
        (JOB, "Complete", False, False),
        (RAY_JOB, None, False, False),
    ],
)
def test_result_is_what_the_own_controller_of_a_component_reports(
    gvk: GVK, status: Any, failed: bool, completed: bool
) -> None:
    entry = EntryDecoder(gvk).decode(
        orjson.dumps({"metadata": {"name": "x", "namespace": "n"}, "status": status})
    )
    for found in (
        _from_entry(entry, "", gvk),
        _from_object({"metadata": {}, "status": status}, "", gvk),
    ):
        assert (found.failed, found.completed) == (failed, completed)


@pytest.mark.parametrize(
    ("gvk", "status", "failure"),
    [
        (
            JOB,
            {
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "reason": "DeadlineExceeded",
                        "message": "Job was active\x1b longer than specified deadline",
                    }
                ]
            },
            "DeadlineExceeded: Job was active\\x1b longer than specified deadline",
        ),
        (
            RAY_JOB,
            {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": ["no text"]},
            "AppFailed",
        ),
        (RAY_JOB, {"jobDeploymentStatus": "Failed"}, ""),
        (RAY_JOB, {"jobDeploymentStatus": "Running", "reason": "AppFailed"}, ""),
    ],
)
def test_failure_is_what_the_own_controller_of_a_component_reports(
    gvk: GVK, status: Any, failure: str
) -> None:
    found = _from_object({"metadata": {}, "status": status}, "", gvk)
    assert found.failure == failure


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


def test_page_of_differences_names_each_kind_that_reports_its_end() -> None:
    """L1: the Go operator also reads the failure of Jobs and PyTorchJobs."""
    page = Path(__file__).parents[4] / "docs" / "differences.md"
    (row,) = [line for line in page.read_text().splitlines() if "reports decides" in line]
    _, here, go, *_ = row.split("|")
    assert all(gvk.kind in here for gvk in _REPORTING)
    assert go.strip().startswith("the failure of a Job or PyTorchJob")


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


def queued(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}}


def test_more_pods_than_admitted_reset_an_appwrapper_of_a_queue() -> None:
    """M1: ``kubectl scale``, an autoscaler of pods or an edit adds pods that no queue has admitted."""
    obj = running_wrapper("Job")
    pods = [RUNNING_POD, PENDING_POD, SUCCEEDED_POD, FAILED_POD]
    unqueued, _ = step(obj, pods=pods[:2])
    assert condition(unqueued, UNHEALTHY)["status"] == "False"
    obj, decision = step(queued(obj), pods=pods)
    message = "Job job-0 has 2 pods, but its queue admitted 1"
    assert (phase(obj), condition(obj, UNHEALTHY)["message"]) == (Phase.RUNNING, message)
    assert decision.deadline == seconds_later(60)
    (warning,) = decision.events
    assert (warning.type, warning.reason) == ("Warning", "ExcessPods")
    assert (
        warning.message
        == f"{message}; unless it is scaled back, all pods are deleted at 12:01:00 UTC"
    )
    _, again = step(obj, pods=pods, now=seconds_later(30))
    assert (again.events, again.deadline) == ([], seconds_later(60))
    replaced, _ = step(
        obj,
        pods=[dataclasses.replace(RUNNING_POD, deleting=True), PENDING_POD],
        now=seconds_later(60),
    )
    assert condition(replaced, UNHEALTHY)["status"] == "False"
    obj, decision = step(obj, pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.RESETTING
    assert condition(obj, UNHEALTHY)["message"] == f"{message}; retry 1 of 3"
    assert [item.message for item in decision.events] == [f"ExcessPods: {message}"]


def test_ending_pods_count_beyond_as_many_as_were_admitted() -> None:
    """Users choose how long their pods take to end, and the controller of a Job replaces each at once."""
    obj = queued(running_wrapper("Job"))
    ending = dataclasses.replace(RUNNING_POD, deleting=True)
    replaced, _ = step(obj, pods=[ending, RUNNING_POD])
    assert condition(replaced, UNHEALTHY)["status"] == "False"
    exceeded, _ = step(obj, pods=[ending, ending, RUNNING_POD])
    assert (
        condition(exceeded, UNHEALTHY)["message"]
        == "Job job-0 has 2 pods, but its queue admitted 1"
    )


def test_more_pods_than_admitted_are_forced_to_end_after_a_minute() -> None:
    obj = queued(running_wrapper("Job", forcefulDeletionGracePeriodDuration="10h"))
    pods = [RUNNING_POD, RUNNING_POD]
    obj, _ = step(obj, pods=pods)
    obj, _ = step(obj, pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.RESETTING
    obj, decision = step(obj, pods=pods, now=seconds_later(60))
    assert decision.deadline == seconds_later(120)
    obj, decision = step(obj, pods=pods, now=seconds_later(120))
    assert [item.force for item in decision.deletions if item.gvk == POD] == [True, True]


def test_more_pods_than_admitted_are_retried_three_times_at_most() -> None:
    obj = queued(running_wrapper("Job", retryLimit="1000"))
    obj["status"]["resettingCount"] = 3
    pods = [RUNNING_POD, RUNNING_POD]
    obj, _ = step(obj, pods=pods)
    obj, _ = step(obj, pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.FAILED
    assert condition(obj, UNHEALTHY)["message"].endswith("; all 3 retries failed as well")


def test_failed_components_are_not_kept_with_more_pods_than_admitted() -> None:
    settings = {"retryLimit": "0", "deletionOnFailureGracePeriodDuration": "10h"}
    obj = queued(running_wrapper("Job", failureGracePeriodDuration="0s", **settings))
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, decision = step(obj, pods=[FAILED_POD, RUNNING_POD])
    assert (phase(obj), decision.deletions) == (Phase.FAILED, [])
    obj, decision = step(obj, pods=[FAILED_POD, RUNNING_POD, RUNNING_POD])
    assert [item.gvk for item in decision.deletions] == [JOB]
    message = condition(obj, UNHEALTHY)["message"]
    assert message.startswith("Job job-0 has 2 pods, but its queue admitted 1; failed before with")
    assert "FoundFailedPods: 1 failed pods" in message


def test_no_component_is_created_while_another_one_has_more_pods_than_admitted() -> None:
    obj = queued(resumed_wrapper("Job", "Job", admissionGracePeriodDuration="10h"))
    observation = observe(obj)
    first, second = observation.components
    created = [Creation(first, uid="c-0"), Creation(second, error="denied")]
    obj = with_decided_status(obj, after_creation(observation, created))
    _, decision = step(obj, objects=[None, None])
    assert decision.create
    pods = [dataclasses.replace(RUNNING_POD, ancestor="c-0")] * 2
    obj, decision = step(obj, objects=[None, None], pods=pods)
    assert (phase(obj), decision.create) == (Phase.RESUMING, False)
    obj, _ = step(obj, objects=[None, None], pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.RESETTING


def other_pods(number: int, **state: bool) -> list[WrapperPod]:
    """Return pods that descend from the AppWrapper, and from none of its components."""
    return [dataclasses.replace(RUNNING_POD, ancestor=UID, **state)] * number


def test_pods_of_no_component_are_more_than_admitted() -> None:
    """A tenant can create a Job that the AppWrapper controls, next to the components or in place of one."""
    obj = queued(running_wrapper("Job"))
    excess, decision = step(obj, pods=[RUNNING_POD, *other_pods(2)])
    message = "2 pods are of no component, but its queue admitted 0"
    assert condition(excess, UNHEALTHY)["message"] == message
    assert decision.deadline == seconds_later(60)
    ending, _ = step(obj, pods=[RUNNING_POD, *other_pods(1, deleting=True)])
    assert condition(ending, UNHEALTHY)["reason"] == "ExcessPods"
    for harmless in (other_pods(1, deleting=True, forced=True), [WrapperPod("Running")]):
        tolerated = observe(obj, pods=harmless, owned=False)
        decided = with_decided_status(obj, decide(tolerated))
        assert condition(decided, UNHEALTHY)["status"] == "False"
    unqueued, _ = step(running_wrapper("Job"), pods=[RUNNING_POD, *other_pods(2)])
    assert condition(unqueued, UNHEALTHY)["status"] == "False"


def test_pods_of_a_component_that_is_not_recorded_yet_are_admitted() -> None:
    obj = queued(resumed_wrapper("Job"))
    _, decision = step(obj, objects=[None], pods=other_pods(1))
    assert decision.create
    excess, decision = step(obj, objects=[None], pods=other_pods(2))
    assert not decision.create
    message = "2 pods are of no component, but its queue admitted 1"
    assert condition(excess, UNHEALTHY)["message"] == message


def test_failure_with_pods_in_place_of_a_component_is_not_kept() -> None:
    obj = queued(running_wrapper("Job", deletionOnFailureGracePeriodDuration="24h"))
    replacement = ComponentObject(uid="other")
    pods = [dataclasses.replace(RUNNING_POD, ancestor="other")]
    obj, _ = step(obj, objects=[replacement], pods=pods)
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    obj, decision = step(obj, objects=[replacement], pods=pods)
    assert [item.uid for item in decision.deletions] == ["other"]
    assert "failed before with MissingComponent" in condition(obj, UNHEALTHY)["message"]


def test_objects_that_an_appwrapper_of_a_queue_controls_are_deleted_with_its_components() -> None:
    other = Deletion(JOB, NamespacedName("ns", "extra"), "other")
    obj = queued(running_wrapper("Job"))
    _, decision = step(obj, others=[other])
    assert not decision.others
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, others=[other])
    _, decision = step(obj, others=[other])
    assert decision.others == [other]
    del obj["metadata"]["labels"]
    _, decision = step(obj, others=[other])
    assert not decision.others


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [(RUNNING_POD, 120), (dataclasses.replace(RUNNING_POD, has_controller=True), 600)],
    ids=["only the label", "an unknown owner"],
)
def test_deletion_waits_only_some_minutes_for_pods_that_may_be_of_others(
    pod: WrapperPod, seconds: int
) -> None:
    """Any user can create them, and choose a grace period of 24 hours."""
    obj = running_wrapper("Job", forcefulDeletionGracePeriodDuration="24h")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, pods=[pod])
    waiting, decision = step(obj, pods=[pod], owned=False, objects=[None])
    assert decision.deadline == seconds_later(seconds)
    later = seconds_later(seconds)
    still, decision = step(waiting, pods=[pod], objects=[None], now=later)
    assert phase(still) == Phase.SUSPENDING
    assert decision.deadline == seconds_later(24 * 3600)
    ended, _ = step(waiting, pods=[pod], owned=False, objects=[None], now=later)
    assert phase(ended) == Phase.SUSPENDED


def test_deletion_waits_until_the_owners_of_listed_pods_are_known() -> None:
    obj = running_wrapper("Job")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    unknown: dict[str, Any] = {"objects": [None], "knowledge": PodKnowledge.OWNERS_UNKNOWN}
    waiting, _ = step(obj, **unknown)
    assert phase(waiting) == Phase.SUSPENDING
    known, _ = step(waiting, objects=[None], knowledge=PodKnowledge.LISTED)
    assert phase(known) == Phase.SUSPENDED
    for seconds, expected in ((1199, Phase.SUSPENDING), (1201, Phase.SUSPENDED)):
        later, _ = step(waiting, now=seconds_later(seconds), **unknown)
        assert phase(later) == expected


def test_object_that_a_user_created_in_place_of_a_component_is_not_one() -> None:
    """The pods of the object that was created may still run, so they and new ones would be more than admitted."""
    obj, _ = step(running_wrapper("Job"), objects=[ComponentObject(uid="other")])
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    _, decision = step(obj, objects=[ComponentObject(uid="other")])
    assert [item.uid for item in decision.deletions] == ["other"]


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


def test_appwrapper_succeeds_only_when_the_owners_of_listed_pods_are_known() -> None:
    obj = running_wrapper("Pod")
    pods = [SUCCEEDED_POD]
    running, _ = step(obj, pods=pods, knowledge=PodKnowledge.OWNERS_UNKNOWN)
    assert phase(running) == Phase.RUNNING
    succeeded, _ = step(obj, pods=pods, knowledge=PodKnowledge.LISTED)
    assert phase(succeeded) == Phase.SUCCEEDED


@pytest.mark.parametrize(("grace", "seconds"), [("1h", 60), ("5s", 5)])
def test_users_can_only_shorten_how_long_excess_is_tolerated(grace: str, seconds: int) -> None:
    obj = queued(running_wrapper("Job", failureGracePeriodDuration=grace))
    _, decision = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert decision.deadline == seconds_later(seconds)


def test_pods_that_were_created_after_the_success_are_deleted_with_their_component() -> None:
    obj = queued(running_wrapper("Job"))
    obj, _ = step(obj, pods=[SUCCEEDED_POD])
    assert phase(obj) == Phase.SUCCEEDED
    kept, decision = step(obj, pods=[SUCCEEDED_POD])
    assert (phase(kept), decision.deletions) == (Phase.SUCCEEDED, [])
    foreign, decision = step(obj, pods=[RUNNING_POD], owned=False)
    assert (phase(foreign), decision.deletions) == (Phase.SUCCEEDED, [])
    revived, decision = step(obj, pods=[SUCCEEDED_POD, RUNNING_POD])
    assert [item.gvk for item in decision.deletions] == [JOB]
    assert [item.reason for item in decision.events] == ["PodsAfterSuccess"]
    again, decision = step(revived, pods=[SUCCEEDED_POD], objects=[ComponentObject(deleting=True)])
    assert (decision.events, condition(again, DELETING_RESOURCES)["status"]) == ([], "True")
    ended, _ = step(again, objects=[None])
    message = "Pods were created after the success, without quota"
    assert condition(ended, RESOURCES_DEPLOYED)["message"] == message


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


def test_missing_components_are_named_up_to_three() -> None:
    obj, _ = step(running_wrapper(*["Pod"] * 5), objects=[None] * 5)
    assert condition(obj, UNHEALTHY)["message"] == (
        "Only found 0 deployed components, but was expecting 5; "
        "missing: Pod pod-0, Pod pod-1, Pod pod-2 and 2 more"
    )


def test_unknown_annotations_are_reported_up_to_ten() -> None:
    problems = observe(wrapper(retrylimit="1", retryLimit="2")).settings.problems
    prefix = "workload.codeflare.dev.appwrapper/"
    assert problems == (
        f"annotation {prefix}retrylimit: unknown, so it is ignored; did you mean retryLimit?",
    )
    many = {f"x{number}{'y' * 500}": "1" for number in range(300)}
    malformed = {"terminalExitCodes": ",".join(["x"] * 20)}
    for settings in (many, {**malformed, **many}):
        assert len(observe(wrapper(**settings)).settings.problems) == 10
    problems = observe(wrapper(**many)).settings.problems
    assert max(map(len, problems)) < 200


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("workload.codeflare.dev/retryLimit", "retryLimit"),
        ("appwrapper.codeflare.dev/RETRYLIMIT", "retryLimit"),
        ("codeflare.dev/retryLimits", ""),
        ("successTTLDuration", "successTTLDuration"),
        ("example.com/retryLimit", ""),
        ("workload.codeflare.dev/user", ""),
    ],
)
def test_settings_with_another_prefix_are_reported(key: str, name: str) -> None:
    obj = wrapper()
    obj["metadata"]["annotations"] = {key: "1"}
    problems = observe(obj).settings.problems
    meant = f"workload.codeflare.dev.appwrapper/{name}"
    expected = f"annotation {key}: unknown, so it is ignored; did you mean {meant}?"
    assert problems == ((expected,) if name else ())


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


def test_components_are_not_deployed_before_admission() -> None:
    obj, decision = step(wrapper(), awaits_admission=True)
    assert (phase(obj), decision.add_finalizer) == (Phase.SUSPENDED, False)
    waiting, decision = step(obj, awaits_admission=True)
    assert (waiting, decision.add_finalizer) == (obj, False)
    obj, decision = step(obj)
    assert (phase(obj), decision.add_finalizer) == (Phase.RESUMING, True)


def test_components_are_not_created_after_an_eviction() -> None:
    obj, _ = step(resumed_wrapper(), awaits_admission=True)
    assert phase(obj) == Phase.RESUMING
    assert not decide(observe(resumed_wrapper(), awaits_admission=True)).create
    assert decide(observe(resumed_wrapper())).create


def test_invalid_annotations_are_reported_on_deployment() -> None:
    obj, decision = step(wrapper(retryLimit="many"))
    problem = "annotation workload.codeflare.dev.appwrapper/retryLimit: 'many': must be an integer; 3 is used"
    assert [(item.type, item.reason, item.message) for item in decision.events] == [
        ("Warning", "MalformedAnnotations", problem)
    ]
    assert condition(obj, RESOURCES_DEPLOYED)["message"] == f"Suspend is false; {problem}"


def test_report_of_annotations_follows_their_changes_until_the_success_expires() -> None:
    key = "workload.codeflare.dev.appwrapper/retryLimit"
    obj = running_wrapper("Job", retryLimit="many")
    problem = f"; annotation {key}: 'many': must be an integer; 3 is used"
    same, decision = step(obj, pods=[RUNNING_POD])
    assert condition(same, RESOURCES_DEPLOYED)["message"] == f"Suspend is false{problem}"
    assert decision.events == []
    succeeded, decision = step(obj, objects=[ComponentObject(uid="c-0", completed=True)])
    assert phase(succeeded) == Phase.SUCCEEDED
    assert condition(succeeded, RESOURCES_DEPLOYED)["message"].endswith(problem)
    assert decision.events == []
    del succeeded["metadata"]["annotations"][key]
    corrected, _ = step(succeeded)
    assert "annotation" not in condition(corrected, RESOURCES_DEPLOYED)["message"]
    corrected["metadata"]["annotations"][key] = "few"
    wrong, decision = step(corrected)
    assert "'few'" in condition(wrong, RESOURCES_DEPLOYED)["message"]
    assert [event.reason for event in decision.events] == ["MalformedAnnotations"]


@pytest.mark.parametrize("finalizer", [FINALIZER, "tenant.test/keep"])
def test_finalizer_is_removed_after_components_are_deleted(finalizer: str) -> None:
    """A user can replace it, so the components are also deleted without it."""
    obj = running_wrapper()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj["metadata"]["finalizers"] = [finalizer]
    obj, decision = step(obj)
    assert (phase(obj), decision.remove_finalizer, len(decision.deletions)) == (
        Phase.TERMINATING,
        False,
        1,
    )
    obj, decision = step(obj, objects=[None])
    assert decision.remove_finalizer
    assert condition(obj, "QuotaReserved")["reason"] == "Terminating"


def test_unknown_phase_is_an_error() -> None:
    with pytest.raises(ValueError, match="Dancing"):
        decide(observe(wrapper(status={"phase": "Dancing"})))


def test_generated_names_are_stable_per_deployment() -> None:
    obj = resumed_wrapper()
    obj["spec"]["components"][0]["template"]["metadata"] = {"generateName": "gen-"}
    (first,), (second,) = components_of(obj), components_of(obj)
    assert first.key.name == second.key.name
    assert first.key.name.startswith("gen-")
    assert desired_object(obj, first, [], CONFIG)["metadata"]["name"] == first.key.name
    other_wrapper = {**obj, "metadata": {**obj["metadata"], "uid": "other"}}
    assert components_of(other_wrapper)[0].key.name != first.key.name
    for item in obj["status"]["conditions"]:
        item["lastTransitionTime"] = "2026-01-02T00:00:00Z"
    assert components_of(obj)[0].key.name != first.key.name
    assert NOW.microsecond


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


def test_known_kinds_are_known_in_each_version() -> None:
    """KubeRay's CRDs serve RayClusters also as v1alpha1."""
    obj = running_wrapper("Job")
    (component,) = obj["spec"]["components"]
    component["template"] |= {"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster"}
    obj["status"]["componentStatus"][0] |= {"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster"}
    waiting, _ = step(obj, pods=[RUNNING_POD], owned=False)
    assert condition(waiting, PODS_READY)["status"] == "False"


def test_failed_pods_with_only_the_label_are_no_failure() -> None:
    obj, _ = step(running_wrapper("Job"), pods=[FAILED_POD], owned=False)
    assert condition(obj, UNHEALTHY)["status"] == "False"


def test_pods_of_other_kinds_count_by_their_label() -> None:
    """Between a custom resource and its pods can be owners of kinds that the operator cannot read."""
    obj = running_wrapper("Job")
    (component,) = obj["spec"]["components"]
    component["template"] |= {"apiVersion": "example.com/v1", "kind": "Training"}
    obj["status"]["componentStatus"][0] |= {"apiVersion": "example.com/v1", "kind": "Training"}
    ready, _ = step(obj, pods=[RUNNING_POD], owned=False)
    assert condition(ready, PODS_READY)["message"].startswith("1 pods running")
