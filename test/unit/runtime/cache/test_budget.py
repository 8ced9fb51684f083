"""Each namespace has a budget of bytes, which all stores of a cache share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from cfo.manifests import guardrails
from cfo.manifests.host_policy import MAX_HOSTS
from cfo.runtime.cache.budget import NAMESPACE_BYTES, ByteBudget
from cfo.runtime.cache.entry import ENTRY_BYTES, Entry, EntryDecoder
from cfo.runtime.cache.feed import (
    MAX_SKIPPED,
    NAMESPACE_UNSTORED,
    TOTAL_UNSTORED,
    Feed,
    Feeds,
    Listing,
)
from cfo.runtime.cache.index import MAX_VALUES, PACKED_BYTES, VALUE_BYTES, by_controller
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import (
    MAX_LEFT_OUT,
    NAMESPACE_TOO_LARGE,
    Event,
    EventType,
    LeftOut,
    Store,
)
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from test.support.clocks import FakeClock

DECODER = EntryDecoder(GVK("ray.io", "v1", "RayCluster"), field_managers=["me"])
ADDED, UPDATED, DELETED = EventType.ADDED, EventType.UPDATED, EventType.DELETED


def entry(
    version: int,
    name: str = "a",
    *,
    size: int = 0,
    hosts: Iterable[str] = (),
    namespace: str = "ns",
    **metadata: Any,
) -> Entry:
    """Return an entry with so much content, and these hosts."""
    defaults = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "resourceVersion": str(version),
    }
    content = {
        "kind": "K",
        "apiVersion": "v1",
        "metadata": defaults | metadata,
        "hosts": list(hosts),
        "content": "x" * size,
    }
    return DECODER.decode(orjson.dumps(content))


def hosts_of(found: Entry) -> list[str]:
    hosts: list[str] = found.object().get("hosts") or []
    return hosts


def creator_of(found: Entry) -> str:
    """Return the namespace in whose budget a cluster-scoped object of these tests counts."""
    return str(found.meta.labels["creator"])


def test_cluster_scoped_objects_count_in_the_namespace_of_their_creator() -> None:
    reports: list[LeftOut] = []
    budget = ByteBudget(3000)
    store = Store(
        deliver=lambda event: None,
        clock=FakeClock(),
        selection=Selection.of(budget_of=creator_of),
        report=reports.append,
        budget=budget,
    )
    store.add_index("hosts", hosts_of)
    feed = Feed(store, "")

    def observe(event: EventType, version: int, name: str, creator: str, **content: Any) -> None:
        found = entry(version, name, namespace="", labels={"creator": creator}, **content)
        feed.observe(event, found)

    feed.begin().commit("1")
    observe(ADDED, 2, "a", "one", size=1500, hosts=["h"])
    observe(ADDED, 3, "b", "one", size=1500)
    observe(ADDED, 4, "c", "two", size=1500)
    assert [(found.key.name, found.reason) for found in reports] == [("b", NAMESPACE_TOO_LARGE)]
    assert {found.name for found in store.entries()} == {"a", "c"}
    # A user of another namespace has recreated the object, and the deletion was not seen.
    observe(UPDATED, 5, "a", "three", size=500)
    assert budget.held("one") == 0
    assert store.has_room
    observe(DELETED, 6, "a", "three")
    observe(DELETED, 7, "c", "two")
    assert [budget.held(creator) for creator in ("one", "two", "three")] == [0, 0, 0]


class Stores:
    """Stores of one budget; ``reports`` and ``events`` are those of all."""

    def __init__(self, max_bytes: int) -> None:
        self.budget = ByteBudget(max_bytes)
        self.reports: list[LeftOut] = []
        self.events: list[Event] = []
        self.stores: list[Store] = []

    def new(self, *, max_bytes: int = 3 << 20, has_index: bool = False) -> tuple[Store, Feed]:
        store = Store(
            deliver=self.events.append,
            clock=FakeClock(),
            selection=Selection.of(max_bytes=max_bytes),
            report=self.reports.append,
            budget=self.budget,
        )
        if has_index:
            store.add_index("hosts", hosts_of, left_out=True)
            store.add_index("controller", by_controller)
        self.stores.append(store)
        feeds = Feeds(store)
        feeds.open([""])
        return store, feeds[""]


def add_list(feed: Feed, version: int, *items: Entry) -> None:
    listing = feed.begin()
    for item in items:
        listing.add(item)
    listing.commit(str(version))


# What counts.


def test_objects_and_their_index_values_count() -> None:
    stores = Stores(1 << 20)
    store, feed = stores.new(has_index=True)
    add_list(feed, 5)
    found = entry(6, hosts=["one.test", "two.test"])
    feed.observe(ADDED, found)
    values = 2 * VALUE_BYTES + len("one.testtwo.test")
    assert stores.budget.held("ns") == ENTRY_BYTES + len(found.raw) + values
    assert store.bytes_of("ns") == stores.budget.held("ns")
    feed.observe(DELETED, entry(7))
    assert (stores.budget.held("ns"), store.bytes_of("ns")) == (0, 0)


def test_left_out_object_for_which_an_index_function_failed_is_unindexed_until_it_is_deleted() -> (
    None
):
    def fragile(found: Entry) -> list[str]:
        return [found.labels["missing"]]

    stores = Stores(1 << 20)
    store, feed = stores.new(max_bytes=1000)
    store.add_index("fragile", fragile, left_out=True)
    add_list(feed, 5)
    feed.observe(ADDED, entry(6, size=2000))
    assert list(store.left_out_keys("ns")) == [entry(6).key]
    assert store.unindexed == {"ns"}
    feed.observe(DELETED, entry(7))
    assert store.unindexed == set()
    assert stores.budget.held("ns") == 0


def test_index_that_is_added_later_counts() -> None:
    stores = Stores(1 << 20)
    store, feed = stores.new()
    add_list(feed, 5, entry(4, hosts=["one.test"]))
    before = stores.budget.held("ns")
    store.add_index("hosts", hosts_of)
    assert stores.budget.held("ns") == before + VALUE_BYTES + len("one.test")


def test_entries_of_field_managers_count() -> None:
    stores = Stores(1 << 20)
    _, feed = stores.new()
    fields = {f"f:{number}": {} for number in range(100)}
    managers = [{"manager": "me", "operation": "Apply", "fieldsV1": fields}]
    feed.record_write(entry(6, managedFields=managers))
    assert stores.budget.held("ns") > len(entry(6).raw) + len(orjson.dumps(fields))


def test_cluster_scoped_objects_do_not_count() -> None:
    stores = Stores(1000)
    store, feed = stores.new()
    add_list(feed, 5, *(entry(4, f"n{number}", size=900, namespace="") for number in range(3)))
    assert (len(store), stores.budget.held("")) == (3, 0)


def operations(source: random.Random) -> Entry:
    """Return a random state of one of a few objects."""
    number_of_hosts = source.choice((0, 1, 3, MAX_VALUES, MAX_VALUES + 1, 300))
    owners = []
    if source.random() < 0.3:
        owners = [{"uid": f"owner-{source.randint(0, 3)}", "controller": True, "name": "o"}]
    return entry(
        0,
        f"n{source.randint(0, 12)}",
        size=source.choice((0, 100, 2000, 9000)),
        hosts=[f"h{source.randint(0, 500)}.test" for _ in range(number_of_hosts)],
        namespace=source.choice(("ns", "other", "")),
        ownerReferences=owners,
    )


def with_version(state: Entry, version: int) -> Entry:
    obj = state.object()
    obj["metadata"]["resourceVersion"] = str(version)
    return DECODER.decode(orjson.dumps(obj))


def expected_bytes(stores: Stores, listings: Iterable[Listing]) -> dict[str, int]:
    """Return what the budget must hold by namespace, computed again from everything that is stored."""
    total: Counter[str] = Counter()
    for store in stores.stores:
        for found in store.entries():
            total[found.namespace] += ENTRY_BYTES + len(found.raw)
            for index in store._indexes.values():
                values = set(index.function(found))
                if len(values) > MAX_VALUES:
                    total[found.namespace] += PACKED_BYTES + 8 * len(values)
                else:
                    total[found.namespace] += sum(VALUE_BYTES + len(value) for value in values)
        for index in store._indexes.values():
            for packed in index._identities.values():
                total[packed.entry.namespace] += packed.entry.size
                total[packed.entry.namespace] += PACKED_BYTES + 8 * len(packed.hashes)
    for listing in listings:
        total.update(listing._reserved)
    del total[""]
    return {namespace: number for namespace, number in total.items() if number}


@pytest.mark.parametrize("seed", range(10))
def test_budget_equals_what_the_stores_hold_after_any_events(seed: int) -> None:
    source = random.Random(seed)
    stores = Stores(30_000)
    feeds = [
        stores.new(has_index=True)[1],
        stores.new(max_bytes=5000, has_index=True)[1],
        stores.new()[1],
    ]
    listings: dict[int, Listing] = {}
    version = 10
    largest = 0
    for _ in range(400):
        version += 1
        number = source.randrange(len(feeds))
        feed = feeds[number]
        state = with_version(operations(source), version)
        action = source.random()
        if number in listings:
            if action < 0.8:
                listings[number].add(state)
            elif action < 0.9:
                listings.pop(number).commit(str(version))
            else:
                listings.pop(number).discard()
        elif action < 0.1 or not feed.synced:
            listings[number] = feed.begin()
        elif action < 0.7:
            feed.observe(UPDATED, state)
        elif action < 0.8:
            feed.observe(DELETED, state)
        elif action < 0.9:
            feed.record_write(state)
        else:
            feed.record_deletion(state.key, state.meta.uid)
        expected = expected_bytes(stores, listings.values())
        held = {namespace: stores.budget.held(namespace) for namespace in ("", "ns", "other")}
        assert {namespace: number for namespace, number in held.items() if number} == expected
        assert stores.budget.total == sum(expected.values())
        largest = max(largest, *expected.values(), 0)
    assert largest > 20_000, "the budget was used"
    # One object can exceed it by the values of its indexes, and identities have an eighth more.
    assert largest < 30_000 * 9 // 8 + 9000 + 300 * VALUE_BYTES
    for listing in listings.values():
        listing.discard()
    for store in stores.stores:
        store.drop()
    assert stores.budget.total == 0
    assert stores.budget.held("ns") == 0


# The budget of all namespaces.

TOTAL = 1 << 20


def fill(budget: ByteBudget, namespace: str, step: int = 1000) -> int:
    """Hold as much for a namespace as is allowed; return how much that is."""
    while budget.allows(namespace, step):
        budget.charge(namespace, step)
    return budget.held(namespace)


@pytest.mark.parametrize("number", [0, 1, 4, 8, 20, 50])
def test_full_namespaces_leave_room_for_another(number: int) -> None:
    budget = ByteBudget(TOTAL, TOTAL)
    for at in range(number):
        fill(budget, f"hostile-{at}", step=100)
    assert TOTAL - budget.total >= TOTAL / (number + 1)
    assert fill(budget, "new", step=10) >= TOTAL / (number + 2) ** 2 - 10


@pytest.mark.parametrize("seed", range(10))
def test_room_for_another_namespace_does_not_depend_on_the_order_of_charges(seed: int) -> None:
    """However the others grow and shrink, and in whatever order, the same is left for one more."""
    source = random.Random(seed)
    number = source.randint(1, 12)
    names = [f"hostile-{at}" for at in range(number)]
    budget = ByteBudget(TOTAL, TOTAL)
    for _ in range(5000):
        namespace = source.choice(names)
        growth = source.choice((10, 1000, 50_000, 300_000))
        if source.random() < 0.2:
            budget.charge(namespace, -min(growth, budget.held(namespace)))
        elif budget.allows(namespace, growth):
            budget.charge(namespace, growth)
        assert TOTAL - budget.total >= TOTAL / (number + 1)
        assert budget.allows("new", TOTAL // (number + 2) ** 2)


def test_single_namespace_can_use_its_whole_maximum() -> None:
    assert fill(ByteBudget(), "one", step=100_000) > NAMESPACE_BYTES - 100_000


def test_objects_that_do_not_grow_stay_although_others_use_the_rest() -> None:
    stores = Stores(TOTAL)
    stores.budget.total_bytes = TOTAL
    store, feed = stores.new()
    items = [entry(4, f"n{number}", size=5000) for number in range(40)]
    add_list(feed, 5, *items)
    for namespace in ("hostile-1", "hostile-2"):
        fill(stores.budget, namespace)
    assert not stores.budget.allows("ns", 1), "it holds more than it would get now"
    stores.events.clear()
    for number in range(40):
        feed.observe(UPDATED, entry(6 + number, f"n{number}", size=4990))
    add_list(feed, 60, *(entry(6 + number, f"n{number}", size=4990) for number in range(40)))
    assert len(store) == 40
    assert store.is_complete("ns")
    assert {event.type for event in stores.events} == {UPDATED}
    assert stores.reports == []


def test_object_beyond_the_share_of_its_namespace_is_left_out_once_and_returns_with_a_list() -> (
    None
):
    stores = Stores(TOTAL)
    stores.budget.total_bytes = TOTAL
    store, feed = stores.new()
    for namespace in ("hostile-1", "hostile-2"):
        fill(stores.budget, namespace)
    items = [entry(4, f"n{number}", size=5000) for number in range(40)]
    add_list(feed, 5, *items)
    known = len(store)
    assert 15 < known < 40
    (report,) = stores.reports
    assert report.reason == NAMESPACE_TOO_LARGE
    assert "more than its share of the 1 MiB for all namespaces" in report.message
    stores.events.clear()
    assert not feed.has_room
    add_list(feed, 7, *items)
    assert (stores.events, len(store), len(stores.reports)) == ([], known, 1)
    stores.budget.charge("hostile-1", -stores.budget.held("hostile-1"))
    assert feed.has_room
    add_list(feed, 9, *items)
    assert store.is_complete("ns")
    assert len(stores.reports) == 1


def test_first_lists_leave_room_for_the_namespace_that_is_listed_last() -> None:
    stores = Stores(TOTAL)
    stores.budget.total_bytes = TOTAL
    store, feed = stores.new()
    hostile = [
        entry(4, f"n{number}", size=9000, namespace=f"a{at}")
        for at in range(8)
        for number in range(100)
    ]
    victims = [entry(4, f"n{number}", size=1000, namespace="z") for number in range(7)]
    add_list(feed, 5, *hostile, *victims)
    assert store.is_complete("z")
    assert stores.budget.total < TOTAL * 8 / 9
    assert {found.key.namespace for found in stores.reports} <= {f"a{at}" for at in range(8)}


def test_first_list_reads_a_limited_number_of_bytes_that_are_not_stored() -> None:
    listing = Stores(1 << 20).new(max_bytes=1000)[1].begin()
    size = NAMESPACE_UNSTORED // 4
    read = 0
    for at in range(2 * MAX_SKIPPED):
        for _ in range(10):
            if f"n{at}" not in listing.skipped and len(listing.skipped) < MAX_SKIPPED:
                listing.count_unstored(f"n{at}", size)
                read += size
    assert list(listing.skipped) == [f"n{at}" for at in range(MAX_SKIPPED)]
    assert read <= TOTAL_UNSTORED + MAX_SKIPPED * size


def test_bytes_that_are_not_stored_never_become_fewer() -> None:
    listing = Stores(1 << 20).new(max_bytes=1000)[1].begin()
    listing.count_unstored("ns", NAMESPACE_UNSTORED)
    listing.count_unstored("ns", -NAMESPACE_UNSTORED)
    listing.count_unstored("ns", 1)
    assert list(listing.skipped) == ["ns"]


def test_only_the_first_list_skips_namespaces() -> None:
    _, feed = Stores(1 << 20).new(max_bytes=1000)
    add_list(feed, 5)
    listing = feed.begin()
    listing.count_unstored("ns", NAMESPACE_UNSTORED + 1)
    assert not listing.skipped


def test_own_write_in_a_namespace_that_the_first_list_skips_stays() -> None:
    store, feed = Stores(1 << 20).new(max_bytes=1000)
    listing = feed.begin()
    feed.record_write(entry(6))
    listing.count_unstored("ns", NAMESPACE_UNSTORED + 1)
    listing.commit("9")
    assert entry(6).key in store
    add_list(feed, 10)
    assert entry(6).key not in store
    assert store.is_complete("ns")


def test_index_of_left_out_objects_that_is_added_later_does_not_have_skipped_namespaces() -> None:
    store, feed = Stores(1 << 20).new(max_bytes=1000)
    listing = feed.begin()
    listing.count_unstored("ns", NAMESPACE_UNSTORED + 1)
    listing.commit("9")
    store.add_index("hosts", hosts_of, left_out=True)
    assert store.unindexed == {"ns"}
    add_list(feed, 10)
    assert store.unindexed == set()


def test_identities_take_nothing_of_the_room_for_objects() -> None:
    budget = ByteBudget(TOTAL, TOTAL)
    for at in range(8):
        namespace = f"hostile-{at}"
        fill(budget, namespace)
        while budget.allows_identity(namespace, 1000):
            budget.charge_identity(namespace, 1000)
    assert budget.allows("new", TOTAL // 100)
    assert budget.total <= TOTAL * 8 / 9 + TOTAL / 8


def test_objects_without_namespace_are_not_limited() -> None:
    budget = ByteBudget(1, 1)
    budget.charge("", 1000)
    budget.charge_identity("", 1000)
    assert budget.allows("", 1000)
    assert budget.allows_identity("", 1000)
    assert budget.total == 0


# What does not fit.


def test_objects_beyond_the_budget_are_left_out_and_reported_once_for_all_kinds() -> None:
    stores = Stores(10_000)
    first, first_feed = stores.new()
    second, second_feed = stores.new()
    for feed in (first_feed, second_feed):
        add_list(feed, 5)
    for number in range(5):
        version = 6 + 2 * number
        first_feed.observe(ADDED, entry(version, f"n{number}", size=2000))
        second_feed.observe(ADDED, entry(version, f"m{number}", size=2000))
        other = entry(version + 1, f"m{number}", size=2000, namespace="other")
        second_feed.observe(ADDED, other)
    assert (len(first), len(second)) == (2, 2 + 4), "no namespace has the budget of another"
    assert not first.is_complete("ns")
    assert not first.is_complete("")
    assert first.is_complete("other")
    assert [(found.reason, found.key.namespace) for found in stores.reports] == [
        (NAMESPACE_TOO_LARGE, "ns"),
        (NAMESPACE_TOO_LARGE, "other"),
    ]


def test_shrinking_object_is_stored_again() -> None:
    stores = Stores(5000)
    store, feed = stores.new()
    add_list(feed, 5)
    feed.observe(ADDED, entry(6, "large", size=9000))
    left_out = stores.events[-1]
    assert (left_out.type, left_out.new) == (DELETED, None)
    assert left_out.current is not None
    assert left_out.current.version == 6
    feed.observe(UPDATED, entry(7, "large", size=90))
    assert store.is_complete("ns")
    assert stores.events[-1].type is ADDED
    assert stores.events[-1].current is stores.events[-1].new


def test_growing_object_leaves_the_store_with_its_new_state() -> None:
    stores = Stores(5000)
    store, feed = stores.new()
    add_list(feed, 5, entry(4, "a", size=100), entry(4, "b", size=100))
    feed.observe(UPDATED, entry(6, "a", size=9000))
    assert [found.name for found in store.entries()] == ["b"]
    event = stores.events[-1]
    assert event.old is not None
    assert (event.old.version, event.left_out and event.left_out.version) == (4, 6)
    feed.observe(DELETED, entry(7, "a", size=9000))
    assert stores.events[-1].current is None
    assert store.is_complete("ns")


def test_update_that_does_not_grow_is_stored_although_the_budget_is_used() -> None:
    stores = Stores(5000)
    store, feed = stores.new()
    add_list(feed, 5, entry(4, "a", size=2000))
    stores.budget.charge("ns", 5000)
    feed.observe(UPDATED, entry(6, "a", size=2000))
    found = store.get(NamespacedName("ns", "a"))
    assert found is not None
    assert found.version == 6


def test_lists_at_the_same_time_share_the_budget_before_they_are_complete() -> None:
    stores = Stores(10_000)
    _, first_feed = stores.new()
    _, second_feed = stores.new()
    first = first_feed.begin()
    second = second_feed.begin()
    for number in range(10):
        first.add(entry(4, f"n{number}", size=2000))
        second.add(entry(4, f"m{number}", size=2000))
    assert 8000 < stores.budget.held("ns") <= 10_000
    first.discard()
    second.commit("5")
    assert 4000 < stores.budget.held("ns") <= 5000


def test_list_of_unchanged_and_replaced_objects_needs_no_additional_budget() -> None:
    stores = Stores(10_000)
    store, feed = stores.new()
    add_list(feed, 5, *(entry(4, f"n{number}", size=2000) for number in range(4)))
    replaced = [entry(6, f"m{number}", size=2000) for number in range(2)]
    add_list(feed, 7, *(entry(4, f"n{number}", size=2000) for number in range(2)), *replaced)
    assert sorted(found.name for found in store.entries()) == ["m0", "m1", "n0", "n1"]
    assert store.is_complete("ns")


def test_first_list_delivers_the_state_of_objects_that_it_leaves_out() -> None:
    """So records of objects, as those of quotas, are complete after a restart."""
    stores = Stores(5000)
    _, feed = stores.new()
    add_list(feed, 5, *(entry(4, f"n{number}", size=2000) for number in range(3)))
    by_name = {event.key.name: event for event in stores.events}
    assert set(by_name) == {"n0", "n1", "n2"}
    assert by_name["n2"].left_out is not None
    assert by_name["n2"].initial
    stores.events.clear()
    add_list(feed, 7, *(entry(4, f"n{number}", size=2000) for number in range(3)))
    assert stores.events == [], "it was reported before"


def test_listed_object_that_has_grown_leaves_the_store() -> None:
    stores = Stores(5000)
    store, feed = stores.new()
    add_list(feed, 5, entry(4, "a", size=100), entry(4, "b", size=100))
    add_list(feed, 7, entry(6, "a", size=9000), entry(4, "b", size=100))
    assert [found.name for found in store.entries()] == ["b"]
    assert [event.current.version for event in stores.events if event.current][-1] == 6
    assert not store.is_complete("ns")


def test_list_does_not_remove_a_newer_write_that_fits() -> None:
    stores = Stores(5000)
    store, feed = stores.new()
    add_list(feed, 5, entry(4, "a", size=100))
    listing = feed.begin()
    feed.record_write(entry(9, "a", size=50))
    listing.add(entry(6, "a", size=9000))
    listing.commit("7")
    found = store.get(NamespacedName("ns", "a"))
    assert found is not None
    assert found.version == 9


def test_indexes_of_a_list_count() -> None:
    stores = Stores(20_000)
    store, feed = stores.new(has_index=True)
    hosts = [f"h{number}" for number in range(MAX_VALUES)]
    add_list(feed, 5, *(entry(4, f"n{number}", hosts=hosts) for number in range(10)))
    assert len(store) == 2, "the JSON of all ten would fit, their hosts do not"
    assert not store.is_complete("ns")
    assert stores.reports[0].reason == NAMESPACE_TOO_LARGE
    assert [event.left_out is None for event in stores.events].count(False) == 8


def test_namespace_has_room_when_the_smallest_object_fits() -> None:
    stores = Stores(5000)
    _, feed = stores.new()
    add_list(feed, 5, entry(4, "a", size=3000))
    feed.observe(ADDED, entry(6, "b", size=4000))
    feed.observe(ADDED, entry(7, "c", size=3000))
    assert not feed.has_room
    feed.observe(UPDATED, entry(8, "a", size=2500))
    assert not feed.has_room, "no list would store another object"
    feed.observe(DELETED, entry(9, "a"))
    assert feed.has_room
    add_list(feed, 10, entry(6, "b", size=4000))
    assert not feed.has_room


# Indexes of many values, and of objects that are left out.


@pytest.mark.parametrize("number", [1, MAX_VALUES, MAX_VALUES + 1, 5000])
def test_object_is_found_by_each_of_its_values(number: int) -> None:
    stores = Stores(10 << 20)
    store, feed = stores.new(has_index=True)
    hosts = [f"h{index}" for index in range(number)]
    add_list(feed, 5, entry(4, "a", hosts=hosts), entry(4, "b", hosts=["h0"]))
    assert {found.name for found in store.indexed("hosts", "h0")} == {"a", "b"}
    last = {found.name for found in store.indexed("hosts", hosts[-1])}
    assert "a" in last
    assert store.indexed("hosts", "none") == []
    feed.observe(UPDATED, entry(6, "a", hosts=["new"]))
    assert {found.name for found in store.indexed("hosts", "h0")} == {"b"}
    assert [found.name for found in store.indexed("hosts", "new")] == ["a"]
    feed.observe(UPDATED, entry(7, "a", hosts=hosts))
    assert store.indexed("hosts", "new") == []
    feed.observe(DELETED, entry(8, "a"))
    assert {found.name for found in store.indexed("hosts", "h0")} == {"b"}


def test_many_values_take_few_bytes() -> None:
    stores = Stores(10 << 20)
    store, feed = stores.new(has_index=True)
    hosts = [f"{number}.a" for number in range(3450)]
    large = entry(6, hosts=hosts)
    add_list(feed, 5, large)
    assert store.bytes_of("ns") < 2 * len(large.raw)


def test_left_out_object_is_found_by_its_values_with_its_controller() -> None:
    stores = Stores(1 << 20)
    store, feed = stores.new(max_bytes=3000, has_index=True)
    owners = [
        {"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "u", "controller": True},
        {"apiVersion": "v1", "kind": "Other", "name": "p", "uid": "v"},
    ]
    add_list(feed, 5, entry(4, hosts=["one"], size=3000, ownerReferences=owners))
    (found,) = store.indexed("hosts", "one")
    assert store.get(found.key) is None
    assert (found.key, found.meta.uid, found.version) == (("ns", "a"), "uid-ns-a", 4)
    assert [owner.uid for owner in found.meta.owner_references] == ["u"]
    assert len(found.raw) < 400
    assert store.unindexed == set()
    feed.observe(UPDATED, entry(6, hosts=["two"], size=3000))
    assert store.indexed("hosts", "one") == []
    assert len(store.indexed("hosts", "two")) == 1
    feed.observe(UPDATED, entry(7, hosts=["two"]))
    assert store.get(found.key) in store.indexed("hosts", "two")
    assert len(store.indexed("hosts", "two")) == 1
    feed.observe(UPDATED, entry(8, hosts=["two"], size=3000))
    feed.observe(DELETED, entry(9))
    assert store.indexed("hosts", "two") == []
    assert stores.budget.held("ns") == 0


def test_very_long_owner_is_cut() -> None:
    stores = Stores(1 << 20)
    store, feed = stores.new(max_bytes=3000, has_index=True)
    owners = [{"kind": "x" * 5000, "name": "o", "uid": "u", "controller": True}]
    add_list(feed, 5, entry(4, hosts=["one"], ownerReferences=owners))
    (found,) = store.indexed("hosts", "one")
    assert found.meta.controller is not None
    assert (found.meta.controller.uid, len(found.raw) < 1000) == ("u", True)


def test_very_long_owner_of_large_characters_is_not_kept() -> None:
    stores = Stores(1 << 20)
    store, feed = stores.new(max_bytes=3000, has_index=True)
    large = "\N{GRINNING FACE}" * 5000
    owners = [{"kind": large, "name": large, "uid": "u", "controller": True}]
    add_list(feed, 5, entry(4, hosts=["one"], ownerReferences=owners))
    (found,) = store.indexed("hosts", "one")
    assert found.meta.controller is None


def test_identities_use_an_eighth_more_than_the_budget() -> None:
    stores = Stores(80_000)
    store, feed = stores.new(has_index=True)
    add_list(feed, 5)
    stores.budget.charge("ns", 80_000)
    number = 0
    while not store.unindexed:
        feed.observe(ADDED, entry(6 + number, f"n{number}", hosts=[f"h{number}"]))
        number += 1
    assert 5 < number < 20
    assert stores.budget.held("ns") <= 90_000
    assert len(store.indexed("hosts", "h0")) == 1
    assert store.unindexed == {"ns"}
    assert not feed.has_room
    stores.budget.charge("ns", -80_000)
    assert feed.has_room
    add_list(feed, 100, entry(6, "n0", hosts=["h0"]))
    assert store.unindexed == set()


def test_hosts_of_a_namespace_within_its_guardrails_are_known_although_its_budget_is_used() -> None:
    stores = Stores(NAMESPACE_BYTES)
    stores.budget.charge("ns", NAMESPACE_BYTES)
    hard = guardrails.quota()["spec"]["hard"]
    for kind in ("ingresses.networking.k8s.io", "httproutes.gateway.networking.k8s.io"):
        store, feed = stores.new(has_index=True)
        add_list(feed, 5)
        for number in range(int(hard[f"count/{kind}"])):
            hosts = [f"{host}.{number}" for host in range(MAX_HOSTS)]
            feed.observe(ADDED, entry(6 + number, f"n{number}", hosts=hosts))
        assert len(store) == 0
        assert store.unindexed == set()
        assert len(store.indexed("hosts", "0.0")) == 1


def test_more_than_a_thousand_left_out_objects_are_not_all_indexed() -> None:
    stores = Stores(10 << 20)
    store, feed = stores.new(max_bytes=1000, has_index=True)
    items = [entry(4, f"n{number}", size=1000, hosts=["h"]) for number in range(MAX_LEFT_OUT + 1)]
    add_list(feed, 5, *items)
    assert len(store.indexed("hosts", "h")) == MAX_LEFT_OUT
    assert store.unindexed == {"ns"}
    assert not feed.has_room
    feed.observe(DELETED, entry(6, "n0"))
    assert feed.has_room, "a list would find the others"
    add_list(feed, 7, *items[1:])
    assert store.unindexed == set()


def test_left_out_objects_are_known_by_name_and_no_other_may_exist() -> None:
    stores = Stores(10 << 20)
    store, feed = stores.new(max_bytes=1000)
    large = [entry(4, f"n{number}", size=1000) for number in range(MAX_LEFT_OUT)]
    add_list(feed, 5, *large, entry(4, "small"))
    assert store.left_out_keys("ns") == [item.key for item in large]
    assert store.left_out_keys("other") == []
    assert store.left_out_keys("") == store.left_out_keys("ns")
    assert store.has_all_left_out_keys("ns")
    assert store.may_exist(NamespacedName("ns", "n0"))
    assert store.may_exist(NamespacedName("ns", "small"))
    assert not store.may_exist(NamespacedName("ns", "missing"))
    feed.observe(ADDED, entry(6, "one-too-many", size=1000))
    assert not store.has_all_left_out_keys("ns")
    assert not store.has_all_left_out_keys("")
    assert store.has_all_left_out_keys("other")
    assert store.may_exist(NamespacedName("ns", "one-too-many"))
    assert not store.may_exist(NamespacedName("other", "missing"))


def pod_with(**metadata: Any) -> Entry:
    """Return a pod with this metadata."""
    content = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", **metadata}
    return EntryDecoder(POD).decode(orjson.dumps({"metadata": content}))


@pytest.mark.parametrize(
    ("metadata", "is_stored"),
    [
        ({"ownerReferences": [{"kind": "k", "name": "n", "uid": "u"}] * 2_000}, False),
        ({"labels": {f"label-{number}": "x" * 60 for number in range(1_000)}}, False),
        ({"finalizers": [f"example.com/{number}" for number in range(5_000)]}, False),
        ({"annotations": {"large": "x" * 200_000}}, True),
        ({"ownerReferences": [{"kind": "k", "name": "n", "uid": "u"}] * 1_000}, True),
    ],
)
def test_object_with_metadata_that_takes_long_to_decode_is_left_out(
    metadata: Object, is_stored: bool
) -> None:
    stores = Stores(10 << 20)
    store, feed = stores.new()
    add_list(feed, 8, pod_with(**metadata))
    assert (store.get(NamespacedName("ns", "p")) is not None) is is_stored
    reasons = [found.reason for found in stores.reports]
    assert reasons == ([] if is_stored else ["ObjectTooLarge"])


# The events of objects that are left out.


def existing(events: Iterable[Event]) -> set[NamespacedName]:
    """Return the objects that exist, as the events say."""
    found: set[NamespacedName] = set()
    for event in events:
        if event.current is None:
            found.discard(event.key)
        else:
            found.add(event.key)
    return found


def test_listed_object_that_was_stored_and_is_left_out_now_still_exists() -> None:
    stores = Stores(3000)
    store, feed = stores.new()
    add_list(feed, 1)
    feed.observe(ADDED, entry(5, "z", size=1500))
    feed.observe(ADDED, entry(6, "a", size=1500))
    assert [found.name for found in store.entries()] == ["z"]
    add_list(feed, 20, entry(6, "a", size=1500), entry(5, "z", size=1500))  # lists are sorted
    assert len(store) == 1
    assert existing(stores.events) == {NamespacedName("ns", "a"), NamespacedName("ns", "z")}
    assert len(store.left_out_keys("ns")) == 1


def test_deletion_of_an_object_that_is_not_remembered_as_left_out_is_delivered() -> None:
    stores = Stores(1000)
    store, feed = stores.new(max_bytes=400)
    add_list(feed, 1)
    names = [f"n{number}" for number in range(MAX_LEFT_OUT + 1)]
    for version, name in enumerate(names, start=2):
        feed.observe(ADDED, entry(version, name, size=400))
    last = NamespacedName("ns", names[-1])
    assert last not in store.left_out_keys("ns")
    feed.observe(DELETED, entry(5000, names[-1], size=400))
    assert existing(stores.events) == {NamespacedName("ns", name) for name in names[:-1]}


@pytest.mark.parametrize("has_index", [True, False])
def test_list_delivers_the_deletion_of_an_object_that_was_left_out(has_index: bool) -> None:
    stores = Stores(1000)
    _, feed = stores.new(has_index=has_index)
    add_list(feed, 1)
    owners = [{"uid": "owner", "controller": True, "name": "o"}]
    feed.observe(ADDED, entry(5, "a", size=2000, ownerReferences=owners))
    add_list(feed, 20)
    event = stores.events[-1]
    assert (event.type, event.current, event.final_state_unknown) == (DELETED, None, True)
    assert event.old is not None
    assert (event.old.key, event.old.meta.uid) == (NamespacedName("ns", "a"), "uid-ns-a")
    assert (event.old.meta.controller is not None) is has_index


@pytest.mark.parametrize("seed", range(10))
def test_events_report_which_objects_exist_whatever_is_left_out(seed: int) -> None:
    source = random.Random(seed)
    stores = Stores(12_000)
    _, feed = stores.new(max_bytes=5000, has_index=True)
    add_list(feed, 1)
    server: dict[NamespacedName, Entry] = {}
    version = 1
    for _ in range(60):
        is_watched = source.random() < 0.5
        for _ in range(source.randint(1, 12)):
            version += 1
            state = with_version(operations(source), version)
            deleted = server.pop(state.key, None)
            if deleted is None:
                server[state.key] = state
            if not is_watched:
                continue
            if deleted is None:
                feed.observe(ADDED, state)
            else:
                feed.observe(DELETED, with_version(deleted, version))
        if not is_watched:
            version += 1
            add_list(feed, version, *(server[key] for key in sorted(server)))
        assert existing(stores.events) == set(server)
    assert any(event.left_out for event in stores.events)
