"""The controllers of the embedded control plane, tested through its API.

A real control plane without a controller manager has no controllers, so these tests start the embedded one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from envtest import ControlPlane
from envtest.api_client import TIMEOUT_SECONDS, APIClient
from test.support.config_maps import CONFIG_MAPS, config_map

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@asynccontextmanager
async def running(*controllers: str) -> AsyncIterator[APIClient]:
    async with ControlPlane.embedded(controllers=controllers) as plane, APIClient(plane) as api:
        yield api


async def wait_for(
    api: APIClient, folder: str, name: str, condition: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Watch an object until it satisfies a condition, and return it."""
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        api.watch(folder, {"fieldSelector": f"metadata.name={name}"}) as watch,
    ):
        while True:
            event = await watch.event()
            obj: dict[str, Any] = event["object"]
            if event["type"] != "DELETED" and condition(obj):
                return obj


async def wait_deleted(api: APIClient, path: str) -> None:
    await api.until(path, 404)


def reference(owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    async with running("gc") as api:
        owner = (await api.post(CONFIG_MAPS, config_map("owner"))).body
        references = [reference(owner, blockOwnerDeletion=True)]
        await api.post(
            CONFIG_MAPS,
            config_map("mine", ownerReferences=references, finalizers=["example.com/hold"]),
        )
        deleting = await api.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
        assert deleting.body["metadata"]["finalizers"] == ["foregroundDeletion"]
        await wait_for(api, CONFIG_MAPS, "mine", lambda obj: "deletionTimestamp" in obj["metadata"])
        assert (await api.get(f"{CONFIG_MAPS}/owner")).code == 200
        await api.merge(f"{CONFIG_MAPS}/mine", {"metadata": {"finalizers": None}})
        await wait_deleted(api, f"{CONFIG_MAPS}/owner")


async def test_orphans_lose_their_owner_reference() -> None:
    async with running("gc") as api:
        owner = (await api.post(CONFIG_MAPS, config_map("owner"))).body
        await api.post(CONFIG_MAPS, config_map("mine", ownerReferences=[reference(owner)]))
        await api.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Orphan"})
        await wait_deleted(api, f"{CONFIG_MAPS}/owner")
        assert "ownerReferences" not in (await api.get(f"{CONFIG_MAPS}/mine")).body["metadata"]


async def test_deleted_namespace_deletes_its_content() -> None:
    async with running("namespace", "serviceaccount") as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        await api.until("/api/v1/namespaces/team/serviceaccounts/default", 200)
        await api.post(
            "/api/v1/namespaces/team/configmaps", config_map("a", finalizers=["example.com/hold"])
        )
        await api.delete("/api/v1/namespaces/team")
        waiting = await wait_for(
            api, "/api/v1/namespaces", "team", lambda obj: obj["status"].get("conditions")
        )
        assert waiting["status"]["phase"] == "Terminating"
        remaining = next(
            item
            for item in waiting["status"]["conditions"]
            if item["type"] == "NamespaceFinalizersRemaining"
        )
        assert remaining["message"] == (
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
        await api.merge("/api/v1/namespaces/team/configmaps/a", {"metadata": {"finalizers": None}})
        await wait_deleted(api, "/api/v1/namespaces/team")


async def test_deployment_rolls_out_without_a_kubelet() -> None:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "x", "image": "x:1"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    async with running("gc", "deployment", "replicaset", "pods") as api:
        await api.post(DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": spec})
        await wait_for(
            api, DEPLOYMENTS, "a", lambda obj: obj.get("status", {}).get("availableReplicas") == 2
        )
        patch = [
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "x:2"}
        ]
        patched = await api.request(
            "PATCH", f"{DEPLOYMENTS}/a", patch, content_type="application/json-patch+json"
        )
        generation = patched.body["metadata"]["generation"]

        def updated(obj: dict[str, Any]) -> bool:
            status = obj["status"]
            counts = {
                status.get(count) for count in ("replicas", "updatedReplicas", "availableReplicas")
            }
            return status.get("observedGeneration", 0) >= generation and counts == {2}

        await wait_for(api, DEPLOYMENTS, "a", updated)
        pods = (await api.get("/api/v1/namespaces/default/pods")).body["items"]
        images = {
            item["spec"]["containers"][0]["image"]
            for item in pods
            if "deletionTimestamp" not in item["metadata"]
        }
        assert images == {"x:2"}
        await api.delete(f"{DEPLOYMENTS}/a", {"propagationPolicy": "Foreground"})
        await wait_deleted(api, f"{DEPLOYMENTS}/a")
        assert (await api.get("/api/v1/namespaces/default/pods")).body["items"] == []


async def test_job_fails_when_annotations_make_its_pods_fail() -> None:
    template = {
        "metadata": {"annotations": {"envtest.cfo/phase": "Failed", "envtest.cfo/exit-code": "3"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]},
    }
    async with running("job", "pods") as api:
        await api.post(
            JOBS, {"metadata": {"name": "a"}, "spec": {"backoffLimit": 0, "template": template}}
        )
        job = await wait_for(
            api,
            JOBS,
            "a",
            lambda obj: any(
                item["type"] == "Failed" for item in obj.get("status", {}).get("conditions", ())
            ),
        )
        failed = next(item for item in job["status"]["conditions"] if item["type"] == "Failed")
        assert (failed["status"], failed["reason"]) == ("True", "BackoffLimitExceeded")
        assert job["status"]["failed"] == 1


async def test_attributes_class_is_deleted_when_no_claim_uses_it() -> None:
    classes = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    claim = {
        "metadata": {"name": "c", "finalizers": []},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeAttributesClassName": "gold",
        },
    }
    async with running("persistentvolume") as api:
        for name in ("gold", "unused"):
            created = await api.post(
                classes,
                {
                    "metadata": {"name": name},
                    "driverName": "driver.example",
                    "parameters": {"a": "b"},
                },
            )
            assert created.body["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
        assert (await api.post(claims, claim)).code == 201
        await api.delete(f"{classes}/gold")
        await api.delete(f"{classes}/unused")
        await wait_deleted(api, f"{classes}/unused")
        assert (await api.get(f"{classes}/gold")).code == 200, "the claim uses it"
        await api.delete(f"{claims}/c")
        await wait_deleted(api, f"{classes}/gold")
