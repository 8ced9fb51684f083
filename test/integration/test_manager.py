"""A whole operator on a control plane: it mirrors ConfigMaps, and does what the library promises meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from cfo.runtime.builder import Builder
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Invalid
from cfo.runtime.handler import EnqueueRequestForObject
from cfo.runtime.kinds import CONFIG_MAP, EVENT
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import GVK, NamespacedName, Object, controller_of, is_deleting, owner_reference, uid_of
from cfo.runtime.predicate import has_labels
from cfo.runtime.reconcile import Request, Result
from envtest import ControlPlane

MIRRORED = "mirror.example.com/mirrored"
FIELD_MANAGER = "mirror"
SOURCE, COPY = NamespacedName("default", "colors"), NamespacedName("default", "colors-mirror")
WITHIN = 20.0


class Mirror:
    """Keeps a copy of every ConfigMap that carries the label."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.events = manager.events("mirror")
        self.tells = True
        self.reconciled: list[Request] = []
        self.refused = asyncio.Event()

    async def reconcile(self, request: Request) -> Result:
        self.reconciled.append(request)
        try:
            return await self._mirror(request)
        except Invalid:
            self.refused.set()
            raise

    async def _mirror(self, request: Request) -> Result:
        source = await self.client.get(CONFIG_MAP, request)
        if source is None or is_deleting(source):
            return Result()
        copy = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": request.namespace, "name": f"{request.name}-mirror"},
            "data": source.get("data") or {},
        }
        await self.client.apply(copy, owner=source)
        if self.tells:
            self.events.event(source, "Normal", "Mirrored", f"mirrored into {request.name}-mirror")
        return Result()


def mirror_operator(plane: ControlPlane) -> tuple[Manager, Mirror]:
    manager = Manager(ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER))
    mirror = Mirror(manager)
    Builder(manager, "mirror").for_(CONFIG_MAP, has_labels(MIRRORED)).owns(CONFIG_MAP).complete(mirror)
    return manager, mirror


def config_map(name: str, data: dict[str, str], **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name, "labels": labels},
        "data": data,
    }


def colors(value: str = "red") -> Object:
    return config_map(SOURCE.name, {"color": value}) | {
        "metadata": {"namespace": "default", "name": SOURCE.name, "labels": {MIRRORED: ""}}
    }


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[Client]:
    """The manager runs; yields a client that shares nothing with it but the connection."""
    async with manager:
        await manager.started()
        yield manager.api_reader.with_field_manager("somebody")


async def until(informer: Informer, condition: Callable[[], bool]) -> None:
    """Returns when ``condition`` holds, which is asked after every event of the informer."""
    changed = asyncio.Event()

    def on_event(_: Event) -> None:
        changed.set()

    informer.add_handler(on_event)
    try:
        with anyio.fail_after(WITHIN):
            while not condition():
                changed.clear()
                await changed.wait()
    finally:
        informer.remove_handler(on_event)


async def quiet(manager: Manager) -> None:
    """Returns when no controller has anything to do."""

    def busy() -> bool:
        return any(len(controller.queue) or controller.queue.processing for controller in manager.controllers)

    with anyio.fail_after(WITHIN):
        while busy():  # noqa: ASYNC110 - a queue tells nobody that it is empty
            await anyio.sleep(0.01)


def requests(manager: Manager, *methods: str) -> float:
    """How many requests of these methods the manager has made."""
    samples = [sample for metric in manager.metrics.requests.collect() for sample in metric.samples]
    made = [sample for sample in samples if sample.name.endswith("_total")]
    return sum(sample.value for sample in made if sample.labels.get("method") in methods)


def data_of(manager: Manager, key: NamespacedName) -> Any:
    found = manager.cache.informer(CONFIG_MAP).reader.get(key)
    return None if found is None else found.get("data")


async def test_a_mirror_follows_its_source_from_birth_to_death() -> None:
    async with ControlPlane.auto() as plane:
        manager, _ = mirror_operator(plane)
        informer = manager.cache.informer(CONFIG_MAP)
        async with running(manager) as somebody:
            await somebody.create(colors("red"))
            await somebody.create(config_map("unrelated", {"color": "white"}))
            await until(informer, lambda: data_of(manager, COPY) == {"color": "red"})
            copy = await somebody.get(CONFIG_MAP, COPY)
            source = await somebody.get(CONFIG_MAP, SOURCE)
            assert copy is not None
            assert source is not None
            assert controller_of(copy)["uid"] == uid_of(source)  # type: ignore[index]

            await somebody.patch(CONFIG_MAP, SOURCE, {"data": {"color": "green"}})
            await until(informer, lambda: data_of(manager, COPY) == {"color": "green"})

            await somebody.patch(CONFIG_MAP, COPY, {"data": {"color": "drifted"}})
            await until(informer, lambda: data_of(manager, COPY) == {"color": "drifted"})
            await until(informer, lambda: data_of(manager, COPY) == {"color": "green"})

            await somebody.delete(CONFIG_MAP, COPY)
            await until(informer, lambda: data_of(manager, COPY) == {"color": "green"})
            assert uid_of(await somebody.get(CONFIG_MAP, COPY) or {}) != uid_of(copy)
            assert data_of(manager, NamespacedName("default", "unrelated-mirror")) is None


async def test_what_is_unchanged_is_not_written_again_not_even_by_the_next_process() -> None:
    async with ControlPlane.auto() as plane:
        manager, mirror = mirror_operator(plane)
        mirror.tells = False  # Events are written when there is time, as patches, too
        informer = manager.cache.informer(CONFIG_MAP)
        async with running(manager) as somebody:
            await somebody.create(colors())
            await until(informer, lambda: data_of(manager, COPY) is not None)
            await quiet(manager)
            before = requests(manager, "PATCH")
            await somebody.patch(CONFIG_MAP, SOURCE, {"metadata": {"annotations": {"note": "nothing to mirror"}}})
            reconciled = len(mirror.reconciled)
            await until(informer, lambda: len(mirror.reconciled) > reconciled)
            await quiet(manager)
            assert requests(manager, "PATCH") == before + 1

        again, mirror = mirror_operator(plane)
        mirror.tells = False
        async with running(again):
            await quiet(again)
            assert SOURCE in mirror.reconciled
            assert requests(again, "PATCH", "PUT", "DELETE") == 0
            value = again.metrics.registry.get_sample_value
            assert value("controller_runtime_reconcile_total", {"controller": "mirror", "result": "success"}) == 1


async def test_what_the_api_server_refuses_harms_no_other_object() -> None:
    async with ControlPlane.auto() as plane:
        manager, mirror = mirror_operator(plane)
        informer = manager.cache.informer(CONFIG_MAP)
        async with running(manager) as somebody:
            owner = await somebody.create(config_map("owner", {}))
            taken = config_map(COPY.name, {"color": "theirs"})
            taken["metadata"]["ownerReferences"] = [owner_reference(owner)]
            await somebody.create(taken)
            await somebody.create(colors())
            second = config_map("shapes", {"shape": "round"})
            second["metadata"]["labels"] = {MIRRORED: ""}
            await somebody.create(second)
            await until(
                informer, lambda: data_of(manager, NamespacedName("default", "shapes-mirror")) == {"shape": "round"}
            )
            with anyio.fail_after(WITHIN):
                await mirror.refused.wait()
            assert data_of(manager, COPY) == {"color": "theirs"}


async def test_events_reach_the_api_server() -> None:
    async with ControlPlane.auto() as plane:
        manager, _ = mirror_operator(plane)
        events = manager.cache.informer(EVENT)
        async with running(manager) as somebody:
            await somebody.create(colors())
            await until(events, lambda: bool(events.reader.list("default")))
            (event,) = events.reader.list("default")
            assert event["note"] == "mirrored into colors-mirror"
            assert event["regarding"]["name"] == SOURCE.name
            assert event["reportingController"] == "mirror"


WIDGET = GVK("widgets.example.com", "v1", "Widget")


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{WIDGET.group}"},
        "spec": {
            "group": WIDGET.group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": WIDGET.kind, "listKind": "WidgetList"},
            "versions": [
                {"name": WIDGET.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


class Seen:
    """A reconciler that tells what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.changed = asyncio.Event()

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        self.changed.set()
        return Result()


@pytest.mark.parametrize("kinds", [(CONFIG_MAP, WIDGET), (WIDGET, CONFIG_MAP)])
async def test_a_controller_for_a_kind_that_comes_later_starts_when_it_is_established(kinds: Iterable[GVK]) -> None:
    async with ControlPlane.auto() as plane:
        manager = Manager(ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER))
        seen = {gvk: Seen() for gvk in kinds}

        def set_up(gvk: GVK) -> Callable[[Manager], None]:
            return lambda running: (Builder(running, gvk.kind.lower()).for_(gvk).complete(seen[gvk]), None)[1]

        for gvk in kinds:
            manager.when_available(gvk, set_up(gvk))
        async with running(manager) as somebody:
            assert [controller.name for controller in manager.controllers] == ["configmap"]
            await plane.install_crds(definition())
            await somebody.create(
                {
                    "apiVersion": WIDGET.api_version,
                    "kind": WIDGET.kind,
                    "metadata": {"namespace": "default", "name": "w"},
                }
            )
            with anyio.fail_after(WITHIN):
                await seen[WIDGET].changed.wait()
            assert seen[WIDGET].requests == [Request("default", "w")]


async def test_a_controller_does_not_wait_for_an_optional_kind_and_hears_of_it_when_it_comes() -> None:
    async with ControlPlane.auto() as plane:
        manager = Manager(ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER))
        seen = Seen()
        (
            Builder(manager, "optional")
            .for_(CONFIG_MAP, has_labels(MIRRORED))
            .watches(WIDGET, EnqueueRequestForObject(), optional=True)
            .complete(seen)
        )
        async with running(manager) as somebody:
            await somebody.create(colors())
            with anyio.fail_after(WITHIN):
                await seen.changed.wait()
            seen.changed.clear()
            await plane.install_crds(definition())
            await somebody.create(
                {
                    "apiVersion": WIDGET.api_version,
                    "kind": WIDGET.kind,
                    "metadata": {"namespace": "default", "name": "w"},
                }
            )
            with anyio.fail_after(WITHIN):
                await seen.changed.wait()
            assert seen.requests == [SOURCE, Request("default", "w")]


async def test_an_api_server_that_is_not_there_yet_is_waited_for() -> None:
    token = "secret-of-the-test"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    manager = Manager(
        ClientConfig(server=f"https://127.0.0.1:{port}", token=token, verify=False),
        ManagerOptions(field_manager=FIELD_MANAGER),
    )
    mirror = Mirror(manager)
    Builder(manager, "mirror").for_(CONFIG_MAP, has_labels(MIRRORED)).owns(CONFIG_MAP).complete(mirror)
    manager.when_available(CONFIG_MAP, lambda _: None)
    informer = manager.cache.informer(CONFIG_MAP)
    async with manager:
        with anyio.fail_after(WITHIN):
            while not informer.problem.startswith("discovery"):  # noqa: ASYNC110 - an informer tells nobody of it
                await anyio.sleep(0.01)
        assert "controllers" in await manager.health.failures()
        async with ControlPlane.embedded(port=port, token=token):
            with anyio.fail_after(WITHIN):
                await manager.started()
            assert await manager.health.failures() == {}
            await manager.api_reader.create(colors())
            await until(informer, lambda: data_of(manager, COPY) == {"color": "red"})
