"""The store of an informer: entries by key, their indexes, and the rules that order the states of an object.

Two sources write to the store concurrently. A :class:`Feed` delivers the results of a list and its watch, in the API
server's order, but with a delay. The responses to our own writes arrive immediately, but out of order. These rules
merge the two (see docs/adr/0007-read-your-own-writes.md):

* A newer resourceVersion wins; the resourceVersions of one resource are ordered numbers (KEP-5504). A response whose
  resourceVersion is not a number is ignored; the watch delivers the object.
* A missing key is inserted only above the feed's *high-water mark*, the last version that its list or watch has passed.
  Below the mark, the watch has already reported everything about the key, most recently that the object does not exist.
* A deletion leaves a *tombstone* by uid, because the response to a DELETE often has no version. Any later event or
  response with that uid is outdated, because a uid is never reused.
* A removed object leaves a *floor*: any watch event for this key up to that version is outdated. A response that no
  longer matches the informer's selector removes the object too.
* An object that has a controller and that another client deleted is remembered by key, so that the client checks the
  controller before it recreates the object.
* A store can be restricted to a partition (:mod:`cfo.runtime.cache.partitioning`). Objects outside are neither stored
  nor reported. An object that leaves the store because the partition shrinks still exists, so that is not an event.
* A list does not overwrite our own writes that are newer than it. If a quorum list is older than a version that was
  known before the list began, the API server's database was restored, and the store is rebuilt from the list.

Everything here is synchronous, so a reader sees one consistent state between two ``await`` expressions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from cfo.runtime.cache.entry import Entry, version_number
from cfo.runtime.cache.partitioning import intersection_of, is_within
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.clock import Clock
from cfo.runtime.objects import NamespacedName

if TYPE_CHECKING:
    from cfo.runtime.sharding.ranges import Partition

__all__ = ["Event", "EventType", "Feed", "IndexFunction", "Listing", "Store"]

TOMBSTONE_SECONDS: Final = 3600.0
"""How long a tombstone is kept if the watch does not confirm the deletion."""

MAX_DELETED: Final = 4096
"""The maximum number of deleted objects whose controller a store remembers; the oldest are evicted first."""

_DROPPED_AT_ONCE: Final = 500
"""The number of entries that are dropped without a pause, a few milliseconds."""

_log = structlog.get_logger(__name__)

IndexFunction = Callable[[Entry], Iterable[str]]
"""Returns the values under which an entry is indexed; reading ``entry.meta`` is cheaper than decoding the object."""


class EventType(StrEnum):
    """The kind of change of an object."""

    ADDED = "ADDED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"


class Event(NamedTuple):
    """One change of the store: ``old`` is ``None`` for an addition, ``new`` for a deletion.

    ``initial``: the object was in the first list, or in the store when the handler was added, or the partition of the
    store grew. ``final_state_unknown``: the DELETED event was missed, and ``old`` is the last known state. An object
    that was deleted and recreated under the same name (with another uid) produces a deletion and an addition.
    """

    type: EventType
    key: NamespacedName
    old: Entry | None
    new: Entry | None
    initial: bool = False
    final_state_unknown: bool = False


class Store:
    """Entries by key, and indexes over them. Only feeds write to it; reads are unrestricted.

    It is empty until :meth:`open` has created feeds. ``deliver`` is called with each event, after the change is
    complete.
    """

    def __init__(self, *, deliver: Callable[[Event], None], clock: Clock, selection: Selection | None = None) -> None:
        self.clock = clock
        self.selection = selection or Selection()
        self.feeds: dict[str, Feed] = {}
        self.partition: Partition | None = None
        """The objects that the store accepts; ``None``: all objects of the selection."""
        self.held: Partition | None = None
        """The part of :attr:`partition` that a synced store holds completely."""
        self.generation = 0
        """Increases when the partition grows; a list that began before is not complete."""
        self._must_drop = False
        self._deliver = deliver
        self._entries: dict[str, dict[str, Entry]] = {}
        self._indexes: dict[str, _Index] = {}
        self._controllers_of_deleted: OrderedDict[NamespacedName, str] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __contains__(self, key: NamespacedName) -> bool:
        return key.name in self._entries.get(key.namespace, {})

    # Reading.

    def get(self, key: NamespacedName) -> Entry | None:
        """Return the entry of ``key``."""
        return self._entries.get(key.namespace, _NO_ENTRIES).get(key.name)

    def entries(self, namespace: str = "") -> list[Entry]:
        """Return the entries of one namespace, or (empty) of all namespaces."""
        if namespace:
            return list(self._entries.get(namespace, _NO_ENTRIES).values())
        return [entry for entries in self._entries.values() for entry in entries.values()]

    def indexed(self, index: str, value: str) -> list[Entry]:
        """Return the entries that ``index`` contains under ``value``.

        Raises :class:`KeyError` if there is no such index.
        """
        return self._indexes[index].get(value)

    def controller_of_deleted(self, key: NamespacedName) -> str:
        """Return the uid of the controller of the object that another client deleted; empty if none is known.

        It is known until an object of this key is stored again.
        """
        return self._controllers_of_deleted.get(key, "")

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index and fill it.

        Raises :class:`ValueError` if another function is registered under this name.
        """
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = _Index(name, function)
            for entry in self.entries():
                index.put(None, entry)
        elif index.function is not function:
            raise ValueError(f"index {name!r} is already registered with a different function")

    # The partition.

    def accepts(self, key: NamespacedName) -> bool:
        """Return whether the partition covers ``key``."""
        return self.partition is None or self.partition.covers(key.namespace, key.name)

    def holds(self, namespace: str, name: str = "") -> bool:
        """Return whether the store holds all objects of this key, namespace or (both empty) of the selection."""
        if self.held is None or self.held.is_complete:
            return True
        return bool(namespace or name) and self.held.covers(namespace, name)

    def restrict(self, partition: Partition | None) -> bool:
        """Accept only the objects of ``partition`` from now on; return whether a new list is required.

        Entries outside stay until :meth:`drop_outside` removes them.
        """
        if self._must_drop:
            for _ in self.drop_outside():  # otherwise outdated entries could become part of the new partition
                pass
        self._must_drop = not is_within(self.partition, partition)
        self.partition = partition
        must_list = not is_within(partition, self.held)
        self.held = intersection_of(self.held, partition) if must_list else partition
        self.generation += must_list
        if partition is not None:
            for key in [key for key in self._controllers_of_deleted if not self.accepts(key)]:
                del self._controllers_of_deleted[key]
        return must_list

    def drop_outside(self) -> Iterator[None]:
        """Remove the entries outside the partition, without events; yields after each part of the work."""
        count = 0
        partition = self.partition
        for namespace, name in [(entry.namespace, entry.name) for entry in self.entries()]:
            key = NamespacedName(namespace, name)
            entry = None if self.accepts(key) else self.get(key)
            if entry is not None:
                self.remove(entry)
                count += 1
                if count % _DROPPED_AT_ONCE == 0:
                    yield
        if self.partition is partition:
            self._must_drop = False

    def record_list(self) -> None:
        """Update what the store holds after a list."""
        if all(feed.generation == self.generation for feed in self.feeds.values()):
            self.held = self.partition

    # Feeds.

    def open(self, namespaces: Iterable[str]) -> None:
        """Create a feed for each of the namespaces; ``("",)`` creates one feed for all namespaces.

        Deletes all entries of the previous feeds.
        """
        self.close()
        self.feeds = {namespace: Feed(self, namespace) for namespace in namespaces}

    def close(self) -> None:
        """Delete all entries, because the kind is no longer served."""
        feeds, self.feeds = self.feeds, {}
        for feed in feeds.values():
            listing = feed.begin()
            listing.discard_known = True
            listing.commit("")

    def feed_for(self, key: NamespacedName) -> Feed | None:
        """Return the feed that lists and watches ``key``, or ``None`` if its namespace is not watched."""
        return self.feeds.get("") or self.feeds.get(key.namespace)

    # Writing, for feeds and their listings.

    def put(self, entry: Entry) -> tuple[Event, ...]:
        """Store an entry in place of the current one; return the resulting events without delivering them."""
        entries = self._entries.setdefault(entry.namespace, {})
        old = entries.get(entry.name)
        entries[entry.name] = entry
        if self._controllers_of_deleted:
            self._controllers_of_deleted.pop(entry.key, None)
        if old is not None:
            old.keep_meta()
        for index in self._indexes.values():
            index.put(old, entry)
        return _changes(old, entry)

    def remove(self, old: Entry) -> None:
        """Remove an entry; delivers no event."""
        old.keep_meta()
        entries = self._entries[old.namespace]
        del entries[old.name]
        if not entries:
            del self._entries[old.namespace]
        for index in self._indexes.values():
            index.remove(old)

    def remember_deleted(self, entry: Entry) -> None:
        """Remember the controller of an object that another client deleted; ``entry`` is its last known state."""
        controller = entry.meta.controller
        if controller is None:
            return
        self._controllers_of_deleted[entry.key] = controller.uid
        self._controllers_of_deleted.move_to_end(entry.key)
        if len(self._controllers_of_deleted) > MAX_DELETED:
            self._controllers_of_deleted.popitem(last=False)

    def deliver(self, events: Iterable[Event]) -> None:
        """Deliver events; the metadata is kept decoded while an event is delivered."""
        for event in events:
            if event.old is not None:
                event.old.keep_meta()
            if event.new is not None:
                event.new.keep_meta()
            self._deliver(event)
            if event.new is not None:
                event.new.drop_meta()


_NO_ENTRIES: Final[dict[str, Entry]] = {}


class _Index:
    """Entries by the values that ``function`` returns for them.

    Most values have one entry, which is stored directly: a collection for each value would take more memory than the
    indexed entries.
    """

    def __init__(self, name: str, function: IndexFunction) -> None:
        self.name = name
        self.function = function
        self._found: dict[str, Entry | dict[NamespacedName, Entry]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, value: str) -> list[Entry]:
        found = self._found.get(value)
        if found is None:
            return []
        return list(found.values()) if isinstance(found, dict) else [found]

    def put(self, old: Entry | None, entry: Entry) -> None:
        """Index ``entry`` in place of ``old``, an earlier state of the same object."""
        values = self._values(entry)
        if old is not None:
            for value in self._values(old):
                if value not in values:
                    self._drop(value, old)
        for value in values:
            found = self._found.get(value)
            if isinstance(found, dict):
                found[entry.key] = entry
            elif found is None or found.key == entry.key:
                self._found[value] = entry
            else:
                self._found[value] = {found.key: found, entry.key: entry}

    def remove(self, old: Entry) -> None:
        for value in self._values(old):
            self._drop(value, old)

    def _drop(self, value: str, old: Entry) -> None:
        found = self._found.get(value)
        if isinstance(found, dict):
            found.pop(old.key, None)
            if len(found) == 1:
                (self._found[value],) = found.values()
        elif found is not None and found.key == old.key:
            del self._found[value]

    def _values(self, entry: Entry) -> frozenset[str]:
        try:
            return frozenset(self.function(entry))
        except Exception:  # noqa: BLE001 - logged; one invalid object must not affect the others
            _log.exception("Index function failed, object is not indexed", index=self.name, object=str(entry.key))
            return frozenset()


class Feed:
    """The writer for one list and watch, of one namespace or (empty) of all namespaces."""

    def __init__(self, store: Store, namespace: str) -> None:
        self.store = store
        self.namespace = namespace
        self.synced = False
        """Whether a list has been committed."""
        self.high_water_mark = 0
        """The greatest version that list and watch have passed."""
        self.latest_version = 0
        """The greatest known version, our own writes included; a list must be at least as new."""
        self.generation = -1
        """The generation of the store in which the last committed list began."""
        self._tombstones: dict[str, float] = {}
        self._floors: dict[NamespacedName, int] = {}

    # List and watch.

    def begin(self) -> Listing:
        """Begin a list; nothing changes before :meth:`Listing.commit`."""
        return Listing(self.store, self)

    def observe(self, event: EventType, entry: Entry) -> None:
        """Process a watch event; ``ADDED`` and ``UPDATED`` both mean that ``entry`` is the object's new state."""
        if 0 < entry.version <= self.high_water_mark:
            return  # a watch is ordered: this event was processed before and may be outdated
        self.advance(entry.version)
        store, key, version = self.store, entry.key, entry.version
        if not store.accepts(key):
            return
        current = store.get(key)
        if current is not None and current.version > version > 0:
            return
        if event is not EventType.DELETED and not store.selection.fits(len(entry.raw)):
            self._remove_from_selection(entry)
            return
        if event is EventType.DELETED:
            # With a selector, DELETED may only mean that the object left the selection.
            if not store.selection.label_selector and not store.selection.field_selector:
                self._tombstones.pop(entry.meta.uid, None)
            if current is not None:
                store.remove(current)
                store.remember_deleted(current)
                store.deliver([Event(EventType.DELETED, key, entry, None)])
            return
        if self.is_late(entry):
            return
        if current is not None and _is_same_version(current, entry):
            return
        store.deliver(store.put(entry))

    def _remove_from_selection(self, entry: Entry) -> None:
        """Remove the stored state of an object whose new state is too large."""
        current = self.store.get(entry.key)
        if current is not None:
            self.store.remove(current)
            self.store.deliver([Event(EventType.DELETED, entry.key, current, None)])

    def advance(self, version: int) -> None:
        """Record that the watch has reported everything up to ``version`` (a bookmark or an event)."""
        if version > self.high_water_mark:
            self.high_water_mark = version
            self.latest_version = max(self.latest_version, version)
            if self._floors:
                self._floors = {key: floor for key, floor in self._floors.items() if floor > version}

    def is_late(self, entry: Entry) -> bool:
        """Return whether a tombstone or a floor shows that this state is outdated."""
        if self._tombstones and entry.meta.uid in self._tombstones:
            return True
        return self._floors.get(entry.key, 0) >= entry.version > 0

    # The responses to our own writes.

    def record_write(self, entry: Entry) -> None:
        """Process the response to a write, which is the object at its version."""
        store, key, version = self.store, entry.key, entry.version
        if version == 0 or not store.selection.field_selector.decidable:
            return
        self.latest_version = max(self.latest_version, version)
        current = store.get(key)
        if self.is_late(entry) or not store.accepts(key):
            return
        if current is not None and (current.version == 0 or current.version >= version):
            return
        if self.synced and version <= self.high_water_mark and (current is None or current.meta.uid != entry.meta.uid):
            return
        if store.selection.matches(key, entry.meta.labels) and store.selection.fits(len(entry.raw)):
            self._deliver(store.put(entry))
            return
        self._floors[key] = version
        if current is not None:
            store.remove(current)
            self._deliver([Event(EventType.DELETED, key, current, None)])

    def record_deletion(self, key: NamespacedName, uid: str) -> None:
        """Record that the object of this uid was deleted; the watch does not report objects outside the partition."""
        if not self.store.accepts(key):
            return
        self._tombstones[uid] = self.store.clock.monotonic()
        current = self.store.get(key)
        if current is not None and current.meta.uid == uid:
            if current.version > self.high_water_mark:
                self._floors[key] = current.version
            self.store.remove(current)
            self._deliver([Event(EventType.DELETED, key, current, None)])

    def _deliver(self, events: Iterable[Event]) -> None:
        # Handlers receive no events before the first list is complete; its commit delivers all objects as initial.
        if self.synced:
            self.store.deliver(events)

    # For listings.

    def reset(self) -> None:
        """Forget all versions, tombstones and floors."""
        self._tombstones.clear()
        self._floors.clear()
        self.high_water_mark = self.latest_version = 0

    def finish_list(self, version: int, generation: int) -> None:
        """Record that a list as of ``version`` was committed, which began in this generation of the store."""
        self.synced = True
        self.generation = generation
        self.store.record_list()
        self.advance(version)
        if self._tombstones:
            oldest = self.store.clock.monotonic() - TOMBSTONE_SECONDS
            self._tombstones = {uid: since for uid, since in self._tombstones.items() if since > oldest}


class Listing:
    """A list in progress, read page by page while the store keeps its current entries."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._items: dict[NamespacedName, Entry] = {}
        self._generation = store.generation
        self.known_version = feed.latest_version
        """The greatest version that was known when the list began."""
        self.discard_known = False
        """Whether to discard all known state, because the versions went backwards."""

    @property
    def is_outdated(self) -> bool:
        """Whether the partition grew since the list began, so that objects are missing in it."""
        return self._generation != self._store.generation

    def add(self, entry: Entry) -> None:
        """Add an item, unless it is too large for the selection.

        An item that the store already contains in this version uses no additional memory.
        """
        if not self._store.selection.fits(len(entry.raw)):
            return
        current = self._store.get(entry.key)
        same = current is not None and current.raw == entry.raw
        entry.drop_meta()
        self._items[entry.key] = current if current is not None and same else entry

    def discard(self, key: NamespacedName) -> None:
        """Remove an item, because the object was deleted while the list was streamed."""
        self._items.pop(key, None)

    def commit(self, resource_version: str) -> None:
        """Replace the store's contents with the list as of ``resource_version``, except for our own newer writes."""
        store, feed, version = self._store, self._feed, version_number(resource_version)
        initial = not feed.synced
        if self.discard_known:
            feed.reset()
        events: list[Event] = []
        for old in store.entries(feed.namespace):
            if self._was_deleted(old, version):
                store.remove(old)
                if not initial and store.accepts(old.key):
                    store.remember_deleted(old)
                    events.append(Event(EventType.DELETED, old.key, old, None, final_state_unknown=True))
        for entry in self._items.values():
            if store.accepts(entry.key) and self._is_newer(store.get(entry.key), entry):
                changes = store.put(entry)
                if not initial:
                    if changes[0].old is None and not store.holds(entry.namespace, entry.name):
                        changes = (changes[0]._replace(initial=True),)
                    events.extend(changes)
        if initial:
            events = [
                Event(EventType.ADDED, entry.key, None, entry, initial=True)
                for entry in store.entries(feed.namespace)
                if store.accepts(entry.key)
            ]
        self._items = {}
        feed.finish_list(version, self._generation)
        store.deliver(events)

    def _was_deleted(self, current: Entry, version: int) -> bool:
        return current.key not in self._items and (self.discard_known or version == 0 or current.version <= version)

    def _is_newer(self, current: Entry | None, entry: Entry) -> bool:
        if entry is current:
            return False
        if self.discard_known:
            return True
        if self._feed.is_late(entry):
            return False
        if current is None:
            return True
        return not _is_same_version(current, entry) and not current.version > entry.version > 0


def _changes(current: Entry | None, entry: Entry) -> tuple[Event, ...]:
    if current is None:
        return (Event(EventType.ADDED, entry.key, None, entry),)
    if current.meta.uid == entry.meta.uid:
        return (Event(EventType.UPDATED, entry.key, current, entry),)
    return (
        Event(EventType.DELETED, entry.key, current, None, final_state_unknown=True),
        Event(EventType.ADDED, entry.key, None, entry),
    )


def _is_same_version(one: Entry, other: Entry) -> bool:
    if one.version or other.version:
        return one.version == other.version
    return one.meta.resource_version == other.meta.resource_version
