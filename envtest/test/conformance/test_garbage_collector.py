"""The garbage collector, and the controllers of ReplicationControllers and Deployments whose objects it deletes."""

from __future__ import annotations

from typing import Any

from test.conformance.client import SpecClient
from test.conformance.specs import plays

TEMPLATE = {
    "metadata": {"labels": {"app": "gc-test"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "nginx", "image": "nginx"}],
    },
}


def controller(name: str, replicas: int, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a ReplicationController."""
    template = {**TEMPLATE, "metadata": {"labels": labels}} if labels else TEMPLATE
    spec = {"replicas": replicas, "selector": template["metadata"]["labels"], "template": template}
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": name},
        "spec": spec,
    }


def deployment(name: str, replicas: int = 2) -> dict[str, Any]:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "gc-test"}},
        "template": TEMPLATE,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def options(policy: str, obj: dict[str, Any]) -> dict[str, Any]:
    preconditions = {"uid": obj["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": policy,
        "preconditions": preconditions,
    }


@plays("Garbage collector should delete pods created by rc when not orphaning")
async def test_pods_of_a_controller_are_deleted_in_the_background(
    client: SpecClient, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    owner = await client.create(f"{core}/replicationcontrollers", controller("simpletest.rc", 2))
    await client.eventually(f"{core}/pods", lambda body: len(body["items"]) == 2)
    one = f"{core}/replicationcontrollers/simpletest.rc"
    assert (await client.delete(one, options("Background", owner))).code == 200
    await client.vanished(one)
    await client.eventually(f"{core}/pods", lambda body: not body["items"])


@plays("Garbage collector should orphan pods created by rc if delete options say so")
async def test_pods_of_a_controller_are_orphaned(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    one = f"{core}/replicationcontrollers/simpletest.rc"
    owner = await client.create(f"{core}/replicationcontrollers", controller("simpletest.rc", 10))
    await client.eventually(one, lambda body: (body.get("status") or {}).get("replicas") == 10)
    assert (await client.delete(one, options("Orphan", owner))).code == 200
    await client.vanished(one)
    pods = (await client.read(f"{core}/pods"))["items"]
    assert [pod["metadata"].get("ownerReferences") for pod in pods] == [None] * 10


@plays(
    "Garbage collector should keep the rc around until all its pods are deleted if the deleteOptions says so"
)
async def test_controller_is_deleted_after_its_pods(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    one = f"{core}/replicationcontrollers/simpletest.rc"
    owner = await client.create(f"{core}/replicationcontrollers", controller("simpletest.rc", 10))
    await client.eventually(one, lambda body: (body.get("status") or {}).get("replicas") == 10)
    async with (
        client.watching(f"{core}/pods") as pods,
        client.watching(f"{core}/replicationcontrollers") as owners,
    ):
        assert (await client.delete(one, options("Foreground", owner))).code == 200
        deleted = []
        while len(deleted) < 10:
            event = await pods.event()
            deleted += [event] if event["type"] == "DELETED" else []
        last = max(int(event["object"]["metadata"]["resourceVersion"]) for event in deleted)
        while (event := await owners.event())["type"] != "DELETED":
            pass
        assert int(event["object"]["metadata"]["resourceVersion"]) > last


@plays(
    "Garbage collector should not delete dependents that have both valid owner and owner that's waiting for dependents"
    " to be deleted"
)
async def test_pod_with_another_owner_remains(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    first, second = (
        f"{core}/replicationcontrollers/simpletest-rc-{end}" for end in ("to-be-deleted", "to-stay")
    )
    owner = await client.create(
        f"{core}/replicationcontrollers", controller(first.rpartition("/")[2], 10)
    )
    await client.eventually(first, lambda body: (body.get("status") or {}).get("replicas") == 10)
    stay = await client.create(
        f"{core}/replicationcontrollers",
        controller(second.rpartition("/")[2], 0, {"another": "value"}),
    )
    reference = {"apiVersion": "v1", "kind": "ReplicationController", **_identity(stay)}
    names = (await client.names(f"{core}/pods"))[:5]
    for name in names:
        patch = {"metadata": {"ownerReferences": [reference]}}
        assert (await client.strategic(f"{core}/pods/{name}", patch)).code == 200
    assert (await client.delete(first, options("Foreground", owner))).code == 200
    await client.vanished(first)
    pods = (await client.read(f"{core}/pods"))["items"]
    assert sorted(pod["metadata"]["name"] for pod in pods) == names
    assert [pod["metadata"].get("deletionTimestamp") for pod in pods] == [None] * 5


def _identity(obj: dict[str, Any]) -> dict[str, str]:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


@plays("Garbage collector should not be blocked by dependency circle")
async def test_circle_of_owners_is_deleted(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    pods = []
    for number in (1, 2, 3):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod{number}"},
            "spec": TEMPLATE["spec"],
        }
        pods.append(await client.create(f"{core}/pods", body))
    for pod, owner in zip(pods, (pods[2], pods[0], pods[1]), strict=True):
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "controller": True,
            "blockOwnerDeletion": True,
        }
        patch = {"metadata": {"ownerReferences": [{**reference, **_identity(owner)}]}}
        assert (await client.strategic(f"{core}/pods/{pod['metadata']['name']}", patch)).code == 200
    assert (await client.delete(f"{core}/pods/pod1", options("Foreground", pods[0]))).code == 200
    await client.eventually(f"{core}/pods", lambda body: not body["items"])


@plays("Garbage collector should delete RS created by deployment when not orphaning")
async def test_replica_set_of_a_deployment_is_deleted(client: SpecClient, namespace: str) -> None:
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    owner = await client.create(f"{apps}/deployments", deployment("simpletest.deployment"))
    await client.eventually(f"{apps}/replicasets", lambda body: body["items"])
    one = f"{apps}/deployments/simpletest.deployment"
    assert (await client.delete(one, options("Background", owner))).code == 200
    for path in (f"{apps}/replicasets", f"/api/v1/namespaces/{namespace}/pods"):
        await client.eventually(path, lambda body: not body["items"])


@plays(
    "Garbage collector should orphan RS created by deployment when deleteOptions.PropagationPolicy is Orphan"
)
async def test_replica_set_of_a_deployment_is_orphaned(client: SpecClient, namespace: str) -> None:
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    owner = await client.create(f"{apps}/deployments", deployment("simpletest.deployment"))
    await client.eventually(
        f"{apps}/replicasets",
        lambda body: [each for each in body["items"] if each["status"].get("replicas") == 2],
    )
    one = f"{apps}/deployments/simpletest.deployment"
    assert (await client.delete(one, options("Orphan", owner))).code == 200
    await client.vanished(one)
    (replica_set,) = (await client.read(f"{apps}/replicasets"))["items"]
    assert "ownerReferences" not in replica_set["metadata"]
    assert len(await client.names(f"/api/v1/namespaces/{namespace}/pods")) == 2
