"""ReplicationControllers: pods, adoption, scale and failures."""

from __future__ import annotations

from typing import Any

from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays
from test.conformance.test_garbage_collector import controller


def pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


@plays("ReplicationController should test the lifecycle of a ReplicationController")
async def test_each_verb(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    one = f"{path}/rc-test"
    async with client.watching(path) as watch:
        body = controller("rc-test", 1, {"test-rc-static": "true"})
        body["metadata"]["labels"] = {"test-rc-static": "true"}
        await client.create(path, body)
        await matching(watch, "ADDED", lambda obj: obj["metadata"]["name"] == "rc-test")
        await matching(watch, "MODIFIED", lambda obj: obj["status"].get("readyReplicas") == 1)
        patched = await client.strategic(
            one, {"metadata": {"labels": {"test-rc": "patched"}}, "spec": {"replicas": 0}}
        )
        assert patched.body["metadata"]["labels"]["test-rc"] == "patched"
        await matching(watch, "MODIFIED", lambda obj: not obj["status"].get("readyReplicas"))
        status = await client.strategic(
            f"{one}/status", {"status": {"readyReplicas": 0, "availableReplicas": 0}}
        )
        assert status.code == 200, status.body
        assert (await client.read(f"{one}/status"))["status"].get("readyReplicas", 0) == 0
        await client.update(one, lambda obj: obj["spec"].update(replicas=2))
        await matching(watch, "MODIFIED", lambda obj: obj["status"].get("availableReplicas") == 2)
        scale = await client.read(f"{one}/scale")
        assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 2)
        everywhere = "/api/v1/replicationcontrollers"
        assert await client.names(everywhere, labelSelector="test-rc-static=true") == ["rc-test"]
        assert (
            await client.delete(path, query={"labelSelector": "test-rc-static=true"})
        ).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "rc-test")


@plays("ReplicationController should get and update a ReplicationController scale")
async def test_scale(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    await client.create(path, controller("e2e-rc", 1))
    assert (await client.read(f"{path}/e2e-rc/scale"))["spec"]["replicas"] == 1
    await client.update(f"{path}/e2e-rc/scale", lambda scale: scale["spec"].update(replicas=2))
    await client.eventually(f"{path}/e2e-rc", lambda body: body["status"].get("readyReplicas") == 2)
    status = (await client.read(f"{path}/e2e-rc/scale"))["status"]
    assert status == {"replicas": 2, "selector": "app=gc-test"}


@plays("ReplicationController should adopt matching pods on creation")
async def test_matching_pod_is_adopted(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    await client.create(f"{core}/pods", pod("pod-adoption", {"name": "pod-adoption"}))
    owner = await client.create(
        f"{core}/replicationcontrollers", controller("pod-adoption", 1, {"name": "pod-adoption"})
    )
    adopted = await client.eventually(
        f"{core}/pods/pod-adoption", lambda body: body["metadata"].get("ownerReferences")
    )
    (reference,) = adopted["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "name": "pod-adoption",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


@plays("ReplicationController should release no longer matching pods")
async def test_pod_that_does_not_match_is_released(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    await client.create(
        f"{core}/replicationcontrollers", controller("pod-release", 1, {"name": "pod-release"})
    )
    (pod,) = (await client.eventually(f"{core}/pods", lambda body: body["items"]))["items"]
    one = f"{core}/pods/{pod['metadata']['name']}"
    await client.update(one, lambda obj: obj["metadata"]["labels"].update(name="not-matching-name"))
    await client.eventually(one, lambda body: "ownerReferences" not in body["metadata"])
    await client.eventually(f"{core}/pods", lambda body: len(body["items"]) == 2)


@plays(
    "ReplicationController should surface a failure condition on a common issue like exceeded quota"
)
async def test_exceeded_quota_is_a_condition(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    quota = {"metadata": {"name": "condition-test"}, "spec": {"hard": {"pods": "2"}}}
    await client.create(
        f"{core}/resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", **quota}
    )
    await client.eventually(
        f"{core}/resourcequotas/condition-test",
        lambda body: (body.get("status") or {}).get("hard") == {"pods": "2"},
    )
    one = f"{core}/replicationcontrollers/condition-test"
    await client.create(f"{core}/replicationcontrollers", controller("condition-test", 3))
    body = await client.eventually(one, lambda body: (body.get("status") or {}).get("conditions"))
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    await client.update(one, lambda obj: obj["spec"].update(replicas=2))
    await client.eventually(one, lambda body: not body["status"].get("conditions"))
