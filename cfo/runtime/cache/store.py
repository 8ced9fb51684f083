"""The store of an informer: entries by key, their indexes, and the rules that order the states of an object.

Two sources write to the store concurrently. A *feed* delivers the results of a list and its watch, in the API
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
* A list does not overwrite our own writes that are newer than it. If a quorum list is older than a version that was
  known before the list began, the API server's database was restored, and the store is rebuilt from the list.

Everything here is synchronous, so a reader sees one consistent state between two ``await`` expressions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final

import msgspec

from cfo.runtime.cache.budget import ByteBudget
from cfo.runtime.cache.entry import MAX_METADATA_BYTES, Entry, entry_of_name, identity_of
from cfo.runtime.cache.index import Index, IndexFunction
from cfo.runtime.cache.selectors import MAX_BYTES, Selection
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.arguments import function_name, wrong_result
from cfo.runtime.process.clock import Clock

MAX_DELETED: Final = 4096
"""The maximum number of deleted objects whose controller a store remembers; the oldest are evicted first."""

MAX_LEFT_OUT: Final = 1000
"""The maximum number of objects of a namespace that a store remembers to have left out, by name and by identity."""

NAMESPACE_TOO_LARGE: Final = "NamespaceTooLarge"
"""The reason of an object that is left out because its namespace has used its budget of bytes."""

_NO_ENTRIES: Final[dict[str, Entry]] = {}


class LeftOut(msgspec.Struct, frozen=True):
    """An object that a store does not contain, although it matches the selection, and why: for an Event about it.

    ``namespace`` is the one in whose budget it counts: its own, or for a cluster-scoped object that of its creator.
    """

    key: NamespacedName
    uid: str
    namespace: str
    reason: str
    message: str


class LeftOutNumber(msgspec.Struct, frozen=True):
    """How many objects of a namespace are left out; at least so many if that is not exact."""

    number: int
    is_exact: bool


_NONE_LEFT_OUT: Final[dict[str, LeftOut]] = {}


class EventType(StrEnum):
    """The kind of change of an object."""

    ADDED = "ADDED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"


class Event(msgspec.Struct, frozen=True):
    """One change of the store: ``old`` is ``None`` for an addition, ``new`` for a deletion.

    ``initial``: the object was in the first list, or in the store when the handler was added. ``final_state_unknown``:
    the DELETED event was missed, and ``old`` is the last known state, which may be only the name and uid of an object
    that was left out. An object that was deleted and recreated under the same name (with another uid) produces a
    deletion and an addition. ``left_out``: the event is a DELETED one only because the object is left out of the store;
    it still exists, in this state.
    """

    type: EventType
    key: NamespacedName
    old: Entry | None
    new: Entry | None
    initial: bool = False
    final_state_unknown: bool = False
    left_out: Entry | None = None

    @property
    def current(self) -> Entry | None:
        """The current state of the object, in the store or left out; ``None`` if it does not exist any more."""
        return self.new or self.left_out


class Store:
    """Entries by key, and indexes over them. Only feeds write to it; reads are unrestricted.

    ``deliver`` is called with each event, after the change is complete, and ``report`` once with each object that is
    left out because it is too large, and once for each namespace that has too many others or has used its share of
    ``budget``.
    """

    def __init__(
        self,
        *,
        deliver: Callable[[Event], None],
        clock: Clock,
        selection: Selection | None = None,
        report: Callable[[LeftOut], None] = lambda found: None,
        budget: ByteBudget | None = None,
    ) -> None:
        self.clock = clock
        self.budget = budget or ByteBudget()
        self.selection = selection or Selection()
        self._max_objects = self.selection.max_objects  # read for each event
        self._budget_of = self.selection.budget_of
        self._deliver = deliver
        self._report = report
        self._reported: dict[str, None] = {}
        self._too_large: dict[str, dict[str, LeftOut]] = {}
        """The objects that are too large, or did not fit into the budget, by namespace and name."""
        self._crowded: dict[str, LeftOut] = {}
        """The first object of each namespace that was one too many, here or in :attr:`_too_large`."""
        self._unread: set[str] = set()
        """The namespaces of which the first list did not read all objects; the next one does."""
        self.unlisted: set[str] = set()
        """The namespaces with a list of their own that has not been committed."""
        self._smallest: dict[str, int] = {}
        """The bytes of the smallest object that did not fit into the budget of each namespace."""
        self._identities: dict[str, dict[str, int]] = {}
        """The bytes of each left-out object that indexes contain, by namespace and name."""
        self._unindexed: dict[str, int] = {}
        """The namespaces with left-out objects that indexes should contain, and do not; the bytes of the smallest."""
        self._newly_unindexed: set[str] = set()
        """The same, as far as it was found since the last list began."""
        self._entries: dict[str, dict[str, Entry]] = {}
        self._bytes: dict[str, int] = {}
        self._indexes: dict[str, Index] = {}
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
        return [entry for by_name in self._entries.values() for entry in by_name.values()]

    def is_complete(self, namespace: str) -> bool:
        """Return whether no object of the namespace (empty: of any) is left out."""
        if not self.has_all_left_out_keys(namespace):
            return False
        if not namespace:
            return not self._too_large
        return namespace not in self._too_large

    def leaves_out(self, namespace: str) -> bool:
        """Return whether an object of the namespace (empty: of any) was listed and left out."""
        left_out = (self._crowded, self._unread, self._too_large)
        if not namespace:
            return any(left_out)
        return any(namespace in namespaces for namespaces in left_out)

    def has_all_left_out_keys(self, namespace: str) -> bool:
        """Return whether :meth:`left_out_keys` returns all objects that are left out of a namespace (empty: of any)."""
        if not namespace:
            return not self._crowded and not self._unread and not self.unlisted
        unknown = (self._crowded, self._unread, self.unlisted)
        return not any(namespace in namespaces for namespaces in unknown)

    def left_out_keys(self, namespace: str) -> list[NamespacedName]:
        """Return the objects of a namespace (empty: of all) that are left out, as far as they are remembered."""
        namespaces: Collection[str] = (namespace,)
        if not namespace:
            namespaces = self._too_large
        return [
            found.key
            for each in namespaces
            for found in self._too_large.get(each, _NONE_LEFT_OUT).values()
        ]

    def may_exist(self, key: NamespacedName) -> bool:
        """Return whether an object is stored, is remembered as left out, or is one of those that are not remembered."""
        if key in self or self.is_left_out(key):
            return True
        return not self.has_all_left_out_keys(key.namespace)

    @property
    def may_be_incomplete(self) -> bool:
        """Whether readers can do for a while without some objects of a namespace.

        They cannot if an index has to contain all objects, and not for kinds without a limit of their own.
        """
        has_limit = self.selection.max_bytes < MAX_BYTES
        return has_limit and not any(index.left_out for index in self._indexes.values())

    @property
    def unindexed(self) -> Collection[str]:
        """The namespaces with objects that an index does not contain: left-out ones, and those that it failed for."""
        failed = (index.failed for index in self._indexes.values())
        return {*self._unindexed, *chain.from_iterable(failed)}

    @property
    def index_errors(self) -> int:
        """How often index functions raised an error."""
        return sum(index.errors for index in self._indexes.values())

    def bytes_of(self, namespace: str) -> int:
        """Return the bytes, with indexes, of the entries that count in the budget of a namespace."""
        return self._bytes.get(namespace, 0)

    def budget_of(self, entry: Entry) -> str:
        """Return the namespace in whose budget an entry counts."""
        if self._budget_of is None or entry.namespace:
            return entry.namespace
        namespace: object = self._budget_of(entry)
        if not isinstance(namespace, str):
            name = f"budget_of: {function_name(self._budget_of)}"
            raise wrong_result(name, namespace, "the name of a namespace, a string")
        return namespace

    @property
    def left_out(self) -> list[LeftOut]:
        """The objects that were reported and are still left out."""
        found = list(self._crowded.values())
        for by_name in self._too_large.values():
            found.extend(by_name.values())
        return found

    def left_out_numbers(self) -> dict[str, LeftOutNumber]:
        """Return how many objects are left out of each namespace that is not complete."""
        found = {}
        for namespace in sorted({*self._too_large, *self._crowded, *self._unread}):
            number = len(self._too_large.get(namespace, ()))
            is_exact = self.has_all_left_out_keys(namespace)
            if not is_exact:
                number += 1
            found[namespace] = LeftOutNumber(number, is_exact)
        return found

    @property
    def has_room(self) -> bool:
        """Whether a namespace with too many objects, or bytes, has fewer now, so that a list finds those left out.

        The same if indexes have room for left-out objects that they do not contain.
        """
        for namespace, found in self._crowded.items():
            has_room = len(self.of_namespace(namespace)) < self._max_objects
            if has_room and found.reason == "TooManyObjects":
                return True
        for namespace, size in self._unindexed.items():
            has_room = len(self._identities.get(namespace, ())) < MAX_LEFT_OUT
            if has_room and self.budget.allows_identity(namespace, size):
                return True
        return any(
            self.budget.allows(namespace, size) for namespace, size in self._smallest.items()
        )

    def of_namespace(self, namespace: str) -> Mapping[str, Entry]:
        """Return the entries of a namespace by name."""
        return self._entries.get(namespace, _NO_ENTRIES)

    def indexed(self, index: str, value: str) -> list[Entry]:
        """Return the entries that ``index`` contains under ``value``.

        Raises :class:`KeyError` if there is no such index.
        """
        found = self._indexes.get(index)
        if found is None:
            known = ", ".join(self._indexes) or "none: call add_index of the informer first"
            raise KeyError(f"index {index!r:.200}: must be one that was added ({known})")
        if not isinstance(value, str):
            raise TypeError(f"index {index!r:.200}: value {value!r:.200}: must be a string")
        return found.get(value)

    def controller_of_deleted(self, key: NamespacedName) -> str:
        """Return the uid of the controller of the object that another client deleted; empty if none is known.

        It is known until an object of this key is stored again.
        """
        return self._controllers_of_deleted.get(key, "")

    def add_index(self, name: str, function: IndexFunction, *, left_out: bool = False) -> None:
        """Add an index and fill it.

        With ``left_out`` it also contains the objects that are left out from now on, as entries with only their
        identity. Raises :class:`ValueError` if another function is registered under this name.
        """
        existing = self._indexes.get(name)
        if existing is not None:
            if existing.function is not function:
                raise ValueError(f"index {name!r} is already registered with a different function")
            return
        index = Index(name, function, left_out=left_out)
        self._indexes[name] = index
        for entry in self.entries():
            self._charge(self.budget_of(entry), index.put(None, entry))
        if left_out:
            self._unindexed = dict.fromkeys((*self._too_large, *self._crowded, *self._unread), 0)

    # Writing, for feeds and their listings.

    def put(self, entry: Entry) -> tuple[Event, ...]:
        """Store an entry in place of the current one; return the resulting events without delivering them."""
        entries = self._entries.setdefault(entry.namespace, {})
        old = entries.get(entry.name)
        entries[entry.name] = entry
        if self._controllers_of_deleted:
            self._controllers_of_deleted.pop(entry.key, None)
        if self._too_large or self._identities:
            self.include(entry.key)
        namespace = self.budget_of(entry)
        replaced = old
        if old is not None and self._budget_of and self.budget_of(old) != namespace:
            # A user of another namespace has recreated the object.
            self._release(old)
            replaced = None
        growth = entry.size
        if replaced is not None:
            replaced.keep_meta()
            growth -= replaced.size
        for index in self._indexes.values():
            growth += index.put(replaced, entry)
        self._charge(namespace, growth)
        return _changes(old, entry)

    def _release(self, old: Entry) -> None:
        """Remove an entry from the indexes and from the budget."""
        old.keep_meta()
        freed = old.size
        for index in self._indexes.values():
            freed += index.remove(old)
        self._charge(self.budget_of(old), -freed)

    def _charge(self, namespace: str, growth: int) -> None:
        held = self._bytes.get(namespace, 0) + growth
        if held:
            self._bytes[namespace] = held
        else:
            self._bytes.pop(namespace, None)
        self.budget.charge(namespace, growth)

    def fits(self, entry: Entry, others: Mapping[str, Entry], growth: int) -> bool:
        """Return whether to store an entry in a namespace with ``others``; remember and report it if not.

        ``growth`` is how many bytes the namespace would have more.
        """
        cause = self._too_large_because(entry)
        if cause:
            found = self._left_out_because(entry, "ObjectTooLarge", cause)
            self._remember_too_large(found)
            self._keep_identity(entry)
            self._report_once(entry.meta.uid, found)
            return False
        namespace = entry.namespace
        charged = self.budget_of(entry)
        if not self.budget.allows(charged, growth):
            cause = self.budget.limit_of(charged, growth)
            found = LeftOut(
                entry.key,
                entry.meta.uid,
                charged,
                NAMESPACE_TOO_LARGE,
                f"The operator does not cache this object and others: {cause}",
            )
            self._remember_too_large(found)
            self._smallest[charged] = min(entry.size, self._smallest.get(charged, entry.size))
            self._keep_identity(entry)
            if self.budget.is_first_report(charged):
                self._report(found)
            return False
        if len(others) < self._max_objects or entry.name in others or not namespace:
            return True
        cause = f"its namespace has more than {self._max_objects}"
        found = self._left_out_because(entry, "TooManyObjects", cause)
        self._crowded.setdefault(namespace, found)
        self._keep_identity(entry)
        self._report_once(namespace, found)
        return False

    def _too_large_because(self, entry: Entry) -> str:
        """Return why an object is too large to be stored; empty if it is not."""
        max_bytes = self.selection.max_bytes
        if len(entry.raw) > max_bytes:
            return f"it has {len(entry.raw)} bytes, and at most {max_bytes} are allowed"
        if len(entry.raw) <= MAX_METADATA_BYTES:
            return ""
        size = entry.metadata_bytes
        if size <= MAX_METADATA_BYTES:
            return ""
        return f"its metadata without annotations has {size} bytes, and at most {MAX_METADATA_BYTES} are allowed"

    def _left_out_because(self, entry: Entry, reason: str, cause: str) -> LeftOut:
        message = f"The operator ignores the object: {cause}"
        return LeftOut(entry.key, entry.meta.uid, self.budget_of(entry), reason, message)

    def _remember_too_large(self, found: LeftOut) -> None:
        namespace, name = found.key
        by_name = self._too_large.setdefault(namespace, {})
        if len(by_name) < MAX_LEFT_OUT or name in by_name:
            by_name[name] = found
        else:
            self._crowded.setdefault(namespace, found)

    def _keep_identity(self, entry: Entry) -> None:
        """Add an object that is left out to the indexes for such objects, if there is room."""
        indexes = [index for index in self._indexes.values() if index.left_out]
        if not indexes:
            return
        self._forget_identity(entry.key)
        identity = identity_of(entry)
        size = identity.size
        packed = []
        for index in indexes:
            values, growth = index.pack(entry, identity)
            packed.append((index, values))
            size += growth
        namespace = entry.namespace
        names = self._identities.get(namespace, {})
        has_room = len(names) < MAX_LEFT_OUT
        if not has_room or not self.budget.allows_identity(namespace, size):
            self._unindexed[namespace] = min(size, self._unindexed.get(namespace, size))
            self._newly_unindexed.add(namespace)
            return
        for index, values in packed:
            index.put_identity(values)
        names[entry.name] = size
        self._identities[namespace] = names
        self.budget.charge_identity(namespace, size)

    def _forget_identity(self, key: NamespacedName) -> bool:
        """Remove a left-out object from the indexes; return whether they had it."""
        names = self._identities.get(key.namespace)
        if names is None:
            return False
        size = names.pop(key.name, None)
        if not names:
            del self._identities[key.namespace]
        if size is None:
            return False
        for index in self._indexes.values():
            index.remove_identity(key)
        self.budget.charge_identity(key.namespace, -size)
        return True

    def _report_once(self, identity: str, found: LeftOut) -> None:
        """Report a left-out object, unless one was reported for ``identity``: its uid, or its crowded namespace."""
        if identity in self._reported:
            return
        if len(self._reported) >= MAX_LEFT_OUT:
            oldest = next(iter(self._reported))
            del self._reported[oldest]
        self._reported[identity] = None
        self._report(found)

    def is_left_out(self, key: NamespacedName) -> bool:
        """Return whether the object is one of those that are remembered as left out."""
        return key.name in self._too_large.get(key.namespace, ())

    def include(self, key: NamespacedName) -> bool:
        """Forget that an object was left out, because it fits now or does not exist; return whether it was."""
        had_identity = self._forget_identity(key)
        by_name = self._too_large.get(key.namespace)
        if by_name is None:
            return had_identity
        found = by_name.pop(key.name, None)
        if not by_name:
            del self._too_large[key.namespace]
        return had_identity or found is not None

    def begin_list(self, namespace: str) -> None:
        """Forget what the new list of a namespace (empty: of all) determines again."""
        if namespace:
            self._smallest.pop(namespace, None)
            self._newly_unindexed.discard(namespace)
        else:
            self._smallest.clear()
            self._newly_unindexed.clear()

    def keep_left_out(
        self, namespace: str, listed: Mapping[str, Collection[str]], unread: Collection[str] = ()
    ) -> list[Entry]:
        """Forget the objects of a namespace (empty: of all) that a new list did not leave out.

        ``listed`` are the names that it left out, by namespace, and ``unread`` the namespaces of which it did not read
        all objects. Returns what is known of the objects that the list does not have at all, because they were deleted.
        """
        if namespace:
            self._unread.discard(namespace)
        else:
            self._unread.clear()
        self._unread.update(unread)
        deleted = []
        namespaces: Collection[str] = {namespace}
        if not namespace:
            namespaces = {*self._too_large, *self._identities}
        for known in namespaces:
            names = {*self._too_large.get(known, ()), *self._identities.get(known, ())}
            for name in names.difference(listed.get(known, ())):
                key = NamespacedName(known, name)
                if key not in self:
                    deleted.append(self._known_of_left_out(key))
                self.include(key)
        for known in self._crowded.keys() - listed.keys():
            if namespace in ("", known):
                del self._crowded[known]
        for known in self._unindexed.keys() - self._newly_unindexed:
            if namespace in ("", known):
                del self._unindexed[known]
        return deleted

    def _known_of_left_out(self, key: NamespacedName) -> Entry:
        """Return the identity of an object that is left out, or only its name and uid if no index has it."""
        for index in self._indexes.values():
            identity = index.identity(key)
            if identity is not None:
                return identity
        found = self._too_large.get(key.namespace, _NONE_LEFT_OUT).get(key.name)
        uid = found.uid if found is not None else ""
        return entry_of_name(key, uid)

    def remove(self, old: Entry) -> None:
        """Remove an entry; delivers no event."""
        entries = self._entries[old.namespace]
        del entries[old.name]
        if not entries:
            del self._entries[old.namespace]
        self._release(old)

    def drop(self) -> None:
        """Release the budget, because the store is not used any more."""
        for namespace, held in self._bytes.items():
            self.budget.charge(namespace, -held)
        self._bytes.clear()
        for namespace, sizes in self._identities.items():
            self.budget.charge_identity(namespace, -sum(sizes.values()))
        self._identities.clear()
        self.budget = ByteBudget()  # a list or watch that is being cancelled may still write

    def remember_deleted(self, entry: Entry) -> None:
        """Remember the controller of an object that another client deleted; ``entry`` is its last known state."""
        controller = entry.meta.controller
        if controller is None:
            return  # the garbage collector deletes only what has an owner
        self._controllers_of_deleted[entry.key] = controller.uid
        self._controllers_of_deleted.move_to_end(entry.key)
        if len(self._controllers_of_deleted) > MAX_DELETED:
            self._controllers_of_deleted.popitem(last=False)

    def deliver(self, events: Iterable[Event]) -> None:
        """Deliver events; the metadata is kept decoded while an event is delivered."""
        for event in events:
            if event.old is not None:
                event.old.keep_meta()
            if event.current is not None:
                event.current.keep_meta()
            self._deliver(event)
            if event.current is not None:
                event.current.drop_meta()


def _changes(current: Entry | None, entry: Entry) -> tuple[Event, ...]:
    if current is None:
        return (Event(EventType.ADDED, entry.key, None, entry),)
    if current.meta.uid == entry.meta.uid:
        return (Event(EventType.UPDATED, entry.key, current, entry),)
    return (
        Event(EventType.DELETED, entry.key, current, None, final_state_unknown=True),
        Event(EventType.ADDED, entry.key, None, entry),
    )
