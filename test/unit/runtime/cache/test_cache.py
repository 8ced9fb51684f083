"""The cache: shared informers, their lifetime, and the reads and writes of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
import structlog

from cfo.runtime.cache import cache as cache_module
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.object_cache import ClientCache
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import GVK, NamespacedName, TypedObject
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    ScriptedMapper,
    ScriptedServer,
    list_response,
    ray_cluster,
    scripted_server,
    wait_until,
)

RAY = GVK("ray.io", "v1", "RayCluster")
MAPPER = ScriptedMapper(
    Resource(gvk=RAY, plural="rayclusters", namespaced=True),
    Resource(gvk=SECRET, plural="secrets", namespaced=True),
)
KEY = NamespacedName("ns", "a")


@asynccontextmanager
async def running_cache(
    *, run: bool = True, **options: Any
) -> AsyncIterator[tuple[ScriptedServer, Cache]]:
    async with scripted_server() as (server, transport):
        cache = Cache(transport, MAPPER, clock=SkippingClock(), **options)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            if run:
                await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            yield server, cache
            tasks.cancel_scope.cancel()


class TypedRayCluster(TypedObject):
    gvk = RAY


async def test_selectors_accept_classes_as_kinds() -> None:
    restricted = {TypedRayCluster: "tier=gold"}
    async with running_cache(run=False, selectors=restricted) as (_, cache):
        assert cache.covering_reader(RAY, "") is None
        assert str(cache.informer(RAY).selection.label_selector) == "tier=gold"


async def start_informer(
    server: ScriptedServer, cache: Cache, *items: dict[str, Any], **options: Any
) -> Informer:
    """Return an informer that has listed ``items`` at version 9 and has opened its watch."""
    server.respond_with(list_response(9, *items))
    watch = server.respond_with_watch()
    informer = cache.informer(RAY, **options)
    await asyncio.wait_for(informer.wait_for_sync(), TIMEOUT_SECONDS)
    await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
    return informer


async def test_equal_requests_share_one_informer() -> None:
    async with running_cache(run=False) as (_, cache):
        plain = cache.informer(RAY)
        assert cache.informer(RAY) is plain
        selected = cache.informer(RAY, label_selector="b in (y,x),a=1")
        assert cache.informer(RAY, label_selector="a==1,b in (x, y)") is selected
        assert (
            cache.informer(
                RAY,
                label_selector={
                    "matchLabels": {"a": "1"},
                    "matchExpressions": [{"key": "b", "operator": "In", "values": ["x", "y"]}],
                },
            )
            is selected
        )
        others = [
            cache.informer(RAY, field_selector="metadata.name=a"),
            cache.informer(RAY, namespace="ns"),
            cache.informer(RAY, metadata_only=True),
            cache.informer(RAY, max_bytes=1000),
            cache.informer(SECRET, label_selector="a=1"),
        ]
        assert len({plain, selected, *others}) == 7
        assert len(cache.informers) == 7


async def test_restore_that_one_informer_notices_rebuilds_all() -> None:
    """The position of the second collection has passed its last version: only the first informer can notice it."""
    async with running_cache() as (server, cache):
        server.respond_with(list_response(900, ray_cluster("a", 800)))
        watch = server.respond_with_watch()
        first = cache.informer(RAY)
        await asyncio.wait_for(first.wait_for_sync(), TIMEOUT_SECONDS)
        second = await start_informer(server, cache, ray_cluster("a", 5), label_selector="x=1")
        server.probe_response = list_response(500, token="rest")
        restored = list_response(500, ray_cluster("b", 400))
        server.respond_with(restored, restored)
        await watch.abort()
        for informer in (first, second):
            await wait_for_names(informer, ["b"])


async def wait_for_names(informer: Informer, names: list[str]) -> None:
    await wait_until(lambda: [entry.key.name for entry in informer.reader.entries("ns")] == names)


async def test_informer_without_size_limit_is_refused() -> None:
    async with running_cache(run=False) as (_, cache):
        with pytest.raises(ValueError, match="max_bytes: 0: must be 1 or more"):
            cache.informer(RAY, max_bytes=0)


async def test_secrets_cannot_be_cached_for_the_whole_cluster() -> None:
    async with running_cache(run=False) as (_, cache):
        with pytest.raises(
            ValueError, match=r"Secret\.v1: must not be cached for the whole cluster"
        ):
            cache.informer(SECRET)
        with pytest.raises(
            ValueError, match=r"Secret\.v1: must not be cached for the whole cluster"
        ):
            cache.informer(SECRET, max_bytes=1000)
        assert cache.informer(SECRET, label_selector="a") is not None
        assert cache.informer(SECRET, namespace="ns") is not None
        assert cache.informer(SECRET, metadata_only=True) is not None
    async with running_cache(run=False, namespaces=["ns"]) as (_, cache):
        assert cache.informer(SECRET) is not None


async def test_informer_of_other_namespaces_is_one_watch_outside_those_of_the_cache() -> None:
    async with running_cache(namespaces=["own", "a"]) as (server, cache):
        inside = ray_cluster("a", 5, metadata={"namespace": "own"})
        outside = ray_cluster("b", 6, metadata={"namespace": "elsewhere"})
        informer = await start_informer(server, cache, outside, other_namespaces=True)
        assert server.queries[0]["fieldSelector"] == (
            "metadata.namespace!=a,metadata.namespace!=own"
        )
        assert cache.covering_reader(RAY, "elsewhere") is None
        assert cache.covering_reader(RAY, "") is None
        cache.record_write(RAY, orjson.dumps(inside))
        assert [entry.key.namespace for entry in informer.reader.entries()] == ["elsewhere"]
        for selection in ({}, {"max_bytes": 1000}):
            with pytest.raises(ValueError, match="must not be cached for the whole cluster"):
                cache.informer(SECRET, other_namespaces=True, **selection)
        with pytest.raises(ValueError, match="other_namespaces: requires"):
            cache.informer(RAY, other_namespaces=True, namespace="own")
    async with running_cache(run=False) as (_, cache):
        with pytest.raises(ValueError, match="other_namespaces: requires"):
            cache.informer(RAY, other_namespaces=True)


async def test_informers_requested_before_and_after_the_start_run() -> None:
    async with running_cache(run=False) as (server, cache):
        early = cache.informer(RAY)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            server.respond_with(list_response(9))
            await server.wait_for_requests(2)
            late = cache.informer(RAY, label_selector="app=x")
            server.respond_with_watch()
            server.respond_with(list_response(9))
            await asyncio.wait_for(cache.wait_for_sync(), TIMEOUT_SECONDS)
            assert early.has_synced
            assert late.has_synced
            tasks.cancel_scope.cancel()
        assert early.problem == "stopped"


async def test_informer_can_be_removed() -> None:
    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache, ray_cluster("a", 5))
        assert cache.covering_reader(RAY, "ns") is not None
        cache.remove(informer)
        assert cache.covering_reader(RAY, "ns") is None
        await wait_until(lambda: informer.problem == "stopped")
        assert cache.informer(RAY) is not informer
        with pytest.raises(
            LookupError, match=r"RayCluster\.v1\.ray\.io: the informer was removed from the cache"
        ):
            informer.reader.get(KEY)
        with pytest.raises(LookupError, match="removed"):
            KEY in informer.reader.entries()  # noqa: B015
        with pytest.raises(LookupError, match="removed"):
            await informer.wait_for_sync()


async def test_waiting_for_a_removed_informer_fails() -> None:
    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache)
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(LookupError, match="removed"):
                    await informer.wait_for(KEY, bool, timeout=TIMEOUT_SECONDS)

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            cache.remove(informer)


async def test_waiting_for_an_async_condition_is_refused() -> None:
    async def condition(_: object) -> bool:
        return False

    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache)
        with pytest.raises(TypeError, match=r"condition: async function .* without async"):
            await informer.wait_for(KEY, condition, timeout=TIMEOUT_SECONDS)  # type: ignore[arg-type]


async def test_waiting_for_a_coroutine_is_refused() -> None:
    async def is_met() -> bool:
        return False

    condition: Any = lambda _: is_met()  # noqa: E731 - a lambda is what authors write
    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache)
        with pytest.raises(
            TypeError, match=r"condition: returned a value of type coroutine: .* True or False"
        ):
            await informer.wait_for(KEY, condition, timeout=TIMEOUT_SECONDS)


async def test_cache_can_be_restricted_to_namespaces() -> None:
    async with running_cache(namespaces=["two", "one"]) as (server, cache):
        with pytest.raises(ValueError, match="'three': the cache is restricted to one, two"):
            cache.informer(RAY, namespace="three")
        server.respond_with(list_response(9), list_response(9))
        server.respond_with_watch()
        server.respond_with_watch()
        informer = cache.informer(RAY)
        await asyncio.wait_for(informer.wait_for_sync(), TIMEOUT_SECONDS)
        assert cache.covering_reader(RAY, "one") is not None
        assert cache.covering_reader(RAY, "") is not None
        assert cache.covering_reader(RAY, "three") is None


async def test_only_synced_informers_of_whole_objects_without_selector_cover_reads() -> None:
    async with running_cache() as (server, cache):
        client_cache: ClientCache = cache
        assert client_cache.covering_reader(RAY, "ns") is None
        await start_informer(server, cache, ray_cluster("a", 5), label_selector="app")
        await start_informer(server, cache, ray_cluster("a", 5), metadata_only=True)
        await start_informer(server, cache, ray_cluster("a", 5), max_bytes=1000)
        await start_informer(server, cache, ray_cluster("a", 5), field_selector="metadata.name=a")
        assert client_cache.covering_reader(RAY, "ns") is None
        assert client_cache.covering_reader(RAY, "") is None
        labeled = ray_cluster("b", 6, metadata={"labels": {"app": "x"}})
        await start_informer(server, cache, ray_cluster("a", 5), labeled, namespace="ns")
        assert client_cache.covering_reader(RAY, "ns") is not None
        assert client_cache.covering_reader(RAY, "other") is None
        assert client_cache.covering_reader(RAY, "") is None
        await start_informer(server, cache, ray_cluster("a", 5), labeled)
        assert client_cache.covering_reader(RAY, "") is not None
        assert client_cache.covering_reader(RAY, "other") is not None
        reader = client_cache.covering_reader(RAY, "")
        assert reader is not None
        assert (reader.get(KEY) or {})["metadata"]["resourceVersion"] == "5"
        assert reader.get(NamespacedName("ns", "z")) is None
        assert [obj["metadata"]["name"] for obj in reader.list("ns", "app=x")] == ["b"]
        assert len(reader.list()) == 2


async def test_selector_of_a_kind_limits_all_informers_and_reads_of_it() -> None:
    async with running_cache(selectors={RAY: "operatorVersion=v1"}) as (server, cache):
        matching = ray_cluster("a", 5, metadata={"labels": {"operatorVersion": "v1"}})
        plain = await start_informer(server, cache, matching)
        assert server.queries[0]["labelSelector"] == "operatorVersion=v1"
        assert cache.informer(RAY, label_selector="operatorVersion=v1") is plain
        reader = cache.covering_reader(RAY, "")
        assert reader is not None
        assert (reader.get(KEY) or {})["metadata"]["name"] == "a"
        assert (
            str(cache.informer(RAY, label_selector="team=x").selection.label_selector)
            == "operatorVersion=v1,team=x"
        )
        cache.record_write(
            RAY, orjson.dumps(ray_cluster("a", 20, metadata={"labels": {"operatorVersion": "v2"}}))
        )
        assert reader.get(KEY) is None
        assert str(cache.informer(SECRET, label_selector="a=1").selection.label_selector) == "a=1"


async def test_stored_object_may_come_from_an_informer_with_selector() -> None:
    ours = {
        "manager": "cfo",
        "operation": "Apply",
        "apiVersion": "ray.io/v1",
        "fieldsV1": {"f:spec": {}},
    }
    theirs = {**ours, "manager": "kubectl"}
    async with running_cache(field_managers=["cfo"]) as (server, cache):
        await start_informer(server, cache, ray_cluster("a", 5), metadata_only=True)
        assert cache.stored(RAY, KEY) is None
        item = ray_cluster(
            "a", 5, metadata={"managedFields": [theirs, ours], "labels": {"app": "x"}}
        )
        await start_informer(server, cache, item, label_selector="app")
        stored = cache.stored(RAY, KEY)
        assert stored is not None
        assert (stored.managers, stored.uid, stored.resource_version) == ((ours,), "uid-a", "5")
        assert orjson.loads(stored.object) == ray_cluster("a", 5, metadata={"labels": {"app": "x"}})


async def test_own_write_is_recorded_in_every_informer_of_the_kind() -> None:
    async with running_cache() as (server, cache):
        whole = await start_informer(server, cache)
        meta = await start_informer(server, cache, metadata_only=True)
        selected = await start_informer(server, cache, label_selector="app=x")
        cache.record_write(RAY, orjson.dumps(ray_cluster("a", 12, spec={"x": 1})))
        assert (len(whole.reader), len(meta.reader), len(selected.reader)) == (1, 1, 0)
        partial = meta.reader.get(KEY)
        assert partial is not None
        assert "spec" not in partial
        stored = cache.stored(RAY, KEY)
        assert stored is not None
        assert stored.resource_version == "12"
        cache.record_deletion(RAY, KEY, "uid-a")
        assert (len(whole.reader), len(meta.reader)) == (0, 0)


async def test_response_that_is_not_an_object_of_the_kind_is_not_recorded() -> None:
    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache)
        cache.record_write(RAY, b'{"kind":"Status","metadata":{},"status":"Success"}')
        with structlog.testing.capture_logs() as logs:
            cache.record_write(RAY, b"<html>")
            cache.record_write(
                RAY, b'{"kind":"RayCluster","metadata":{"name":"a","labels":{"a":1}}}'
            )
        assert len(informer.reader) == 0
        assert [entry["log_level"] for entry in logs] == ["warning", "warning"]


async def test_key_is_uncertain_until_its_state_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cache() as (server, cache):
        await start_informer(server, cache)
        assert not cache.is_uncertain(RAY, KEY)
        cache.mark_uncertain(RAY, KEY)
        assert cache.is_uncertain(RAY, KEY)
        assert not cache.is_uncertain(SECRET, KEY)
        cache.record_write(RAY, orjson.dumps(ray_cluster("b", 12)))
        assert cache.is_uncertain(RAY, KEY)
        cache.record_write(RAY, orjson.dumps(ray_cluster("a", 13)))
        assert not cache.is_uncertain(RAY, KEY)
        cache.mark_uncertain(RAY, KEY)
        cache.record_deletion(RAY, KEY, "")
        assert not cache.is_uncertain(RAY, KEY)
        monkeypatch.setattr(cache_module, "MAX_UNCERTAIN", 2)
        for name in "abc":
            cache.mark_uncertain(RAY, NamespacedName("ns", name))
        assert [cache.is_uncertain(RAY, NamespacedName("ns", name)) for name in "abc"] == [
            False,
            True,
            True,
        ]
        assert [key.name for key in cache.uncertain_keys(RAY, "ns")] == ["b", "c"]
        assert [key.name for key in cache.uncertain_keys(RAY, "")] == ["b", "c"]
        assert not cache.uncertain_keys(RAY, "elsewhere")


async def test_deletion_of_another_uid_marks_the_key_uncertain() -> None:
    async with running_cache() as (server, cache):
        informer = await start_informer(server, cache, ray_cluster("a", 5))
        cache.record_deletion(RAY, KEY, "uid-other")
        assert informer.reader.contains(KEY)
        assert cache.is_uncertain(RAY, KEY)
        cache.record_deletion(RAY, KEY, "uid-a")
        assert not informer.reader.contains(KEY)
        assert not cache.is_uncertain(RAY, KEY)


async def test_wake_reaches_the_informers_of_the_kind() -> None:
    async with running_cache(run=False) as (_, cache):
        informer = cache.informer(RAY)
        cache.wake(RAY)
        cache.wake(SECRET)
        assert informer._woken.is_set()
