"""The versioned store: revisions, lists at past revisions, history and watches."""

from __future__ import annotations

import asyncio

import pytest

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.storage import Compacted, Record, Store, WatcherOverflow
from envtest.storage.record import encode
from envtest.storage.store import FutureRevision

THINGS = GroupResource("example.com", "things")
OTHERS = GroupResource("", "others")


def thing(name: str, namespace: str = "ns", **fields: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


@pytest.fixture
def store() -> Store:
    return Store()


def names(records: object) -> list[str]:
    return [record.name for record in records]  # type: ignore[attr-defined]


def test_all_writes_increase_one_revision(store: Store) -> None:
    first = store.create(THINGS, thing("a"))
    second = store.create(OTHERS, thing("b"))
    third = store.update(THINGS, thing("a", spec=1), first)
    assert first.revision < second.revision < third.revision == store.revision
    assert third.obj()["metadata"]["resourceVersion"] == str(third.revision)


def test_update_without_changes_is_not_written(store: Store) -> None:
    record = store.create(THINGS, thing("a", spec={"x": 1, "y": 2}))
    unchanged = store.update(THINGS, thing("a", spec={"y": 2, "x": 1}), record)
    assert unchanged is record
    assert store.revision == record.revision


def test_write_with_a_stale_record_is_rejected(store: Store) -> None:
    record = store.create(THINGS, thing("a"))
    store.update(THINGS, thing("a", spec=1), record)
    with pytest.raises(KeyError, match="not current"):
        store.update(THINGS, thing("a", spec=2), record)
    with pytest.raises(KeyError, match="not current"):
        store.delete(THINGS, record)


def test_existing_name_cannot_be_created(store: Store) -> None:
    store.create(THINGS, thing("a"))
    with pytest.raises(KeyError, match="exists"):
        store.create(THINGS, thing("a"))


def test_lists_are_sorted_by_key_and_can_start_after_a_key(store: Store) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "c"), ("a-b", "y")):
        store.create(THINGS, thing(name, namespace))
    assert names(store.list(THINGS)) == ["c", "z", "y", "x"]
    assert names(store.list(THINGS, "a")) == ["c", "z"]
    assert names(store.list(THINGS, after=("a", "c"))) == ["z", "y", "x"]
    assert names(store.list(THINGS, "a", after=("a", "c"))) == ["z"]


def test_list_at_a_past_revision_returns_its_objects(store: Store) -> None:
    first = store.create(THINGS, thing("a", spec=1))
    store.create(THINGS, thing("b"))
    past_revision = store.revision
    changed = store.update(THINGS, thing("a", spec=2), first)
    store.create(THINGS, thing("c"))
    record = store.get(THINGS, "ns", "b")
    assert record is not None
    store.delete(THINGS, record)
    past = store.list(THINGS, revision=past_revision)
    assert names(past) == ["a", "b"]
    assert past[0].obj()["spec"] == 1
    assert names(store.list(THINGS)) == ["a", "c"]
    assert store.list(THINGS)[0] is changed


def test_compacted_and_future_revisions_are_rejected(store: Store) -> None:
    record = store.create(THINGS, thing("a"))
    store.update(THINGS, thing("a", spec=1), record)
    store.compact()
    with pytest.raises(Compacted):
        store.list(THINGS, revision=record.revision)
    with pytest.raises(Compacted):
        store.watch(THINGS, since=record.revision)
    with pytest.raises(FutureRevision):
        store.list(THINGS, revision=store.revision + 1)


async def test_watch_replays_history_and_continues(store: Store) -> None:
    first = store.create(THINGS, thing("a"))
    second = store.update(THINGS, thing("a", spec=1), first)
    watcher = store.watch(THINGS, since=first.revision)
    store.delete(THINGS, second)
    batch = await watcher.next_batch()
    assert [change.type for change in batch] == ["MODIFIED", "DELETED"]
    assert batch[1].record.revision == store.revision
    assert batch[1].record.obj()["spec"] == 1
    store.create(THINGS, thing("b"))
    assert [change.type for change in await watcher.next_batch()] == ["ADDED"]


async def test_namespace_watch_gets_only_its_events(store: Store) -> None:
    store.create(THINGS, thing("old", "one"))
    watcher = store.watch(THINGS, "two", since=0)
    store.create(THINGS, thing("a", "one"))
    store.create(THINGS, thing("b", "two"))
    assert [change.record.name for change in await watcher.next_batch()] == ["b"]


async def test_wait_ends_on_timeout_or_close(store: Store) -> None:
    watcher = store.watch(THINGS)
    assert await watcher.next_batch(asyncio.get_running_loop().time() + 0.001) == []
    waiting = asyncio.create_task(watcher.next_batch())
    await asyncio.sleep(0)
    store.close_watchers()
    assert await waiting == []
    assert watcher.closed


async def test_slow_watcher_is_closed_and_does_not_block_others(store: Store) -> None:
    slow = store.watch(THINGS, limit=2)
    fast = store.watch(THINGS)
    for name in "abc":
        store.create(THINGS, thing(name))
    assert slow.closed
    with pytest.raises(WatcherOverflow):
        await slow.next_batch()
    assert len(await fast.next_batch()) == 3


async def test_writer_can_let_watchers_send(store: Store) -> None:
    watcher, idle = store.watch(THINGS), store.watch(THINGS)
    sent: list[str] = []

    async def send() -> None:
        while not watcher.closed:
            sent.extend(change.record.name for change in await watcher.next_batch())

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        await asyncio.sleep(0)
        store.create(THINGS, thing("a"))
        assert sent == []
        await store.let_watchers_send()
        assert sent == ["a"]
        assert len(await idle.next_batch()) == 1  # a watcher that does not read is not waited for
        watcher.close()
        idle.close()


def test_equal_objects_have_equal_encodings() -> None:
    one = encode({"kind": "K", "b": {"y": 1, "x": 2}, "apiVersion": "v1", "a": []})
    two = encode({"apiVersion": "v1", "a": [], "b": {"x": 2, "y": 1}, "kind": "K"})
    assert one == two == b'{"apiVersion":"v1","kind":"K","a":[],"b":{"x":2,"y":1}}'


def test_history_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envtest.storage.watch_cache.WINDOW_EVENTS", 3)
    record: Record = store.create(THINGS, thing("a"))
    first = record.revision
    for number in range(5):
        record = store.update(THINGS, thing("a", spec=number), record)
    store.list(THINGS, revision=record.revision - 1)
    with pytest.raises(Compacted):
        store.list(THINGS, revision=first)


def test_changes_are_counted_per_resource(store: Store) -> None:
    before = store.changes(THINGS)
    store.create(OTHERS, thing("a"))
    assert store.changes(THINGS) == before
    store.create(THINGS, thing("a"))
    assert store.changes(THINGS) == before + 1
    assert store.count(THINGS) == 1
