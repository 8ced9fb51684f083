"""The rules by which list, watch and own writes become one truth; each rule has its test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest
import structlog

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import TOMBSTONE_SECONDS, Event, EventType, Feed, Store
from cfo.runtime.clock import FakeClock
from cfo.runtime.objects import GVK, NamespacedName

GVK_ = GVK("ray.io", "v1", "RayCluster")
DECODER = EntryDecoder(GVK_)
KEY = NamespacedName("ns", "a")

ADDED, UPDATED, DELETED = EventType.ADDED, EventType.UPDATED, EventType.DELETED


def entry(version: object, name: str = "a", *, uid: str = "", namespace: str = "ns", **metadata: Any) -> Entry:
    """A state; its content is its version, so that two states differ."""
    known = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return DECODER.decode(orjson.dumps({"kind": "K", "apiVersion": "v1", "metadata": known | metadata, "at": version}))


class Followed:
    """A store with one feed, and what it told."""

    def __init__(self, labels: str = "", fields: str = "", namespaces: Iterable[str] = ("",)) -> None:
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = self.events.append
        self.store = Store(
            deliver=lambda event: self.on_event(event),
            clock=self.clock,
            selection=Selection.of(label_selector=labels, field_selector=fields),
        )
        self.store.open(namespaces)
        self.feed: Feed = next(iter(self.store.feeds.values()))

    def list(self, version: object, *entries: Entry, anew: bool = False, feed: Feed | None = None) -> list[Any]:
        listing = (feed or self.feed).begin()
        listing.discard_known = anew
        for item in entries:
            listing.add(item)
        listing.commit(str(version))
        return self.told()

    def watch(self, event: EventType, state: Entry) -> list[Any]:
        self.feed.observe(event, state)
        return self.told()

    def wrote(self, state: Entry) -> list[Any]:
        self.feed.record_write(state)
        return self.told()

    def deleted(self, key: NamespacedName, uid: str) -> list[Any]:
        self.feed.record_deletion(key, uid)
        return self.told()

    def told(self) -> list[Any]:
        """What was emitted since the last time, as (type, name, old version, new version)."""
        told = [
            (
                event.type,
                event.key.name,
                event.old and event.old.meta.resource_version,
                event.new and event.new.meta.resource_version,
            )
            for event in self.events
        ]
        self.events.clear()
        return told

    def version(self, key: NamespacedName = KEY) -> str | None:
        found = self.store.get(key)
        return found.meta.resource_version if found else None


# Lists and watches by themselves.


def test_a_first_list_is_told_as_initial_additions() -> None:
    followed = Followed()
    listing = followed.feed.begin()
    listing.add(entry(5))
    assert not followed.feed.synced
    assert len(followed.store) == 0
    listing.commit("9")
    assert followed.feed.synced
    assert [(event.type, event.initial) for event in followed.events] == [(ADDED, True)]
    assert followed.feed.high_water_mark == 9


def test_a_watch_adds_updates_and_deletes() -> None:
    followed = Followed()
    followed.list(9)
    assert followed.watch(UPDATED, entry(10)) == [(ADDED, "a", None, "10")]
    assert followed.watch(ADDED, entry(11)) == [(UPDATED, "a", "10", "11")]
    assert followed.watch(DELETED, entry(12)) == [(DELETED, "a", "12", None)]
    assert followed.version() is None
    assert followed.watch(DELETED, entry(12)) == []


def test_what_a_watch_says_again_is_not_heard_again() -> None:
    followed = Followed()
    followed.list(9)
    followed.watch(ADDED, entry(10))
    followed.watch(DELETED, entry(12))
    assert followed.watch(ADDED, entry(10)) == []  # it would bring back what is gone
    assert followed.version() is None
    assert followed.watch(ADDED, entry(13, uid="next")) == [(ADDED, "a", None, "13")]
    assert followed.watch(DELETED, entry(12)) == []
    assert followed.version() == "13"


def test_what_is_repeated_is_told_once() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    assert followed.watch(UPDATED, entry(5)) == []
    assert followed.list(12, entry(5)) == []


def test_a_relist_tells_the_difference() -> None:
    followed = Followed()
    followed.list(9, entry(5), entry(6, "b"), entry(7, "c"))
    listing = followed.feed.begin()
    for item in (entry(5), entry(11, "b"), entry(10, "d")):
        listing.add(item)
    listing.commit("12")
    deletion = next(event for event in followed.events if event.type is DELETED)
    assert deletion.final_state_unknown
    assert not any(event.initial for event in followed.events)
    assert followed.told() == [(DELETED, "c", "7", None), (UPDATED, "b", "6", "11"), (ADDED, "d", None, "10")]


def test_an_unchanged_item_of_a_relist_costs_no_memory() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    before = followed.store.get(KEY)
    followed.list(12, entry(5))
    assert followed.store.get(KEY) is before


def test_an_object_made_anew_under_its_name_is_a_deletion_and_an_addition() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    assert followed.list(20, entry(15, uid="second")) == [(DELETED, "a", "5", None), (ADDED, "a", None, "15")]
    assert followed.watch(UPDATED, entry(21, uid="third")) == [(DELETED, "a", "15", None), (ADDED, "a", None, "21")]


def test_everything_is_told_after_the_whole_change_was_made() -> None:
    followed = Followed()
    seen: list[int] = []
    followed.on_event = lambda _: seen.append(len(followed.store))
    followed.list(9, entry(5), entry(6, "b"), entry(7, "c"))
    assert seen == [3, 3, 3]


def test_each_namespace_has_its_own_list() -> None:
    followed = Followed(namespaces=("ns", "other"))
    one, two = followed.store.feeds["ns"], followed.store.feeds["other"]
    followed.list(9, entry(5), feed=one)
    followed.list(10, entry(6, namespace="other"), feed=two)
    assert len(followed.store) == 2
    assert followed.list(12, feed=two) == [(DELETED, "a", "6", None)]
    assert followed.version() == "5"
    assert followed.store.feed_for(NamespacedName("third", "a")) is None


def test_a_kind_that_is_not_served_any_more_takes_its_objects_along() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    followed.store.close()
    assert followed.told() == [(DELETED, "a", "5", None)]
    assert followed.store.feed_for(KEY) is None


# Our own writes.


def test_an_answer_is_there_at_once_and_its_echo_says_nothing() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    assert followed.wrote(entry(12)) == [(UPDATED, "a", "5", "12")]
    assert followed.version() == "12"
    assert followed.watch(UPDATED, entry(12)) == []
    assert followed.wrote(entry(13, "b")) == [(ADDED, "b", None, "13")]
    assert followed.watch(ADDED, entry(13, "b")) == []


def test_what_the_watch_says_late_does_not_undo_an_answer() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    followed.wrote(entry(12))
    assert followed.watch(UPDATED, entry(11)) == []
    assert followed.version() == "12"
    assert followed.watch(UPDATED, entry(13)) == [(UPDATED, "a", "12", "13")]


def test_an_answer_that_comes_late_does_not_undo_the_watch() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    followed.watch(UPDATED, entry(12))
    assert followed.wrote(entry(11)) == []
    assert followed.version() == "12"


def test_versions_are_compared_as_numbers() -> None:
    followed = Followed()
    followed.list(9, entry(9))
    assert followed.wrote(entry(10)) == [(UPDATED, "a", "9", "10")]


def test_an_answer_whose_version_is_no_number_waits_for_the_watch() -> None:
    followed = Followed()
    followed.list("x", entry("w"))
    assert followed.wrote(entry("y")) == []
    assert followed.version() == "w"
    assert followed.watch(UPDATED, entry("y")) == [(UPDATED, "a", "w", "y")]
    assert followed.wrote(entry(7)) == []


def test_an_answer_after_the_deleted_event_resurrects_nothing() -> None:
    followed = Followed()
    followed.list(9)
    followed.watch(ADDED, entry(11))
    followed.watch(DELETED, entry(13))
    assert followed.wrote(entry(12)) == []
    assert followed.version() is None


def test_a_bookmark_moves_the_high_water_mark() -> None:
    followed = Followed()
    followed.list(9)
    followed.feed.advance(20)
    assert followed.wrote(entry(20)) == []
    assert followed.wrote(entry(21)) == [(ADDED, "a", None, "21")]
    followed.feed.advance(15)
    assert followed.feed.high_water_mark == 20


def test_an_absent_key_is_inserted_above_the_mark_of_its_own_feed() -> None:
    followed = Followed(namespaces=("ns", "other"))
    followed.list(9, feed=followed.store.feeds["ns"])
    followed.list(50, feed=followed.store.feeds["other"])
    followed.store.feeds["ns"].record_write(entry(20))
    assert followed.version() == "20"


def test_an_answer_about_the_next_object_of_the_name_wins_over_the_former_ones_deletion() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    assert followed.wrote(entry(15, uid="second")) == [(DELETED, "a", "5", None), (ADDED, "a", None, "15")]
    assert followed.watch(DELETED, entry(12)) == []
    assert followed.version() == "15"


# Deletions.


def test_a_deletion_is_there_at_once_and_its_event_says_nothing() -> None:
    followed = Followed()
    followed.list(9, entry(5))
    assert followed.deleted(KEY, "uid-a") == [(DELETED, "a", "5", None)]
    assert followed.watch(UPDATED, entry(10)) == []
    assert followed.watch(DELETED, entry(11)) == []
    assert followed.version() is None


def test_a_tombstone_stands_against_late_answers_events_and_lists() -> None:
    followed = Followed()
    followed.list(9)
    followed.deleted(KEY, "uid-a")
    assert followed.wrote(entry(12)) == []
    assert followed.watch(ADDED, entry(12)) == []
    assert followed.list(12, entry(12)) == []
    assert followed.version() is None
    assert followed.watch(ADDED, entry(14, uid="second")) == [(ADDED, "a", None, "14")]


def test_a_deletion_hides_the_former_objects_of_the_name_too() -> None:
    followed = Followed()
    followed.list(9)
    followed.wrote(entry(20, uid="second"))
    followed.deleted(KEY, "second")
    followed.told()
    assert followed.watch(ADDED, entry(12, uid="first")) == []
    assert followed.watch(DELETED, entry(14, uid="first")) == []
    followed.feed.advance(25)
    assert not followed.feed._floors


def test_a_deletion_of_the_former_object_of_a_name_leaves_the_next_one_alone() -> None:
    followed = Followed()
    followed.list(9, entry(5, uid="second"))
    assert followed.deleted(KEY, "uid-a") == []
    assert followed.version() == "5"


def test_the_last_state_that_a_deletion_was_answered_with_does_not_come_back() -> None:
    followed = Followed()
    followed.list(9, entry(8, finalizers=["f"], deletionTimestamp="2026-01-01T00:00:00Z"))
    followed.deleted(KEY, "uid-a")
    assert followed.wrote(entry(8, deletionTimestamp="2026-01-01T00:00:00Z")) == []
    assert followed.version() is None


def test_the_answer_of_a_deletion_that_finalizers_hold_up_is_an_update() -> None:
    followed = Followed()
    followed.list(9, entry(8, finalizers=["f"]))
    held = entry(12, finalizers=["f"], deletionTimestamp="2026-01-01T00:00:00Z")
    assert followed.wrote(held) == [(UPDATED, "a", "8", "12")]


def test_tombstones_go_when_confirmed_or_old() -> None:
    followed = Followed()
    followed.list(9, entry(5), entry(6, "b"))
    followed.deleted(KEY, "uid-a")
    followed.deleted(NamespacedName("ns", "b"), "uid-b")
    followed.watch(DELETED, entry(11))
    assert set(followed.feed._tombstones) == {"uid-b"}
    followed.clock.advance(TOMBSTONE_SECONDS - 1)
    followed.list(20)
    assert set(followed.feed._tombstones) == {"uid-b"}
    followed.clock.advance(2)
    followed.list(30)
    assert not followed.feed._tombstones


# Selectors.


def test_an_answer_that_the_selector_does_not_choose_is_not_inserted() -> None:
    followed = Followed(labels="app=x")
    followed.list(9)
    assert followed.wrote(entry(12)) == []
    assert followed.version() is None
    assert followed.wrote(entry(13, labels={"app": "x"})) == [(ADDED, "a", None, "13")]


def test_an_answer_that_left_the_selector_takes_the_object_out_for_good() -> None:
    followed = Followed(labels="app=x")
    followed.list(9, entry(5, labels={"app": "x"}))
    assert followed.wrote(entry(12)) == [(DELETED, "a", "5", None)]
    assert followed.watch(UPDATED, entry(11, labels={"app": "x"})) == []
    assert followed.wrote(entry(10, labels={"app": "x"})) == []
    assert followed.list(11, entry(11, labels={"app": "x"})) == []
    assert followed.watch(DELETED, entry(12)) == []
    assert followed.watch(UPDATED, entry(13, labels={"app": "x"})) == [(ADDED, "a", None, "13")]


def test_a_floor_goes_when_the_watch_has_passed_it() -> None:
    followed = Followed(labels="app=x")
    followed.list(9)
    followed.wrote(entry(12))
    assert followed.feed._floors
    followed.feed.advance(12)
    assert not followed.feed._floors


def test_an_answer_that_put_the_object_back_outlives_its_leaving_event() -> None:
    followed = Followed(labels="app=x")
    followed.list(9, entry(5, labels={"app": "x"}))
    followed.wrote(entry(14, labels={"app": "x"}))
    assert followed.watch(DELETED, entry(12)) == []
    assert followed.version() == "14"


def test_a_tombstone_outlives_a_leaving_event() -> None:
    followed = Followed(labels="app=x")
    followed.list(9, entry(5, labels={"app": "x"}))
    followed.deleted(KEY, "uid-a")
    followed.watch(DELETED, entry(11))
    assert followed.watch(ADDED, entry(12, labels={"app": "x"})) == []


def test_a_field_selector_by_name_applies() -> None:
    followed = Followed(fields="metadata.name=a")
    followed.list(9)
    assert followed.wrote(entry(12, "b")) == []
    assert followed.wrote(entry(13)) == [(ADDED, "a", None, "13")]


def test_a_field_selector_that_only_the_server_can_judge_waits_for_the_watch() -> None:
    followed = Followed(fields="status.phase=Running")
    followed.list(9, entry(5))
    assert followed.wrote(entry(12)) == []
    assert followed.version() == "5"
    assert followed.deleted(KEY, "uid-a") == [(DELETED, "a", "5", None)]


# Writes and lists.


def test_a_list_keeps_the_writes_that_are_newer() -> None:
    followed = Followed()
    followed.list(9, entry(5), entry(6, "b"))
    followed.wrote(entry(15))
    followed.wrote(entry(16, "c"))
    assert followed.list(12, entry(5), entry(6, "b")) == []
    assert followed.version() == "15"
    assert followed.version(NamespacedName("ns", "c")) == "16"


def test_a_write_while_the_first_list_is_under_way_is_told_with_it() -> None:
    followed = Followed()
    listing = followed.feed.begin()
    listing.add(entry(5))
    assert followed.wrote(entry(12)) == []
    assert followed.wrote(entry(13, "b")) == []
    assert followed.wrote(entry(7, "c")) == []
    listing.commit("9")
    assert all(event.initial for event in followed.events)
    assert sorted(followed.told()) == [(ADDED, "a", None, "12"), (ADDED, "b", None, "13")]


def test_a_deletion_while_the_first_list_is_under_way_is_final() -> None:
    followed = Followed()
    listing = followed.feed.begin()
    listing.add(entry(5))
    followed.deleted(KEY, "uid-a")
    listing.commit("9")
    assert followed.told() == []
    assert followed.version() is None


def test_what_a_list_must_be_as_new_as_includes_our_writes() -> None:
    followed = Followed()
    followed.list(9)
    followed.wrote(entry(15))
    assert (followed.feed.high_water_mark, followed.feed.latest_version) == (9, 15)
    assert followed.feed.begin().known_version == 15


def test_a_restored_database_starts_everything_anew() -> None:
    followed = Followed(labels="app=x")
    chosen = {"labels": {"app": "x"}}
    followed.list(100, entry(90, **chosen), entry(95, "b", **chosen), entry(80, "d", **chosen))
    followed.deleted(NamespacedName("ns", "d"), "uid-d")
    followed.wrote(entry(120, "c"))
    followed.told()
    told = followed.list(50, entry(40, **chosen), entry(45, "c", **chosen), entry(30, "d", **chosen), anew=True)
    assert sorted(told) == [
        (ADDED, "c", None, "45"),
        (ADDED, "d", None, "30"),
        (DELETED, "b", "95", None),
        (UPDATED, "a", "90", "40"),
    ]
    assert (followed.feed.high_water_mark, followed.feed.latest_version) == (50, 50)
    assert followed.watch(UPDATED, entry(51, **chosen)) == [(UPDATED, "a", "40", "51")]


def test_after_a_restore_the_same_number_may_be_another_state() -> None:
    followed = Followed()
    followed.list(100, entry(90))
    assert followed.list(95, entry(90), anew=True) == []
    assert followed.list(94, entry(90, labels={"other": "timeline"}), anew=True) == [(UPDATED, "a", "90", "90")]


# Indexes.


def by_app(state: Entry) -> list[str]:
    value = state.meta.labels.get("app")
    return [] if value is None else [value]


def test_indexes_follow() -> None:
    followed = Followed()
    followed.store.add_index("app", by_app)
    followed.list(9, entry(5, labels={"app": "x"}), entry(6, "b", labels={"app": "x"}), entry(7, "c"))

    def names(value: str) -> list[str]:
        return [found.meta.name for found in followed.store.indexed("app", value)]

    assert names("x") == ["a", "b"]
    followed.watch(UPDATED, entry(10, labels={"app": "y"}))
    assert (names("x"), names("y")) == (["b"], ["a"])
    assert next(iter(followed.store.indexed("app", "y"))).version == 10
    followed.watch(DELETED, entry(11, "b", labels={"app": "x"}))
    assert names("x") == []
    followed.deleted(KEY, "uid-a")
    assert len(followed.store._indexes["app"]) == 0


def test_an_index_is_filled_when_it_is_added_and_is_one_function() -> None:
    followed = Followed()
    followed.list(9, entry(5, labels={"app": "x"}))
    followed.store.add_index("app", by_app)
    followed.store.add_index("app", by_app)
    assert len(followed.store.indexed("app", "x")) == 1
    with pytest.raises(ValueError, match="already registered with a different function"):
        followed.store.add_index("app", lambda _: [])
    with pytest.raises(KeyError):
        followed.store.indexed("other", "x")


def test_an_index_function_that_fails_on_one_object_stops_no_other() -> None:
    followed = Followed()
    followed.store.add_index("app", lambda state: [state.meta.labels["app"]])
    with structlog.testing.capture_logs() as logs:
        followed.list(9, entry(5, labels={"app": "x"}), entry(6, "b"))
    assert len(followed.store.indexed("app", "x")) == 1
    assert len(followed.store) == 2
    assert [(line["index"], line["object"]) for line in logs] == [("app", "ns/b")]


def test_namespaces_are_an_index_of_their_own() -> None:
    followed = Followed()
    followed.list(9, entry(5), entry(6, namespace="other"))
    assert [found.key for found in followed.store.entries("other")] == [("other", "a")]
    assert list(followed.store.entries("none")) == []
    assert len(followed.store.entries()) == 2
