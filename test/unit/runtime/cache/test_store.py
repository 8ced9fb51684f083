"""The rules by which a store merges lists, watch events and own writes; each rule has its test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest
import structlog

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.feed import TOMBSTONE_SECONDS, Feed, Feeds
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, EventType, Store
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.clocks import FakeClock

RAY_CLUSTER = GVK("ray.io", "v1", "RayCluster")
DECODER = EntryDecoder(RAY_CLUSTER)
KEY = NamespacedName("ns", "a")

ADDED, UPDATED, DELETED = EventType.ADDED, EventType.UPDATED, EventType.DELETED


def entry(
    version: object, name: str = "a", *, uid: str = "", namespace: str = "ns", **metadata: Any
) -> Entry:
    """Return an entry whose content is its version, so that the contents of two versions differ."""
    defaults = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return DECODER.decode(
        orjson.dumps(
            {"kind": "K", "apiVersion": "v1", "metadata": defaults | metadata, "content": version}
        )
    )


class Harness:
    """A store with its first feed and a fake clock; ``events`` holds the emitted events."""

    def __init__(
        self, labels: str = "", fields: str = "", namespaces: Iterable[str] = ("",)
    ) -> None:
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = self.events.append
        self.store = Store(
            deliver=lambda event: self.on_event(event),
            clock=self.clock,
            selection=Selection.of(label_selector=labels, field_selector=fields),
        )
        self.feeds = Feeds(self.store)
        self.feeds.open(namespaces)
        self.feed: Feed = next(iter(self.feeds.values()))

    def list(
        self,
        version: object,
        *entries: Entry,
        discard_known: bool = False,
        feed: Feed | None = None,
    ) -> list[Any]:
        listing = (feed or self.feed).begin()
        listing.discard_known = discard_known
        for item in entries:
            listing.add(item)
        listing.commit(str(version))
        return self.take_changes()

    def watch(self, event: EventType, state: Entry) -> list[Any]:
        self.feed.observe(event, state)
        return self.take_changes()

    def record_write(self, state: Entry) -> list[Any]:
        self.feed.record_write(state)
        return self.take_changes()

    def record_deletion(self, key: NamespacedName, uid: str) -> list[Any]:
        self.feed.record_deletion(key, uid)
        return self.take_changes()

    def take_changes(self) -> list[Any]:
        """Return the events since the last call as (type, name, old version, new version)."""
        changes = [
            (
                event.type,
                event.key.name,
                event.old and event.old.meta.resource_version,
                event.new and event.new.meta.resource_version,
            )
            for event in self.events
        ]
        self.events.clear()
        return changes

    def version(self, key: NamespacedName = KEY) -> str | None:
        found = self.store.get(key)
        return found.meta.resource_version if found else None


# Lists and watches.


def test_first_list_emits_initial_additions() -> None:
    harness = Harness()
    listing = harness.feed.begin()
    listing.add(entry(5))
    assert not harness.feed.synced
    assert len(harness.store) == 0
    listing.commit("9")
    assert harness.feed.synced
    assert [(event.type, event.initial) for event in harness.events] == [(ADDED, True)]
    assert harness.feed.high_water_mark == 9


def test_watch_events_add_update_and_delete_objects() -> None:
    harness = Harness()
    harness.list(9)
    assert harness.watch(UPDATED, entry(10)) == [(ADDED, "a", None, "10")]
    assert harness.watch(ADDED, entry(11)) == [(UPDATED, "a", "10", "11")]
    assert harness.watch(DELETED, entry(12)) == [(DELETED, "a", "12", None)]
    assert harness.version() is None
    assert harness.watch(DELETED, entry(12)) == []


def test_repeated_watch_events_are_ignored() -> None:
    harness = Harness()
    harness.list(9)
    harness.watch(ADDED, entry(10))
    harness.watch(DELETED, entry(12))
    assert harness.watch(ADDED, entry(10)) == []  # it would resurrect a deleted object
    assert harness.version() is None
    assert harness.watch(ADDED, entry(13, uid="next")) == [(ADDED, "a", None, "13")]
    assert harness.watch(DELETED, entry(12)) == []
    assert harness.version() == "13"


def test_unchanged_state_emits_no_event() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    assert harness.watch(UPDATED, entry(5)) == []
    assert harness.list(12, entry(5)) == []


def test_relist_emits_only_the_differences() -> None:
    harness = Harness()
    harness.list(9, entry(5), entry(6, "b"), entry(7, "c"))
    listing = harness.feed.begin()
    for item in (entry(5), entry(11, "b"), entry(10, "d")):
        listing.add(item)
    listing.commit("12")
    deletion = next(event for event in harness.events if event.type is DELETED)
    assert deletion.final_state_unknown
    assert not any(event.initial for event in harness.events)
    assert harness.take_changes() == [
        (DELETED, "c", "7", None),
        (UPDATED, "b", "6", "11"),
        (ADDED, "d", None, "10"),
    ]


def test_relist_keeps_the_entry_of_an_unchanged_object() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    before = harness.store.get(KEY)
    harness.list(12, entry(5))
    assert harness.store.get(KEY) is before


def test_recreated_object_emits_a_deletion_and_an_addition() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    assert harness.list(20, entry(15, uid="second")) == [
        (DELETED, "a", "5", None),
        (ADDED, "a", None, "15"),
    ]
    assert harness.watch(UPDATED, entry(21, uid="third")) == [
        (DELETED, "a", "15", None),
        (ADDED, "a", None, "21"),
    ]


def test_events_are_emitted_after_the_complete_change() -> None:
    harness = Harness()
    sizes: list[int] = []
    harness.on_event = lambda _: sizes.append(len(harness.store))
    harness.list(9, entry(5), entry(6, "b"), entry(7, "c"))
    assert sizes == [3, 3, 3]


def test_each_namespace_has_its_own_list() -> None:
    harness = Harness(namespaces=("ns", "other"))
    one, two = harness.feeds["ns"], harness.feeds["other"]
    harness.list(9, entry(5), feed=one)
    harness.list(10, entry(6, namespace="other"), feed=two)
    assert len(harness.store) == 2
    assert harness.list(12, feed=two) == [(DELETED, "a", "6", None)]
    assert harness.version() == "5"
    assert harness.feeds.of(NamespacedName("third", "a")) is None


def test_closing_the_store_deletes_all_objects() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    harness.feeds.close()
    assert harness.take_changes() == [(DELETED, "a", "5", None)]
    assert harness.feeds.of(KEY) is None


# Own writes.


def test_own_write_is_visible_immediately_and_its_watch_event_is_ignored() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    assert harness.record_write(entry(12)) == [(UPDATED, "a", "5", "12")]
    assert harness.version() == "12"
    assert harness.watch(UPDATED, entry(12)) == []
    assert harness.record_write(entry(13, "b")) == [(ADDED, "b", None, "13")]
    assert harness.watch(ADDED, entry(13, "b")) == []


def test_late_watch_event_does_not_undo_own_write() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    harness.record_write(entry(12))
    assert harness.watch(UPDATED, entry(11)) == []
    assert harness.version() == "12"
    assert harness.watch(UPDATED, entry(13)) == [(UPDATED, "a", "12", "13")]


def test_late_response_does_not_undo_watch_event() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    harness.watch(UPDATED, entry(12))
    assert harness.record_write(entry(11)) == []
    assert harness.version() == "12"


def test_versions_are_compared_as_numbers() -> None:
    harness = Harness()
    harness.list(9, entry(9))
    assert harness.record_write(entry(10)) == [(UPDATED, "a", "9", "10")]


def test_response_with_non_numeric_version_waits_for_the_watch() -> None:
    harness = Harness()
    harness.list("x", entry("w"))
    assert harness.record_write(entry("y")) == []
    assert harness.version() == "w"
    assert harness.watch(UPDATED, entry("y")) == [(UPDATED, "a", "w", "y")]
    assert harness.record_write(entry(7)) == []


def test_late_response_does_not_resurrect_deleted_object() -> None:
    harness = Harness()
    harness.list(9)
    harness.watch(ADDED, entry(11))
    harness.watch(DELETED, entry(13))
    assert harness.record_write(entry(12)) == []
    assert harness.version() is None


def test_bookmark_advances_high_water_mark() -> None:
    harness = Harness()
    harness.list(9)
    harness.feed.advance(20)
    assert harness.record_write(entry(20)) == []
    assert harness.record_write(entry(21)) == [(ADDED, "a", None, "21")]
    harness.feed.advance(15)
    assert harness.feed.high_water_mark == 20


def test_absent_key_is_inserted_above_high_water_mark_of_its_feed() -> None:
    harness = Harness(namespaces=("ns", "other"))
    harness.list(9, feed=harness.feeds["ns"])
    harness.list(50, feed=harness.feeds["other"])
    harness.feeds["ns"].record_write(entry(20))
    assert harness.version() == "20"


def test_response_about_recreated_object_survives_deletion_event_of_former_object() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    assert harness.record_write(entry(15, uid="second")) == [
        (DELETED, "a", "5", None),
        (ADDED, "a", None, "15"),
    ]
    assert harness.watch(DELETED, entry(12)) == []
    assert harness.version() == "15"


# Deletions.


def test_own_deletion_is_visible_immediately_and_its_watch_event_is_ignored() -> None:
    harness = Harness()
    harness.list(9, entry(5))
    assert harness.record_deletion(KEY, "uid-a") == [(DELETED, "a", "5", None)]
    assert harness.watch(UPDATED, entry(10)) == []
    assert harness.watch(DELETED, entry(11)) == []
    assert harness.version() is None


def test_tombstone_rejects_late_responses_events_and_lists() -> None:
    harness = Harness()
    harness.list(9)
    harness.record_deletion(KEY, "uid-a")
    assert harness.record_write(entry(12)) == []
    assert harness.watch(ADDED, entry(12)) == []
    assert harness.list(12, entry(12)) == []
    assert harness.version() is None
    assert harness.watch(ADDED, entry(14, uid="second")) == [(ADDED, "a", None, "14")]


def test_deletion_also_hides_former_objects_of_the_same_name() -> None:
    harness = Harness()
    harness.list(9)
    harness.record_write(entry(20, uid="second"))
    harness.record_deletion(KEY, "second")
    harness.take_changes()
    assert harness.watch(ADDED, entry(12, uid="first")) == []
    assert harness.watch(DELETED, entry(14, uid="first")) == []
    harness.feed.advance(25)
    assert not harness.feed._floors


def test_deletion_of_former_object_keeps_its_successor() -> None:
    harness = Harness()
    harness.list(9, entry(5, uid="second"))
    assert harness.record_deletion(KEY, "uid-a") == []
    assert harness.version() == "5"


def test_final_state_in_deletion_response_does_not_resurrect_object() -> None:
    harness = Harness()
    harness.list(9, entry(8, finalizers=["f"], deletionTimestamp="2026-01-01T00:00:00Z"))
    harness.record_deletion(KEY, "uid-a")
    assert harness.record_write(entry(8, deletionTimestamp="2026-01-01T00:00:00Z")) == []
    assert harness.version() is None


def test_deletion_response_of_object_with_finalizers_is_an_update() -> None:
    harness = Harness()
    harness.list(9, entry(8, finalizers=["f"]))
    terminating = entry(12, finalizers=["f"], deletionTimestamp="2026-01-01T00:00:00Z")
    assert harness.record_write(terminating) == [(UPDATED, "a", "8", "12")]


def test_tombstones_are_removed_when_confirmed_or_expired() -> None:
    harness = Harness()
    harness.list(9, entry(5), entry(6, "b"))
    harness.record_deletion(KEY, "uid-a")
    harness.record_deletion(NamespacedName("ns", "b"), "uid-b")
    harness.watch(DELETED, entry(11))
    assert set(harness.feed._tombstones) == {"uid-b"}
    harness.clock.advance(TOMBSTONE_SECONDS - 1)
    harness.list(20)
    assert set(harness.feed._tombstones) == {"uid-b"}
    harness.clock.advance(2)
    harness.list(30)
    assert not harness.feed._tombstones


# Selectors.


def test_response_that_does_not_match_selector_is_not_inserted() -> None:
    harness = Harness(labels="app=x")
    harness.list(9)
    assert harness.record_write(entry(12)) == []
    assert harness.version() is None
    assert harness.record_write(entry(13, labels={"app": "x"})) == [(ADDED, "a", None, "13")]


def test_response_that_no_longer_matches_selector_removes_object() -> None:
    harness = Harness(labels="app=x")
    harness.list(9, entry(5, labels={"app": "x"}))
    assert harness.record_write(entry(12)) == [(DELETED, "a", "5", None)]
    assert harness.watch(UPDATED, entry(11, labels={"app": "x"})) == []
    assert harness.record_write(entry(10, labels={"app": "x"})) == []
    assert harness.list(11, entry(11, labels={"app": "x"})) == []
    assert harness.watch(DELETED, entry(12)) == []
    assert harness.watch(UPDATED, entry(13, labels={"app": "x"})) == [(ADDED, "a", None, "13")]


def test_floor_is_removed_when_the_watch_has_passed_it() -> None:
    harness = Harness(labels="app=x")
    harness.list(9)
    harness.record_write(entry(12))
    assert harness.feed._floors
    harness.feed.advance(12)
    assert not harness.feed._floors


def test_response_that_matches_selector_again_survives_earlier_deleted_event() -> None:
    harness = Harness(labels="app=x")
    harness.list(9, entry(5, labels={"app": "x"}))
    harness.record_write(entry(14, labels={"app": "x"}))
    assert harness.watch(DELETED, entry(12)) == []
    assert harness.version() == "14"


def test_tombstone_survives_deleted_event_of_selector() -> None:
    harness = Harness(labels="app=x")
    harness.list(9, entry(5, labels={"app": "x"}))
    harness.record_deletion(KEY, "uid-a")
    harness.watch(DELETED, entry(11))
    assert harness.watch(ADDED, entry(12, labels={"app": "x"})) == []


def test_field_selector_by_name_applies_to_responses() -> None:
    harness = Harness(fields="metadata.name=a")
    harness.list(9)
    assert harness.record_write(entry(12, "b")) == []
    assert harness.record_write(entry(13)) == [(ADDED, "a", None, "13")]


def test_response_waits_for_the_watch_if_only_the_server_can_evaluate_field_selector() -> None:
    harness = Harness(fields="status.phase=Running")
    harness.list(9, entry(5))
    assert harness.record_write(entry(12)) == []
    assert harness.version() == "5"
    assert harness.record_deletion(KEY, "uid-a") == [(DELETED, "a", "5", None)]


# Own writes during lists.


def test_list_keeps_newer_own_writes() -> None:
    harness = Harness()
    harness.list(9, entry(5), entry(6, "b"))
    harness.record_write(entry(15))
    harness.record_write(entry(16, "c"))
    assert harness.list(12, entry(5), entry(6, "b")) == []
    assert harness.version() == "15"
    assert harness.version(NamespacedName("ns", "c")) == "16"


def test_write_during_first_list_is_emitted_with_the_list() -> None:
    harness = Harness()
    listing = harness.feed.begin()
    listing.add(entry(5))
    assert harness.record_write(entry(12)) == []
    assert harness.record_write(entry(13, "b")) == []
    assert harness.record_write(entry(7, "c")) == []
    listing.commit("9")
    assert all(event.initial for event in harness.events)
    assert sorted(harness.take_changes()) == [(ADDED, "a", None, "12"), (ADDED, "b", None, "13")]


def test_deletion_during_first_list_is_final() -> None:
    harness = Harness()
    listing = harness.feed.begin()
    listing.add(entry(5))
    harness.record_deletion(KEY, "uid-a")
    listing.commit("9")
    assert harness.take_changes() == []
    assert harness.version() is None


def test_minimum_version_of_next_list_includes_own_writes() -> None:
    harness = Harness()
    harness.list(9)
    harness.record_write(entry(15))
    assert (harness.feed.high_water_mark, harness.feed.latest_version) == (9, 15)
    assert harness.feed.begin().known_version == 15


def test_list_after_etcd_restore_replaces_all_state() -> None:
    harness = Harness(labels="app=x")
    matching = {"labels": {"app": "x"}}
    harness.list(100, entry(90, **matching), entry(95, "b", **matching), entry(80, "d", **matching))
    harness.record_deletion(NamespacedName("ns", "d"), "uid-d")
    harness.record_write(entry(120, "c"))
    harness.take_changes()
    changes = harness.list(
        50,
        entry(40, **matching),
        entry(45, "c", **matching),
        entry(30, "d", **matching),
        discard_known=True,
    )
    assert sorted(changes) == [
        (ADDED, "c", None, "45"),
        (ADDED, "d", None, "30"),
        (DELETED, "b", "95", None),
        (UPDATED, "a", "90", "40"),
    ]
    assert (harness.feed.high_water_mark, harness.feed.latest_version) == (50, 50)
    assert harness.watch(UPDATED, entry(51, **matching)) == [(UPDATED, "a", "40", "51")]


def test_same_version_after_etcd_restore_may_be_another_state() -> None:
    harness = Harness()
    harness.list(100, entry(90))
    assert harness.list(95, entry(90), discard_known=True) == []
    assert harness.list(94, entry(90, labels={"restored": "yes"}), discard_known=True) == [
        (UPDATED, "a", "90", "90")
    ]


# Indexes.


def by_app(state: Entry) -> list[str]:
    value = state.meta.labels.get("app")
    return [] if value is None else [value]


def test_indexes_follow_changes() -> None:
    harness = Harness()
    harness.store.add_index("app", by_app)
    harness.list(
        9, entry(5, labels={"app": "x"}), entry(6, "b", labels={"app": "x"}), entry(7, "c")
    )

    def names(value: str) -> list[str]:
        return [found.meta.name for found in harness.store.indexed("app", value)]

    assert names("x") == ["a", "b"]
    harness.watch(UPDATED, entry(10, labels={"app": "y"}))
    assert (names("x"), names("y")) == (["b"], ["a"])
    assert next(iter(harness.store.indexed("app", "y"))).version == 10
    harness.watch(DELETED, entry(11, "b", labels={"app": "x"}))
    assert names("x") == []
    harness.record_deletion(KEY, "uid-a")
    assert not harness.store._indexes["app"]._found


def test_response_before_the_first_list_keeps_no_decoded_metadata() -> None:
    harness = Harness()
    state = entry(12)
    harness.record_write(state)
    assert harness.store.get(KEY) is state
    assert state.meta is not state.meta


def test_new_index_is_filled_and_its_function_cannot_change() -> None:
    harness = Harness()
    harness.list(9, entry(5, labels={"app": "x"}))
    harness.store.add_index("app", by_app)
    harness.store.add_index("app", by_app)
    assert len(harness.store.indexed("app", "x")) == 1
    with pytest.raises(ValueError, match="already registered with a different function"):
        harness.store.add_index("app", lambda _: [])
    with pytest.raises(KeyError):
        harness.store.indexed("other", "x")


def test_index_function_that_fails_for_one_object_indexes_the_others() -> None:
    harness = Harness()
    harness.store.add_index("app", lambda state: [state.meta.labels["app"]])
    with structlog.testing.capture_logs() as logs:
        harness.list(9, entry(5, labels={"app": "x"}), entry(6, "b"))
    assert len(harness.store.indexed("app", "x")) == 1
    assert len(harness.store) == 2
    assert [(line["index"], line["object"]) for line in logs] == [("app", "ns/b")]


def test_namespace_of_an_object_for_which_an_index_function_failed_is_not_fully_indexed() -> None:
    harness = Harness()
    harness.store.add_index("app", lambda state: [state.meta.labels["app"]])
    harness.list(9, entry(5, labels={"app": "x"}), entry(6, "b"), entry(7, "c", namespace="other"))
    assert set(harness.store.unindexed) == {"ns", "other"}
    assert harness.store.index_errors == 2
    harness.watch(UPDATED, entry(10, "b", labels={"app": "x"}))
    assert set(harness.store.unindexed) == {"other"}
    assert len(harness.store.indexed("app", "x")) == 2
    harness.watch(UPDATED, entry(11, "b"))
    assert len(harness.store.indexed("app", "x")) == 1
    assert set(harness.store.unindexed) == {"ns", "other"}
    harness.watch(DELETED, entry(12, "b"))
    harness.watch(DELETED, entry(13, "c", namespace="other"))
    assert not harness.store.unindexed
    assert harness.store.index_errors == 3, (
        "the function is not called again when an object is removed"
    )


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("web", "returned values: 'web': must be a list of strings"),
        ([7], "returned values: 7: must be a string"),
    ],
)
def test_index_values_that_are_not_a_list_of_strings_are_rejected(
    returned: Any, message: str
) -> None:
    harness = Harness()
    harness.store.add_index("app", lambda _: returned)
    formatting = [structlog.processors.format_exc_info]
    with structlog.testing.capture_logs(processors=formatting) as logs:
        harness.list(9, entry(5))
    assert len(harness.store) == 1
    assert harness.store.indexed("app", "w") == []
    (line,) = logs
    assert line["event"] == "Index function failed, object is not indexed"
    assert line["exception"].endswith(f"TypeError: {message}")


def test_entries_can_be_read_by_namespace() -> None:
    harness = Harness()
    harness.list(9, entry(5), entry(6, namespace="other"))
    assert [found.key for found in harness.store.entries("other")] == [("other", "a")]
    assert list(harness.store.entries("none")) == []
    assert len(harness.store.entries()) == 2


# Controllers of deleted objects.


def controlled(version: object, name: str = "a") -> Entry:
    return entry(
        version, name, ownerReferences=[{"name": "owner", "uid": "owner-uid", "controller": True}]
    )


def test_controller_of_an_object_that_another_client_deleted_is_known_until_it_is_recreated() -> (
    None
):
    harness = Harness()
    harness.list(9, controlled(5), entry(6, "b"))
    harness.watch(DELETED, controlled(10))
    harness.watch(DELETED, entry(11, "b"))
    assert harness.store.controller_of_deleted(KEY) == "owner-uid"
    assert harness.store.controller_of_deleted(KEY._replace(name="b")) == ""
    harness.record_write(controlled(12))
    assert harness.store.controller_of_deleted(KEY) == ""


def test_controller_of_an_object_that_is_missing_in_a_relist_is_known() -> None:
    harness = Harness()
    harness.list(9, controlled(5))
    harness.list(12)
    assert harness.store.controller_of_deleted(KEY) == "owner-uid"


def test_controller_of_an_object_that_this_client_deleted_is_not_remembered() -> None:
    harness = Harness()
    harness.list(9, controlled(5))
    harness.record_deletion(KEY, "uid-a")
    harness.watch(DELETED, controlled(10))
    assert harness.store.controller_of_deleted(KEY) == ""


def test_number_of_remembered_controllers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfo.runtime.cache.store.MAX_DELETED", 2)
    harness = Harness()
    harness.list(9, *(controlled(5, name) for name in "abc"))
    for version, name in enumerate("abc", 10):
        harness.watch(DELETED, controlled(version, name))
    known = [harness.store.controller_of_deleted(KEY._replace(name=name)) for name in "abc"]
    assert known == ["", "owner-uid", "owner-uid"]
