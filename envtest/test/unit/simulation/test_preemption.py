"""Which pods are removed from which node for a pod of higher priority."""

from __future__ import annotations

from envtest.apimachinery.objects import NamespacedName
from envtest.simulation.fit import Demand, demand_of, node_info
from envtest.simulation.preemption import Candidate, Plan, plan_preemption

NODES = tuple(
    node_info({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}})
    for name in "ab"
)


def demand(cpu: str) -> Demand:
    return demand_of(
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    )


def candidate(name: str, priority: int, cpu: str) -> Candidate:
    return Candidate(priority, NamespacedName("default", name), demand(cpu))


def names(plan: Plan | None) -> tuple[str, list[str]]:
    assert plan is not None
    return plan.node, [key.name for key in plan.victims]


def test_pods_of_higher_priority_remain_if_possible() -> None:
    lower = {"a": [candidate("one", 1, "1"), candidate("two", 2, "1"), candidate("three", 3, "2")]}
    assert names(plan_preemption(demand("1"), [(NODES[0], ())], lower)) == ("a", ["one"])
    assert names(plan_preemption(demand("2"), [(NODES[0], ())], lower)) == ("a", ["two", "one"])


def test_node_with_the_least_important_victims_is_chosen() -> None:
    lower = {
        "a": [candidate("five", 5, "4")],
        "b": [candidate("one", 1, "2"), candidate("two", 2, "2")],
    }
    assert names(plan_preemption(demand("3"), [(node, ()) for node in NODES], lower)) == (
        "b",
        ["two", "one"],
    )


def test_no_pod_is_removed_without_effect() -> None:
    lower = {"a": [candidate("one", 1, "2")]}
    assert plan_preemption(demand("3"), [(NODES[0], (demand("2"),))], lower) is None
    assert plan_preemption(demand("1"), [(NODES[1], (demand("4"),))], lower) is None
