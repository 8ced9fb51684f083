"""The cache on a control plane: the contents of informers, and reads of own writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from cfo.runtime import Client, Transport
from cfo.runtime.cache import feed as feed_module
from cfo.runtime.cache import reflector as reflector_module
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.reflector import ReflectorOptions
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.objects.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, NAMESPACE
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    name_of,
    resource_version_of,
    uid_of,
)
from envtest import ControlPlane

WIDGET = GVK("cache.example.com", "v1", "Widget")
TIMEOUT_SECONDS = 120.0

WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.cache.example.com"},
    "spec": {
        "group": "cache.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def config_map(
    name: str, namespace: str = "default", data: dict[str, str] | None = None, **labels: str
) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


class Session:
    """A cache, a client that reads from it, and a client of another field manager without a cache."""

    def __init__(self, transport: Transport, **options: Any) -> None:
        mapper = RESTMapper(transport)
        self.cache = Cache(transport, mapper, field_managers=["cache-test"], **options)
        self.client = Client(transport, mapper, field_manager="cache-test", cache=self.cache)
        self.other = Client(transport, mapper, field_manager="other")
        self.verbs: Counter[str] = Counter()
        """The number of requests by verb."""


@asynccontextmanager
async def start_session(plane: ControlPlane, **options: Any) -> AsyncIterator[Session]:
    """Run a cache until the end of the block."""
    verbs: Counter[str] = Counter()
    config = ClientConfig.for_control_plane(plane)
    async with Transport(
        config, observe=lambda exchange: verbs.update([exchange.verb])
    ) as transport:
        session = Session(transport, **options)
        session.verbs = verbs
        async with anyio.create_task_group() as tasks:
            await tasks.start(session.cache.run)
            yield session
            tasks.cancel_scope.cancel()


async def wait_until(informer: Informer, condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, checked after every event of ``informer``."""
    changed = asyncio.Event()

    def set_changed(_: Event) -> None:
        changed.set()

    informer.add_handler(set_changed)
    with anyio.fail_after(TIMEOUT_SECONDS):
        while not condition():
            await changed.wait()
            changed.clear()
    informer.remove_handler(set_changed)


async def test_informers_contain_selected_objects(plane: ControlPlane) -> None:
    async with start_session(plane, options=ReflectorOptions(page_size=2)) as session:
        await session.other.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
        )
        for number in range(5):
            await session.other.create(config_map(f"m{number}", app="x" if number % 2 else "y"))
        await session.other.create(config_map("m9", "elsewhere", app="x"))
        selected = session.cache.informer(CONFIG_MAP, label_selector="app in (x)")
        in_namespace = session.cache.informer(
            CONFIG_MAP, namespace="elsewhere", label_selector="app"
        )
        named = session.cache.informer(CONFIG_MAP, field_selector="metadata.name=m4")
        partial = session.cache.informer(CONFIG_MAP, label_selector="app", metadata_only=True)
        namespaces = session.cache.informer(NAMESPACE)
        with anyio.fail_after(TIMEOUT_SECONDS):
            await session.cache.wait_for_sync()
        assert sorted(entry.key.name for entry in selected.reader.entries()) == ["m1", "m3", "m9"]
        assert [entry.key for entry in in_namespace.reader.entries()] == [("elsewhere", "m9")]
        assert [entry.key.name for entry in named.reader.entries()] == ["m4"]
        assert len(partial.reader) == 6
        assert namespaces.reader.contains(NamespacedName("", "elsewhere"))
        found = selected.reader.get(NamespacedName("default", "m1"))
        assert found is not None
        assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
        assert "managedFields" not in found["metadata"]
        metadata_object = partial.reader.get(NamespacedName("default", "m1"))
        assert metadata_object is not None
        assert set(metadata_object) == {"apiVersion", "kind", "metadata"}
        assert (metadata_object["apiVersion"], metadata_object["kind"]) == ("v1", "ConfigMap")


async def test_namespace_with_many_large_objects_is_listed_after_the_others(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "_PAGE_BYTES", 20_000)
    monkeypatch.setattr(reflector_module, "_MAX_PAGE_BYTES", 8_000)
    monkeypatch.setattr(feed_module, "NAMESPACE_UNSTORED", 6_000)
    small = NamespacedName("at-first", "small")
    other = NamespacedName("default", "other")
    states: list[tuple[bool, bool]] = []
    async with start_session(plane) as session:
        await session.other.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "at-first"}}
        )
        for number in range(5):
            large = config_map(f"large{number}", "at-first", {"x": "x" * 5000}, test="large")
            await session.other.create(large)
        await session.other.create(config_map("small", "at-first", test="large"))
        await session.other.create(config_map("other", test="large"))
        informer = session.cache.informer(CONFIG_MAP, label_selector="test=large", max_bytes=2000)
        reader = informer.reader

        def record_state() -> None:
            if informer.has_synced:
                states.append((reader.contains(other), reader.has_all_left_out_keys("at-first")))

        informer.add_state_handler(record_state)
        await wait_until(informer, lambda: reader.contains(small))
        await wait_until(informer, lambda: reader.has_all_left_out_keys("at-first"))
        assert states[0] == (True, False), "the first list has all objects of other namespaces"
        assert len(reader.left_out_keys("at-first")) == 5
        assert len(reader) == 2


async def test_object_is_added_and_deleted_as_its_labels_match(plane: ControlPlane) -> None:
    events: list[tuple[EventType, str]] = []
    async with start_session(plane) as session:
        informer = session.cache.informer(CONFIG_MAP, label_selector="app=x")
        informer.add_handler(lambda event: events.append((event.type, event.key.name)))
        with anyio.fail_after(TIMEOUT_SECONDS):
            await session.cache.wait_for_sync()
        key = NamespacedName("default", "m")
        await session.other.create(config_map("m", app="y"))
        await session.other.patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "x"}}})
        await wait_until(informer, lambda: informer.reader.contains(key))
        await session.other.patch(CONFIG_MAP, key, {"data": {"a": "b"}})
        await wait_until(informer, lambda: len(events) == 2)
        await session.other.patch(CONFIG_MAP, key, {"metadata": {"labels": {"app": "z"}}})
        await wait_until(informer, lambda: not informer.reader.contains(key))
        assert events == [
            (EventType.ADDED, "m"),
            (EventType.UPDATED, "m"),
            (EventType.DELETED, "m"),
        ]


async def test_informer_follows_crd_that_is_deleted_and_recreated(plane: ControlPlane) -> None:
    async with start_session(plane) as session:
        informer = session.cache.informer(WIDGET)
        assert session.cache.covering_reader(WIDGET, "default") is None
        for size in (1, 2):
            await plane.install_crds(WIDGET_CRD)
            session.cache.wake(WIDGET)
            with anyio.fail_after(TIMEOUT_SECONDS):
                await informer.wait_for_sync()
            assert len(informer.reader) == 0
            created = await session.other.create(
                {
                    "apiVersion": "cache.example.com/v1",
                    "kind": "Widget",
                    "metadata": {"name": "w", "namespace": "default"},
                    "size": size,
                }
            )
            key = NamespacedName("default", "w")
            await wait_until(
                informer, lambda: informer.reader.contains(NamespacedName("default", "w"))
            )
            found = await session.client.get(WIDGET, key)
            assert found is not None
            assert (found["size"], uid_of(found)) == (size, uid_of(created))
            await session.other.delete(
                CUSTOM_RESOURCE_DEFINITION, NamespacedName("", "widgets.cache.example.com")
            )
            await wait_until(informer, lambda: len(informer.reader) == 0)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while session.cache.covering_reader(WIDGET, "default") is not None:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.02)


async def test_own_writes_are_read_under_concurrent_writes(plane: ControlPlane) -> None:
    """Several workers write their own objects, while another client writes to the same objects."""
    rounds, names = 12, [f"w{number}" for number in range(6)]
    async with start_session(plane) as session:
        informer = session.cache.informer(CONFIG_MAP, namespace="default")
        with anyio.fail_after(TIMEOUT_SECONDS):
            await session.cache.wait_for_sync()

        async def read(name: str) -> Object | None:
            return await session.client.get(CONFIG_MAP, NamespacedName("default", name))

        async def patch_as_other_client(name: str, count: int) -> None:
            change = {"metadata": {"labels": {"other": str(count)}}}
            await session.other.patch(CONFIG_MAP, NamespacedName("default", name), change)

        async def write_repeatedly(name: str) -> None:
            for count in range(rounds):
                created = await session.client.create(config_map(name, data={"count": "0"}))
                found = await read(name)
                assert found is not None
                assert uid_of(found) == uid_of(created)
                for step in range(3):
                    patched = await session.client.patch(
                        CONFIG_MAP, NamespacedName("default", name), {"data": {"count": str(step)}}
                    )
                    found = await read(name)
                    assert found is not None
                    assert found["data"]["count"] == str(step)
                    assert int(resource_version_of(found)) >= int(resource_version_of(patched))
                    await patch_as_other_client(name, count)
                if count < rounds - 1:
                    await session.client.delete(
                        CONFIG_MAP, NamespacedName("default", name), uid=uid_of(created)
                    )
                    assert await read(name) is None

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(write_repeatedly, name)

        live = await session.other.list(CONFIG_MAP, namespace="default")
        versions = {name_of(obj): resource_version_of(obj) for obj in live if name_of(obj) in names}
        assert set(versions) == set(names)

        def is_settled() -> bool:
            metas = [informer.reader.meta(NamespacedName("default", name)) for name in names]
            return {
                meta.name: meta.resource_version for meta in metas if meta is not None
            } == versions

        await wait_until(informer, is_settled)
