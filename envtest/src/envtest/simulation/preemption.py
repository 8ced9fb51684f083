"""Which pods a pod of higher priority removes from a node, so that it fits: the preemption of kube-scheduler.

PodDisruptionBudgets are not respected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envtest.apimachinery.objects import NamespacedName
from envtest.simulation.fit import Demand, NodeInfo, Usage, refusal_of

__all__ = ["Candidate", "Plan", "plan_preemption"]


class Candidate(NamedTuple):
    """A pod of lower priority on a node."""

    priority: int
    key: NamespacedName
    demand: Demand


class Plan(NamedTuple):
    """The pods to remove from a node."""

    node: str
    victims: tuple[NamespacedName, ...]


def plan_preemption(
    demand: Demand,
    nodes: Iterable[tuple[NodeInfo, Iterable[Demand]]],
    lower: Mapping[str, Sequence[Candidate]],
) -> Plan | None:
    """Return the node on which the least important pods must be removed; ``None`` if that helps on none.

    ``nodes`` are the nodes with the demands of their pods that stay, ``lower`` the pods that may be removed.
    """
    plans = []
    for node, staying in nodes:
        candidates = lower.get(node.name, ())
        usage = Usage()
        for each in staying:
            usage.change(each, 1)
        if not candidates or refusal_of(demand, node, usage) is not None:
            continue
        victims = []
        for candidate in sorted(candidates, key=lambda each: each[:2], reverse=True):
            usage.change(candidate.demand, 1)
            if refusal_of(demand, node, usage) is not None:
                usage.change(candidate.demand, -1)
                victims.append(candidate)
        priorities = sorted((each.priority for each in victims), reverse=True)
        plans.append(
            (
                priorities[:1],
                sum(priorities),
                len(victims),
                node.name,
                tuple(each.key for each in victims),
            )
        )
    if not plans:
        return None
    *_, node_name, keys = min(plans)
    return Plan(node_name, keys)
