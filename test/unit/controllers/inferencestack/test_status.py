"""The status of a stack, from the states of its components and what was done."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import SCALED_OBJECT
from cfo.api.inferencestack.profiles import newest_profile
from cfo.controllers.inferencestack.pods import ComponentPods, Eviction
from cfo.controllers.inferencestack.status import (
    ComponentPhase,
    ComponentState,
    StackOutcome,
    component_state,
    stack_status,
)
from cfo.controllers.pod_status import PodFailure
from cfo.runtime.objects.unstructured import Object, find_condition
from test.support.inference_stacks import stack

PROFILE = newest_profile("v2")
READY = ComponentState(ComponentPhase.READY, "RolloutComplete", replicas=1, ready=1, updated=1)
IDLE = ComponentState(ComponentPhase.IDLE, "ScaledToZero")
ROLLING = ComponentState(
    ComponentPhase.PROGRESSING, "RollingOut", "1 pods of an older revision are running"
)
STALLED = ComponentState(
    ComponentPhase.STALLED, "RolloutStalled", "Unschedulable: 0/3 nodes are available"
)
FAILED = ComponentState(
    ComponentPhase.FAILED, "CrashLoopBackOff", "container main exited with code 137"
)
SUSPENDED = ComponentState(ComponentPhase.SUSPENDED, "Suspended")


def status_of(
    a: ComponentState, gateway: ComponentState = READY, **fields: Any
) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition of a stack with one application."""
    outcome = StackOutcome(profile=PROFILE, gateway=gateway, applications={"a": a}, **fields)
    status = stack_status(stack({"a": {}}), outcome, "2026-01-01T00:00:00Z")
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


@pytest.mark.parametrize(
    ("gateway", "a", "ready", "progressing", "degraded"),
    [
        (READY, READY, ("True", "AllReady"), ("False", "RolloutComplete"), ("False", "AsExpected")),
        (READY, IDLE, ("True", "AllReady"), ("False", "RolloutComplete"), ("False", "AsExpected")),
        (
            READY,
            ROLLING,
            ("False", "ApplicationsNotReady"),
            ("True", "RollingOut"),
            ("False", "AsExpected"),
        ),
        (
            ROLLING,
            READY,
            ("False", "GatewayNotReady"),
            ("True", "RollingOut"),
            ("False", "AsExpected"),
        ),
        (
            READY,
            STALLED,
            ("False", "ApplicationsNotReady"),
            ("False", "RolloutStalled"),
            ("True", "RolloutStalled"),
        ),
        (
            READY,
            FAILED,
            ("False", "ApplicationsNotReady"),
            ("False", "Failed"),
            ("True", "CrashLoopBackOff"),
        ),
        (
            SUSPENDED,
            SUSPENDED,
            ("False", "Suspended"),
            ("False", "RolloutComplete"),
            ("False", "AsExpected"),
        ),
    ],
)
def test_conditions_follow_the_components(
    gateway: ComponentState, a: ComponentState, ready: Any, progressing: Any, degraded: Any
) -> None:
    found = status_of(a, gateway)
    assert (found["Ready"], found["Progressing"], found["Degraded"]) == (
        ready,
        progressing,
        degraded,
    )


def test_missing_projects_and_failed_writes_are_reported() -> None:
    found = status_of(READY, unserved=[HTTP_ROUTE, SCALED_OBJECT])
    assert found["RoutesReady"] == ("False", "GatewayAPINotInstalled")
    assert found["ScalingReady"] == ("False", "KEDANotInstalled")
    assert found["Ready"] == ("True", "AllReady")
    found = status_of(
        READY, problems={"ScalingReady": ("TriggerError", "no scaler")}, failures=["quota"]
    )
    assert found["ScalingReady"] == ("False", "TriggerError")
    assert found["Ready"] == ("False", "ReconcileError")
    assert found["ReleaseFailed"] == ("True", "InstallError")
    found = status_of(READY, failures=["taken"], failure_reason="NameTaken")
    assert found["Ready"] == ("False", "NameTaken")
    assert found["Degraded"] == ("True", "NameTaken")


def test_status_of_the_original_is_continued() -> None:
    """Its conditions lack a reason, and the time of a condition that stays is kept."""
    obj = stack(
        {"a": {}},
        gateway={"ingress": {"enabled": True, "hosts": [{"host": "x.test"}], "tls": [{}]}},
    )
    deployed = {"type": "Deployed", "status": "True", "lastTransitionTime": "2025-04-01T00:00:00Z"}
    obj["status"] = {
        "conditions": [deployed, {"type": "Unknown", "status": "True"}],
        "deployedRelease": {"manifest": "x"},
    }
    outcome = StackOutcome(profile=PROFILE, gateway=READY, applications={"a": READY})
    status = stack_status(obj, outcome, "2026-01-01T00:00:00Z")
    found = find_condition(status["conditions"], "Deployed") or {}
    assert (found["lastTransitionTime"], found["reason"]) == (
        "2025-04-01T00:00:00Z",
        "UpgradeSuccessful",
    )
    assert find_condition(status["conditions"], "Unknown") is None
    assert status["deployedRelease"] == {"name": "s"}
    assert (status["url"], status["openai"]) == ("https://x.test", "https://x.test/v1")


def test_long_messages_are_shortened() -> None:
    many = {f"a{number}": FAILED for number in range(9)}
    outcome = StackOutcome(profile=PROFILE, gateway=READY, applications=many, failures=["x" * 5000])
    status = stack_status(stack({name: {} for name in many}), outcome, "2026-01-01T00:00:00Z")
    degraded = find_condition(status["conditions"], "Degraded") or {}
    assert degraded["message"].endswith("; and 4 more")
    assert all(len(item["message"]) <= 1024 for item in status["conditions"])
    assert status["readyApplications"] == "0/9"


POD_FAILURE = PodFailure("ImagePullBackOff", "no such image")
DEADLINE = {
    "type": "Progressing",
    "status": "False",
    "reason": "ProgressDeadlineExceeded",
    "message": "timed out",
}
QUOTA = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": "exceeded quota",
}


def existing_deployment(want: int | None = 2, generation: int = 3, **status: Any) -> Object:
    observed = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    spec = {} if want is None else {"replicas": want}
    return {
        "metadata": {"generation": generation},
        "spec": spec,
        "status": {**observed, "availableReplicas": 2, **status},
    }


@pytest.mark.parametrize(
    ("found", "failure", "state", "reason"),
    [
        (None, None, "Progressing", "DeploymentMissing"),
        (existing_deployment(), None, "Ready", "RolloutComplete"),
        (existing_deployment(), POD_FAILURE, "Ready", "RolloutComplete"),
        (existing_deployment(generation=4), None, "Progressing", "RolloutPending"),
        (existing_deployment(0), None, "Idle", "ScaledToZero"),
        (existing_deployment(3), None, "Progressing", "WaitingForPods"),
        (existing_deployment(updatedReplicas=1), None, "Progressing", "RollingOut"),
        (existing_deployment(updatedReplicas=1), POD_FAILURE, "Failed", "ImagePullBackOff"),
        (
            existing_deployment(updatedReplicas=1, conditions=[DEADLINE]),
            POD_FAILURE,
            "Stalled",
            "RolloutStalled",
        ),
        (existing_deployment(readyReplicas=0, conditions=[QUOTA]), None, "Failed", "FailedCreate"),
        (
            existing_deployment(
                None, replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1
            ),
            None,
            "Ready",
            "RolloutComplete",
        ),
    ],
)
def test_state_of_existing_deployment(
    found: Object | None, failure: PodFailure | None, state: str, reason: str
) -> None:
    result = component_state(found, ComponentPods(failure))
    assert (result.state, result.reason) == (state, reason)


def test_refusal_of_pods_stays_the_cause_after_the_progress_deadline() -> None:
    refused = existing_deployment(readyReplicas=0, conditions=[DEADLINE, QUOTA])
    result = component_state(refused)
    assert (result.state, result.message) == ("Stalled", "FailedCreate: exceeded quota")
    result = component_state(refused, ComponentPods(POD_FAILURE))
    assert result.message == "ImagePullBackOff: no such image"


def test_pods_of_old_revisions_are_not_ready() -> None:
    """Two ready pods of which one is old: one replica of the new revision is ready, or none."""
    result = component_state(existing_deployment(updatedReplicas=1))
    assert (result.ready, result.updated, result.replicas) == (1, 1, 2)
    stalled = component_state(
        existing_deployment(1, updatedReplicas=1, readyReplicas=1, conditions=[DEADLINE])
    )
    assert (stalled.ready, stalled.state, stalled.message) == (0, "Stalled", "timed out")
    assert component_state(existing_deployment(), suspended=True).state == "Suspended"


WAITING_PODS = ComponentPods(waiting=1, queued=2, queue="team")
STARTING = {"readyReplicas": 1, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("found", "pods", "state", "reason"),
    [
        (existing_deployment(**STARTING), WAITING_PODS, "Waiting", "WaitingForKueue"),
        (
            existing_deployment(**STARTING, conditions=[DEADLINE]),
            WAITING_PODS,
            "Waiting",
            "WaitingForKueue",
        ),
        (
            existing_deployment(**STARTING),
            ComponentPods(POD_FAILURE, waiting=1, queued=2, queue="team"),
            "Failed",
            "ImagePullBackOff",
        ),
        (
            existing_deployment(**STARTING, conditions=[QUOTA]),
            WAITING_PODS,
            "Failed",
            "FailedCreate",
        ),
        (existing_deployment(0), ComponentPods(), "Idle", "ScaledToZero"),
    ],
    ids=["waits", "waits longer than the deadline", "fails as well", "is refused", "needs no pod"],
)
def test_pods_that_wait_for_quota_are_no_failure(
    found: Object, pods: ComponentPods, state: str, reason: str
) -> None:
    result = component_state(found, pods)
    assert (result.state, result.reason) == (state, reason)
    if state == "Waiting":
        assert result.message == "1 of 2 pods wait for quota in the LocalQueue team"


def queued(
    phase: ComponentPhase = ComponentPhase.READY, replicas: int = 1, **pods: Any
) -> ComponentState:
    return ComponentState(phase, "Reason", replicas=replicas, pods=ComponentPods(**pods))


EVICTION = Eviction("Preempted", "by a higher priority")


@pytest.mark.parametrize(
    ("a", "before", "reserved", "evicted"),
    [
        (queued(queued=1), None, ("True", "AdmittedByKueue"), None),
        (queued(queued=1, waiting=1, queue="q"), None, ("False", "WaitingForKueue"), None),
        (queued(replicas=2, queued=1), None, ("False", "WaitingForKueue"), None),
        (queued(replicas=0), None, ("True", "AdmittedByKueue"), None),
        (queued(ComponentPhase.SUSPENDED), None, ("False", "Suspended"), None),
        (queued(are_known=False), None, ("Unknown", "PodsNotCached"), None),
        (
            queued(queued=0, eviction=EVICTION),
            None,
            ("False", "WaitingForKueue"),
            ("True", "Preempted"),
        ),
        (queued(queued=0), "True", ("False", "WaitingForKueue"), ("True", "Before")),
        (queued(queued=1), "True", ("True", "AdmittedByKueue"), ("False", "AdmittedByKueue")),
        (queued(queued=0), "False", ("False", "WaitingForKueue"), ("False", "Before")),
    ],
)
def test_conditions_of_a_stack_in_a_queue(
    a: ComponentState,
    before: str | None,
    reserved: tuple[str, str],
    evicted: tuple[str, str] | None,
) -> None:
    outcome = StackOutcome(
        profile=PROFILE, gateway=queued(queued=1), applications={"a": a}, queue="q"
    )
    obj = stack({"a": {}})
    if before is not None:
        known = {"type": "Evicted", "status": before, "reason": "Before", "message": "m"}
        obj["status"] = {"conditions": [known]}
    status = stack_status(obj, outcome, "2026-01-01T00:00:00Z")
    found = {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}
    assert (found["QuotaReserved"], found.get("Evicted")) == (reserved, evicted)


def test_stack_that_waits_is_neither_degraded_nor_progressing() -> None:
    waiting = component_state(existing_deployment(**STARTING), WAITING_PODS)
    found = status_of(waiting, queue="team")
    assert found["Ready"] == ("False", "WaitingForKueue")
    assert found["Progressing"] == ("False", "WaitingForKueue")
    assert found["Degraded"] == ("False", "AsExpected")
    assert status_of(waiting, gateway=FAILED, queue="team")["Ready"] == ("False", "GatewayNotReady")


def test_conditions_of_a_queue_end_with_it() -> None:
    obj = stack({"a": {}})
    kept = {"type": "QuotaReserved", "status": "True", "reason": "AdmittedByKueue"}
    obj["status"] = {"conditions": [kept]}
    outcome = StackOutcome(profile=PROFILE, gateway=READY, applications={"a": READY})
    status = stack_status(obj, outcome, "2026-01-01T00:00:00Z")
    assert find_condition(status["conditions"], "QuotaReserved") is None
    invalid = stack_status(obj, StackOutcome(errors=["wrong"]), "2026-01-01T00:00:00Z")
    assert find_condition(invalid["conditions"], "QuotaReserved") is not None, "pods still run"
