"""What an informer knows: entries by key, their indexes, and the rules by which states follow each other.

Two sources write here, and they race. A :class:`Feed` brings what a list and its watch say, in the API
server's order, but late. Our own writes bring what the API server answered, at once, but out of order.
The rules that make one truth of the two (decision 5 of the architecture):

* A newer resourceVersion wins; those of one resource are ordered numbers (KEP-5504). An answer whose
  version is not a number is left to the watch.
* A key that is absent is inserted only above the feed's *high-water mark*, the last version that its list
  or watch has passed: below it the watch has already said everything about the key, and the last word was
  that it is gone.
* A deletion is a *tombstone* by uid, for its answer often has no version: whatever else is still under
  way about that uid is late, and a uid never comes back.
* What takes an object out leaves a *floor*: what the watch says about that key up to that version is late. An
  answer that no longer matches the informer's selector takes the object out, too.
* A list keeps our writes that are newer than it. When a quorum list is older than what had been seen
  before it began, the API server's database was restored: everything starts anew.

Everything here is synchronous, so between two ``await`` a reader sees one consistent state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from cfo.runtime.cache.entry import Entry, version_number
from cfo.runtime.cache.selectors import FieldSelector, LabelSelector
from cfo.runtime.clock import Clock
from cfo.runtime.objects import NamespacedName

__all__ = ["Event", "EventType", "Feed", "IndexFunction", "Listing", "Store"]

TOMBSTONE_SECONDS: Final = 3600.0
"""How long a deletion of ours is remembered when the watch does not confirm it."""

_log = structlog.get_logger(__name__)

IndexFunction = Callable[[Entry], Iterable[str]]
"""The values under which an entry is found; where the name does not tell, ``entry.meta`` is cheaper than the object."""


class EventType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"


class Event(NamedTuple):
    """One change of the store: ``old`` is ``None`` for an addition, ``new`` for a deletion.

    ``initial``: the addition is part of the first list, or of what was there when a handler was added.
    ``final_state_unknown``: the deletion was missed and ``old`` is the last state that was seen. An object
    that was deleted and made anew under its name (another uid) is a deletion and an addition.
    """

    type: EventType
    key: NamespacedName
    old: Entry | None
    new: Entry | None
    initial: bool = False
    final_state_unknown: bool = False


class Store:
    """Entries by key, and indexes over them. Written through its feeds; read by anyone.

    It takes nothing in before :meth:`open` gave it feeds. ``emit`` is called with each change, after the
    whole change was made.
    """

    def __init__(
        self,
        *,
        emit: Callable[[Event], None],
        clock: Clock,
        label_selector: LabelSelector,
        field_selector: FieldSelector,
    ) -> None:
        self.emit = emit
        self.clock = clock
        self.label_selector = label_selector
        self.field_selector = field_selector
        self.feeds: dict[str, Feed] = {}
        self._entries: dict[str, dict[str, Entry]] = {}
        self._indexes: dict[str, _Index] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __contains__(self, key: NamespacedName) -> bool:
        return key.name in self._entries.get(key.namespace, {})

    def open(self, namespaces: Iterable[str]) -> None:
        """Makes a feed for each of the namespaces, ``("",)`` being everything at once.

        What was known through other feeds is deleted.
        """
        self.close()
        self.feeds = {namespace: Feed(self, namespace) for namespace in namespaces}

    def close(self) -> None:
        """Notes that the kind is not served any more, and with it all its objects are gone."""
        feeds, self.feeds = self.feeds, {}
        for feed in feeds.values():
            listing = feed.begin()
            listing.anew = True
            listing.commit("")

    def get(self, key: NamespacedName) -> Entry | None:
        """The entry of ``key``."""
        return self._entries.get(key.namespace, _NOTHING).get(key.name)

    def entries(self, namespace: str = "") -> list[Entry]:
        """The entries, of one namespace or (empty) all of them."""
        if namespace:
            return list(self._entries.get(namespace, _NOTHING).values())
        return [entry for entries in self._entries.values() for entry in entries.values()]

    def indexed(self, index: str, value: str) -> list[Entry]:
        """The entries that ``index`` has under ``value``.

        Raises :class:`KeyError` when there is no such index.
        """
        return self._indexes[index].get(value)

    @property
    def indexes(self) -> Iterable[str]:
        """The names of the indexes."""
        return self._indexes.keys()

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Adds an index and fills it.

        Raises :class:`ValueError` when another function has that name.
        """
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = _Index(name, function)
            for entry in self.entries():
                index.put(None, entry)
        elif index.function is not function:
            raise ValueError(f"index {name!r}: there is one of another function already")

    def feed_of(self, key: NamespacedName) -> Feed | None:
        """The feed that lists and watches ``key``, if it is within this store's namespaces."""
        return self.feeds.get("") or self.feeds.get(key.namespace)

    def matches(self, entry: Entry) -> bool:
        """Whether the selectors choose the entry."""
        return self.label_selector.matches(entry.meta.labels) and self.field_selector.matches(entry.key)

    def _put(self, entry: Entry) -> None:
        entries = self._entries.setdefault(entry.namespace, {})
        old = entries.get(entry.name)
        entries[entry.name] = entry
        if old is not None:
            old.keep_meta()
        for index in self._indexes.values():
            index.put(old, entry)

    def _remove(self, old: Entry) -> None:
        old.keep_meta()
        entries = self._entries[old.namespace]
        del entries[old.name]
        if not entries:
            del self._entries[old.namespace]
        for index in self._indexes.values():
            index.remove(old)

    def _tell(self, events: Iterable[Event]) -> None:
        """Tells of changes; who is told finds the metadata decoded."""
        for event in events:
            if event.old is not None:
                event.old.keep_meta()
            if event.new is not None:
                event.new.keep_meta()
            self.emit(event)
            if event.new is not None:
                event.new.drop_meta()


class _Index:
    """Entries by the values that ``function`` gives them.

    Under most values there is one entry, which then stands there by itself: a collection for each would take more
    memory than what is indexed.
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
        """Takes in ``entry``, instead of ``old``, an earlier state of it."""
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
        except Exception:  # noqa: BLE001 - logged; one bad object never stops the others
            _log.exception(
                "an index function failed; the object is not in the index", index=self.name, object=str(entry.key)
            )
            return frozenset()


_NOTHING: Final[dict[str, Entry]] = {}


class Feed:
    """The writer for one list and watch, of one namespace or (empty) of all of them."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self.namespace = namespace
        self.synced = False
        """Whether a list was taken in."""
        self.high_water = 0
        """The greatest version that list and watch have passed."""
        self.seen = 0
        """The greatest version that is known, our own writes included: a list has to be as new as that."""
        self._tombstones: dict[str, float] = {}
        self._floors: dict[NamespacedName, int] = {}

    # What list and watch say.

    def begin(self) -> Listing:
        """Begins to take in a list; nothing changes before :meth:`Listing.commit`."""
        return Listing(self._store, self)

    def observe(self, event: EventType, entry: Entry) -> None:
        """Takes in a watch event, ``ADDED`` and ``UPDATED`` being the same thing: this is what it is now."""
        if 0 < entry.version <= self.high_water:
            return  # a watch tells everything in its order: this was told before, and may be over since
        self.passed(entry.version)
        store, key, version = self._store, entry.key, entry.version
        current = store.get(key)
        if current is not None and current.version > version > 0:
            return
        if event is EventType.DELETED:
            if not store.label_selector and not store.field_selector:
                self._tombstones.pop(entry.meta.uid, None)
            if current is not None:
                store._remove(current)
                store._tell([Event(EventType.DELETED, key, entry, None)])
            return
        if entry.meta.uid in self._tombstones or self._floors.get(key, 0) >= version > 0:
            return
        if current is not None and _is_same_version(current, entry):
            return
        store._tell(_replace(store, current, entry))

    def passed(self, version: int) -> None:
        """Notes that the watch has told everything up to ``version`` (a bookmark, an event)."""
        if version > self.high_water:
            self.high_water = version
            self.seen = max(self.seen, version)
            if self._floors:
                self._floors = {key: floor for key, floor in self._floors.items() if floor > version}

    # What our own writes were answered.

    def wrote(self, entry: Entry) -> None:
        """Takes in the answer to a write: the object as it is at its version."""
        store, key, version, uid = self._store, entry.key, entry.version, entry.meta.uid
        if version == 0 or not store.field_selector.decidable:
            return
        self.seen = max(self.seen, version)
        current = store.get(key)
        if uid in self._tombstones or self._floors.get(key, 0) >= version:
            return
        if current is not None and (current.version == 0 or current.version >= version):
            return
        if self.synced and version <= self.high_water and (current is None or current.meta.uid != uid):
            return
        if not store.matches(entry):
            self._floors[key] = version
            if current is not None:
                store._remove(current)
                self._tell([Event(EventType.DELETED, key, current, None)])
            return
        self._tell(_replace(store, current, entry))

    def deleted(self, key: NamespacedName, uid: str) -> None:
        """Notes that the object of this uid is gone."""
        self._tombstones[uid] = self._store.clock.monotonic()
        current = self._store.get(key)
        if current is not None and current.meta.uid == uid:
            if current.version > self.high_water:
                self._floors[key] = current.version
            self._store._remove(current)
            self._tell([Event(EventType.DELETED, key, current, None)])

    def _tell(self, events: Iterable[Event]) -> None:
        # Before the first list is complete nobody has been told of anything; its commit tells all.
        if self.synced:
            self._store._tell(events)

    def _forget_old_tombstones(self) -> None:
        if self._tombstones:
            oldest = self._store.clock.monotonic() - TOMBSTONE_SECONDS
            self._tombstones = {uid: since for uid, since in self._tombstones.items() if since > oldest}


class Listing:
    """A list that is being taken in, page by page, beside what the store holds."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._items: dict[NamespacedName, Entry] = {}
        self.seen_before = feed.seen
        """The greatest version that was known when the list began."""
        self.anew = False
        """Forget what was known: the numbers went back."""

    def add(self, entry: Entry) -> None:
        """Adds an item. One that the store has in this version already costs no memory."""
        current = self._store.get(entry.key)
        same = current is not None and current.raw == entry.raw
        entry.drop_meta()
        self._items[entry.key] = current if current is not None and same else entry

    def commit(self, resource_version: str) -> None:
        """Makes the store what the list says, as of ``resource_version``, but for newer writes of ours."""
        store, feed, version = self._store, self._feed, version_number(resource_version)
        initial = not feed.synced
        if self.anew:
            feed._tombstones.clear()
            feed._floors.clear()
            feed.high_water = feed.seen = 0
        events: list[Event] = []
        for old in store.entries(feed.namespace):
            if self._is_gone(old, version):
                store._remove(old)
                if not initial:
                    events.append(Event(EventType.DELETED, old.key, old, None, final_state_unknown=True))
        for entry in self._items.values():
            current = store.get(entry.key)
            if self._is_news(current, entry):
                changes = _replace(store, current, entry)
                if not initial:
                    events.extend(changes)
        if initial:
            events = [
                Event(EventType.ADDED, entry.key, None, entry, initial=True) for entry in store.entries(feed.namespace)
            ]
        self._items = {}
        feed.synced = True
        feed.passed(version)
        feed._forget_old_tombstones()
        store._tell(events)

    def _is_gone(self, current: Entry, version: int) -> bool:
        return current.key not in self._items and (self.anew or version == 0 or current.version <= version)

    def _is_news(self, current: Entry | None, entry: Entry) -> bool:
        if entry is current:
            return False
        if self.anew:
            return True
        feed = self._feed
        if feed._tombstones and entry.meta.uid in feed._tombstones:
            return False
        if feed._floors.get(entry.key, 0) >= entry.version > 0:
            return False
        if current is None:
            return True
        if _is_same_version(current, entry):
            return False
        return not current.version > entry.version > 0


def _replace(store: Store, current: Entry | None, entry: Entry) -> Iterator[Event]:
    store._put(entry)
    return iter(_changes(current, entry))


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
