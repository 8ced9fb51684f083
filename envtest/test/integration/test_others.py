"""Unmodified third-party software on the control plane: kubernetes_asyncio and a kopf operator."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.toys import TOYS, toys_crd

OPERATOR = """
import kopf


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "example.com/kopf"
    settings.posting.enabled = False


@kopf.on.create("example.com", "v1", "toys")
def create(spec, name, patch, **_):
    patch.metadata.labels["seen"] = name
    return {"message": "made"}


@kopf.on.delete("example.com", "v1", "toys")
def delete(name, **_):
    print("deleted", name, flush=True)
"""


async def test_kubernetes_asyncio_client(plane: ControlPlane, tmp_path: Path) -> None:
    plane.kubeconfig(tmp_path / "kubeconfig")
    settings = client.Configuration()
    await config.load_kube_config(str(tmp_path / "kubeconfig"), client_configuration=settings)
    async with client.ApiClient(settings) as api_client:
        core = client.CoreV1Api(api_client)
        created = await core.create_namespaced_config_map(
            "default",
            client.V1ConfigMap(
                metadata=client.V1ObjectMeta(name="a", labels={"mine": ""}), data={"k": "v"}
            ),
        )
        assert created.metadata.uid
        listed = await core.list_namespaced_config_map("default", label_selector="mine")
        assert [item.data for item in listed.items] == [{"k": "v"}]
        await core.patch_namespaced_config_map("a", "default", {"data": {"k": "w"}})
        version = listed.metadata.resource_version
        async with watch.Watch() as events:
            async for event in events.stream(
                core.list_namespaced_config_map, "default", resource_version=version
            ):
                assert (event["type"], event["object"].data) == ("MODIFIED", {"k": "w"})
                break
        await core.delete_namespaced_config_map("a", "default")
        with pytest.raises(ApiException) as refused:
            await core.read_namespaced_config_map("a", "default")
        assert refused.value.status == 404
        custom = client.CustomObjectsApi(api_client)
        await plane.install_crds(TOYS)
        toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}
        await custom.create_namespaced_custom_object("example.com", "v1", "default", "toys", toy)
        toys = await custom.list_namespaced_custom_object("example.com", "v1", "default", "toys")
        assert [each["metadata"]["name"] for each in toys["items"]] == ["bear"]


@pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed")
async def test_kopf_operator(plane: ControlPlane, api: APIClient, tmp_path: Path) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    await plane.install_crds(toys_crd(version))
    plane.kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "operator.py").write_text(OPERATOR)
    command = [sys.executable, "-m", "kopf", "run", "-n", "default", str(tmp_path / "operator.py")]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        },
    )
    assert process.stdout is not None
    toys = "/apis/example.com/v1/namespaces/default/toys"
    try:
        toy = {
            "apiVersion": "example.com/v1",
            "kind": "Toy",
            "metadata": {"name": "bear"},
            "spec": {"size": 1},
        }
        async with api.watch(toys) as events:
            await api.post(toys, toy)
            async with asyncio.timeout(120):
                while True:
                    created = (await events.event(timeout=120))["object"]
                    if created["metadata"].get("labels") == {"seen": "bear"}:
                        break
            assert created["status"]["create"] == {"message": "made"}
            assert created["metadata"]["finalizers"] == ["example.com/kopf"]
            await api.delete(f"{toys}/bear")
            async with asyncio.timeout(120):
                while (await events.event(timeout=120))["type"] != "DELETED":
                    pass
    finally:
        process.terminate()
        output = (await process.communicate())[0].decode()
    assert "deleted bear" in output, output
