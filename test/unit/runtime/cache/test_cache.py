"""The cache: what is shared, what runs when, and what a client gets from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
import structlog

from cfo.runtime.cache import cache as module
from cfo.runtime.cache.cache import Cache, SyncTimeoutError
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.object_cache import ClientCache
from cfo.runtime.discovery import Resource
from cfo.runtime.kinds import SECRET
from cfo.runtime.objects import GVK, NamespacedName
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    PATIENCE,
    ScriptedMapper,
    ScriptedServer,
    a_list,
    a_status,
    eventually,
    make,
    scripted,
)

RAY = GVK("ray.io", "v1", "RayCluster")
MAPPER = ScriptedMapper(
    Resource(gvk=RAY, plural="rayclusters", namespaced=True), Resource(gvk=SECRET, plural="secrets", namespaced=True)
)
KEY = NamespacedName("ns", "a")


@asynccontextmanager
async def caching(*, run: bool = True, **options: Any) -> AsyncIterator[tuple[ScriptedServer, Cache]]:
    async with scripted() as (server, transport):
        cache = Cache(transport, MAPPER, clock=SkippingClock(), **options)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            if run:
                await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            yield server, cache
            tasks.cancel_scope.cancel()


async def follow(server: ScriptedServer, cache: Cache, *items: dict[str, Any], **options: Any) -> Informer:
    """An informer that has listed ``items`` as of version 9 and watches."""
    server.will(a_list(9, *items))
    watch = server.will_watch()
    informer = cache.informer(RAY, **options)
    await asyncio.wait_for(informer.wait_for_sync(), PATIENCE)
    await asyncio.wait_for(watch.opened.wait(), PATIENCE)
    return informer


async def test_who_asks_for_the_same_gets_the_same() -> None:
    async with caching(run=False) as (_, cache):
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
            cache.informer(SECRET, label_selector="a=1"),
        ]
        assert len({plain, selected, *others}) == 6
        assert len(cache.informers) == 6


async def test_secrets_are_never_cached_for_the_whole_cluster() -> None:
    async with caching(run=False) as (_, cache):
        with pytest.raises(ValueError, match=r"Secret\.v1: must not be cached for the whole cluster"):
            cache.informer(SECRET)
        assert cache.informer(SECRET, label_selector="a") is not None
        assert cache.informer(SECRET, namespace="ns") is not None
        assert cache.informer(SECRET, metadata_only=True) is not None
    async with caching(run=False, never_cluster_wide=()) as (_, cache):
        assert cache.informer(SECRET) is not None
    async with caching(run=False, namespaces=["ns"]) as (_, cache):
        assert cache.informer(SECRET) is not None


async def test_informers_run_whether_asked_for_before_or_after_the_start() -> None:
    async with caching(run=False) as (server, cache):
        early = cache.informer(RAY)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            server.will(a_list(9))
            await server.asked_times(2)
            late = cache.informer(RAY, label_selector="app=x")
            server.will_watch()
            server.will(a_list(9))
            await asyncio.wait_for(cache.wait_for_sync(timeout=PATIENCE), PATIENCE)
            assert early.has_synced
            assert late.has_synced
            tasks.cancel_scope.cancel()
        assert early.problem == "stopped"


async def test_what_does_not_sync_in_time_is_named_with_its_reason() -> None:
    async with caching() as (server, cache):
        server.will(a_status(403, "Forbidden", "you may not list"))
        cache.informer(RAY)
        cache.informer(GVK("x.io", "v1", "Missing"))
        await server.asked_times(2)
        with pytest.raises(SyncTimeoutError) as caught:
            await cache.wait_for_sync(timeout=0.05)
        message = str(caught.value)
        assert message.startswith("not synced after 0.05 s: RayCluster.v1.ray.io: list rayclusters.ray.io")
        assert "you may not list" in message
        assert "Missing.v1.x.io is not served" in message


async def test_an_informer_can_be_removed() -> None:
    async with caching() as (server, cache):
        informer = await follow(server, cache, make("a", 5))
        assert cache.covers(RAY, "ns")
        cache.remove(informer)
        assert not cache.covers(RAY, "ns")
        await eventually(lambda: informer.problem == "stopped")
        assert cache.informer(RAY) is not informer


async def test_a_cache_may_be_restricted_to_namespaces() -> None:
    async with caching(namespaces=["two", "one"]) as (server, cache):
        with pytest.raises(ValueError, match="'three': the cache is restricted to one, two"):
            cache.informer(RAY, namespace="three")
        server.will(a_list(9), a_list(9))
        server.will_watch()
        server.will_watch()
        informer = cache.informer(RAY)
        await asyncio.wait_for(informer.wait_for_sync(), PATIENCE)
        assert cache.covers(RAY, "one")
        assert cache.covers(RAY, "")
        assert not cache.covers(RAY, "three")


async def test_reads_are_covered_by_whole_unselected_synced_informers_alone() -> None:
    async with caching() as (server, cache):
        client_side: ClientCache = cache
        assert not client_side.covers(RAY, "ns")
        await follow(server, cache, make("a", 5), label_selector="app")
        await follow(server, cache, make("a", 5), metadata_only=True)
        await follow(server, cache, make("a", 5), field_selector="metadata.name=a")
        assert not client_side.covers(RAY, "ns")
        with pytest.raises(LookupError):
            client_side.get(RAY, KEY)
        with pytest.raises(LookupError):
            client_side.list(RAY, "", "")
        labelled = make("b", 6, metadata={"labels": {"app": "x"}})
        await follow(server, cache, make("a", 5), labelled, namespace="ns")
        assert client_side.covers(RAY, "ns")
        assert not client_side.covers(RAY, "other")
        assert not client_side.covers(RAY, "")
        await follow(server, cache, make("a", 5), labelled)
        assert client_side.covers(RAY, "")
        assert client_side.covers(RAY, "other")
        got = client_side.get(RAY, KEY)
        assert got is not None
        assert got["metadata"]["resourceVersion"] == "5"
        assert client_side.get(RAY, NamespacedName("ns", "z")) is None
        assert [obj["metadata"]["name"] for obj in client_side.list(RAY, "ns", "app=x")] == ["b"]
        assert len(client_side.list(RAY, "", "")) == 2


async def test_a_kind_may_be_limited_to_some_labels_which_then_is_all_there_is() -> None:
    async with caching(selectors={RAY: "operatorVersion=v1"}) as (server, cache):
        mine = make("a", 5, metadata={"labels": {"operatorVersion": "v1"}})
        plain = await follow(server, cache, mine)
        assert server.asked[0]["labelSelector"] == "operatorVersion=v1"
        assert cache.informer(RAY, label_selector="operatorVersion=v1") is plain
        assert cache.covers(RAY, "")
        assert (cache.get(RAY, KEY) or {})["metadata"]["name"] == "a"
        assert str(cache.informer(RAY, label_selector="team=x").selection.label_selector) == "operatorVersion=v1,team=x"
        cache.record_write(RAY, orjson.dumps(make("a", 20, metadata={"labels": {"operatorVersion": "v2"}})))
        assert cache.get(RAY, KEY) is None
        assert str(cache.informer(SECRET, label_selector="a=1").selection.label_selector) == "a=1"


async def test_the_stored_state_for_the_no_op_check_may_come_from_a_selected_informer() -> None:
    ours = {"manager": "cfo", "operation": "Apply", "apiVersion": "ray.io/v1", "fieldsV1": {"f:spec": {}}}
    theirs = {**ours, "manager": "kubectl"}
    async with caching(field_managers=["cfo"]) as (server, cache):
        await follow(server, cache, make("a", 5), metadata_only=True)
        assert cache.stored(RAY, KEY) is None
        item = make("a", 5, metadata={"managedFields": [theirs, ours], "labels": {"app": "x"}})
        await follow(server, cache, item, label_selector="app")
        stored = cache.stored(RAY, KEY)
        assert stored is not None
        assert (stored.managers, stored.uid, stored.resource_version) == ((ours,), "uid-a", "5")
        assert orjson.loads(stored.object) == make("a", 5, metadata={"labels": {"app": "x"}})


async def test_an_answer_goes_to_every_informer_of_the_kind() -> None:
    async with caching() as (server, cache):
        whole = await follow(server, cache)
        meta = await follow(server, cache, metadata_only=True)
        selected = await follow(server, cache, label_selector="app=x")
        cache.record_write(RAY, orjson.dumps(make("a", 12, spec={"x": 1})))
        assert (len(whole.reader), len(meta.reader), len(selected.reader)) == (1, 1, 0)
        partial = meta.reader.get(KEY)
        assert partial is not None
        assert "spec" not in partial
        stored = cache.stored(RAY, KEY)
        assert stored is not None
        assert stored.resource_version == "12"
        cache.record_deletion(RAY, KEY, "uid-a")
        assert (len(whole.reader), len(meta.reader)) == (0, 0)


async def test_an_answer_that_is_no_object_of_the_kind_is_left_to_the_watch() -> None:
    async with caching() as (server, cache):
        informer = await follow(server, cache)
        cache.record_write(RAY, b'{"kind":"Status","metadata":{},"status":"Success"}')
        with structlog.testing.capture_logs() as logs:
            cache.record_write(RAY, b"<html>")
            cache.record_write(RAY, b'{"kind":"RayCluster","metadata":{"name":"a","labels":{"a":1}}}')
        assert len(informer.reader) == 0
        assert [entry["log_level"] for entry in logs] == ["warning", "warning"]


async def test_uncertainty_lasts_until_something_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with caching() as (server, cache):
        await follow(server, cache)
        assert not cache.is_uncertain(RAY, KEY)
        cache.mark_uncertain(RAY, KEY)
        assert cache.is_uncertain(RAY, KEY)
        assert not cache.is_uncertain(SECRET, KEY)
        cache.record_write(RAY, orjson.dumps(make("b", 12)))
        assert cache.is_uncertain(RAY, KEY)
        cache.record_write(RAY, orjson.dumps(make("a", 13)))
        assert not cache.is_uncertain(RAY, KEY)
        cache.mark_uncertain(RAY, KEY)
        cache.record_deletion(RAY, KEY, "")
        assert not cache.is_uncertain(RAY, KEY)
        monkeypatch.setattr(module, "MAX_UNCERTAIN", 2)
        for name in "abc":
            cache.mark_uncertain(RAY, NamespacedName("ns", name))
        assert [cache.is_uncertain(RAY, NamespacedName("ns", name)) for name in "abc"] == [False, True, True]
        assert [key.name for key in cache.uncertain_keys(RAY, "ns")] == ["b", "c"]
        assert [key.name for key in cache.uncertain_keys(RAY, "")] == ["b", "c"]
        assert not cache.uncertain_keys(RAY, "elsewhere")


async def test_a_deletion_of_another_object_of_the_name_leaves_a_doubt() -> None:
    async with caching() as (server, cache):
        informer = await follow(server, cache, make("a", 5))
        cache.record_deletion(RAY, KEY, "uid-other")
        assert informer.reader.contains(KEY)
        assert cache.is_uncertain(RAY, KEY)
        cache.record_deletion(RAY, KEY, "uid-a")
        assert not informer.reader.contains(KEY)
        assert not cache.is_uncertain(RAY, KEY)


async def test_waking_reaches_the_informers_of_the_kind() -> None:
    async with caching(run=False) as (_, cache):
        informer = cache.informer(RAY)
        cache.wake(RAY)
        cache.wake(SECRET)
        assert informer._woken.is_set()
