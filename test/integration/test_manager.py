"""A complete operator that mirrors ConfigMaps, on a control plane: caching, apply, Events, kinds served later."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Invalid
from cfo.runtime.controller.handler import EnqueueRequestForObject
from cfo.runtime.controller.predicate import Predicate
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CONFIG_MAP, EVENT
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    is_deleting,
    owner_reference,
    set_controller_owner,
    uid_of,
)
from envtest import ControlPlane

MIRRORED = "mirror.example.com/mirrored"
FIELD_MANAGER = "mirror"
SOURCE, COPY = NamespacedName("default", "colors"), NamespacedName("default", "colors-mirror")
TIMEOUT_SECONDS = 120.0
MISSING = GVK("example.com", "v1", "Missing")


class MirrorReconciler:
    """Keeps a copy of every ConfigMap that has the label."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.events = manager.events("mirror")
        self.emits_events = True
        self.reconciled: list[Request] = []
        self.rejected = asyncio.Event()

    async def reconcile(self, request: Request) -> Result:
        self.reconciled.append(request)
        try:
            return await self._mirror(request)
        except Invalid:
            self.rejected.set()
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
        await self.client.apply(set_controller_owner(copy, source))
        if self.emits_events:
            self.events.event(source, "Normal", "Mirrored", f"mirrored into {request.name}-mirror")
        return Result()


def has_label(label: str) -> Predicate:
    return lambda event: any(
        entry is not None and label in entry.meta.labels for entry in (event.old, event.new)
    )


def mirror_operator(plane: ControlPlane) -> tuple[Manager, MirrorReconciler]:
    manager = Manager(
        ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER)
    )
    mirror = MirrorReconciler(manager)
    Builder(manager, "mirror").for_(CONFIG_MAP, has_label(MIRRORED)).owns(CONFIG_MAP).complete(
        mirror
    )
    return manager, mirror


def config_map(name: str, data: dict[str, str], **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name, "labels": labels},
        "data": data,
    }


def source_config_map(value: str = "red") -> Object:
    return config_map(SOURCE.name, {"color": value}) | {
        "metadata": {"namespace": "default", "name": SOURCE.name, "labels": {MIRRORED: ""}}
    }


@asynccontextmanager
async def run_manager(manager: Manager) -> AsyncIterator[Client]:
    """Run the manager, and yield a client that only shares its connection."""
    async with manager:
        await manager.started()
        yield manager.api_reader.with_field_manager("other")


async def wait_until(informer: Informer, condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, checked after every event of ``informer``."""
    changed = asyncio.Event()

    def on_event(_: Event) -> None:
        changed.set()

    informer.add_handler(on_event)
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not condition():
                changed.clear()
                await changed.wait()
    finally:
        informer.remove_handler(on_event)


async def wait_until_idle(manager: Manager) -> None:
    """Wait until no controller has work."""

    def is_busy() -> bool:
        return any(
            len(controller.queue) or controller.queue.processing
            for controller in manager.controllers
        )

    with anyio.fail_after(TIMEOUT_SECONDS):
        while is_busy():  # noqa: ASYNC110 - a queue has no event for being empty
            await anyio.sleep(0.01)


def count_requests(manager: Manager, *methods: str) -> float:
    """Return the number of requests with these HTTP methods that the manager has sent."""
    samples = [sample for metric in manager.metrics.requests.collect() for sample in metric.samples]
    totals = [sample for sample in samples if sample.name.endswith("_total")]
    return sum(sample.value for sample in totals if sample.labels.get("method") in methods)


def cached_data(manager: Manager, key: NamespacedName) -> Any:
    found = manager.cache.informer(CONFIG_MAP).reader.get(key)
    return None if found is None else found.get("data")


async def test_copy_follows_its_source() -> None:
    async with ControlPlane.auto() as plane:
        manager, _ = mirror_operator(plane)
        informer = manager.cache.informer(CONFIG_MAP)
        async with run_manager(manager) as client:
            await client.create(source_config_map("red"))
            await client.create(config_map("unrelated", {"color": "white"}))
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "red"})
            copy = await client.get(CONFIG_MAP, COPY)
            source = await client.get(CONFIG_MAP, SOURCE)
            assert copy is not None
            assert source is not None
            assert controller_of(copy)["uid"] == uid_of(source)  # type: ignore[index]

            await client.patch(CONFIG_MAP, SOURCE, {"data": {"color": "green"}})
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "green"})

            await client.patch(CONFIG_MAP, COPY, {"data": {"color": "drifted"}})
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "drifted"})
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "green"})

            await client.delete(CONFIG_MAP, COPY)
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "green"})
            assert uid_of(await client.get(CONFIG_MAP, COPY) or {}) != uid_of(copy)
            assert cached_data(manager, NamespacedName("default", "unrelated-mirror")) is None


async def test_unchanged_copy_is_not_written_again_even_after_restart() -> None:
    async with ControlPlane.auto() as plane:
        manager, mirror = mirror_operator(plane)
        mirror.emits_events = False  # Events are written in the background, some of them as patches
        informer = manager.cache.informer(CONFIG_MAP)
        async with run_manager(manager) as client:
            await client.create(source_config_map())
            await wait_until(informer, lambda: cached_data(manager, COPY) is not None)
            await wait_until_idle(manager)
            before = count_requests(manager, "PATCH")
            reconciled = len(mirror.reconciled)
            await client.patch(
                CONFIG_MAP, SOURCE, {"metadata": {"annotations": {"note": "nothing to mirror"}}}
            )
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(mirror.reconciled) == reconciled:  # noqa: ASYNC110 - the event can precede the response
                    await anyio.sleep(0.01)
            await wait_until_idle(manager)
            assert count_requests(manager, "PATCH") == before + 1

        restarted, mirror = mirror_operator(plane)
        mirror.emits_events = False
        async with run_manager(restarted):
            await wait_until_idle(restarted)
            assert SOURCE in mirror.reconciled
            assert count_requests(restarted, "PATCH", "PUT", "DELETE") == 0
            value = restarted.metrics.registry.get_sample_value
            assert (
                value(
                    "controller_runtime_reconcile_total",
                    {"controller": "mirror", "result": "success"},
                )
                == 1
            )


async def test_rejected_write_does_not_affect_other_objects() -> None:
    async with ControlPlane.auto() as plane:
        manager, mirror = mirror_operator(plane)
        informer = manager.cache.informer(CONFIG_MAP)
        async with run_manager(manager) as client:
            owner = await client.create(config_map("owner", {}))
            foreign_copy = config_map(COPY.name, {"color": "theirs"})
            foreign_copy["metadata"]["ownerReferences"] = [owner_reference(owner)]
            await client.create(foreign_copy)
            await client.create(source_config_map())
            unaffected = config_map("shapes", {"shape": "round"})
            unaffected["metadata"]["labels"] = {MIRRORED: ""}
            await client.create(unaffected)
            await wait_until(
                informer,
                lambda: (
                    cached_data(manager, NamespacedName("default", "shapes-mirror"))
                    == {"shape": "round"}
                ),
            )
            with anyio.fail_after(TIMEOUT_SECONDS):
                await mirror.rejected.wait()
            assert cached_data(manager, COPY) == {"color": "theirs"}


async def test_events_are_written_to_the_api_server() -> None:
    async with ControlPlane.auto() as plane:
        manager, _ = mirror_operator(plane)
        events = manager.cache.informer(EVENT)
        async with run_manager(manager) as client:
            await client.create(source_config_map())

            def emitted() -> list[Any]:  # the real API server and its controllers emit others
                return [
                    each
                    for each in events.reader.list("default")
                    if each["reportingController"] == "mirror"
                ]

            await wait_until(events, lambda: bool(emitted()))
            (event,) = emitted()
            assert event["note"] == "mirrored into colors-mirror"
            assert event["regarding"]["name"] == SOURCE.name


WIDGET = GVK("widgets.example.com", "v1", "Widget")


def widget_crd() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{WIDGET.group}"},
        "spec": {
            "group": WIDGET.group,
            "scope": "Namespaced",
            "names": {
                "plural": "widgets",
                "singular": "widget",
                "kind": WIDGET.kind,
                "listKind": "WidgetList",
            },
            "versions": [
                {
                    "name": WIDGET.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class RecordingReconciler:
    """Records its requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.changed = asyncio.Event()

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        self.changed.set()
        return Result()


class BlockedReconciler(RecordingReconciler):
    """Finishes its reconciles once ``allowed`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = asyncio.Event()
        self.has_finished = False

    async def reconcile(self, request: Request) -> Result:
        await super().reconcile(request)
        await self.allowed.wait()
        self.has_finished = True
        return Result()


@pytest.mark.parametrize("kinds", [(CONFIG_MAP, WIDGET), (WIDGET, CONFIG_MAP)])
async def test_controller_starts_when_crd_of_its_kind_is_established(kinds: Iterable[GVK]) -> None:
    async with ControlPlane.auto() as plane:
        manager = Manager(
            ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER)
        )
        reconcilers = {gvk: RecordingReconciler() for gvk in kinds}

        def set_up(gvk: GVK) -> Callable[[Manager], None]:
            return lambda manager: (
                Builder(manager, gvk.kind.lower()).for_(gvk).complete(reconcilers[gvk]),
                None,
            )[1]

        for gvk in kinds:
            manager.when_available(gvk, set_up(gvk))
        async with run_manager(manager) as client:
            assert [controller.name for controller in manager.controllers] == ["configmap"]
            await plane.install_crds(widget_crd())
            await client.create(
                {
                    "apiVersion": WIDGET.api_version,
                    "kind": WIDGET.kind,
                    "metadata": {"namespace": "default", "name": "w"},
                }
            )
            with anyio.fail_after(TIMEOUT_SECONDS):
                await reconcilers[WIDGET].changed.wait()
            assert reconcilers[WIDGET].requests == [Request("default", "w")]


async def test_start_without_crd_or_permission_is_an_error_that_names_both() -> None:
    async with ControlPlane.auto() as plane:
        config = ClientConfig.for_control_plane(plane)
        headers = (("Impersonate-User", "system:serviceaccount:default:operator"),)
        manager = Manager(replace(config, headers=headers))
        Builder(manager, "mirror").for_(MISSING).owns(CONFIG_MAP).complete(
            MirrorReconciler(manager)
        )
        async with manager:
            with anyio.fail_after(TIMEOUT_SECONDS):
                await manager.cache.informer(MISSING).wait_for_sync(unless_not_served=True)
                await manager.cache.informer(CONFIG_MAP).wait_for_sync(unless_forbidden=True)
            with pytest.raises(TimeoutError) as caught:
                await manager.started(timeout=0.01)
    assert str(caught.value) == (
        "the manager has not started after 0.01 s: not started yet: Controller mirror; not synced: "
        'Missing.v1.example.com (not served: no matches for kind "Missing" in version "example.com/v1"), '
        "ConfigMap.v1 (missing rule "
        '{apiGroups: [""], resources: ["configmaps"], verbs: ["list", "watch"]})'
    )


async def test_start_without_lease_or_data_is_an_error_with_the_answer_of_the_api_server() -> None:
    async with ControlPlane.auto() as plane:
        election = LeaderElectionOptions(name="lock", namespace="missing")
        manager = Manager(
            ClientConfig.for_control_plane(plane), ManagerOptions(leader_election=election)
        )
        informer = manager.cache.informer(CONFIG_MAP, field_selector="data.x=3")
        elector = manager.leadership.elector
        assert elector is not None
        async with manager:
            while not (elector.problem and informer.request_error):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            with pytest.raises(TimeoutError) as caught:
                await manager.started(timeout=0.01)
    message = str(caught.value)
    failed = (
        'Lease missing/lock: create leases.coordination.k8s.io lock: namespaces "missing" not found'
    )
    assert failed in message
    assert 'ConfigMap.v1 (list configmaps: "data.x" is not a known field selector: ' in message


async def test_controller_starts_without_optional_kind_and_watches_it_once_served() -> None:
    async with ControlPlane.auto() as plane:
        manager = Manager(
            ClientConfig.for_control_plane(plane), ManagerOptions(field_manager=FIELD_MANAGER)
        )
        reconciler = RecordingReconciler()
        (
            Builder(manager, "optional")
            .for_(CONFIG_MAP, has_label(MIRRORED))
            .watches(WIDGET, EnqueueRequestForObject(), optional=True)
            .complete(reconciler)
        )
        async with run_manager(manager) as client:
            await client.create(source_config_map())
            with anyio.fail_after(TIMEOUT_SECONDS):
                await reconciler.changed.wait()
            reconciler.changed.clear()
            await plane.install_crds(widget_crd())
            await client.create(
                {
                    "apiVersion": WIDGET.api_version,
                    "kind": WIDGET.kind,
                    "metadata": {"namespace": "default", "name": "w"},
                }
            )
            with anyio.fail_after(TIMEOUT_SECONDS):
                await reconciler.changed.wait()
            assert reconciler.requests == [SOURCE, Request("default", "w")]


def widget(name: str) -> Object:
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": metadata}


async def wait_for_event(event: asyncio.Event) -> None:
    with anyio.fail_after(TIMEOUT_SECONDS):
        await event.wait()
    event.clear()


async def test_manager_waits_for_unreachable_api_server() -> None:
    token = "secret-of-the-test"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    manager = Manager(
        ClientConfig(server=f"https://127.0.0.1:{port}", token=token, verify=False),
        ManagerOptions(field_manager=FIELD_MANAGER),
    )
    mirror = MirrorReconciler(manager)
    Builder(manager, "mirror").for_(CONFIG_MAP, has_label(MIRRORED)).owns(CONFIG_MAP).complete(
        mirror
    )
    manager.when_available(CONFIG_MAP, lambda _: None)
    informer = manager.cache.informer(CONFIG_MAP)
    async with manager:
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not informer.problem.startswith("discovery"):  # noqa: ASYNC110 - an informer has no event for it
                await anyio.sleep(0.01)
        assert "controllers" in await manager.health.failures()
        async with ControlPlane.embedded(port=port, token=token):
            with anyio.fail_after(TIMEOUT_SECONDS):
                await manager.started()
            assert await manager.health.failures() == {}
            await manager.api_reader.create(source_config_map())
            await wait_until(informer, lambda: cached_data(manager, COPY) == {"color": "red"})
