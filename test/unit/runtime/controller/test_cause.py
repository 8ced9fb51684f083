"""Causes: which event queued a request, and which fields changed."""

from __future__ import annotations

from typing import Any

import anyio
import orjson
import pytest

from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.controller.cause import Cause, Causes, CauseType, changed_fields
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.clocks import FakeClock


def config_map(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns"},
        **fields,
    }


def update(old: dict[str, Any], new: dict[str, Any]) -> Cause:
    decoder = EntryDecoder(CONFIG_MAP)
    before, after = decoder.decode(orjson.dumps(old)), decoder.decode(orjson.dumps(new))
    return Cause.of_event(CONFIG_MAP, Event(EventType.UPDATED, after.key, before, after))


def updates(count: int) -> list[Cause]:
    return [update(config_map(f"a{n}"), config_map(f"a{n}", data={"k": "v"})) for n in range(count)]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, ()),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, ("spec.a",)),
        ({"spec": {"a": {"b": 1}}}, {"spec": {"a": {"b": 2}}}, ("spec.a",)),
        ({"spec": {"a": 1}}, {"spec": {"b": 1}}, ("spec.a", "spec.b")),
        (
            {"metadata": {"name": "a"}},
            {"metadata": {"name": "a", "labels": {}}},
            ("metadata.labels",),
        ),
        ({}, {"status": {"phase": "Running"}}, ("status",)),
        ({"status": {"phase": "Running"}}, {}, ("status",)),
        ({"status": None}, {"status": {}}, ("status",)),
        ({"list": [1]}, {"list": [2]}, ("list",)),
        (
            {"metadata": {"resourceVersion": "1", "generation": 1}},
            {"metadata": {"resourceVersion": "2", "generation": 2}},
            (),
        ),
    ],
)
def test_changed_fields_are_named_at_the_top_two_levels(
    old: dict[str, Any], new: dict[str, Any], changed: tuple[str, ...]
) -> None:
    assert changed_fields(orjson.dumps(old), orjson.dumps(new)) == changed


def test_number_length_and_characters_of_changed_fields_are_limited() -> None:
    data = {f"k{number}": "x" for number in range(100)}
    assert len(changed_fields(b'{"data":{}}', orjson.dumps({"data": data}))) == 9
    (name,) = changed_fields(b'{"data":{}}', orjson.dumps({"data": {"x" * 10_000: ""}}))
    assert len(name) == 64
    (name,) = changed_fields(b'{"data":{}}', orjson.dumps({"data": {"\n12:00 forged\x1b[0m": ""}}))
    assert name == "data.\\n12:00 forged\\x1b[0m"
    assert changed_fields(b"[", b"{}") == ()
    deep = b"[" * 100_000 + b"]" * 100_000
    assert changed_fields(b'{"spec":{"a":' + deep + b"}}", b'{"spec":{"a":1}}') == ()


def test_causes_name_fields_and_never_values() -> None:
    cause = update(config_map(data={"password": "old"}), config_map(data={"password": "new"}))
    assert str(cause) == "ConfigMap ns/a updated: data.password"


def test_object_that_is_left_out_of_the_cache_is_not_deleted() -> None:
    entry = EntryDecoder(CONFIG_MAP).decode(orjson.dumps(config_map()))
    event = Event(EventType.DELETED, entry.key, entry, None, left_out=entry)
    assert str(Cause.of_event(CONFIG_MAP, event)) == "ConfigMap ns/a updated"


def test_events_of_one_object_are_merged_and_further_objects_counted() -> None:
    first = update(config_map(), config_map(data={"a": "1"}))
    second = update(config_map(data={"a": "1"}), config_map(data={"a": "1"}, immutable=True))
    causes = Causes.of(first).followed_by(second)
    assert str(causes) == "ConfigMap ns/a updated: data, immutable"
    for cause in updates(5):
        causes = causes.followed_by(cause)
    assert [cause.key for cause in causes] == [
        NamespacedName("ns", name) for name in ("a", "a0", "a1")
    ]
    assert str(causes).endswith("; 3 more")
    assert causes.held == sum(cause.held for cause in causes)


@pytest.mark.parametrize(
    ("first", "later", "merged"),
    [
        (CauseType.ADDED, CauseType.UPDATED, CauseType.ADDED),
        (CauseType.UPDATED, CauseType.DELETED, CauseType.DELETED),
        (CauseType.DELETED, CauseType.ADDED, CauseType.ADDED),
        (CauseType.ADDED, CauseType.DELETED, CauseType.DELETED),
    ],
)
def test_merged_events_of_one_object_have_the_resulting_type(
    first: CauseType, later: CauseType, merged: CauseType
) -> None:
    key = NamespacedName("ns", "a")
    (cause,) = Causes.of(Cause(first, CONFIG_MAP, key)).followed_by(Cause(later, CONFIG_MAP, key))
    assert cause.type is merged


def test_string_is_limited() -> None:
    cause = Cause(CauseType.GENERIC, detail="x" * 10_000)
    assert len(str(Causes.of(cause))) == 400


async def test_item_has_the_causes_of_its_earliest_time() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock)
    event = Cause(CauseType.ADDED, CONFIG_MAP, NamespacedName("ns", "a"))
    queue.add_after("a", 60, cause=Cause(CauseType.REQUEUE_AFTER, detail="60 s"))
    assert [(item.item, item.seconds, str(item.causes)) for item in queue.items()] == [
        ("a", -60, "requeue after: 60 s")
    ]
    queue.add("a", cause=event)
    queue.add_after("a", 1, cause=Cause(CauseType.RETRY))
    assert (await queue.get())[0] == "a"
    assert str(queue.causes("a")) == "ConfigMap ns/a added"
    queue.add("a", cause=Cause(CauseType.GENERIC), priority=1)
    assert str(queue.causes("a")) == "ConfigMap ns/a added"
    queue.done("a")
    assert str(queue.causes("a")) == ""
    with anyio.fail_after(120):
        await queue.get()
    assert str(queue.causes("a")) == "generic"


async def test_queue_holds_limited_states_of_objects() -> None:
    queue: WorkQueue[int] = WorkQueue(clock=FakeClock())
    large = update(config_map(data={"x": "1" * 1_000_000}), config_map(data={"x": "2" * 1_000_000}))
    for number in range(5):
        queue.add(number, cause=large)
    assert sum(item.causes.held for item in queue.items()) < 4 * 1024 * 1024
    assert [str(item.causes) for item in queue.items()][1:] == [
        "ConfigMap ns/a updated: data.x"
    ] + ["ConfigMap ns/a updated"] * 3
    for _ in range(5):
        item, _ = await queue.get()
        queue.done(item)
    queue.add(9, cause=large)
    assert [item.causes.held for item in queue.items()] == [large.held]
