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


async def add_debugger(api: APIClient) -> None:
    """Add an ephemeral container to the pod, and wait until it runs."""
    debugger = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}}
    path = f"{PODS}/p/ephemeralcontainers"
    response = await api.request(
        "PATCH", path, debugger, content_type="application/strategic-merge-patch+json"
    )
    assert response.code == 200, response
    await api.until(f"{PODS}/p", condition=debugger_runs, timeout=60)


async def create_pod(api: APIClient, **spec: Any) -> None:
    """Create a pod, and wait until it runs."""
    containers = [{"name": "c", "image": "i"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}
    response = await api.post(PODS, pod)
    assert response.code == 201, response
    await api.until(f"{PODS}/p", condition=is_running, timeout=60)


@pytest.mark.parametrize("scenario", [None, SCENARIO], ids=["pods", "scenario"])
async def test_ephemeral_container_of_a_running_pod_starts(scenario: Any) -> None:
    controllers = ("pods",) if scenario is None else ()
    plane = ControlPlane.embedded(controllers=controllers, scenario=scenario)
    async with plane, APIClient(plane) as api:
        await create_pod(api)
        await add_debugger(api)


EVICTION = {"match": {"name": "p"}, "evict": {"after": 60}}


@pytest.mark.parametrize(
    ("spec", "pods", "reason"),
    [
        ({"activeDeadlineSeconds": 60}, [], "DeadlineExceeded"),
        ({}, [EVICTION], "Evicted"),
    ],
)
async def test_all_containers_of_a_pod_that_the_kubelet_ends_are_killed(
    spec: dict[str, Any], pods: list[Any], reason: str
) -> None:
    plane = ControlPlane.embedded(controllers=(), scenario={**SCENARIO, "pods": pods})
    async with plane, APIClient(plane) as api:
        await create_pod(api, **spec)
        await add_debugger(api)
        await plane.advance(61)
        status = (await api.get(f"{PODS}/p")).body["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    for kind in ("containerStatuses", "ephemeralContainerStatuses"):
        assert [each["state"]["terminated"]["exitCode"] for each in status[kind]] == [137]
