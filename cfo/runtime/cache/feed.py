"""The writers of a store: a feed for each list and watch, and the list in progress.

They apply the rules of :mod:`cfo.runtime.cache.store` that order the states of an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfo.runtime.cache.budget import ByteBudget
from cfo.runtime.cache.entry import Entry, version_number
from cfo.runtime.cache.store import Event, EventType, Store
from cfo.runtime.objects.unstructured import NamespacedName

TOMBSTONE_SECONDS: Final = 3600.0
"""How long a tombstone is kept if the watch does not confirm the deletion."""

NAMESPACE_UNSTORED: Final = 8 << 20
"""How many bytes of a namespace's large objects the first list reads without storing them."""

TOTAL_UNSTORED: Final = 32 << 20
"""The same for all namespaces together, which share it as they share the budget of the cache."""

MAX_SKIPPED: Final = 100
"""How many namespaces a list skips: each adds up to 86 bytes to the URL of a page."""


class Feeds(dict[str, "Feed"]):
    """The feeds of a store by namespace (empty: all namespaces); none before :meth:`open` and after :meth:`close`."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def open(self, namespaces: Iterable[str]) -> None:
        """Create a feed for each of the namespaces; ``("",)`` creates one feed for all namespaces.

        Deletes all entries of the previous feeds.
        """
        self.close()
        self.update((namespace, Feed(self.store, namespace)) for namespace in namespaces)
        self.store.unlisted.update(namespace for namespace in self if namespace)

    def close(self) -> None:
        """Delete all entries, because the kind is no longer served."""
        feeds = list(self.values())
        self.clear()
        for feed in feeds:
            listing = feed.begin()
            listing.discard_known = True
            listing.commit("")
        self.store.unlisted.clear()

    def of(self, key: NamespacedName) -> Feed | None:
        """Return the feed that lists and watches ``key``, or ``None`` if its namespace is not watched."""
        return self.get("") or self.get(key.namespace)


class Feed:
    """The writer for one list and watch, of one namespace or (empty) of all namespaces."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self.namespace = namespace
        self.synced = False
        """Whether a list has been committed."""
        self.high_water_mark = 0
        """The greatest version that list and watch have passed."""
        self.latest_version = 0
        """The greatest known version, our own writes included; a list must be at least as new."""
        self.must_report_left_out = False
        """Whether the next list delivers the state of each object that it leaves out, also of those reported before."""
        self._tombstones: dict[str, float] = {}
        self._floors: dict[NamespacedName, int] = {}

    # List and watch.

    def begin(self) -> Listing:
        """Begin a list; nothing changes before :meth:`Listing.commit`."""
        return Listing(self._store, self)

    def observe(self, event: EventType, entry: Entry) -> None:
        """Process a watch event; ``ADDED`` and ``UPDATED`` both mean that ``entry`` is the object's new state."""
        version = entry.version
        if 0 < version <= self.high_water_mark:
            return  # a watch is ordered: this event was processed before and may be outdated
        self.advance(version)
        store = self._store
        key = entry.key
        current = store.get(key)
        if current is not None and current.version > version > 0:
            return  # a newer state, the response to our own write, is already stored
        if event is EventType.DELETED:
            self._observe_deletion(key, entry, current)
            return
        if not store.fits(entry, store.of_namespace(entry.namespace), _growth(current, entry)):
            self.leave_out(key, entry, current, initial=not self.synced)
            return
        if self.is_late(entry):
            return  # our own DELETE was answered before the watch reports the states that preceded it
        if current is not None and _is_same_version(current, entry):
            return  # our own write, which was stored and delivered with its response
        store.deliver(store.put(entry))

    def _observe_deletion(self, key: NamespacedName, entry: Entry, current: Entry | None) -> None:
        """Process a DELETED event, of which ``entry`` is the last state; ``current`` is the stored one."""
        store = self._store
        # A namespace can leave out more objects than are remembered by name.
        was_known = store.may_exist(key)
        store.include(key)
        # With a selector, DELETED may only mean that the object left the selection.
        if not store.selection.label_selector and not store.selection.field_selector:
            self._tombstones.pop(entry.meta.uid, None)  # confirmed: no later event has this uid
        if current is not None:
            store.remove(current)
            store.remember_deleted(current)
        if was_known:
            store.deliver([Event(EventType.DELETED, key, entry, None)])

    def leave_out(
        self, key: NamespacedName, entry: Entry, current: Entry | None, *, initial: bool
    ) -> None:
        """Remove ``current``, the stored state of an object that no longer fits.

        An event is delivered even if nothing was stored, because handlers can ask for :meth:`Store.is_complete`.
        """
        if current is not None:
            self._store.remove(current)
        event = Event(
            EventType.DELETED,
            key,
            current or entry,
            None,
            initial=initial,
            left_out=entry,
        )
        self._store.deliver([event])

    @property
    def budget(self) -> ByteBudget:
        """The budget of bytes that all stores of a cache share."""
        return self._store.budget

    @property
    def leaves_out(self) -> bool:
        """Whether an object was listed and left out."""
        return self._store.leaves_out(self.namespace)

    @property
    def has_room(self) -> bool:
        """Whether a new list would store objects that are left out now; see :attr:`Store.has_room`."""
        return self._store.has_room

    def advance(self, version: int) -> None:
        """Record that the watch has reported everything up to ``version`` (a bookmark or an event)."""
        if version > self.high_water_mark:
            self.high_water_mark = version
            self.latest_version = max(self.latest_version, version)
            if self._floors:
                self._floors = {
                    key: floor for key, floor in self._floors.items() if floor > version
                }

    def is_late(self, entry: Entry) -> bool:
        """Return whether a tombstone or a floor shows that this state is outdated."""
        if self._tombstones and entry.meta.uid in self._tombstones:
            return True  # the API server never uses a uid again
        return self._floors.get(entry.key, 0) >= entry.version > 0

    # The responses to our own writes.

    def record_write(self, entry: Entry) -> None:
        """Process the response to a write, which is the object at its version."""
        store = self._store
        key = entry.key
        version = entry.version
        if version == 0 or not store.selection.field_selector.decidable:
            return  # the watch decides which state is newer, or whether the object is selected
        self.latest_version = max(self.latest_version, version)
        current = store.get(key)
        if self.is_late(entry):
            return  # the response to a later write of ours, which removed the object, arrived first
        if current is not None and (current.version == 0 or current.version >= version):
            return  # a newer state arrived first, through the watch or in another response
        is_passed = self.synced and version <= self.high_water_mark
        if is_passed and (current is None or current.meta.uid != entry.meta.uid):
            return  # the watch has passed this version without the object: it was deleted
        left_out: Entry | None = None
        if store.selection.matches(key, entry.meta.labels):
            others = store.of_namespace(key.namespace)
            if store.fits(entry, others, _growth(current, entry)):
                self._deliver(store.put(entry))
                return
            left_out = entry
        # The watch has not yet reported older states, which still match the selection.
        self._floors[key] = version
        if current is not None:
            store.remove(current)
            self._deliver([Event(EventType.DELETED, key, current, None, left_out=left_out)])

    def record_deletion(self, key: NamespacedName, uid: str) -> None:
        """Record that the object of this uid was deleted."""
        self._tombstones[uid] = self._store.clock.monotonic()
        current = self._store.get(key)
        if current is not None and current.meta.uid == uid:
            if current.version > self.high_water_mark:
                # The watch has not yet reported the states up to this one.
                self._floors[key] = current.version
            self._store.remove(current)
            self._deliver([Event(EventType.DELETED, key, current, None)])

    def _deliver(self, events: Iterable[Event]) -> None:
        if self.synced:
            self._store.deliver(events)
            return
        # The commit of the first list delivers all objects as initial.
        for event in events:
            if event.new is not None:
                event.new.drop_meta()

    # For listings.

    def reset(self) -> None:
        """Forget all versions, tombstones and floors."""
        self._tombstones.clear()
        self._floors.clear()
        self.high_water_mark = 0
        self.latest_version = 0

    def finish_list(self, version: int) -> None:
        """Record that a list as of ``version`` was committed."""
        self.synced = True
        self._store.unlisted.discard(self.namespace)
        self.advance(version)
        if self._tombstones:
            oldest = self._store.clock.monotonic() - TOMBSTONE_SECONDS
            self._tombstones = {
                uid: since for uid, since in self._tombstones.items() if since > oldest
            }


class Listing:
    """A list in progress, read page by page while the store keeps its current entries.

    Its entries count in the budget of their namespaces as far as they take more than the stored ones. End it with
    :meth:`commit` or :meth:`discard`.

    Nothing is reconciled before the first list has ended, and a user can create many large objects. So after many bytes
    of a namespace that are not stored (:meth:`count_unstored`), the first list skips the rest of this namespace. Until
    the next list, of all objects, which follows immediately, the store does not know which other objects exist there.
    """

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._budget = store.budget
        self._items: dict[str, dict[str, Entry]] = {}
        self._bytes: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self._left_out: dict[str, set[str]] = {}
        self._reports_all = feed.must_report_left_out
        feed.must_report_left_out = False  # a handler that is added from now on needs the next list
        store.begin_list(feed.namespace)
        self.known_version = feed.latest_version
        """The greatest version that was known when the list began."""
        self.skipped: dict[str, None] = {}
        """The namespaces of which no more objects should be read."""
        self._may_skip = not feed.synced and store.may_be_incomplete
        self._unstored = ByteBudget(NAMESPACE_UNSTORED, TOTAL_UNSTORED)
        self.discard_known = False
        """Whether to discard all known state, because the versions went backwards."""

    def add(self, entry: Entry) -> bool:
        """Add an item, unless it is too large, one too many in its namespace, or more than its budget allows.

        An item that the store already contains in this version uses no additional memory. Returns whether it was added.
        """
        store = self._store
        namespace = store.budget_of(entry)
        items = self._items.setdefault(entry.namespace, {})
        size = self._bytes.get(namespace, 0) + entry.size
        reserved = self._reserved.get(namespace, 0)
        needed = max(0, size - store.bytes_of(namespace))
        was_left_out = store.is_left_out(entry.key)
        if not store.fits(entry, items, needed - reserved):
            was_reported = was_left_out and self._feed.synced and not self._reports_all
            self._leave_out(entry, was_reported=was_reported)
            return False
        self._bytes[namespace] = size
        self._reserved[namespace] = needed
        self._budget.charge(namespace, needed - reserved)
        entry.drop_meta()
        current = store.get(entry.key)
        if current is not None and current.raw == entry.raw:
            items[entry.name] = current
        else:
            items[entry.name] = entry
        return True

    def count_unstored(self, namespace: str, size: int) -> None:
        """Count bytes of a namespace's large objects that were read and are not stored; skip it after too many.

        Nothing is skipped if readers need all objects (:attr:`.Store.may_be_incomplete`).
        """
        if not self._may_skip or size <= 0 or len(self.skipped) == MAX_SKIPPED:
            return
        if self._unstored.allows(namespace, size):
            self._unstored.charge(namespace, size)
        else:
            self.skipped[namespace] = None

    def discard(self) -> None:
        """End the list without a further change of the store; after :meth:`commit` nothing remains to be done."""
        self._release()
        self._items = {}
        if self._reports_all:
            self._feed.must_report_left_out = True

    def commit(self, resource_version: str) -> None:
        """Replace the store's contents with the list as of ``resource_version``, except for our own newer writes."""
        store = self._store
        feed = self._feed
        version = version_number(resource_version)
        self._release()
        if self.discard_known:
            feed.reset()

        events: list[Event] = []
        if feed.synced:
            self._remove_deleted(version, events)
            self._put_items(events)
        else:
            # The first list: handlers are called with the objects that it leaves, not with what happened to our writes.
            self._remove_deleted(version, None)
            self._put_items(None)
            events = [
                Event(EventType.ADDED, entry.key, None, entry, initial=True)
                for entry in store.entries(feed.namespace)
            ]

        self._items = {}
        self._reports_all = False
        deleted = store.keep_left_out(feed.namespace, self._left_out, self.skipped)
        if self.skipped:
            feed.must_report_left_out = True
        if feed.synced:
            events.extend(_missed_deletion(old) for old in deleted)
        feed.finish_list(version)
        store.deliver(events)

    def _release(self) -> None:
        for namespace, reserved in self._reserved.items():
            self._budget.charge(namespace, -reserved)
        self._reserved = {}

    def _leave_out(self, entry: Entry, *, was_reported: bool) -> None:
        """Record an item that is left out, and remove its stored state unless that is newer, our own write.

        Its state is delivered unless an earlier event reported that it is left out.
        """
        key = entry.key
        self._left_out.setdefault(key.namespace, set()).add(key.name)
        initial = self._reports_all or not self._feed.synced
        current = self._store.get(key)
        if current is not None and self._is_newer(current, entry):
            self._feed.leave_out(key, entry, current, initial=initial)
        elif current is None and not was_reported:
            self._feed.leave_out(key, entry, None, initial=initial)

    def _remove_deleted(self, version: int, events: list[Event] | None) -> None:
        """Remove the entries that are not in the list of this version, and add the deletions to ``events``, if any.

        An entry that the list leaves out, because others come first in it, still exists.
        """
        for old in self._store.entries(self._feed.namespace):
            if not self._was_deleted(old, version):
                continue
            if old.name in self._left_out.get(old.namespace, ()):
                initial = self._reports_all or not self._feed.synced
                self._feed.leave_out(old.key, old, old, initial=initial)
                continue
            self._store.remove(old)
            if events is not None:
                self._store.remember_deleted(old)
                events.append(_missed_deletion(old))

    def _put_items(self, events: list[Event] | None) -> None:
        """Store the items that are newer than the stored entries, and add the changes to ``events``."""
        store = self._store
        for items in self._items.values():
            for entry in items.values():
                entry.keep_meta()  # decoded once for all indexes
                current = store.get(entry.key)
                if self._is_newer(current, entry):
                    others = store.of_namespace(entry.namespace)
                    if not store.fits(entry, others, _growth(current, entry)):
                        self._leave_out(entry, was_reported=False)  # the indexes take the room
                        continue
                    changes = store.put(entry)
                    if events is not None:
                        events.extend(changes)
                entry.drop_meta()

    def _was_deleted(self, current: Entry, version: int) -> bool:
        if current.name in self._items.get(current.namespace, ()):
            return False
        if current.namespace in self.skipped:
            return False  # our own write, which the list may not have read
        if self.discard_known or version == 0:
            return True
        # An entry that is newer than the list is our own write, which the list cannot contain.
        return current.version <= version

    def _is_newer(self, current: Entry | None, entry: Entry) -> bool:
        if entry is current:
            return False
        if self.discard_known:
            return True  # the versions went backwards: stored and listed ones cannot be compared
        if self._feed.is_late(entry):
            return False  # an API server that lags behind answered the list
        if current is None:
            return True
        if _is_same_version(current, entry):
            return False
        return not current.version > entry.version > 0


def _missed_deletion(old: Entry) -> Event:
    return Event(EventType.DELETED, old.key, old, None, final_state_unknown=True)


def _growth(current: Entry | None, entry: Entry) -> int:
    """Return how many bytes ``entry`` takes more than ``current``, the earlier state of the same object."""
    if current is None:
        return entry.size
    return entry.size - current.size


def _is_same_version(one: Entry, other: Entry) -> bool:
    if one.version or other.version:
        return one.version == other.version
    return one.meta.resource_version == other.meta.resource_version
