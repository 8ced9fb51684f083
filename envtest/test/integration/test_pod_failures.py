"""Pods that fail without annotations, as they would in a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.controllers.pod_failures import exit_code

PODS = "/api/v1/namespaces/default/pods"


async def status_of(
    container: dict[str, Any],
    advance: float = 0,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return the status of a pod after ``advance`` seconds."""
    body = {
        "metadata": {"name": "pod", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "main", **container}], **spec},
    }
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        response = await api.post(PODS, body)
        assert response.code == 201, response.body
        await plane.advance(advance)
        status: dict[str, Any] = (await api.get(f"{PODS}/pod")).body["status"]
        return status


@pytest.mark.parametrize(
    ("image", "reason", "later"),
    [
        ("rayproject/ray:does-not-exist", "ErrImagePull", "ImagePullBackOff"),
        ("registry.invalid:5000/ray", "ErrImagePull", "ImagePullBackOff"),
        ("Ray Project/ray", "InvalidImageName", "InvalidImageName"),
    ],
)
async def test_image_that_cannot_be_pulled(image: str, reason: str, later: str) -> None:
    for advance, expected in ((0, reason), (11, later)):
        status = await status_of({"image": image}, advance)
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == expected


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
async def test_final_phase_does_not_start_a_pod_that_cannot_start(phase: str) -> None:
    annotations = {"envtest.cfo/phase": phase}
    status = await status_of({"image": "ray:not-found"}, annotations=annotations)
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    status = await status_of(
        {"resources": {"requests": {"memory": "300Gi"}}}, annotations=annotations
    )
    assert status["conditions"][0]["reason"] == "Unschedulable"


async def test_secret_that_is_missing_is_named_by_an_event_only() -> None:
    body = {
        "metadata": {"name": "pod"},
        "spec": {
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [
                {"name": "ca", "secret": {"secretName": "image-not-found-ca"}},
                {"name": "token", "secret": {"secretName": "token-not-found"}},
            ],
        },
    }
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        assert (await api.post(PODS, body)).code == 201
        await plane.advance(11)
        status = (await api.get(f"{PODS}/pod")).body["status"]
        events = (await api.get("/api/v1/namespaces/default/events")).body["items"]
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    warnings = [each for each in events if each["type"] == "Warning"]
    assert [(each["reason"], each["message"]) for each in warnings] == [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "token" : secret "token-not-found" not found',
        )
    ]


def reason_of(status: dict[str, Any]) -> str:
    (state,) = status["state"].values()
    return str(state["reason"])


@pytest.mark.parametrize(
    ("bad", "inits", "main"),
    [
        ("second", ["Completed", "ErrImagePull"], "PodInitializing"),
        ("main", ["Completed", "Completed"], "ErrImagePull"),
    ],
)
async def test_containers_before_the_one_without_image_have_completed(
    bad: str, inits: list[str], main: str
) -> None:
    images = {name: name for name in ("first", "second", "main")}
    images[bad] = "image:does-not-exist"
    init_containers = [{"name": name, "image": images[name]} for name in ("first", "second")]
    status = await status_of({"image": images["main"]}, initContainers=init_containers)
    assert [reason_of(each) for each in status["initContainerStatuses"]] == inits
    assert [reason_of(each) for each in status["containerStatuses"]] == [main]


async def test_scheduled_pod_has_no_reason_of_its_removed_gate() -> None:
    body = {
        "metadata": {"name": "pod"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}]},
    }
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        await api.post(PODS, body)
        await plane.advance(0)
        await api.merge(f"{PODS}/pod", {"spec": {"schedulingGates": None}})
        await plane.advance(0)
        status = (await api.get(f"{PODS}/pod")).body["status"]
    assert status["phase"] == "Running"
    (scheduled,) = [each for each in status["conditions"] if each["type"] == "PodScheduled"]
    assert (scheduled["status"], "reason" in scheduled) == ("True", False)


@pytest.mark.parametrize(("code", "phase"), [(3, "Failed"), (0, "Succeeded")])
async def test_command_that_exits(code: int, phase: str) -> None:
    status = await status_of(
        {"command": ["sh", "-c", f"echo x; exit {code}"]}, restartPolicy="Never"
    )
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


async def test_container_that_exits_is_restarted() -> None:
    status = await status_of({"command": ["/bin/sh", "-c"], "args": ["exit 3"]})
    assert status["phase"] == "Running"
    (container,) = status["containerStatuses"]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 3
    assert not container["ready"]


def exiting(name: str, code: int) -> dict[str, Any]:
    return {"name": name, "image": name, "command": ["sh", "-c", f"exit {code}"]}


@pytest.mark.parametrize(
    ("policy", "code", "states"),
    [
        ("Never", 0, ["running", "Completed"]),
        ("Never", 3, ["running", "Error"]),
        ("OnFailure", 0, ["running", "Completed"]),
        ("OnFailure", 3, ["CrashLoopBackOff"]),
        ("Always", 0, ["CrashLoopBackOff"]),
    ],
)
async def test_restart_policy_decides_whether_a_container_is_restarted(
    policy: str, code: int, states: list[str]
) -> None:
    is_restarted = states == ["CrashLoopBackOff"]
    body = {
        "metadata": {"name": "pod"},
        "spec": {"containers": [exiting("main", code)], "restartPolicy": policy},
    }
    seen: list[str] = []
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        created = await api.post(PODS, body)
        await plane.advance(0)
        query = {"resourceVersion": created.body["metadata"]["resourceVersion"]}
        async with api.watch(PODS, query) as watch:
            while len(seen) < len(states):
                status = (await watch.event())["object"]["status"]
                for container in status.get("containerStatuses") or ():
                    ((name, state),) = container["state"].items()
                    seen.append(state.get("reason", name))
                    assert container["restartCount"] == int(is_restarted)
    assert seen == states


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ("Never", ["Completed", "Error", "running"]),
        ("OnFailure", ["Completed", "CrashLoopBackOff", "running"]),
    ],
)
async def test_ended_containers_of_a_pod_that_runs(policy: str, reasons: list[str]) -> None:
    body = {
        "metadata": {"name": "pod"},
        "spec": {
            "containers": [exiting("good", 0), exiting("bad", 3), {"name": "runs", "image": "i"}],
            "restartPolicy": policy,
        },
    }
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        await api.post(PODS, body)
        await plane.advance(0)
        status = (await api.get(f"{PODS}/pod")).body["status"]
    assert status["phase"] == "Running"
    found = []
    for container in status["containerStatuses"]:
        ((name, state),) = container["state"].items()
        found.append(state.get("reason", name))
    assert found == reasons


async def test_containers_of_a_failed_pod_have_their_own_codes() -> None:
    body = {
        "metadata": {"name": "pod"},
        "spec": {"containers": [exiting("good", 0), exiting("bad", 3)], "restartPolicy": "Never"},
    }
    async with ControlPlane.embedded(controllers=["pods"]) as plane, APIClient(plane) as api:
        await api.post(PODS, body)
        await plane.advance(0)
        status = (await api.get(f"{PODS}/pod")).body["status"]
    ended = [container["state"]["terminated"] for container in status["containerStatuses"]]
    assert [(each["exitCode"], each["reason"]) for each in ended] == [
        (0, "Completed"),
        (3, "Error"),
    ]


@pytest.mark.parametrize(("code", "condition"), [(0, "Complete"), (1, "Failed")])
async def test_job_without_retries(code: int, condition: str) -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [exiting("main", code)]}}
    job = {"metadata": {"name": "job"}, "spec": {"backoffLimit": 0, "template": template}}
    path = "/apis/batch/v1/namespaces/default/jobs"
    async with (
        ControlPlane.embedded(controllers=["job", "pods"]) as plane,
        APIClient(plane) as api,
    ):
        await api.post(path, job)
        await plane.advance(10)
        status = (await api.get(f"{path}/job")).body["status"]
    assert condition in [each["type"] for each in status["conditions"]]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
async def test_pod_that_requests_more_than_the_node_has(resource: str) -> None:
    status = await status_of({"resources": {"requests": {resource: "300Gi"}}})
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert f"1 Insufficient {resource}" in condition["message"]


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "test -f x || exit 3"],
        ["sh", "-c", "if x; then exit 3; fi"],
        ["sh", "-c", "exit $code"],
        ["python", "-c", "exit 3"],
        ["exit", "3"],
        ["sh", "-c", "; exit 3" + " " * 2000],
        [],
    ],
)
def test_other_commands_run(command: list[str]) -> None:
    assert exit_code({"command": command}) is None


@pytest.mark.parametrize(
    "image", ["ray", "quay.io/a/b:1.2@sha256:" + "a" * 64, "localhost:5000/x_y/z:Tag", "a.b/c:v1"]
)
async def test_ordinary_images_run(image: str) -> None:
    assert (await status_of({"image": image}))["phase"] == "Running"
