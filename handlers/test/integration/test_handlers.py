"""Operators with kopf's decorators, in a manager on the control plane."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import cfo_handlers as kopf
from cfo.runtime import (
    GVK,
    Client,
    ClientConfig,
    Forbidden,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    is_deleting,
    key_of,
)
from cfo.runtime.controller import RunnableFailed
from cfo.runtime.objects import CONFIG_MAP
from cfo.runtime.process import free_port, function_errors
from envtest import ControlPlane
from test.support import crd, eventually

KIND = GVK("handlers.example.com", "v1", "Thing")
CRD = crd("handlers.example.com", "v1", "Thing", "things")
LAST = "kopf.zalando.org/last-handled-configuration"
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


class World:
    """A namespace, a user, and the calls of handlers."""

    def __init__(self, client: Client, config: ClientConfig, namespace: str) -> None:
        self.client = client
        self.config = config
        self.namespace = namespace
        self.calls: list[tuple[Any, ...]] = []

    @asynccontextmanager
    async def operator(
        self, registry: kopf.OperatorRegistry, **settings: Any
    ) -> AsyncIterator[kopf.Handlers]:
        options = ManagerOptions(field_manager="things", namespaces=[self.namespace])
        manager = Manager(self.config, options)
        handlers = kopf.add_to(manager, registry=registry, **settings)
        async with manager:
            await manager.started()
            yield handlers

    def thing(self, name: str, **fields: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace, **fields.pop("metadata", {})}
        return {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": metadata,
            "spec": {},
            **fields,
        }

    async def create(self, name: str, **fields: Any) -> Object:
        return await self.client.create(self.thing(name, **fields))

    async def get(self, name: str) -> Object | None:
        return await self.client.get(KIND, NamespacedName(self.namespace, name))

    async def patch(self, obj: Object, **fields: Any) -> Object:
        return await self.client.patch(KIND, key_of(obj), fields)

    async def is_handled(self, name: str, spec: Any) -> Object | None:
        obj = await self.get(name)
        assert obj is not None
        stored = (obj["metadata"].get("annotations") or {}).get(LAST)
        assert stored is not None
        assert json.loads(stored).get("spec") == spec
        return obj

    async def handled(self, name: str, spec: Any) -> Object:
        obj: Object = await eventually(lambda: self.is_handled(name, spec), f"{name} is handled")
        return obj

    async def deleted(self, name: str) -> None:
        await self.client.delete(KIND, NamespacedName(self.namespace, name))
        await self.wait_until_deleted(name)

    async def wait_until_deleted(self, name: str) -> None:
        async def is_deleted() -> bool:
            return await self.get(name) is None

        await eventually(is_deleted, f"{name} is deleted")

    async def called(self, *call: Any) -> None:
        async def found() -> bool:
            assert call in self.calls, self.calls
            return True

        await eventually(found)


@pytest.fixture
def world(
    kube_client: Client,
    control_plane: ControlPlane,
    namespace: str,
    install_crds: Callable[..., list[str]],
) -> World:
    install_crds(CRD)
    return World(kube_client, ClientConfig.for_control_plane(control_plane), namespace)


async def test_changes_of_an_object_call_its_handlers_once_and_store_their_results(
    world: World,
) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.on.create("things", registry=registry, id="create")
    def create(
        spec: kopf.Spec, name: str, memo: kopf.Memo, patch: kopf.Patch, **_: Any
    ) -> dict[str, Any]:
        memo.created = True
        patch.status["note"] = "created"
        kopf.info(
            {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}},
            reason="Made it",
            message="Yes.",
        )
        return {"message": spec.get("text")}

    @kopf.on.update("things", registry=registry, id="update")
    async def update(old: Any, new: Any, diff: kopf.Diff, memo: kopf.Memo, **_: Any) -> str:
        calls.append(("update", tuple(diff), memo.created, "metadata" in new))
        return "updated"

    @kopf.on.field("things", field="spec.text", registry=registry, id="text")
    def text(old: Any, new: Any, diff: kopf.Diff, reason: str, **_: Any) -> None:
        calls.append(("text", reason, old, new, len(diff)))

    @kopf.on.delete("things", registry=registry, id="delete")
    def delete(client: kopf.SyncClient, namespace: str, name: str, **_: Any) -> None:
        thing = client.get(KIND, NamespacedName(namespace, name))
        calls.append(("delete", is_deleting(thing or {})))

    async with world.operator(registry):
        await world.create("one", spec={"text": "a"}, metadata={"labels": {"x": "y"}})
        obj = await world.handled("one", {"text": "a"})
        assert obj["metadata"]["finalizers"] == [FINALIZER]
        assert obj["status"] == {"create": {"message": "a"}, "note": "created"}
        assert set(obj["metadata"]["annotations"]) == {LAST}  # no progress of finished handlers
        await world.called("text", "create", None, "a", 1)

        await world.client.patch(
            KIND, key_of(obj), {"status": {"ignored": True}}, subresource="status"
        )
        await world.patch(obj, spec={"text": "b"})
        obj = await world.handled("one", {"text": "b"})
        assert obj["status"]["update"] == "updated"
        updates = [call for call in calls if call[0] == "update"]
        assert [name for name, *_ in updates] == ["update"]
        (_, diff, created, has_labels) = updates[0]
        assert ("change", ("spec", "text"), "a", "b") in diff
        assert created
        assert has_labels
        await world.called("text", "update", "a", "b", 1)
        await world.deleted("one")
        assert calls[-1] == ("delete", True)


async def test_failed_handlers_are_called_again_and_continue_after_a_restart(world: World) -> None:
    calls = world.calls
    broken = True

    def new_registry() -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.create("things", registry=registry, id="once")
        def once(**_: Any) -> None:
            calls.append(("once",))

        @kopf.on.create("things", registry=registry, id="parent", backoff=0.01)
        async def parent(retry: int, **_: Any) -> str:
            for letter in ("a", "b"):

                @kopf.subhandler(id=letter)
                def child(retry: int, letter: str = letter, **_: Any) -> None:
                    calls.append((letter, retry))
                    if letter == "b" and broken:
                        raise kopf.TemporaryError("not yet", delay=0.05)

            def executed(**_: Any) -> None:
                calls.append(("executed",))

            await kopf.execute(fns={"c": executed})
            return "done"

        @kopf.on.create("things", registry=registry, id="hopeless", retries=2, backoff=0.01)
        def hopeless(**_: Any) -> None:
            calls.append(("hopeless",))
            raise RuntimeError("never")

        @kopf.on.create("things", registry=registry, id="ignored", errors=kopf.ErrorsMode.IGNORED)
        def ignored(**_: Any) -> None:
            raise RuntimeError("does not matter")

        @kopf.on.create("things", registry=registry, id="unserializable")
        def unserializable(**_: Any) -> Any:
            raise kopf.PermanentError("no")

        return registry

    async with world.operator(new_registry()):
        await world.create("one", spec={"a": 1})
        await world.called("b", 1)

        async def progress_is_stored() -> bool:
            obj = await world.get("one")
            assert obj is not None
            record = json.loads(obj["metadata"]["annotations"]["kopf.zalando.org/parent.b"])
            return bool(record["retries"] >= 2 and record["message"] == "not yet")

        await eventually(progress_is_stored)
    broken = False
    async with world.operator(new_registry()):
        obj = await world.handled("one", {"a": 1})
    assert obj["status"] == {"parent": "done"}
    assert set(obj["metadata"]["annotations"]) == {LAST}
    for call in (("once",), ("a", 0), ("b", 0), ("executed",)):
        assert calls.count(call) == 1
    assert calls.count(("hopeless",)) == 2
    assert ("a", 1) not in calls


async def test_restart_writes_nothing_and_calls_only_the_handlers_of_resumed_objects(
    world: World,
) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.on.resume("things", registry=registry, id="ensure")
    @kopf.on.create("things", registry=registry, id="ensure")
    async def ensure(name: str, reason: str, **_: Any) -> None:
        calls.append((name, str(reason)))

    handled_by_kopf = {"metadata": {"annotations": {LAST: '{"spec":{"a":1}}\n'}}, "spec": {"a": 1}}
    moved = await world.create("moved", **handled_by_kopf)
    async with world.operator(registry):
        await world.create("new", spec={"b": 2})
        new = await world.handled("new", {"b": 2})
        await world.called("moved", "resume")
    async with world.operator(registry):
        await world.called("new", "resume")
        await eventually(lambda: _count(calls, ("moved", "resume"), 2))
    assert calls.count(("new", "create")) == 1
    for before in (moved, new):
        after = await world.get(before["metadata"]["name"])
        assert after is not None
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def _count(calls: list[Any], call: Any, number: int) -> bool:
    return calls.count(call) == number


async def test_handlers_that_block_delay_only_their_object(world: World) -> None:
    registry, release, started = kopf.OperatorRegistry(), threading.Event(), threading.Event()

    @kopf.on.create("things", registry=registry, id="slow", labels={"slow": kopf.PRESENT})
    def slow(**_: Any) -> None:
        started.set()
        release.wait(120)

    @kopf.on.create("things", registry=registry, id="fast", labels={"slow": kopf.ABSENT})
    def fast(**_: Any) -> None: ...

    async with world.operator(registry):
        try:
            await world.create("slow", spec={"a": 1}, metadata={"labels": {"slow": "yes"}})
            assert await asyncio.to_thread(started.wait, 10)
            await world.create("fast", spec={"b": 1})
            await world.handled("fast", {"b": 1})
            slow_object = await world.get("slow")
            assert LAST not in ((slow_object or {})["metadata"].get("annotations") or {})
        finally:
            release.set()
        await world.handled("slow", {"a": 1})


async def test_daemons_and_timers_accompany_an_object_until_its_deletion(world: World) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.daemon("things", registry=registry, id="in_thread")
    def in_thread(stopped: kopf.DaemonStopped, patch: kopf.Patch, retry: int, **_: Any) -> None:
        if retry == 0:
            patch.status["tries"] = 1
            raise kopf.TemporaryError("again", delay=0.01)
        stopped.wait()  # type: ignore[unused-coroutine]
        calls.append(("thread", str(stopped.reason)))

    @kopf.daemon(
        "things",
        registry=registry,
        id="in_loop",
        cancellation_timeout=1,
        field="spec.on",
        value=True,
    )
    async def in_loop(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("loop started",))
        try:
            while True:
                if spec.get("seen"):  # the body is live
                    calls.append(("seen",))
                await asyncio.sleep(0.01)
        finally:
            calls.append(("loop ended",))

    @kopf.timer("things", registry=registry, id="tick", interval=0.02)
    async def tick(patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
        memo["ticks"] = memo.get("ticks", 0) + 1
        calls.append(("tick", memo["ticks"]))

    @kopf.timer("things", registry=registry, id="idle", idle=0.05)
    def idle(**_: Any) -> None:
        calls.append(("idle",))

    @kopf.on.delete("things", registry=registry, id="delete")
    async def delete(**_: Any) -> None:
        calls.append(("delete",))

    async with world.operator(registry):
        obj = await world.create("one", spec={"on": True})
        await world.called("loop started")
        await world.called("tick", 3)
        await world.called("idle")
        assert calls.count(("idle",)) == 1  # once until the next change
        await world.patch(obj, spec={"seen": True})
        await world.called("seen")
        await eventually(lambda: _count(calls, ("idle",), 2))
        await world.patch(obj, spec={"on": False})
        await world.called("loop ended")
        current = await world.get("one")
        assert current is not None
        assert current["metadata"]["finalizers"] == [FINALIZER]
        assert current["status"] == {"tries": 1}
        await world.deleted("one")
        assert [call[0] for call in calls].count("thread") == 1
        assert calls.count(("delete",)) == 1  # not again when the daemon has ended
        ticks = [call for call in calls if call[0] == "tick"]
        await asyncio.sleep(0.05)
        assert [call for call in calls if call[0] == "tick"] == ticks


async def test_daemon_is_cancelled_when_the_operator_stops(world: World) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.daemon("things", registry=registry, id="forever")
    async def forever(**_: Any) -> None:
        calls.append(("started",))
        try:
            await asyncio.sleep(3600)
        finally:
            calls.append(("ended",))

    async with world.operator(registry):
        await world.create("one")
        await world.called("started")
    assert calls == [("started",), ("ended",)]


async def test_daemon_that_ignores_its_cancellation_is_cancelled_once_and_left(
    world: World,
) -> None:
    registry, calls, release = kopf.OperatorRegistry(), world.calls, asyncio.Event()

    @kopf.daemon("things", registry=registry, id="stubborn", cancellation_timeout=0.01)
    async def stubborn(**_: Any) -> None:
        calls.append(("started",))
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                calls.append(("ignored",))

    async with world.operator(registry):
        await world.create("one")
        await world.called("started")
        await world.deleted("one")
        for _ in range(100):
            await asyncio.sleep(0)
        assert calls == [("started",), ("ignored",)]
    release.set()


async def test_daemon_that_a_deletion_waits_for_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    registry, calls, release = kopf.OperatorRegistry(), world.calls, asyncio.Event()

    @kopf.daemon("things", registry=registry, id="deaf", cancellation_polling=0.01)
    async def deaf(**_: Any) -> None:
        calls.append(("started",))
        await release.wait()

    async def is_logged() -> bool:
        return (
            "Daemon 'deaf' still runs 0.01 seconds after it was asked to stop. The object is deleted when it has ended."
            in caplog.text
        )

    async with world.operator(registry):
        await world.create("one")
        await world.called("started")
        await world.client.delete(KIND, NamespacedName(world.namespace, "one"))
        await eventually(is_logged)
        assert await world.get("one") is not None
        release.set()
        await world.wait_until_deleted("one")


@pytest.mark.function_errors
async def test_errors_of_handlers_fail_a_test(world: World) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.index("things", registry=registry, id="broken_index")
    def broken_index(spec: kopf.Spec, **_: Any) -> str:
        return str(spec["absent"])

    @kopf.on.create("things", registry=registry, id="broken", backoff=0)
    async def broken(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("called",))
        if len(calls) == 1:
            kopf.info({}, reason="Created", message="It has no name.")
        raise kopf.PermanentError("expected")

    with function_errors.collected() as found:
        async with world.operator(registry):
            await world.create("one")
            await world.called("called")
            await world.handled("one", {})
    errors = {each.function: each for each in found.errors}
    assert {function: each.is_bug for function, each in errors.items()} == {
        f"index function broken_index for {world.namespace}/one": True,
        "Handler 'broken'": False,
    }
    assert "must have apiVersion, kind and metadata.name" in str(errors["Handler 'broken'"].error)


async def test_daemon_without_a_valid_delay_ends_without_the_operator(world: World) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    def broken(**_: Any) -> float:
        raise RuntimeError("no delay")

    @kopf.daemon("things", registry=registry, id="broken", initial_delay=broken)
    async def never(**_: Any) -> None:
        calls.append(("never",))

    @kopf.daemon("things", registry=registry, id="fine")
    async def fine(name: str, **_: Any) -> None:
        calls.append(("fine", name))

    async with world.operator(registry):
        for name in ("one", "two"):
            await world.create(name)
            await world.called("fine", name)
    assert ("never",) not in calls


async def test_indexes_are_complete_before_handlers_run_and_events_are_reported(
    world: World,
) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.index("configmaps", registry=registry, id="by_color", labels={"indexed": "yes"})
    def by_color(body: kopf.Body, name: str, **_: Any) -> dict[str, str]:
        return {body["data"]["color"]: name}

    @kopf.on.create("things", registry=registry, id="create")
    async def create(by_color: kopf.Index[str, str], **_: Any) -> None:
        calls.append(
            (
                "index",
                {color: sorted(names) for color, names in by_color.items()} == {"red": ["a", "b"]},
            )
        )

    @kopf.on.event("configmaps", registry=registry, id="event")
    def event(type: str | None, name: str, event: kopf.RawEvent, **_: Any) -> None:  # noqa: A002
        calls.append((name, type))
        raise RuntimeError("errors of event handlers are ignored")

    def config_map(name: str, color: str, **labels: str) -> Object:
        metadata = {"name": name, "namespace": world.namespace, "labels": labels}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"color": color},
        }

    for obj in (
        config_map("a", "red", indexed="yes"),
        config_map("b", "red", indexed="yes"),
        config_map("c", "red"),
    ):
        await world.client.create(obj)
    await world.create("one")
    async with world.operator(registry) as handlers:
        await world.called("index", True)
        await world.called("a", None)
        index = handlers.environment.indexes["by_color"]
        await world.client.apply(config_map("a", "blue", indexed="yes"))
        await world.called("a", "MODIFIED")
        assert list(index["blue"]) == ["a"]
        await world.client.delete(CONFIG_MAP, NamespacedName(world.namespace, "a"))
        await world.called("a", "DELETED")
        assert set(index) == {"red"}


async def test_resource_that_is_served_later_and_objects_of_other_filters(
    world: World, install_crds: Callable[..., list[str]]
) -> None:
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.on.create(
        "late.handlers.example.com",
        registry=registry,
        id="create",
        when=lambda name, **_: name != "other",
    )
    def create(name: str, **_: Any) -> None:
        calls.append(("late", name))

    late = GVK("handlers.example.com", "v1", "Late")
    async with world.operator(registry):
        install_crds(crd("handlers.example.com", "v1", "Late", "late"))
        for name in ("other", "one"):
            await world.client.create({**world.thing(name), "kind": "Late"})
        await world.called("late", "one")
        other = await world.client.get(late, NamespacedName(world.namespace, "other"))
        assert other is not None
        assert "annotations" not in other["metadata"]
    assert ("late", "other") not in calls


async def test_operator_serves_webhooks_and_probes_and_runs_its_activities(
    world: World, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("POD_NAMESPACE", world.namespace)
    registry, calls = kopf.OperatorRegistry(), world.calls

    @kopf.on.startup(registry=registry, id="configure")
    async def configure(settings: kopf.OperatorSettings, retry: int, **_: Any) -> None:
        if retry == 0:
            raise kopf.TemporaryError("again", delay=0.01)
        settings.admission.server = kopf.WebhookServer(port=free_port())
        settings.admission.managed = f"{world.namespace}.example.com"

    @kopf.on.cleanup(registry=registry, id="cleanup")
    def cleanup(**_: Any) -> None:
        calls.append(("cleanup",))

    @kopf.on.login(registry=registry, id="login")
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.probe(registry=registry, id="number")
    def number(**_: Any) -> int:
        return 42

    @kopf.on.mutate("things", registry=registry, id="mutate", labels={"test": world.namespace})
    def mutate(patch: kopf.Patch, spec: kopf.Spec, **_: Any) -> None:
        patch.spec["doubled"] = 2 * spec.get("number", 0)

    @kopf.on.validate(
        "things",
        registry=registry,
        id="validate",
        operations=["CREATE"],
        labels={"test": world.namespace},
    )
    async def validate(spec: kopf.Spec, dryrun: bool, warnings: list[str], **_: Any) -> None:
        if spec["doubled"] > 10:
            raise kopf.AdmissionError("too many", code=403)

    stop, ready = threading.Event(), asyncio.Event()
    address = f"http://127.0.0.1:{free_port()}/healthz"
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            namespaces=[world.namespace],
            liveness_endpoint=address,
            stop_flag=stop,
            ready_flag=ready,
        )
    )
    try:
        async with asyncio.timeout(120):
            await ready.wait()
        labels = {"metadata": {"labels": {"test": world.namespace}}}

        async def is_called() -> bool:
            created = await world.client.create(
                world.thing("dry", spec={"number": 2}, **labels), dry_run=True
            )
            return bool(created["spec"].get("doubled") == 4)

        await eventually(is_called, "the webhooks are called")
        with pytest.raises(Forbidden, match="too many"):
            await world.create("wrong", spec={"number": 6}, **labels)
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            assert await response.json() == {"number": 42}
    finally:
        stop.set()
        await operator
    assert calls == [("cleanup",)]


async def test_operator_refuses_patterns_of_namespaces_and_failed_startups(world: World) -> None:
    registry = kopf.OperatorRegistry()
    with pytest.raises(ValueError, match="patterns are not supported"):
        await kopf.operator(registry=registry, namespaces=["dev-*"])
    with pytest.raises(ValueError, match="not both"):
        await kopf.operator(registry=registry, namespaces=["a"], clusterwide=True)

    @kopf.on.startup(registry=registry, id="fail")
    def fail(**_: Any) -> None:
        raise kopf.PermanentError("no")

    with pytest.raises(kopf.ActivityError, match="startup failed: fail"):
        await kopf.operator(registry=registry, namespaces=["a"])


async def test_operator_stops_while_the_api_server_fails() -> None:
    registry, stop, calls = kopf.OperatorRegistry(), asyncio.Event(), list[str]()

    async def fail(_: web.Request) -> web.Response:
        stop.set()
        return web.Response(status=500)

    application = web.Application()
    application.router.add_get("/{path:.*}", fail)
    server = TestServer(application)

    @kopf.on.login(registry=registry, id="login")
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=str(server.make_url("/")), token="secret")

    @kopf.on.cleanup(registry=registry, id="cleanup")
    def cleanup(**_: Any) -> None:
        calls.append("cleanup")

    async with server:
        await kopf.operator(registry=registry, stop_flag=stop)
    assert calls == ["cleanup"]


async def test_registries_without_use_are_refused() -> None:
    manager = Manager(
        ClientConfig(server="http://127.0.0.1:1"), ManagerOptions(field_manager="things")
    )
    with pytest.raises(ValueError, match="no handlers were declared without a registry"):
        kopf.add_to(manager)
    registry = kopf.OperatorRegistry()
    kopf.on.validate("pods", registry=registry, id="check")(lambda **_: None)
    with pytest.raises(ValueError, match=r"'check': .* need ManagerOptions\(webhook="):
        kopf.add_to(manager, registry=registry)


async def test_handlers_of_all_secrets_are_refused(
    kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    registry = kopf.OperatorRegistry()
    kopf.on.event("secrets", registry=registry, id="secret")(lambda **_: None)
    with pytest.raises(RunnableFailed, match="handlers of Secrets must be limited to namespaces"):
        await kopf.operator(registry=registry, clusterwide=True)
