"""The examples in docs/ behave as documented."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from cfo.runtime import Builder, Manager, ManagerOptions
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.controller import SyncClient
from cfo.runtime.controller.reconcile import Result
from cfo.runtime.objects.unstructured import GVK, NamespacedName, controller_of
from envtest import ControlPlane
from test.support.config_map_webhooks import free_url
from test.support.raycluster_environment import crd, eventually

DOCS = Path(__file__).parents[2] / "docs"
WEBSITE = GVK("example.com", "v1", "Website")
KEY = NamespacedName("default", "hello")


def load_example(document: str, first_line: str) -> ModuleType:
    """Execute the fenced block of ``document`` that begins with ``first_line``, and return it as a module."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / document).read_text(), flags=re.DOTALL)
    (source,) = [block for block in blocks if block.startswith(first_line)]
    module = ModuleType(first_line.strip("# "))
    exec(compile(source, f"{document}:{first_line}", "exec"), module.__dict__)
    return module


async def test_operator_example_of_the_runtime_guide() -> None:
    website = load_example("runtime.md", "# website.py")
    (text,) = re.findall(r"```yaml\n(# website.yaml.*?)```", (DOCS / "runtime.md").read_text(), flags=re.DOTALL)
    async with ControlPlane.auto(crds=[yaml.safe_load(text)]) as plane:
        manager = website.new_manager(ClientConfig.for_control_plane(plane))
        async with manager:
            await manager.started()
            client = manager.api_reader.with_field_manager("tester")
            obj = await client.create(
                {
                    "apiVersion": WEBSITE.api_version,
                    "kind": WEBSITE.kind,
                    "metadata": {"namespace": KEY.namespace, "name": KEY.name},
                    "spec": {"html": "<h1>Hello</h1>", "replicas": 2},
                }
            )

            async def get_status() -> Any:
                found = await client.get(WEBSITE, KEY)
                assert found is not None
                return found.get("status")

            assert await eventually(get_status, "a status") == {"readyReplicas": 0}
            deployment = await client.get(website.DEPLOYMENT, KEY)
            assert deployment is not None
            assert deployment["spec"]["replicas"] == 2
            assert (controller_of(deployment) or {}).get("uid") == obj["metadata"]["uid"]
            config_map = await client.get(website.CONFIG_MAP, KEY)
            assert config_map is not None
            assert config_map["data"] == {"index.html": "<h1>Hello</h1>"}

            await client.patch(
                website.DEPLOYMENT, KEY, {"status": {"replicas": 2, "readyReplicas": 2}}, subresource="status"
            )

            async def ready() -> bool:
                return bool(await get_status() == {"readyReplicas": 2})

            assert await eventually(ready, "the reported replicas")


async def test_webhook_example_of_the_runtime_guide() -> None:
    website = load_example("runtime.md", "# website_webhook.py")
    async with ControlPlane.auto(crds=[crd("example.com", "v1", "Website", "websites")]) as plane:
        manager = website.new_manager(ClientConfig.for_control_plane(plane), str(free_url()))
        async with manager:
            await manager.started()

            async def ready() -> bool:
                return "webhooks" not in await manager.health.failures()

            await eventually(ready, "the webhooks")
            client = manager.api_reader.with_field_manager("tester")
            obj = {
                "apiVersion": WEBSITE.api_version,
                "kind": WEBSITE.kind,
                "metadata": {"namespace": KEY.namespace, "name": KEY.name},
                "spec": {"html": "<h1>Hello</h1>"},
            }
            assert (await client.create(obj))["spec"]["replicas"] == 1
            with pytest.raises(Forbidden, match=r"spec.html: Required value: must contain the page"):
                await client.patch(WEBSITE, KEY, {"spec": {"html": ""}})
            assert (await client.patch(WEBSITE, KEY, {"spec": {"replicas": 0}}))["spec"]["replicas"] == 0


async def test_handlers_in_the_manager_of_a_program_in_the_guide_for_users_of_kopf() -> None:
    bakery = load_example("from-kopf.md", "# bakery.py")
    website = crd("example.com", "v1", "Website", "websites")
    async with ControlPlane.auto(crds=[website]) as plane:
        manager = bakery.new_manager(ClientConfig.for_control_plane(plane))
        async with manager:
            await manager.started()
            client = manager.api_reader.with_field_manager("tester")
            metadata = {"namespace": KEY.namespace, "name": KEY.name}
            await client.create({"apiVersion": WEBSITE.api_version, "kind": WEBSITE.kind, "metadata": metadata})

            async def get_status() -> Any:
                return (await client.get(WEBSITE, KEY) or {}).get("status")

            assert await eventually(get_status) == {"create": {"message": "hello was created"}}


async def test_sync_reconciler_of_the_runtime_guide_runs_in_a_thread() -> None:
    posted: list[Any] = []
    example = load_example("runtime-topics.md", "class Reporter:")
    example.__dict__.update(SyncClient=SyncClient, Result=Result, WEBSITE=WEBSITE)
    example.__dict__["requests"] = SimpleNamespace(post=lambda url, **options: posted.append((url, options["json"])))
    async with ControlPlane.auto(crds=[crd("example.com", "v1", "Website", "websites")]) as plane:
        manager = Manager(ClientConfig.for_control_plane(plane), ManagerOptions(field_manager="reporter"))
        Builder(manager).for_(WEBSITE).complete(example.Reporter(manager.client))
        async with manager:
            await manager.started()
            metadata = {"namespace": KEY.namespace, "name": KEY.name}
            website = {"apiVersion": WEBSITE.api_version, "kind": WEBSITE.kind, "metadata": metadata, "spec": {"a": 1}}
            await manager.api_reader.create(website)

            async def is_posted() -> bool:
                return posted == [("https://reports.example.com", {"a": 1})]

            await eventually(is_posted)
