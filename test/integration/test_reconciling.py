"""Finalizers, waiting and cached lists, on a control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    SECRET,
    Client,
    ClientConfig,
    Conditions,
    Conflict,
    Finalizer,
    Invalid,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    ObjectMeta,
    Result,
    custom_resource_definition,
    has_condition,
    has_finalizer,
    key_of,
    name_of,
    owner_reference,
    set_finalizer,
    uid_of,
    wait_for,
)
from cfo.runtime.cache import by_controller, controller_key
from cfo.runtime.client import UnknownSubresource, connect
from cfo.runtime.objects import new_object
from cfo.runtime.objects.kinds import CUSTOM_RESOURCE_DEFINITION
from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.raycluster_environment import eventually
from test.support.website import Website, WebsiteSpec, WebsiteStatus

FINALIZER = "example.com/cleanup"
RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata = {"namespace": "default", "name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@asynccontextmanager
async def running_manager(plane: ControlPlane) -> AsyncIterator[Manager]:
    manager = Manager(ClientConfig.for_control_plane(plane), ManagerOptions(field_manager="test"))
    manager.cache.informer(CONFIG_MAP)
    async with manager:
        await manager.started()
        await manager.cache.wait_for_sync()
        yield manager


def requests(manager: Manager) -> float:
    """Return the number of requests except watches."""

    def samples() -> Iterator[float]:
        for metric in manager.metrics.registry.collect():
            if metric.name == "rest_client_requests":
                yield from (
                    sample.value for sample in metric.samples if sample.name.endswith("_total")
                )

    return sum(samples())


async def test_object_is_kept_until_its_crd_has_a_status(
    plane: ControlPlane,
) -> None:
    """The API server says that the object was not found, although only its status does not exist."""
    async with running_manager(plane) as manager:
        client = manager.client
        crd = custom_resource_definition(Website)
        subresources = crd["spec"]["versions"][0].pop("subresources")
        await client.create(crd)
        manager.cache.informer(Website)
        metadata = ObjectMeta(namespace="default", name="w")
        website = await client.create(Website(metadata=metadata, spec=WebsiteSpec(html="<p>")))
        intent = Website.intent(website.key, status=WebsiteStatus(ready_replicas=1))
        with pytest.raises(UnknownSubresource, match=r"declares it in subresources\.status"):
            await client.apply(intent, subresource="status")
        kept = await client.get(Website, website.key)
        assert kept is not None
        assert kept.metadata.uid == website.metadata.uid
        changed = {"metadata": {"annotations": {"example.com/changed": "yes"}}}
        await client.patch(Website, website.key, changed)
        await wait_for(
            client,
            Website,
            website.key,
            lambda obj: bool(obj and obj.metadata.annotations),
            timeout=120,
        )

        versions = [{**crd["spec"]["versions"][0], "subresources": subresources}]
        await client.patch(
            CUSTOM_RESOURCE_DEFINITION, key_of(crd), {"spec": {"versions": versions}}
        )

        async def has_status() -> bool:
            try:
                stored = await client.apply(intent, subresource="status")
            except UnknownSubresource:
                return False
            return stored["status"] == {"readyReplicas": 1}

        await eventually(has_status, "the status")


async def test_finalizer_is_added_before_work_and_removed_after_cleanup(
    plane: ControlPlane,
) -> None:
    async with running_manager(plane) as manager:
        client, calls = manager.client, list[str]()
        unfinished = [Result(requeue_after=5), None]

        async def apply(obj: Object) -> None:
            assert has_finalizer(obj, FINALIZER)
            calls.append("apply")

        async def cleanup(obj: Object) -> Result | None:
            calls.append("cleanup")
            return unfinished.pop(0)

        finalizer = Finalizer(client, FINALIZER)
        created = await client.create(
            config_map("bucket")
            | {
                "metadata": {
                    **config_map("bucket")["metadata"],
                    "finalizers": ["other.example.com/x"],
                }
            }
        )

        async def reconcile() -> Result:
            obj = await client.get(CONFIG_MAP, key_of(created))
            assert obj is not None
            return await finalizer.reconcile(obj, apply=apply, cleanup=cleanup)

        assert await reconcile() == Result()
        before = requests(manager)
        assert await reconcile() == Result()
        assert requests(manager) == before
        await client.delete(CONFIG_MAP, key_of(created))
        assert await reconcile() == Result(requeue_after=5)
        assert has_finalizer(await client.get(CONFIG_MAP, key_of(created)) or {}, FINALIZER)
        assert await reconcile() == Result()
        stored = await client.get(CONFIG_MAP, key_of(created))
        assert stored is not None
        assert stored["metadata"]["finalizers"] == ["other.example.com/x"]
        assert await reconcile() == Result()
        assert calls == ["apply", "apply", "cleanup", "cleanup"]
        with pytest.raises(Conflict):  # the object has changed since
            await set_finalizer(client, created, FINALIZER, present=True)
        with pytest.raises(Invalid, match="name part must consist of"):
            await set_finalizer(client, await client.create(config_map("b")), "a b", present=True)
        await set_finalizer(client, stored, "other.example.com/x", present=False)
        assert await set_finalizer(client, stored, FINALIZER, present=True) is None
    for name in ("cleanup", "Example.com/x", "example.com/", "example.com/a b", "a.com/b/c"):
        with pytest.raises(ValueError, match=f"finalizer: '{name}': must be a domain"):
            Finalizer(client, name)


@pytest.mark.parametrize(
    ("others", "removed"),
    [
        (["c.example.com/x", FINALIZER, "b.example.com/x"], []),
        (["c.example.com/x", "b.example.com/x"], []),
        (["b.example.com/x", FINALIZER], ["c.example.com/x"]),
    ],
    ids=["order has changed", "it was removed", "another was removed"],
)
async def test_finalizer_is_removed_although_a_user_changes_the_order(
    plane: ControlPlane, others: list[str], removed: list[str]
) -> None:
    async with running_manager(plane) as manager:
        client = manager.client
        finalizers = [FINALIZER, "b.example.com/x", "c.example.com/x"]
        obj = config_map("bucket")
        obj["metadata"]["finalizers"] = finalizers
        key = key_of(await client.create(obj))
        await client.delete(CONFIG_MAP, key)
        read = await client.get(CONFIG_MAP, key, live=True)
        assert read is not None
        await client.patch(CONFIG_MAP, key, {"metadata": {"finalizers": others}})
        if removed:  # it must not return
            with pytest.raises(Conflict, match="finalizers have changed"):
                await set_finalizer(client, read, FINALIZER, present=False)
            expected = others
        else:
            await set_finalizer(client, read, FINALIZER, present=False)
            expected = finalizers[1:]
        stored = await client.get(CONFIG_MAP, key, live=True)
        assert stored is not None
        assert sorted(stored["metadata"]["finalizers"]) == sorted(expected)
        await client.patch(CONFIG_MAP, key, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("crash_at", ["add", "apply", "cleanup", "remove"])
async def test_finalizer_finishes_after_a_crash_at_each_step(
    crash_at: str, before: bool, plane: ControlPlane
) -> None:
    class Crash(Exception):
        """The process ends."""

    pending, done = [crash_at], list[str]()

    async def step(name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        crashes = name in pending
        if crashes:
            pending.clear()
        if crashes and before:
            raise Crash
        result = await work()
        done.append(name)
        if crashes:
            raise Crash
        return result

    class CrashingClient(Client):
        async def patch(
            self, kind: Any, key: NamespacedName, body: Any, *arguments: Any, **options: Any
        ) -> Any:
            name = "add" if body[-1]["op"] == "add" else "remove"
            return await step(name, lambda: client.patch(kind, key, body, *arguments, **options))

    async with connect(ClientConfig.for_control_plane(plane), field_manager="test") as client:
        finalizer = Finalizer(
            CrashingClient(client.transport, client.mapper, field_manager="test"), FINALIZER
        )
        created = await client.create(config_map("bucket"))

        async def apply(obj: Object) -> None:
            assert "add" in done
            await step("apply", lambda: asyncio.sleep(0))

        async def cleanup(obj: Object) -> None:
            await step("cleanup", lambda: asyncio.sleep(0))

        async def reconcile() -> None:
            for _ in range(2):  # the second time after a crash, or for the event of the first
                obj = await client.get(CONFIG_MAP, key_of(created))
                if obj is not None:
                    with suppress(Crash):
                        await finalizer.reconcile(obj, apply=apply, cleanup=cleanup)

        await reconcile()
        assert "apply" in done
        await client.delete(CONFIG_MAP, key_of(created))
        await reconcile()
        assert not pending
        assert done.index("cleanup") < done.index("remove")
        assert await client.get(CONFIG_MAP, key_of(created)) is None


async def test_building_blocks_take_typed_objects(plane: ControlPlane) -> None:
    async with running_manager(plane) as manager:
        client, key = manager.client, NamespacedName("default", "typed")
        await client.create(custom_resource_definition(Website))
        manager.cache.informer(Website)
        await manager.cache.wait_for_sync()
        metadata = ObjectMeta(namespace=key.namespace, name=key.name)
        website = await client.create(Website(metadata=metadata, spec=WebsiteSpec(html="<p>")))
        seen: list[Website] = []

        async def apply(obj: Website) -> None:
            conditions = Conditions(obj, now=manager.clock.now())
            conditions.set("Available", True, "Tested")
            conditions.summarize(["Available"])
            seen.append(obj)
            status = WebsiteStatus(conditions=conditions.as_models())
            await client.apply(Website.intent(obj.key, status=status), subresource="status")

        async def cleanup(obj: Website) -> None:
            seen.append(obj)

        finalizer = Finalizer(client, FINALIZER)
        await finalizer.reconcile(website, apply=apply, cleanup=cleanup)
        ready = await wait_for(client, Website, key, has_condition("Ready"), timeout=120)
        assert ready is not None
        assert [item.observed_generation for item in ready.status.conditions] == [1, 1]
        assert ready.metadata.finalizers == [FINALIZER]
        await client.delete(Website, key)
        deleting = await wait_for(
            client, Website, key, lambda obj: obj is not None and obj.is_deleting, timeout=120
        )
        assert deleting is not None
        await finalizer.reconcile(deleting, apply=apply, cleanup=cleanup)
        assert [obj.is_deleting for obj in seen] == [False, True]
        assert await wait_for(client, Website, key, lambda obj: obj is None, timeout=120) is None


async def test_wait_returns_the_object_as_soon_as_it_meets_the_condition(
    plane: ControlPlane,
) -> None:
    async with running_manager(plane) as manager:
        for client in (manager.client, manager.api_reader):
            key = NamespacedName("default", f"awaited-{client is manager.client}".lower())
            async with anyio.create_task_group() as tasks:

                async def change(key: NamespacedName = key) -> None:
                    obj = await manager.client.create(config_map(key.name))
                    await manager.client.apply(
                        {**obj, "data": {"state": "done"}, "metadata": key._asdict()}
                    )

                tasks.start_soon(change)
                obj = await wait_for(
                    client, CONFIG_MAP, key, lambda obj: bool(obj and obj.get("data")), timeout=120
                )
            assert obj is not None
            assert obj["data"] == {"state": "done"}
            await manager.client.delete(CONFIG_MAP, key)
            assert (
                await wait_for(client, CONFIG_MAP, key, lambda obj: obj is None, timeout=120)
                is None
            )
            with pytest.raises(TimeoutError, match=f"{key}: condition not met after 0.05 s"):
                await wait_for(client, CONFIG_MAP, key, lambda obj: obj is not None, timeout=0.05)

            def fail(obj: Object | None) -> bool:
                raise TimeoutError("of the condition")

            with pytest.raises(TimeoutError, match="of the condition"):
                await wait_for(client, CONFIG_MAP, key, fail, timeout=None)


async def watch_until(api: APIClient, path: str, holds: Callable[[Object], bool]) -> None:
    """Watch the objects at ``path`` until ``holds`` accepts one of them."""
    async with api.watch(path) as watch:
        while not holds((await watch.event(timeout=60))["object"]):
            pass


@pytest.mark.embedded(reason="needs the simulated nodes")
async def test_timeout_of_a_wait_shows_conditions_pods_and_events() -> None:
    controllers = ("gc", "namespace", "deployment", "pods", "resourcequota")
    labels = {"app": "web"}
    container = {"name": "web", "image": "web:not-found"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    deployment = {**new_object(DEPLOYMENT, "web", "default"), "spec": spec}
    quota = new_object(RESOURCE_QUOTA, "one", "default", spec={"hard": {"pods": "1"}})
    async with (
        ControlPlane.embedded(controllers=controllers) as plane,
        connect(ClientConfig.for_control_plane(plane), field_manager="tests") as client,
        APIClient(plane) as api,
    ):
        await client.create(quota)
        await wait_for(
            client,
            RESOURCE_QUOTA,
            key_of(quota),
            lambda obj: bool(obj and obj.get("status")),
            timeout=120,
        )
        await client.create(deployment)
        pods = "/api/v1/namespaces/default/pods"
        await watch_until(api, pods, lambda pod: "containerStatuses" in pod["status"])
        events = "/api/v1/namespaces/default/events"
        await watch_until(api, events, lambda event: event["reason"] == "FailedCreate")
        with pytest.raises(TimeoutError) as raised:
            await wait_for(
                client, DEPLOYMENT, key_of(deployment), has_condition("Ready"), timeout=0.5
            )
    shown = str(raised.value)
    assert "ReplicaFailure: True (FailedCreate)" in shown
    assert "container web waits: " in shown
    assert "Warning of ReplicaSet web-" in shown
    assert len(shown.splitlines()) <= 20


async def test_lists_with_the_selector_of_an_informer_make_no_request(plane: ControlPlane) -> None:
    async with running_manager(plane) as manager:
        client, secret = manager.client, {"apiVersion": "v1", "kind": "Secret"}
        for name, labels in (
            ("a", {"app": "x", "tier": "1"}),
            ("b", {"app": "x"}),
            ("c", {"app": "y"}),
        ):
            await client.create(
                {**secret, "metadata": {"namespace": "default", "name": name, "labels": labels}}
            )
        await manager.cache.informer(SECRET, label_selector="app=x").wait_for_sync()
        before = requests(manager)
        found = await client.list(SECRET, label_selector="app=x")
        assert [name_of(obj) for obj in found] == ["a", "b"]
        assert [
            name_of(obj) for obj in await client.list(SECRET, label_selector="tier=1,app=x")
        ] == ["a"]
        assert requests(manager) == before
        assert [name_of(obj) for obj in await client.list(SECRET, label_selector="app=y")] == ["c"]
        assert len(await client.list(SECRET, namespace="default")) >= 3
        assert requests(manager) >= before + 2
        await client.patch(SECRET, key_of(found[1]), {"metadata": {"labels": {"app": "y"}}})
        assert [name_of(obj) for obj in await client.list(SECRET, label_selector="app=x")] == ["a"]


async def test_objects_are_found_by_their_controller(plane: ControlPlane) -> None:
    async with running_manager(plane) as manager:
        client = manager.client
        config_maps = manager.cache.informer(CONFIG_MAP)
        for _ in range(2):  # adding an index again is allowed
            config_maps.add_index("controller", by_controller)
        owner = await client.create(config_map("owner"))
        other = await client.create(config_map("other"))
        child = config_map("child", {"color": "red"})
        child["metadata"]["ownerReferences"] = [
            owner_reference(owner),
            owner_reference(other, controller=False),
        ]
        await client.create(child)
        reader = config_maps.reader
        index = ("controller", controller_key("default", uid_of(owner)))
        assert [name_of(obj) for obj in reader.list(index=index)] == ["child"]
        assert reader.list(index=("controller", controller_key("default", uid_of(other)))) == []
        assert reader.list(index=("controller", controller_key("elsewhere", uid_of(owner)))) == []
