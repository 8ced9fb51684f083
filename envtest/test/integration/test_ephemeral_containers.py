"""Ephemeral containers, which ``kubectl debug`` adds, run on simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

PODS = "/api/v1/namespaces/default/pods"
SCENARIO = {"nodes": [{"name": "n", "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}}]}


def is_running(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def debugger_runs(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("ephemeralContainerStatuses") or ()
    return [each["name"] for each in statuses if "running" in each["state"]] == ["debugger"]


@pytest.mark.parametrize("scenario", [None, SCENARIO], ids=["pods", "scenario"])
async def test_ephemeral_container_of_a_running_pod_starts(scenario: Any) -> None:
    controllers = ("pods",) if scenario is None else ()
    plane = ControlPlane.embedded(controllers=controllers, scenario=scenario)
    async with plane, APIClient(plane) as api:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        assert (await api.post(PODS, pod)).code == 201
        await api.until(f"{PODS}/p", condition=is_running, timeout=60)
        debugger = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}}
        path = f"{PODS}/p/ephemeralcontainers"
        response = await api.request(
            "PATCH", path, debugger, content_type="application/strategic-merge-patch+json"
        )
        assert response.code == 200
        await api.until(f"{PODS}/p", condition=debugger_runs, timeout=60)
