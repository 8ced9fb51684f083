"""The status, failures and taints of nodes, and when taints remove pods: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object, find_condition
from envtest.builtins.resource_names import is_extended
from envtest.simulation.fit import UNSCHEDULABLE_TAINT, tolerates
from envtest.simulation.model import DEFAULT_CAPACITY, NodeFailure, NodeTemplate

__all__ = [
    "NODE_INFO",
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
NODE_INFO: Final = {
    "kubeletVersion": "v1.36.0",
    "osImage": "envtest",
    "kernelVersion": "envtest",
    "containerRuntimeVersion": "envtest://1",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
_CONDITION_TAINTS: Final = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
"""The taint that each condition of a node causes, by the condition's type and status."""

_OWN_TAINTS: Final = frozenset(
    (key, "NoSchedule") for key in (*_CONDITION_TAINTS.values(), UNSCHEDULABLE_TAINT["key"])
)
_OWN_EVICTIONS: Final = frozenset({(NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute")})


def node_object(template: NodeTemplate) -> Object:
    """Return the node of a template."""
    labels = {
        "kubernetes.io/hostname": template.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    spec: dict[str, Any] = (
        {"taints": [dict(each) for each in template.taints]} if template.taints else {}
    )
    if template.unschedulable:
        spec["unschedulable"] = True
    metadata: dict[str, Any] = {"name": template.name, "labels": {**labels, **template.labels}}
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    status = {
        "capacity": dict(template.capacity),
        "allocatable": dict(template.allocatable or template.capacity),
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def internal_address(node: Object) -> str:
    """Return the internal IP address of a node, or an empty string."""
    addresses: list[dict[str, str]] = (node.get("status") or {}).get("addresses") or []
    return next(
        (each.get("address", "") for each in addresses if each.get("type") == "InternalIP"), ""
    )


def ready_condition(status: str, now: str) -> dict[str, Any]:
    """Return the condition Ready with this status: what the kubelet, or without it the node controller, writes."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime is down"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[status]
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
    }


def initial_status(node: Object, address: str, now: str) -> dict[str, Any]:
    """Return the status of a node with what its kubelet adds: extended resources at any time, the rest at its start."""
    status: dict[str, Any] = dict(node.get("status") or {})
    if not status.get("capacity"):
        status["capacity"] = dict(DEFAULT_CAPACITY)
    if not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    missing = status["capacity"].keys() - status["allocatable"].keys()
    extended = {name: status["capacity"][name] for name in missing if is_extended(name)}
    if extended:
        status["allocatable"] = {**status["allocatable"], **extended}
    if not status.get("addresses"):
        hostname = node["metadata"]["name"]
        status["addresses"] = [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": hostname},
        ]
    if not (status.get("nodeInfo") or {}).get("kubeletVersion"):
        status["nodeInfo"] = {**(status.get("nodeInfo") or {}), **NODE_INFO}
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
    ready = "True"
    changes = []
    for failure in failures:
        end = None if failure.seconds is None else failure.after + failure.seconds
        changes += [each for each in (failure.after, end) if each is not None and each > elapsed]
        if failure.after <= elapsed and (end is None or elapsed < end) and ready != "Unknown":
            ready = "Unknown" if failure.lost else "False"
    remaining = min(changes) - elapsed if changes else None
    return FailureState(ready, remaining)


def desired_taints(node: Object, now: str, *, evict: bool = True) -> list[dict[str, Any]]:
    """Return the taints of a node, with those that its conditions and cordon cause.

    ``evict`` adds those with the effect NoExecute, for nodes that are not ready.
    """
    spec = node.get("spec") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    statuses = {each.get("type"): each.get("status") for each in conditions}
    keys = [
        key for (kind, status), key in _CONDITION_TAINTS.items() if statuses.get(kind) == status
    ]
    wanted = [(key, "NoSchedule") for key in keys]
    if evict:
        wanted += [(key, "NoExecute") for key in keys if key in (NOT_READY, UNREACHABLE)]
    if spec.get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT["key"], UNSCHEDULABLE_TAINT["effect"]))
    own = _OWN_TAINTS | _OWN_EVICTIONS if evict else _OWN_TAINTS
    present = {
        (each.get("key"), each.get("effect")): dict(each) for each in spec.get("taints") or ()
    }
    kept = [
        taint for identity, taint in present.items() if identity not in own or identity in wanted
    ]
    return kept + [
        {"key": key, "effect": effect, "timeAdded": now}
        for key, effect in wanted
        if (key, effect) not in present
    ]


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
        limits = [
            each["tolerationSeconds"]
            for each in matching
            if each.get("tolerationSeconds") is not None
        ]
        if limits:
            added = datetime.fromisoformat(taint["timeAdded"]) if taint.get("timeAdded") else now
            times.append(added + timedelta(seconds=max(0, min(limits))))
    return min(times, default=None)
