"""Informers restricted to a partition: what they hold, what handlers see, and which requests a change sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.indexes import by_label
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.partitioning import head_of, intersection_of, is_within
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.client.discovery import Resource
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.runtime.sharding.ranges import KeyHash, Partition
from test.support.clocks import SkippingClock
from test.support.scripted_transport import (
    TIMEOUT_SECONDS,
    Handler,
    ScriptedMapper,
    ScriptedServer,
    ScriptedWatch,
    list_response,
    ray_cluster,
    scripted_server,
    wait_until,
)

RAY = GVK("ray.io", "v1", "RayCluster")
QUEUE = GVK("kueue.x-k8s.io", "v1beta1", "ClusterQueue")
MAPPER = ScriptedMapper(
    Resource(gvk=RAY, plural="rayclusters", namespaced=True),
    Resource(gvk=QUEUE, plural="clusterqueues", namespaced=False),
)
SHARDS = 3


def partition(*owned: int, key_hash: KeyHash = "mixed", shards: int = SHARDS) -> Partition:
    return Partition(shards, frozenset(owned), key_hash)


def namespace_in(shard: int, key_hash: KeyHash = "mixed") -> str:
    """Return a namespace of this shard."""
    everything = partition(*range(SHARDS), key_hash=key_hash)
    return next(name for name in map("{}-team".format, range(1000)) if everything.shard_of(name, "") == shard)


def cluster_in(shard: int, version: int, name: str = "a", key_hash: KeyHash = "mixed", **rest: Any) -> Object:
    """Return a RayCluster whose namespace is in this shard."""
    namespace = namespace_in(shard, key_hash)
    metadata = {"namespace": namespace, "uid": f"{namespace}-{name}", **rest}
    return ray_cluster(name, version, metadata=metadata)


def sharded_list(version: int, selector: str, *items: Object) -> Handler:
    """Return the response of an API server that honors ``shardSelector``."""
    page = {"metadata": {"resourceVersion": str(version), "shardInfo": {"selector": selector}}, "items": items}

    async def handle(_: Any) -> Any:
        from aiohttp import web

        return web.Response(body=orjson.dumps(page))

    return handle


class Fixture:
    """A running cache whose RayClusters are partitioned, and the events of its informer."""

    def __init__(self, server: ScriptedServer, cache: Cache) -> None:
        self.server = server
        self.cache = cache
        self.events: list[Event] = []
        self.informer: Informer

    async def start(self, *items: Object, response: Handler | None = None) -> ScriptedWatch:
        """Start an informer whose first list contains ``items`` at version 9; return its watch."""
        self.server.respond_with(response or list_response(9, *items))
        watch = self.server.respond_with_watch()
        self.informer = self.cache.informer(RAY)
        self.informer.add_handler(self.events.append)
        await asyncio.wait_for(self.informer.wait_for_sync(), TIMEOUT_SECONDS)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        return watch

    async def change_to(self, changed: Partition | None, *items: Object, version: int = 20) -> ScriptedWatch:
        """Set a partition that contains more objects; its list contains ``items``. Return the new watch."""
        self.server.respond_with(list_response(version, *items))
        watch = self.server.respond_with_watch()
        with anyio.fail_after(TIMEOUT_SECONDS):
            await self.cache.set_partition(changed)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        return watch

    @property
    def stored(self) -> list[str]:
        """The uids of the stored objects."""
        return sorted(entry.meta.uid for entry in self.informer.reader.entries())

    def covers(self, shard: int) -> bool:
        return self.cache.covers(RAY, namespace_in(shard), name="a")


@asynccontextmanager
async def running_cache(initial: Partition | None = None) -> AsyncIterator[Fixture]:
    async with scripted_server() as (server, transport):
        cache = Cache(transport, MAPPER, clock=SkippingClock())  # type: ignore[arg-type]
        cache.partition_kind(RAY)
        await cache.set_partition(initial)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cache.run(task_status=task_status))
            yield Fixture(server, cache)
            tasks.cancel_scope.cancel()


def uids(*objects: Object) -> list[str]:
    return sorted(obj["metadata"]["uid"] for obj in objects)


async def test_objects_outside_the_partition_are_neither_stored_nor_reported() -> None:
    async with running_cache(partition(0)) as fixture:
        inside, outside = cluster_in(0, 5), cluster_in(1, 6)
        watch = await fixture.start(inside, outside)
        await watch.send("ADDED", cluster_in(1, 10, "b"))
        await watch.send("MODIFIED", cluster_in(1, 11))
        await watch.send("DELETED", cluster_in(1, 12))
        await watch.send("ADDED", cluster_in(0, 13, "b"))
        await wait_until(lambda: len(fixture.events) == 2)
        assert fixture.stored == uids(inside, cluster_in(0, 13, "b"))
        assert [event.new and event.new.namespace for event in fixture.events] == [namespace_in(0)] * 2
        assert "shardSelector" not in fixture.server.queries[0]


async def test_watch_continues_after_the_version_of_a_dropped_event() -> None:
    async with running_cache(partition(0)) as fixture:
        watch = await fixture.start()
        again = fixture.server.respond_with_watch()
        await watch.send("MODIFIED", cluster_in(1, 15))
        await watch.close()
        await asyncio.wait_for(again.opened.wait(), TIMEOUT_SECONDS)
        assert fixture.server.queries[-1]["resourceVersion"] == "15"


async def test_reads_outside_the_partition_are_not_covered() -> None:
    async with running_cache(partition(0)) as fixture:
        await fixture.start(cluster_in(0, 5))
        cache = fixture.cache
        assert fixture.covers(0)
        assert not fixture.covers(1)
        assert cache.covers(RAY, namespace_in(0))
        assert not cache.covers(RAY, "")
        assert cache.get(RAY, NamespacedName(namespace_in(0), "a")) is not None
        with pytest.raises(LookupError):
            cache.get(RAY, NamespacedName(namespace_in(1), "a"))


async def test_own_write_outside_the_partition_is_not_stored_and_gained_objects_are_listed_with_a_quorum() -> None:
    """Another replica may have written gained objects immediately before; a cache of the API server may be older."""
    async with running_cache(partition(0)) as fixture:
        await fixture.start()
        written = cluster_in(1, 15)
        fixture.cache.record_write(RAY, orjson.dumps(written))
        assert fixture.stored == []
        assert fixture.cache.stored(RAY, NamespacedName(namespace_in(1), "a")) is None
        await fixture.change_to(partition(0, 1), written)
        assert not {"resourceVersion", "resourceVersionMatch"} & {*fixture.server.queries[2]}
        assert fixture.stored == uids(written)


async def test_lost_objects_leave_the_store_without_an_event_or_request() -> None:
    async with running_cache(partition(0, 1)) as fixture:
        kept, lost = cluster_in(0, 5, labels={"app": "x"}), cluster_in(1, 6, labels={"app": "x"})
        watch = await fixture.start(kept, lost)
        fixture.informer.add_index("app", by_label("app"))
        fixture.events.clear()
        await fixture.cache.set_partition(partition(0))
        assert fixture.stored == uids(kept)
        assert [key.namespace for key in fixture.informer.reader.keys("app", "x")] == [namespace_in(0)]
        assert not fixture.covers(1)
        assert fixture.covers(0)
        await watch.send("DELETED", cluster_in(1, 10))
        await watch.send("MODIFIED", cluster_in(0, 11))
        await wait_until(lambda: bool(fixture.events))
        assert [(event.type, event.key.namespace) for event in fixture.events] == [(EventType.UPDATED, namespace_in(0))]
        assert len(fixture.server.queries) == 2


async def test_lost_objects_are_not_covered_before_they_have_been_dropped() -> None:
    async with running_cache(partition(0, 1)) as fixture:
        await fixture.start(cluster_in(1, 6))
        fixture.informer.restrict(partition(0))
        assert not fixture.covers(1)
        assert fixture.cache.stored(RAY, NamespacedName(namespace_in(1), "a")) is None


async def test_gained_objects_are_listed_once_and_delivered_as_initial() -> None:
    async with running_cache(partition(0)) as fixture:
        kept, first, second = cluster_in(0, 5), cluster_in(1, 6), cluster_in(2, 7)
        await fixture.start(kept, first, second)
        fixture.events.clear()
        changed = cluster_in(0, 12)
        watch = await fixture.change_to(partition(0, 1, 2), changed, first, second)
        assert fixture.stored == uids(kept, first, second)
        assert {(event.type, event.key.namespace, event.initial) for event in fixture.events} == {
            (EventType.UPDATED, namespace_in(0), False),
            (EventType.ADDED, namespace_in(1), True),
            (EventType.ADDED, namespace_in(2), True),
        }
        assert len(fixture.server.queries) == 4
        await watch.send("DELETED", cluster_in(2, 21))
        await wait_until(lambda: fixture.stored == uids(kept, first))
        assert fixture.cache.covers(RAY, "")


async def test_gained_objects_are_not_covered_until_they_are_listed() -> None:
    async with running_cache(partition(0)) as fixture:
        await fixture.start(cluster_in(0, 5))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fixture.cache.set_partition, partition(0, 1))
            await fixture.server.wait_for_requests(3)
            assert fixture.covers(0)
            assert not fixture.covers(1)
            written = cluster_in(1, 30)
            fixture.cache.record_write(RAY, orjson.dumps(written))
            fixture.server.respond_with(list_response(20, cluster_in(0, 5), cluster_in(1, 8)))
            fixture.server.respond_with_watch()
        assert fixture.covers(1)
        entry = fixture.informer.reader.entry(NamespacedName(namespace_in(1), "a"))
        assert entry is not None
        assert entry.version == 30  # a list does not replace an own write that is newer


async def test_object_deleted_before_the_gain_is_reported_only_if_it_was_held() -> None:
    async with running_cache(partition(0, 1)) as fixture:
        await fixture.start(cluster_in(0, 5), cluster_in(1, 6))
        await fixture.cache.set_partition(partition(0))
        fixture.events.clear()
        await fixture.change_to(partition(0, 1))
        assert [(event.type, event.key.namespace) for event in fixture.events] == [(EventType.DELETED, namespace_in(0))]


async def test_growth_during_a_list_discards_the_list() -> None:
    async with running_cache(partition(0)) as fixture:
        fixture.informer = fixture.cache.informer(RAY)
        await fixture.server.wait_for_requests(1)
        await fixture.cache.set_partition(partition(0, 1))  # not synced: nothing to wait for
        await fixture.server.wait_for_requests(2)
        # The first response goes to the request that was cancelled.
        objects = (cluster_in(0, 5), cluster_in(1, 6))
        fixture.server.respond_with(list_response(9, *objects), list_response(9, *objects))
        fixture.server.respond_with_watch()
        await asyncio.wait_for(fixture.informer.wait_for_sync(), TIMEOUT_SECONDS)
        assert fixture.stored == uids(*objects)


async def test_restriction_is_removed() -> None:
    async with running_cache(partition(0)) as fixture:
        await fixture.start()
        await fixture.change_to(None, cluster_in(1, 6))
        assert fixture.stored == uids(cluster_in(1, 6))
        assert fixture.cache.covers(RAY, "")


async def test_server_that_honors_the_selector_is_asked_for_the_partition_only() -> None:
    owned = partition(0, key_hash="fnv1a")
    async with running_cache(owned) as fixture:
        inside, stray = cluster_in(0, 5, key_hash="fnv1a"), cluster_in(1, 6, key_hash="fnv1a")
        watch = await fixture.start(response=sharded_list(9, owned.shard_selector, inside, stray))
        listed, watched = fixture.server.queries
        assert listed["shardSelector"] == watched["shardSelector"] == owned.shard_selector
        assert fixture.stored == uids(inside)
        await watch.send("ADDED", cluster_in(1, 10, "b", key_hash="fnv1a"))
        await watch.send("ADDED", cluster_in(0, 11, "b", key_hash="fnv1a"))
        await wait_until(lambda: len(fixture.events) == 2)
        assert fixture.stored == uids(inside, cluster_in(0, 11, "b", key_hash="fnv1a"))


async def test_server_that_ignores_the_selector_is_watched_without_it() -> None:
    async with running_cache(partition(0, key_hash="fnv1a")) as fixture:
        await fixture.start(cluster_in(0, 5, key_hash="fnv1a"), cluster_in(1, 6, key_hash="fnv1a"))
        listed, watched = fixture.server.queries
        assert "shardSelector" in listed
        assert "shardSelector" not in watched
        assert fixture.stored == uids(cluster_in(0, 5, key_hash="fnv1a"))


async def test_smaller_partition_is_watched_with_a_smaller_selector() -> None:
    owned = partition(0, 1, key_hash="fnv1a")
    async with running_cache(owned) as fixture:
        await fixture.start(response=sharded_list(9, owned.shard_selector))
        again = fixture.server.respond_with_watch()
        smaller = partition(0, key_hash="fnv1a")
        await fixture.cache.set_partition(smaller)
        await asyncio.wait_for(again.opened.wait(), TIMEOUT_SECONDS)
        assert fixture.server.queries[-1]["shardSelector"] == smaller.shard_selector
        assert fixture.server.queries[-1]["resourceVersion"] == "9"


@pytest.mark.parametrize("honored", [True, False])
async def test_server_is_asked_once_whether_it_selects_when_the_complete_partition_shrinks(honored: bool) -> None:
    async with running_cache(partition(0, 1, 2, key_hash="fnv1a")) as fixture:
        server = fixture.server
        await fixture.start(cluster_in(0, 5, key_hash="fnv1a"))
        assert "shardSelector" not in server.queries[0]
        smaller = partition(0, 1, key_hash="fnv1a")
        server.probe_response = sharded_list(9, smaller.shard_selector) if honored else list_response(9)
        watch = server.respond_with_watch()
        await fixture.cache.set_partition(smaller)
        await asyncio.wait_for(watch.opened.wait(), TIMEOUT_SECONDS)
        assert server.probes == 1
        assert server.queries[2].get("shardSelector") == (smaller.shard_selector if honored else None)
        assert server.queries[2]["resourceVersion"] == "9"
        await fixture.cache.set_partition(partition(0, key_hash="fnv1a"))
        if honored:
            again = server.respond_with_watch()
            await asyncio.wait_for(again.opened.wait(), TIMEOUT_SECONDS)
        else:  # the same watch continues
            await watch.send("ADDED", cluster_in(0, 10, "b", key_hash="fnv1a"))
            await wait_until(lambda: len(fixture.stored) == 2)
        assert server.probes == 1


async def test_cluster_scoped_kind_is_partitioned_by_name_and_filtered() -> None:
    async with running_cache() as fixture:
        fixture.cache.partition_kind(QUEUE)
        owned = partition(0, key_hash="fnv1a")
        await fixture.cache.set_partition(owned)
        names = [namespace_in(shard, "fnv1a") for shard in (0, 1)]
        items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "5"}} for name in names]
        fixture.server.respond_with(list_response(9, *items))
        fixture.server.respond_with_watch()
        informer = fixture.cache.informer(QUEUE)
        await asyncio.wait_for(informer.wait_for_sync(), TIMEOUT_SECONDS)
        assert [entry.name for entry in informer.reader.entries()] == names[:1]
        assert "shardSelector" not in fixture.server.queries[0]
        assert fixture.cache.covers(QUEUE, "", name=names[0])
        assert not fixture.cache.covers(QUEUE, "", name=names[1])
        assert not fixture.cache.covers(QUEUE, "")


async def test_whole_informer_of_a_partitioned_kind_holds_all_objects() -> None:
    async with running_cache(partition(0)) as fixture:
        fixture.server.respond_with(list_response(9, cluster_in(0, 5), cluster_in(1, 6)))
        fixture.server.respond_with_watch()
        whole = fixture.cache.informer(RAY, metadata_only=True, whole=True)
        await asyncio.wait_for(whole.wait_for_sync(), TIMEOUT_SECONDS)
        assert len(whole.reader) == 2
        await fixture.cache.set_partition(partition())
        assert len(whole.reader) == 2
        assert whole is not fixture.cache.informer(RAY, metadata_only=True)


async def test_wait_for_the_partition_can_be_continued_without_another_list() -> None:
    async with running_cache(partition(0)) as fixture:
        await fixture.start()
        listing = asyncio.Event()

        async def late(_: Any) -> Any:
            await listing.wait()
            return await list_response(20, cluster_in(1, 6))(_)

        fixture.server.respond_with(late)
        fixture.server.respond_with_watch()
        with anyio.move_on_after(0.02):
            await fixture.cache.set_partition(partition(0, 1))
        assert not fixture.cache.holds_partition
        listing.set()
        with anyio.fail_after(TIMEOUT_SECONDS):
            await fixture.cache.wait_for_partition()
        assert fixture.cache.holds_partition
        assert len(fixture.server.queries) in (3, 4)  # list, watch, list, and perhaps watch


async def test_informers_of_one_namespace_and_of_other_kinds_are_not_restricted() -> None:
    async with running_cache(partition(0)) as fixture:
        cache = fixture.cache
        assert cache.informer(RAY).partition == partition(0)
        assert cache.informer(RAY, label_selector="app=x").partition == partition(0)
        assert cache.informer(RAY, namespace=namespace_in(1)).partition is None
        assert cache.informer(QUEUE).partition is None
        with pytest.raises(RuntimeError, match="ClusterQueue"):
            cache.partition_kind(QUEUE)


@pytest.mark.parametrize(
    ("inner", "outer", "within", "both"),
    [
        (None, None, True, None),
        (partition(0), None, True, partition(0)),
        (None, partition(0), False, partition(0)),
        (partition(0), partition(0, 1), True, partition(0)),
        (partition(0, 2), partition(0, 1), False, partition(0)),
        (partition(), partition(0), True, partition()),
        (None, partition(0, 1, 2), True, partition(0, 1, 2)),
        (partition(0, shards=2), partition(0, 1), False, partition()),
        (partition(0, key_hash="fnv1a"), partition(0, 1), False, partition()),
    ],
)
def test_relation_of_partitions(
    inner: Partition | None, outer: Partition | None, within: bool, both: Partition | None
) -> None:
    assert is_within(inner, outer) is within
    assert intersection_of(inner, outer) == both


def test_head_contains_key_and_version() -> None:
    assert head_of(orjson.dumps(ray_cluster("a", 7))) == ("ns", "a", "7")
    assert head_of(b'{"metadata":{"name":"q","resourceVersion":"x"}}') == ("", "q", "x")
