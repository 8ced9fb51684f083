"""The example behaves as its README promises."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import yaml

import cfo_handlers as kopf
from cfo.runtime import (
    CONFIG_MAP,
    Client,
    ClientConfig,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    controller_of,
    gvk_of,
    key_of,
    uid_of,
)
from cfo.runtime.objects import EVENT
from envtest import ControlPlane
from test.support import ROOT, eventually

EXAMPLE = ROOT / "example"


def load_handlers() -> kopf.OperatorRegistry:
    """Import the program, and return the handlers that it declares."""
    before = kopf.get_default_registry()
    registry = kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    spec = importlib.util.spec_from_file_location("example", EXAMPLE / "handlers.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    kopf.set_default_registry(before)
    return registry


async def test_handlers_keep_a_menu_count_and_announce_moves(
    kube_client: Client,
    control_plane: ControlPlane,
    namespace: str,
    install_crds: Callable[..., list[str]],
) -> None:
    install_crds(EXAMPLE / "crd.yaml")
    sample = yaml.safe_load((EXAMPLE / "obj.yaml").read_text())
    sample["metadata"]["namespace"] = namespace
    kind = gvk_of(sample)
    key = key_of(sample)
    config = ClientConfig.for_control_plane(control_plane)
    manager = Manager(config, ManagerOptions(field_manager="bakeries", namespaces=[namespace]))
    kopf.add_to(manager, registry=load_handlers())
    async with manager:
        await manager.started()
        bakery = await kube_client.create(sample)

        async def menu(text: str) -> Object:
            found = await kube_client.get(CONFIG_MAP, NamespacedName(namespace, "corner-menu"))
            assert found is not None
            assert found["data"]["menu"] == text
            return found

        first = await eventually(lambda: menu("baguette: 1.20\nbrioche: 2.50"))
        assert (controller_of(first) or {}).get("uid") == uid_of(bakery)

        async def status(**wanted: Any) -> bool:
            found = await kube_client.get(kind, key)
            assert found is not None
            actual = found.get("status") or {}
            assert {name: actual.get(name) for name in wanted} == wanted
            return True

        await eventually(lambda: status(write_menu={"breads": 2}, neighbors=0, baked=2))
        await kube_client.patch(kind, key, {"spec": {"open": False}})
        prices = {"baguette": None, "brioche": None, "rye": "3"}
        await kube_client.patch(kind, key, {"spec": {"city": "Paris", "prices": prices}})
        await eventually(lambda: menu("rye: 3"))

        async def events() -> bool:
            found = await kube_client.list(EVENT, namespace=namespace)
            assert {event["reason"] for event in found} >= {"Opened", "Moved"}
            return True

        await eventually(events)
        await kube_client.delete(kind, key)

        async def is_deleted() -> bool:
            return await kube_client.get(kind, key) is None

        await eventually(is_deleted, "the bakery is deleted")
