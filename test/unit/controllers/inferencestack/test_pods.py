"""Failures of pods, as users see them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cfo.controllers.pod_status import PodFailure, PodStatus, failure_of


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
            "CrashLoopBackOff",
            "container main exited with code 137 (OOMKilled), 3 restarts",
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
    assert failure(**container({"running": {}}, lastState=CRASHED)) is None
