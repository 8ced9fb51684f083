"""The row of a pod: what its containers say, in one word."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from envtest.objects import Object
from envtest.printers.columns import AGE, NAME, NONE, Column, Printer, age

__all__ = ["POD"]

_COLUMNS: Final = (
    NAME,
    Column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    Column("Status", "The aggregate status of the containers in this pod."),
    Column("Restarts", "The number of times the containers in this pod have been restarted and when the last was."),
    AGE,
    Column(
        "IP", "The address of the pod, routable at least within the cluster; empty until it was allocated.", priority=1
    ),
    Column(
        "Node",
        "The node that the pod runs on; empty until the pod was scheduled, or where it asks for a node.",
        priority=1,
    ),
    Column(
        "Nominated Node", "The node on which other pods are preempted so that the pod will fit there later.", priority=1
    ),
    Column(
        "Readiness Gates", "The conditions, beyond those of its containers, that the pod needs to be ready.", priority=1
    ),
)


class _Tally:
    """How often containers were restarted, and when last."""

    def __init__(self) -> None:
        self.restarts = 0
        self.last_restart = ""

    def add(self, status: Mapping[str, Any]) -> None:
        self.restarts += status.get("restartCount") or 0
        terminated = (status.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, terminated.get("finishedAt") or "")


def _exit_text(terminated: Mapping[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_sidecar(container: Mapping[str, Any] | None) -> bool:
    return container is not None and container.get("restartPolicy") == "Always"


def _is_true(conditions: Any, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions or ())


def _initializing(pod: Object, tally: _Tally, sidecars: _Tally) -> tuple[str, int]:
    """What the init containers say of the pod (nothing, once they are done), and how many sidecars are ready."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    by_name = {container.get("name"): container for container in spec.get("initContainers") or ()}
    ready = 0
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        tally.add(one)
        is_sidecar = _is_sidecar(by_name.get(one.get("name")))
        if is_sidecar:
            sidecars.add(one)
        state = one.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated and not terminated.get("exitCode"):
            continue
        if is_sidecar and one.get("started"):
            ready += bool(one.get("ready"))
            continue
        if terminated:
            return f"Init:{_exit_text(terminated)}", ready
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", ready
        return f"Init:{index}/{len(by_name)}", ready
    return "", ready


def _running(pod: Object, reason: str, tally: _Tally) -> tuple[str, int]:
    """What the containers say of the pod, and how many are ready."""
    status = pod.get("status") or {}
    ready, running = 0, False
    for one in reversed(status.get("containerStatuses") or ()):
        tally.add(one)
        state = one.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated"):
            reason = _exit_text(state["terminated"])
        elif one.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if _is_true(status.get("conditions"), "Ready") else "NotReady"
    return reason, ready


def _print(pod: Object, now: datetime) -> list[Any]:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    conditions = status.get("conditions") or []
    reason = status.get("reason") or status.get("phase") or ""
    if any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions):
        reason = "SchedulingGated"
    tally, sidecars = _Tally(), _Tally()
    init_reason, ready = _initializing(pod, tally, sidecars)
    total = len(spec.get("containers") or ()) + sum(map(_is_sidecar, spec.get("initContainers") or ()))
    if init_reason and not _is_true(conditions, "Initialized"):
        reason = init_reason
    else:
        tally = sidecars
        reason, running = _running(pod, reason, tally)
        ready += running
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    restarts = str(tally.restarts)
    if tally.restarts and tally.last_restart:
        restarts += f" ({age(tally.last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    return [
        metadata.get("name", ""),
        f"{ready}/{total}",
        reason,
        restarts,
        age(metadata.get("creationTimestamp"), now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec.get("readinessGates") or (), conditions),
    ]


def _gates(gates: Any, conditions: Any) -> str:
    if not gates:
        return NONE
    return f"{sum(_is_true(conditions, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


POD: Final[Printer] = (_COLUMNS, _print)
