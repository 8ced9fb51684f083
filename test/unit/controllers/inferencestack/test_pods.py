"""Failures of pods, as users see them."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from cfo.controllers.inferencestack.pods import Eviction, report_of
from cfo.controllers.pod_status import PodFailure, PodStatus, failure_of
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import Object


def failure(**status: Any) -> PodFailure | None:
    return failure_of(msgspec.convert(status, PodStatus))


def container(state: Any, **fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "restartCount": 3, "state": state, **fields}]}


CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            {"conditions": [UNSCHEDULABLE]},
            "Unschedulable",
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            container(
                {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
            ),
            "ImagePullBackOff",
            "container main: Back-off pulling image",
        ),
        (
            container(
                {
                    "waiting": {
                        "reason": "CreateContainerConfigError",
                        "message": 'secret "regcred" not found',
                    }
                }
            ),
            "CreateContainerConfigError",
            'container main: secret "regcred" not found',
        ),
        (
            container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=CRASHED),
            "OOMKilled",
            "container main used more memory than its limit, 3 restarts",
        ),
        (
            container({"running": {}}, lastState=CRASHED, ready=False),
            "OOMKilled",
            "container main used more memory than its limit, 3 restarts",
        ),
        (
            container(
                {"waiting": {"reason": "CrashLoopBackOff"}},
                lastState={"terminated": {"exitCode": 1, "reason": "ContainerCannotRun"}},
            ),
            "CrashLoopBackOff",
            "container main exited with code 1 (ContainerCannotRun), 3 restarts",
        ),
        (
            {
                "initContainerStatuses": container({"waiting": {"reason": "ErrImagePull"}})[
                    "containerStatuses"
                ]
            },
            "ErrImagePull",
            "container main",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "Evicted",
            "low on memory",
        ),
        (
            {"phase": "Failed", "reason": "not a reason", "message": "x" * 999},
            "PodFailed",
            "x" * 297 + "...",
        ),
    ],
)
def test_failure_is_explained(status: dict[str, Any], reason: str, message: str) -> None:
    assert failure(**status) == PodFailure(reason, message)


def test_starting_and_running_pods_have_no_failure() -> None:
    assert failure() is None
    assert failure(**container({"waiting": {"reason": "ContainerCreating"}})) is None
    assert failure(**container({"running": {}}, lastState=CRASHED, ready=True)) is None
    crashed = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert failure(**container({"running": {}}, lastState=crashed, ready=False)) is None


QUEUED = {"kueue.x-k8s.io/queue-name": "team"}
GATED = "kueue.x-k8s.io/admission"
STILL_GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


def target(reason: str) -> dict[str, str]:
    return {"type": "TerminationTarget", "status": "True", "reason": reason, "message": "m"}


def pod(
    *conditions: dict[str, str],
    labels: dict[str, str] | None = None,
    gate: str = "",
    **metadata: Any,
) -> Entry:
    obj: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "resourceVersion": "1",
            "labels": labels or {},
            **metadata,
        },
        "spec": {"schedulingGates": [{"name": gate}] if gate else None},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }
    return EntryDecoder(POD).decode(orjson.dumps(obj))


def test_only_pods_with_the_gate_of_their_queue_wait_for_quota() -> None:
    assert report_of(pod(STILL_GATED, labels=QUEUED, gate=GATED)).queue == "team"
    assert report_of(pod(labels=QUEUED, gate="kueue.x-k8s.io/topology")).queue == "", "admitted"
    assert report_of(pod(gate=GATED)).queue == "", "it has no queue"
    assert report_of(pod(UNSCHEDULABLE, labels=QUEUED)).failure is not None
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert report_of(pod(labels=QUEUED, gate=GATED, **deleted)).queue == ""


def test_admitted_pod_does_not_wait_although_no_scheduler_has_seen_it() -> None:
    assert report_of(pod(STILL_GATED, labels=QUEUED)).queue == ""


@pytest.mark.parametrize(
    ("reason", "eviction"),
    [
        ("WorkloadEvictedDueToPreempted", Eviction("Preempted", "m")),
        ("WorkloadEvicted", Eviction("WorkloadEvicted", "m")),
        ("WorkloadEvictedDueToÄ b", Eviction("WorkloadEvicted", "m")),
        ("WorkloadDeleted", None),
    ],
)
def test_reason_of_an_eviction_is_that_of_kueue(reason: str, eviction: Eviction | None) -> None:
    assert report_of(pod(target(reason), labels=QUEUED)).eviction == eviction
    assert report_of(pod(target(reason))).eviction is None, "it has no queue"
