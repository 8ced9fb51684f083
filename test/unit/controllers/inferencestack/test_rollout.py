"""The state of Deployments, of which only the newest revision counts."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.controllers.inferencestack.pods import PodFailure
from cfo.controllers.inferencestack.status import component_state
from cfo.runtime.objects.unstructured import Object

FAILURE = PodFailure("ImagePullBackOff", "no such image")
DEADLINE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}


def deployment(want: int | None = 2, generation: int = 3, **status: Any) -> Object:
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
        (deployment(), None, "Ready", "RolloutComplete"),
        (deployment(), FAILURE, "Ready", "RolloutComplete"),
        (deployment(generation=4), None, "Progressing", "RolloutPending"),
        (deployment(0), None, "Idle", "ScaledToZero"),
        (deployment(3), None, "Progressing", "WaitingForPods"),
        (deployment(updatedReplicas=1), None, "Progressing", "RollingOut"),
        (deployment(updatedReplicas=1), FAILURE, "Failed", "ImagePullBackOff"),
        (deployment(updatedReplicas=1, conditions=[DEADLINE]), FAILURE, "Stalled", "RolloutStalled"),
        (deployment(readyReplicas=0, conditions=[QUOTA]), None, "Failed", "FailedCreate"),
        (
            deployment(None, replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1),
            None,
            "Ready",
            "RolloutComplete",
        ),
    ],
)
def test_state_of_deployment(found: Object | None, failure: PodFailure | None, state: str, reason: str) -> None:
    result = component_state(found, failure)
    assert (result.state, result.reason) == (state, reason)


def test_pods_of_old_revisions_are_not_ready() -> None:
    """Two ready pods of which one is old: one replica of the new revision is ready, or none."""
    result = component_state(deployment(updatedReplicas=1), None)
    assert (result.ready, result.updated, result.replicas) == (1, 1, 2)
    stalled = component_state(deployment(1, updatedReplicas=1, readyReplicas=1, conditions=[DEADLINE]), None)
    assert (stalled.ready, stalled.state, stalled.message) == (0, "Stalled", "timed out")
    assert component_state(deployment(), None, suspended=True).state == "Suspended"
