"""The demo's replacement for Kueue: which pods of a queue it admits."""

from __future__ import annotations

from typing import Any

from cfo.console.demo.kueue_queues import QUOTA, admissible


def pod(name: str, *, gate: str = "kueue.x-k8s.io/admission", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata},
        "spec": {"schedulingGates": [{"name": gate}] if gate else []},
        "status": {"phase": "Pending"},
    }


def names(*pods: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in admissible(pods)]


def test_oldest_pods_are_admitted_up_to_the_quota() -> None:
    pods = [pod(f"p{number}") for number in range(QUOTA + 1)]
    pods[-1]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    assert names(*pods) == ["p3", "p0", "p1"]


def test_running_pods_hold_quota_until_they_have_ended() -> None:
    running = [pod(f"r{number}", gate="") for number in range(QUOTA)]
    assert names(*running, pod("a")) == []
    running[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert names(*running, pod("a")) == [], "it still terminates"
    running[0]["status"]["phase"] = "Succeeded"
    assert names(*running, pod("a")) == ["a"]


def test_pods_that_are_deleted_or_have_another_gate_are_not_admitted() -> None:
    deleted = pod("a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert names(deleted, pod("b", gate="other")) == []
