"""The state of a Deployment: only its newest revision counts; pods of older revisions are not ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cfo.controllers.inferencestack.pods import PodFailure
from cfo.runtime import Object, find_condition

__all__ = ["ComponentState", "State", "component_state"]


class State(StrEnum):
    """The state of the gateway or an application."""

    READY = "Ready"
    IDLE = "Idle"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class ComponentState:
    """The state of the gateway or an application, with its reason and numbers of pods."""

    state: State
    reason: str
    message: str = ""
    replicas: int = 0
    ready: int = 0
    updated: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served; an application without replicas waits for its autoscaler."""
        return self.state in (State.READY, State.IDLE)


def component_state(
    deployment: Object | None, failure: PodFailure | None, *, suspended: bool = False
) -> ComponentState:
    """Return the state of a component with this Deployment (``None``: it does not exist) and failure of its pods."""
    if deployment is None:
        return ComponentState(State.PROGRESSING, "DeploymentMissing", "the Deployment does not exist")
    spec: Mapping[str, Any] = deployment.get("spec") or {}
    status: Mapping[str, Any] = deployment.get("status") or {}
    count = spec.get("replicas")
    replicas = 1 if count is None else int(count)
    total, updated = int(status.get("replicas") or 0), int(status.get("updatedReplicas") or 0)
    ready = max(0, int(status.get("readyReplicas") or 0) - max(0, total - updated))

    def result(state: State, reason: str, message: str = "") -> ComponentState:
        return ComponentState(state, reason, message, replicas, ready, updated)

    if suspended:
        return result(State.SUSPENDED, "Suspended")
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    if not observed:
        return result(State.PROGRESSING, "RolloutPending", "the Deployment controller has not observed the change")
    if replicas == 0:
        return result(State.IDLE, "ScaledToZero")
    available = int(status.get("availableReplicas") or 0)
    if total == updated == replicas and ready >= replicas and available >= replicas:
        return result(State.READY, "RolloutComplete")
    conditions = status.get("conditions")
    progressing = find_condition(conditions, "Progressing") or {}
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        why = f"{failure.reason}: {failure.message}" if failure is not None else str(progressing.get("message") or "")
        return result(State.STALLED, "RolloutStalled", why)
    if failure is not None:
        return result(State.FAILED, failure.reason, failure.message)
    creation = find_condition(conditions, "ReplicaFailure") or {}
    if creation.get("status") == "True":
        return result(State.FAILED, str(creation.get("reason") or "FailedCreate"), str(creation.get("message") or ""))
    if total > updated:
        return result(State.PROGRESSING, "RollingOut", f"{total - updated} pods of an older revision are running")
    return result(State.PROGRESSING, "WaitingForPods", f"{ready} of {replicas} pods are ready")
