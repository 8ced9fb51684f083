"""The cache in front of a control plane: what informers follow, and that own writes are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from cfo.runtime import Client, Transport
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.reflector import ReflectorOptions
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, NAMESPACE
from cfo.runtime.objects import GVK, NamespacedName, Object, name_of, resource_version_of, uid_of
from envtest import ControlPlane

WIDGET = GVK("cache.example.com", "v1", "Widget")
PATIENCE = 30.0

WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.cache.example.com"},
    "spec": {
        "group": "cache.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def config_map(name: str, namespace: str = "default", data: dict[str, str] | None = None, **labels: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


class Session:
    """A cache and a client on it, and a client of somebody else."""

    def __init__(self, transport: Transport, **options: Any) -> None:
        mapper = RESTMapper(transport)
        self.cache = Cache(transport, mapper, field_managers=["cache-test"], **options)
        self.client = Client(transport, mapper, field_manager="cache-test", cache=self.cache)
        self.other = Client(transport, mapper, field_manager="other")


@asynccontextmanager
async def session(plane: ControlPlane, **options: Any) -> AsyncIterator[Session]:
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        running = Session(transport, **options)
        async with anyio.create_task_group() as tasks:
            await tasks.start(running.cache.run)
            yield running
            tasks.cancel_scope.cancel()


async def until(informer: Informer, condition: Callable[[], bool]) -> None:
    """Returns when ``condition`` holds after some change of ``informer``."""
    changed = asyncio.Event()

    def wake(_: Event) -> None:
        changed.set()

    informer.add_handler(wake)
    with anyio.fail_after(PATIENCE):
        while not condition():
            await changed.wait()
            changed.clear()
    informer.remove_handler(wake)


async def test_informers_hold_what_they_were_asked_for(plane: ControlPlane) -> None:
    async with session(plane, options=ReflectorOptions(page_size=2)) as running:
        await running.other.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        for number in range(5):
            await running.other.create(config_map(f"m{number}", app="x" if number % 2 else "y"))
        await running.other.create(config_map("m9", "elsewhere", app="x"))
        selected = running.cache.informer(CONFIG_MAP, label_selector="app in (x)")
        one = running.cache.informer(CONFIG_MAP, namespace="elsewhere", label_selector="app")
        named = running.cache.informer(CONFIG_MAP, field_selector="metadata.name=m4")
        partial = running.cache.informer(CONFIG_MAP, label_selector="app", metadata_only=True)
        namespaces = running.cache.informer(NAMESPACE)
        await running.cache.wait_for_sync(PATIENCE)
        assert sorted(entry.key.name for entry in selected.reader.entries()) == ["m1", "m3", "m9"]
        assert [entry.key for entry in one.reader.entries()] == [("elsewhere", "m9")]
        assert [entry.key.name for entry in named.reader.entries()] == ["m4"]
        assert len(partial.reader) == 6
        assert namespaces.reader.contains(NamespacedName("", "elsewhere"))
        whole = selected.reader.get(NamespacedName("default", "m1"))
        assert whole is not None
        assert (whole["apiVersion"], whole["kind"]) == ("v1", "ConfigMap")
        assert "managedFields" not in whole["metadata"]
        meta = partial.reader.get(NamespacedName("default", "m1"))
        assert meta is not None
        assert set(meta) == {"apiVersion", "kind", "metadata"}
        assert (meta["apiVersion"], meta["kind"]) == ("v1", "ConfigMap")


async def test_an_object_enters_and_leaves_a_selector(plane: ControlPlane) -> None:
    told: list[tuple[EventType, str]] = []
    async with session(plane) as running:
        informer = running.cache.informer(CONFIG_MAP, label_selector="app=x")
        informer.add_handler(lambda event: told.append((event.type, event.key.name)))
        await running.cache.wait_for_sync(PATIENCE)
        key = NamespacedName("default", "m")
        await running.other.create(config_map("m", app="y"))
        await running.other.patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "x"}}})
        await until(informer, lambda: informer.reader.contains(key))
        await running.other.patch(CONFIG_MAP, key, {"data": {"a": "b"}})
        await until(informer, lambda: len(told) == 2)
        await running.other.patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "z"}}})
        await until(informer, lambda: not informer.reader.contains(key))
        assert told == [(EventType.ADDED, "m"), (EventType.UPDATED, "m"), (EventType.DELETED, "m")]


async def test_a_definition_that_comes_goes_and_comes_back(plane: ControlPlane) -> None:
    async with session(plane) as running:
        informer = running.cache.informer(WIDGET)
        assert not running.cache.covers(WIDGET, "default")
        for size in (1, 2):
            await plane.install_crds(WIDGET_CRD)
            running.cache.wake(WIDGET)
            with anyio.fail_after(PATIENCE):
                await informer.wait_for_sync()
            assert len(informer.reader) == 0
            made = await running.other.create(
                {
                    "apiVersion": "cache.example.com/v1",
                    "kind": "Widget",
                    "metadata": {"name": "w", "namespace": "default"},
                    "size": size,
                }
            )
            key = NamespacedName("default", "w")
            await until(informer, lambda: informer.reader.contains(NamespacedName("default", "w")))
            read = await running.client.get(WIDGET, key)
            assert read is not None
            assert (read["size"], uid_of(read)) == (size, uid_of(made))
            await running.other.delete(CUSTOM_RESOURCE_DEFINITION, NamespacedName("", "widgets.cache.example.com"))
            await until(informer, lambda: len(informer.reader) == 0)
            with anyio.fail_after(PATIENCE):
                while running.cache.covers(WIDGET, "default"):  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.02)


async def test_own_writes_are_read_under_load(plane: ControlPlane) -> None:
    """Several workers write their own objects, while somebody else writes into the same ones."""
    rounds, names = 12, [f"w{number}" for number in range(6)]
    async with session(plane) as running:
        informer = running.cache.informer(CONFIG_MAP, namespace="default")
        await running.cache.wait_for_sync(PATIENCE)

        async def read(name: str) -> Object | None:
            return await running.client.get(CONFIG_MAP, NamespacedName("default", name))

        async def disturb(name: str, count: int) -> None:
            change = {"metadata": {"labels": {"other": str(count)}}}
            await running.other.patch(CONFIG_MAP, NamespacedName("default", name), change)

        async def work(name: str) -> None:
            for count in range(rounds):
                made = await running.client.create(config_map(name, data={"count": "0"}))
                seen = await read(name)
                assert seen is not None
                assert uid_of(seen) == uid_of(made)
                for step in range(3):
                    wrote = await running.client.patch(
                        CONFIG_MAP, NamespacedName("default", name), {"data": {"count": str(step)}}
                    )
                    seen = await read(name)
                    assert seen is not None
                    assert seen["data"]["count"] == str(step)
                    assert int(resource_version_of(seen)) >= int(resource_version_of(wrote))
                    await disturb(name, count)
                if count < rounds - 1:
                    await running.client.delete(CONFIG_MAP, NamespacedName("default", name), uid=uid_of(made))
                    assert await read(name) is None

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(work, name)

        live = await running.other.list(CONFIG_MAP, namespace="default")
        versions = {name_of(obj): resource_version_of(obj) for obj in live if name_of(obj) in names}
        assert set(versions) == set(names)

        def is_settled() -> bool:
            metas = [informer.reader.meta(NamespacedName("default", name)) for name in names]
            return {meta.name: meta.resource_version for meta in metas if meta is not None} == versions

        await until(informer, is_settled)
