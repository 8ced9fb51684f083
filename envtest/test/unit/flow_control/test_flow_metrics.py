"""The metrics of priority and fairness."""

from __future__ import annotations

from envtest.builtins.flow_control_defaults import LEVELS
from envtest.flow_control.flow_controller import Flow
from envtest.flow_control.flow_metrics import FlowMetrics, seats

FLOW = Flow("schema", "1", "level", "2")


def sample(metrics: FlowMetrics, name: str) -> float:
    samples = [each for family in metrics.families() for each in family.samples]
    (value,) = [each.value for each in samples if each.name == f"apiserver_flowcontrol_{name}"]
    return value


def test_seats_are_those_of_kube_apiserver() -> None:
    recorded = {
        "exempt": (0, 0, 600),
        "catch-all": (13, 13, 613),
        "global-default": (49, 24, 649),
        "leader-election": (25, 25, 625),
        "node-high": (98, 73, 698),
        "system": (74, 50, 674),
        "workload-high": (98, 49, 698),
        "workload-low": (245, 24, 845),
    }
    assert {name: each[:3] for name, each in seats(LEVELS).items()} == recorded


def test_borrowing_limit_bounds_the_upper_limit() -> None:
    limited = {"nominalConcurrencyShares": 5, "borrowingLimitPercent": 10}
    assert seats({"one": {"type": "Limited", "limited": limited}})["one"][:3] == (600, 600, 660)
    assert seats({"none": {"limited": {"nominalConcurrencyShares": 0}}})["none"][:2] == (0, 0)


def test_requests_are_counted_while_and_after_they_are_executed() -> None:
    metrics = FlowMetrics(dict)
    metrics.begin(FLOW)
    assert sample(metrics, "current_executing_requests") == 1
    metrics.end(FLOW, 0.25)
    metrics.count_watch(FLOW)
    assert sample(metrics, "current_executing_requests") == 0
    assert sample(metrics, "dispatched_requests_total") == 2
    assert sample(metrics, "request_execution_seconds_count") == 1
    assert sample(metrics, "request_execution_seconds_sum") == 0.25
