"""The status, failures and taints of nodes, and when taints remove pods: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.objects import Object, find_condition
from envtest.scenarios.fit import UNSCHEDULABLE_TAINT, tolerates
from envtest.scenarios.model import DEFAULT_CAPACITY, NodeFailure, NodeTemplate

__all__ = [
    "FailureState",
    "desired_taints",
    "eviction_time",
    "failure_at",
    "initial_status",
    "internal_address",
    "node_object",
    "ready_condition",
]

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_NODE_INFO: Final = {
    "kubeletVersion": "v1.36.0",
    "osImage": "envtest",
    "kernelVersion": "envtest",
    "containerRuntimeVersion": "envtest://1",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
_OWN_TAINTS: Final = (NOT_READY, UNREACHABLE, UNSCHEDULABLE_TAINT["key"])


def node_object(template: NodeTemplate) -> Object:
    """Return the node of a template."""
    labels = {"kubernetes.io/hostname": template.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    spec: dict[str, Any] = {"taints": [dict(each) for each in template.taints]} if template.taints else {}
    if template.unschedulable:
        spec["unschedulable"] = True
    metadata: dict[str, Any] = {"name": template.name, "labels": {**labels, **template.labels}}
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    status = {"capacity": dict(template.capacity), "allocatable": dict(template.allocatable or template.capacity)}
    return {"metadata": metadata, "spec": spec, "status": status}


def internal_address(node: Object) -> str:
    """Return the internal IP address of a node, or an empty string."""
    addresses: list[dict[str, str]] = (node.get("status") or {}).get("addresses") or []
    return next((each.get("address", "") for each in addresses if each.get("type") == "InternalIP"), "")


def ready_condition(status: str, now: str) -> dict[str, Any]:
    """Return the condition Ready with this status: what the kubelet, or without it the node controller, writes."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime is down"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[status]
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}


def initial_status(node: Object, address: str, now: str) -> dict[str, Any]:
    """Return the status of a node with what its kubelet adds when it starts."""
    status: dict[str, Any] = dict(node.get("status") or {})
    if not status.get("capacity"):
        status["capacity"] = dict(DEFAULT_CAPACITY)
    if not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    if not status.get("addresses"):
        hostname = node["metadata"]["name"]
        status["addresses"] = [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": hostname},
        ]
    if not (status.get("nodeInfo") or {}).get("kubeletVersion"):
        status["nodeInfo"] = {**(status.get("nodeInfo") or {}), **_NODE_INFO}
    if find_condition(status.get("conditions"), "Ready") is None:
        condition = {**ready_condition("True", now), "lastTransitionTime": now}
        status["conditions"] = [*(status.get("conditions") or ()), condition]
    return status


class FailureState(NamedTuple):
    """The status of the condition Ready at one time, and the seconds until it changes (``None``: never)."""

    ready: str
    next_change: float | None


def failure_at(failures: Iterable[NodeFailure], elapsed: float) -> FailureState:
    """Return the state of a node ``elapsed`` seconds after the plane started."""
    ready, changes = "True", []
    for failure in failures:
        end = None if failure.seconds is None else failure.after + failure.seconds
        changes += [each for each in (failure.after, end) if each is not None and each > elapsed]
        if failure.after <= elapsed and (end is None or elapsed < end) and ready != "Unknown":
            ready = "Unknown" if failure.lost else "False"
    return FailureState(ready, min(changes) - elapsed if changes else None)


def desired_taints(node: Object, now: str) -> list[dict[str, Any]]:
    """Return the taints of a node, with those that its readiness and cordon cause."""
    taints = (node.get("spec") or {}).get("taints") or ()
    ready = (find_condition((node.get("status") or {}).get("conditions"), "Ready") or {}).get("status") or "Unknown"
    wanted: list[tuple[str, str]] = []
    if ready != "True":
        key = NOT_READY if ready == "False" else UNREACHABLE
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT["key"], UNSCHEDULABLE_TAINT["effect"]))
    kept = [dict(each) for each in taints if each.get("key") not in _OWN_TAINTS]
    present = {(each.get("key"), each.get("effect")): dict(each) for each in taints}
    return kept + [present.get(each) or {"key": each[0], "effect": each[1], "timeAdded": now} for each in wanted]


def eviction_time(
    taints: Sequence[Mapping[str, Any]], tolerations: Sequence[Mapping[str, Any]], now: datetime
) -> datetime | None:
    """Return when the NoExecute taints of a node remove a pod: now, later, or (``None``) never.

    Each taint must be tolerated. The shortest ``tolerationSeconds`` counts, from the time of the taint.
    """
    times = []
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return now
        limits = [each["tolerationSeconds"] for each in matching if each.get("tolerationSeconds") is not None]
        if limits:
            added = datetime.fromisoformat(taint["timeAdded"]) if taint.get("timeAdded") else now
            times.append(added + timedelta(seconds=max(0, min(limits))))
    return min(times, default=None)
