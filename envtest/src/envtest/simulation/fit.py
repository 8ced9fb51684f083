"""Whether a pod fits on a node, and the message about a pod that fits on none: the filters of kube-scheduler.

Node selectors, required node affinity, taints, host ports and resources are respected. Preferences, pod affinity,
topology spread constraints, volumes and claims are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, NamedTuple

import orjson

from envtest.apimachinery.objects import Object, labels_of
from envtest.builtins.pod_resources import total_resources
from envtest.schema.quantity import Quantity, parse_quantity

__all__ = [
    "NO_FREE_PORTS",
    "Demand",
    "NodeInfo",
    "Refusal",
    "Usage",
    "conflicts",
    "demand_of",
    "matches_node_affinity",
    "node_info",
    "refusal_of",
    "score",
    "tolerates",
    "unschedulable_message",
]

UNSCHEDULABLE_TAINT: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
NO_FREE_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
_SCHEDULING_EFFECTS: Final = ("NoSchedule", "NoExecute")

Quantities = dict[str, int]
"""Amounts in billionths, the smallest fraction of a quantity: sums of integers are exact and quick."""

Port = tuple[str, str, int]
_SCALE: Final = 10**9


class Demand(NamedTuple):
    """What a pod needs of its node. Pods with the same ``signature`` fit on the same nodes."""

    requests: Quantities
    ports: frozenset[Port]
    selector: Mapping[str, str]
    affinity: Sequence[Mapping[str, Any]] | None
    tolerations: Sequence[Mapping[str, Any]]
    preempts: bool
    signature: bytes


@dataclass
class Usage:
    """What the pods on a node use."""

    requests: Quantities = field(default_factory=dict)
    ports: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    """The addresses of each protocol and port."""
    pods: int = 0
    version: int = 0
    """Incremented by each change."""

    def change(self, demand: Demand, sign: int) -> None:
        """Add (``sign`` 1) or remove (-1) a pod."""
        self.version += 1
        self.pods += sign
        for name, value in demand.requests.items():
            self.requests[name] = self.requests.get(name, 0) + sign * value
        for address, protocol, number in demand.ports:
            addresses = self.ports.setdefault((protocol, number), Counter())
            addresses[address] += sign
            if not addresses[address]:
                del addresses[address]
            if not addresses:
                del self.ports[protocol, number]


class NodeInfo(NamedTuple):
    """What a node offers."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    unschedulable: bool
    allocatable: Quantities


class Refusal(NamedTuple):
    """Why a pod does not fit on a node; ``is_final``: the removal of other pods would not change it."""

    reasons: tuple[str, ...]
    is_final: bool


def _scaled(quantity: Quantity) -> int:
    return ceil(quantity.value * _SCALE)


def _quantities(values: Mapping[str, str] | None) -> Quantities:
    return {name: _scaled(parse_quantity(text)) for name, text in (values or {}).items()}


def requests_of(spec: Mapping[str, Any]) -> Quantities:
    """Return what a pod requests: the sum of its containers, or its own resources, and the overhead."""
    total = {
        name: _scaled(quantity) for name, quantity in total_resources(spec, "requests").items()
    }
    total.update(_quantities((spec.get("resources") or {}).get("requests")))
    for name, value in _quantities(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    return {name: value for name, value in total.items() if value}


def demand_of(pod: Object) -> Demand:
    """Return what a pod needs of its node."""
    spec = pod.get("spec") or {}
    requests = requests_of(spec)
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ports = frozenset(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])  # noqa: S104 - a wildcard
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    affinity = None if required is None else required.get("nodeSelectorTerms") or ()
    selector = spec.get("nodeSelector") or {}
    tolerations = spec.get("tolerations") or ()
    preempts = spec.get("preemptionPolicy") != "Never"
    parts = [
        {name: str(value) for name, value in requests.items()},
        sorted(ports),
        selector,
        affinity,
        tolerations,
    ]
    signature = orjson.dumps([*parts, preempts], option=orjson.OPT_SORT_KEYS)
    return Demand(requests, ports, selector, affinity, tolerations, preempts, signature)


def node_info(node: Object) -> NodeInfo:
    """Return what a node offers."""
    spec = node.get("spec") or {}
    status = node.get("status") or {}
    allocatable = _quantities(status.get("allocatable") or status.get("capacity"))
    taints = spec.get("taints") or ()
    return NodeInfo(
        node["metadata"]["name"],
        labels_of(node),
        taints,
        bool(spec.get("unschedulable")),
        allocatable,
    )


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration tolerates a taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    value = str(taint.get("value") or "")
    limit = str(toleration.get("value") or "")
    if operator in ("Gt", "Lt"):
        try:
            return int(value) > int(limit) if operator == "Gt" else int(value) < int(limit)
        except ValueError:
            return False
    return bool(toleration.get("key")) and value == limit


def _matches_expression(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key = expression.get("key", "")
    operator = expression.get("operator")
    wanted = expression.get("values") or []
    present = values.get(key)
    if operator in ("Gt", "Lt"):
        try:
            number = int(present or "")
            limit = int(wanted[0])
        except (ValueError, IndexError):
            return False
        return number > limit if operator == "Gt" else number < limit
    return {
        "In": present in wanted,
        "NotIn": present not in wanted,
        "Exists": present is not None,
        "DoesNotExist": present is None,
    }.get(str(operator), False)


def matches_node_affinity(
    terms: Sequence[Mapping[str, Any]], name: str, labels: Mapping[str, str]
) -> bool:
    """Return whether a node matches one of the terms; a term without expressions matches no node."""
    for term in terms:
        expressions = term.get("matchExpressions") or ()
        fields = term.get("matchFields") or ()
        if not expressions and not fields:
            continue
        if all(_matches_expression(each, labels) for each in expressions) and all(
            _matches_expression(each, {"metadata.name": name}) for each in fields
        ):
            return True
    return False


def refusal_of(demand: Demand, node: NodeInfo, usage: Usage) -> Refusal | None:
    """Return why a pod does not fit on a node, by the first filter that rejects it; ``None`` if it fits."""
    if node.unschedulable and not any(
        tolerates(each, UNSCHEDULABLE_TAINT) for each in demand.tolerations
    ):
        return Refusal(("node(s) were unschedulable",), is_final=True)
    for taint in node.taints:
        if taint.get("effect") in _SCHEDULING_EFFECTS and not any(
            tolerates(each, taint) for each in demand.tolerations
        ):
            return Refusal(("node(s) had untolerated taint(s)",), is_final=True)
    is_selected = all(node.labels.get(name) == value for name, value in demand.selector.items())
    if not is_selected or (
        demand.affinity is not None
        and not matches_node_affinity(demand.affinity, node.name, node.labels)
    ):
        return Refusal(("node(s) didn't match Pod's node affinity/selector",), is_final=True)
    if conflicts(demand, usage):
        return Refusal((NO_FREE_PORTS,), is_final=False)
    return _resource_refusal(demand, node, usage)


def conflicts(demand: Demand, usage: Usage) -> bool:
    """Return whether a host port of the pod is in use."""
    return any(_conflicts(port, usage.ports) for port in demand.ports)


def _conflicts(port: Port, used: Mapping[tuple[str, int], Counter[str]]) -> bool:
    address, protocol, number = port
    addresses = used.get((protocol, number), Counter())
    wildcard = "0.0.0.0"  # noqa: S104 - a wildcard
    return bool(addresses) and (
        wildcard == address or wildcard in addresses or address in addresses
    )


def _resource_refusal(demand: Demand, node: NodeInfo, usage: Usage) -> Refusal | None:
    reasons = []
    is_final = False
    if (usage.pods + 1) * _SCALE > node.allocatable.get("pods", 0):
        reasons.append("Too many pods")
    for name, wanted in demand.requests.items():
        offered = node.allocatable.get(name, 0)
        if wanted > offered - usage.requests.get(name, 0):
            reasons.append(f"Insufficient {name}")
            is_final = is_final or wanted > offered
    return Refusal(tuple(reasons), is_final) if reasons else None


def score(demand: Demand, node: NodeInfo, usage: Usage) -> tuple[int, float, int, str]:
    """Return how bad a node is for a pod: by taints that it should avoid, then by what is used, then by name."""
    avoided = sum(
        taint.get("effect") == "PreferNoSchedule"
        and not any(tolerates(each, taint) for each in demand.tolerations)
        for taint in node.taints
    )
    shares = [
        (usage.requests.get(name, 0) + demand.requests.get(name, 0)) / node.allocatable[name]
        for name in ("cpu", "memory")
        if node.allocatable.get(name)
    ]
    return avoided, sum(shares), usage.pods, node.name


def _histogram(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))


def unschedulable_message(refusals: Sequence[Refusal], *, preempts: bool) -> str:
    """Return the message of kube-scheduler about a pod that fits on none of the nodes."""
    if not refusals:
        return "no nodes available to schedule pods"
    count = len(refusals)
    reasons = _histogram(reason for refusal in refusals for reason in refusal.reasons)
    message = f"0/{count} nodes are available: {reasons}. no new claims to deallocate, preemption: "
    if not preempts:
        return f"{message}not eligible due to preemptionPolicy=Never."
    outcomes = _histogram(
        "Preemption is not helpful for scheduling"
        if each.is_final
        else "No preemption victims found for incoming pod"
        for each in refusals
    )
    return f"{message}0/{count} nodes are available: {outcomes}."
