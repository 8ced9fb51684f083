"""The Table of pods, whose status summarizes the state of all containers in one word."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.printers.columns import AGE, NAME, NONE, Column, Printer, age

__all__ = ["POD"]

_COLUMNS: Final = (
    NAME,
    Column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    Column("Status", "The aggregate status of the containers in this pod."),
    Column(
        "Restarts",
        "The number of restarts of the containers of this pod, and the time since the last one.",  # prose: keep
    ),
    AGE,
    Column(
        "IP",
        "The address of the pod, routable at least within the cluster; empty until it is allocated.",
        priority=1,
    ),
    Column(
        "Node",
        "The name of the node that the pod is scheduled to; empty until the pod is scheduled.",
        priority=1,
    ),
    Column(
        "Nominated Node",
        "The node on which pods of lower priority are being preempted to make room for this pod.",
        priority=1,
    ),
    Column(
        "Readiness Gates",
        "The additional conditions that must be true for the pod to be ready, and how many are.",
        priority=1,
    ),
)


class _RestartCount:
    """Counts restarts of containers, and keeps the time of the last one."""

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


def _init_status(
    pod: Object, restart_count: _RestartCount, sidecars: _RestartCount
) -> tuple[str, int]:
    """Return the status that the init containers imply (empty when they are done), and the number of ready sidecars."""
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    by_name = {container.get("name"): container for container in spec.get("initContainers") or ()}
    ready = 0
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        restart_count.add(one)
        is_sidecar = _is_sidecar(by_name.get(one.get("name")))
        if is_sidecar:
            sidecars.add(one)
        state = one.get("state") or {}
        terminated = state.get("terminated")
        waiting = state.get("waiting") or {}
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


def _containers_status(pod: Object, reason: str, restart_count: _RestartCount) -> tuple[str, int]:
    """Return the status that the containers imply, and the number of ready containers."""
    status = pod.get("status") or {}
    ready = 0
    running = False
    for one in reversed(status.get("containerStatuses") or ()):
        restart_count.add(one)
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
    metadata = pod["metadata"]
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    reason = status.get("reason") or status.get("phase") or ""
    if any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in conditions
    ):
        reason = "SchedulingGated"
    restart_count = _RestartCount()
    sidecars = _RestartCount()
    init_reason, ready = _init_status(pod, restart_count, sidecars)
    total = len(spec.get("containers") or ()) + sum(
        map(_is_sidecar, spec.get("initContainers") or ())
    )
    if init_reason and not _is_true(conditions, "Initialized"):
        reason = init_reason
    else:
        restart_count = sidecars
        reason, running = _containers_status(pod, reason, restart_count)
        ready += running
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    restarts = str(restart_count.restarts)
    if restart_count.restarts and restart_count.last_restart:
        restarts += f" ({age(restart_count.last_restart, now)} ago)"
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
        _readiness_gates(spec.get("readinessGates") or (), conditions),
    ]


def _readiness_gates(gates: Any, conditions: Any) -> str:
    if not gates:
        return NONE
    return (
        f"{sum(_is_true(conditions, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"
    )


POD: Final[Printer] = (_COLUMNS, _print)
