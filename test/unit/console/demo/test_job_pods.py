"""When pods of Jobs end on the embedded control plane."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.console.demo.job_pods import USUAL_SECONDS, is_left_running, seconds_of


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers)},
        "status": {"phase": "Running", "conditions": ready},
    }


@pytest.mark.parametrize(
    ("containers", "seconds"),
    [
        ([{}], USUAL_SECONDS),
        ([{"command": ["python", "train.py"]}], USUAL_SECONDS),
        ([{"command": ["sleep", "30"]}], 30),
        ([{"command": ["sleep"], "args": ["30"]}, {"args": ["sleep 40"]}], 40),
        ([{"command": ["sh", "-c", "sleep 3; echo; sleep 4"]}], 7),
        ([{"command": ["sleep", "infinity"]}], None),
        ([{"command": "x", "args": [1]}], USUAL_SECONDS),
    ],
)
def test_pod_of_a_job_runs_as_long_as_its_command_sleeps(
    containers: list[dict[str, Any]], seconds: float | None
) -> None:
    assert seconds_of(pod(*containers)) == seconds


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"containers": [{"command": "sleep 30"}]}, 30),
        ({"containers": [{"command": "hostname"}]}, USUAL_SECONDS),
        ({"containers": [{"command": "hostname"}], "interactive": True}, None),
        ({"containers": [{}]}, None),
    ],
)
def test_pod_of_a_minicluster_runs_as_long_as_its_command_unless_it_is_interactive(
    spec: dict[str, Any], seconds: float | None
) -> None:
    assert seconds_of(pod({"command": ["sleep", "9"]}), {"spec": spec}) == seconds


def test_annotated_failing_and_deleted_pods_are_not_changed() -> None:
    assert is_left_running(pod())
    annotated = pod()
    annotated["metadata"]["annotations"] = {"envtest.cfo/phase": "Running"}
    deleted = pod()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    failing = pod()
    failing["status"]["conditions"][0]["status"] = "False"
    pending = pod()
    pending["status"]["phase"] = "Pending"
    assert not any(map(is_left_running, [annotated, deleted, failing, pending]))
