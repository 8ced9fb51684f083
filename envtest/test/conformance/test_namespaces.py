"""Namespaces: their status, finalizers and deletion."""

from __future__ import annotations

from typing import Any

from test.conformance.client import SpecClient
from test.conformance.specs import plays

NAMESPACES = "/api/v1/namespaces"


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "nginx", "image": "registry.k8s.io/pause:3.10"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


@plays("Namespaces should patch a Namespace", "Namespaces should apply an update to a Namespace")
async def test_labels_of_a_namespace(client: SpecClient, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    patched = await client.strategic(path, {"metadata": {"labels": {"testLabel": "testValue"}}})
    assert patched.body["metadata"]["labels"]["testLabel"] == "testValue"
    updated = await client.update(
        path, lambda obj: obj["metadata"]["labels"].update({namespace: "updated"})
    )
    assert updated["metadata"]["labels"][namespace] == "updated"
    assert updated["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace


@plays("Namespaces should apply changes to a namespace status")
async def test_status_of_a_namespace(client: SpecClient, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    assert (await client.read(f"{path}/status"))["status"]["phase"] == "Active"
    condition = {
        "type": "StatusPatch",
        "status": "True",
        "reason": "E2E",
        "message": "Patched by a test",
    }
    patched = await client.merge(f"{path}/status", {"status": {"conditions": [condition]}})
    assert patched.body["status"]["conditions"][0]["reason"] == "E2E"
    more = {
        "type": "StatusUpdate",
        "status": "True",
        "reason": "E2E",
        "message": "Updated by a test",
    }
    updated = await client.update(
        path, lambda obj: obj["status"]["conditions"].append(more), "/status"
    )
    assert [each["type"] for each in updated["status"]["conditions"]] == [
        "StatusPatch",
        "StatusUpdate",
    ]


@plays("Namespaces should apply a finalizer to a Namespace")
async def test_finalizers_of_a_namespace(client: SpecClient, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    finalizer = "e2e.example.com/fakeFinalizer"
    added = await client.update(
        path, lambda obj: obj["spec"]["finalizers"].append(finalizer), "/finalize"
    )
    assert added["spec"]["finalizers"] == ["kubernetes", finalizer]
    removed = await client.update(
        path, lambda obj: obj["spec"].update(finalizers=["kubernetes"]), "/finalize"
    )
    assert removed["spec"]["finalizers"] == ["kubernetes"]


@plays(
    "Namespaces should ensure that all pods are removed when a namespace is deleted",
    "Namespaces should ensure that all services are removed when a namespace is deleted",
)
async def test_deleted_namespace_has_no_objects_when_it_is_created_again(
    client: SpecClient, namespace: str
) -> None:
    path = f"{NAMESPACES}/{namespace}"
    await client.create(f"{path}/pods", pod("test-pod"))
    ready = lambda body: any(  # noqa: E731
        each["type"] == "Ready" and each["status"] == "True"
        for each in body["status"].get("conditions") or ()
    )
    await client.eventually(f"{path}/pods/test-pod", ready)
    service = {"selector": {"foo": "bar"}, "ports": [{"port": 80, "targetPort": 80}]}
    await client.create(
        f"{path}/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "test-service"},
            "spec": service,
        },
    )
    assert (await client.delete(path)).code == 200
    await client.vanished(path)
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    assert await client.names(f"{path}/pods") == await client.names(f"{path}/services") == []


@plays("OrderedNamespaceDeletion namespace deletion should delete pod first")
async def test_namespace_deletion_waits_for_pods_before_other_objects(
    client: SpecClient, namespace: str
) -> None:
    path = f"{NAMESPACES}/{namespace}"
    finalizer = {"finalizers": ["e2e.example.com/finalizer"]}
    await client.create(f"{path}/pods", pod("testpod", **finalizer))
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "testcm"},
        "data": {"key": "value"},
    }
    await client.create(f"{path}/configmaps", config_map)
    assert (await client.delete(path)).code == 200
    await client.eventually(
        f"{path}/pods/testpod", lambda body: body["metadata"].get("deletionTimestamp")
    )
    conditions = (
        await client.eventually(
            path,
            lambda body: any(
                each["type"] == "NamespaceFinalizersRemaining" and each["status"] == "True"
                for each in body["status"].get("conditions") or ()
            ),
        )
    )["status"]["conditions"]
    assert any("e2e.example.com/finalizer" in each["message"] for each in conditions)
    assert "deletionTimestamp" not in (await client.read(f"{path}/configmaps/testcm"))["metadata"]
    await client.update(f"{path}/pods/testpod", lambda obj: obj["metadata"].pop("finalizers"))
    await client.vanished(f"{path}/configmaps/testcm")
    await client.vanished(path)
