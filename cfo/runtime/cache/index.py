"""An index of a store: its entries by the values that a function returns for them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec
import structlog

from cfo.runtime.cache.entry import Entry
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process import function_errors
from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.process.large_objects import call_uncounted
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.printable import described
from cfo.runtime.process.strings import require_list

_log = structlog.get_logger(__name__)

IndexFunction = Callable[[Entry], Iterable[str]]
"""Returns the values under which an entry is indexed; reading ``entry.meta`` is cheaper than decoding the object.

It returns the same values for the same entry each time.
"""

MAX_VALUES: Final = 100
"""How many values of an object are indexed one by one; of more, only hashes are kept."""

VALUE_BYTES: Final = 150
"""The bytes that an indexed value takes in addition to its characters: a string, and a place in a dictionary."""

PACKED_BYTES: Final = 300
"""The bytes that the hashes of an object take in addition to eight for each value."""


class _Packed(msgspec.Struct, frozen=True):
    """An object and the sorted hashes of its values: 8 bytes for each, and not 20 times as many."""

    entry: Entry
    hashes: array[int]
    has_failed: bool = False
    """Whether the index function raised an error, so that the values are unknown."""

    def has(self, value_hash: int) -> bool:
        """Return whether a value has this hash, which others have with a probability of 2**-64."""
        hashes = self.hashes
        at = bisect_left(hashes, value_hash)
        return at < len(hashes) and hashes[at] == value_hash


class Index:
    """Entries by the values that ``function`` returns for them.

    Most values have one entry, which is stored directly: a collection for each value would take more memory than the
    indexed entries. An object with more than :data:`MAX_VALUES` is found by its hashes.

    With ``left_out`` the objects that the store leaves out can be found as well, as entries of their identity.

    An object for which ``function`` raises an error is logged and found under no value; the others are indexed.
    ``failed`` are the names of these objects by namespace, and ``errors`` is how often it raised.
    """

    def __init__(self, name: str, function: IndexFunction, *, left_out: bool = False) -> None:
        require_plain_function(
            f"index {name!r}", function, "a function that returns strings", "entry"
        )
        self.name = name
        self.function = function
        self.left_out = left_out
        self.failed: dict[str, set[str]] = {}
        self.errors = 0
        self._stacks = LoggedStacks()
        self._found: dict[str, Entry | dict[NamespacedName, Entry]] = {}
        self._packed: dict[NamespacedName, _Packed] = {}
        self._identities: dict[NamespacedName, _Packed] = {}

    def get(self, value: str) -> list[Entry]:
        """Return the entries that have ``value``."""
        found = self._found.get(value)
        if found is None:
            entries = []
        elif isinstance(found, dict):
            entries = list(found.values())
        else:
            entries = [found]
        if self._packed or self._identities:
            entries += self._packed_entries(hash(value))
        return entries

    def put(self, old: Entry | None, entry: Entry) -> int:
        """Index ``entry`` in place of ``old``, an earlier state of the same object; return how many bytes it adds."""
        has_old_values = old is not None and not self._forget_failed(old.key)
        values = self._values(entry)
        if values is None:
            self._remember_failed(entry.key)
            values = frozenset()
        is_packed = len(values) > MAX_VALUES
        growth = _size_of(values)
        if old is not None and has_old_values:
            kept: frozenset[str] = frozenset()
            if not is_packed:
                kept = values
            growth -= self._remove(old, kept)
        if is_packed:
            self._packed[entry.key] = _packed(entry, values)
            return growth
        for value in values:
            found = self._found.get(value)
            if isinstance(found, dict):
                found[entry.key] = entry
            elif found is None or found.key == entry.key:
                self._found[value] = entry
            else:
                self._found[value] = {found.key: found, entry.key: entry}
        return growth

    def remove(self, old: Entry) -> int:
        """Remove an entry; return how many bytes it had."""
        if self._forget_failed(old.key):
            return 0
        return self._remove(old, frozenset())

    def pack(self, entry: Entry, identity: Entry) -> tuple[_Packed, int]:
        """Return what :meth:`put_identity` stores of an object that is left out, and its bytes."""
        values = self._values(entry)
        if values is None:
            return _Packed(identity, array("q"), has_failed=True), PACKED_BYTES
        return _packed(identity, values), PACKED_BYTES + 8 * len(values)

    def put_identity(self, packed: _Packed) -> None:
        """Index an object that is left out, in place of its earlier state."""
        self._identities[packed.entry.key] = packed
        if packed.has_failed:
            self._remember_failed(packed.entry.key)

    def identity(self, key: NamespacedName) -> Entry | None:
        """Return the identity of an object that is left out, or ``None`` if the index does not have it."""
        packed = self._identities.get(key)
        if packed is None:
            return None
        return packed.entry

    def remove_identity(self, key: NamespacedName) -> None:
        """Remove an object that was left out."""
        packed = self._identities.pop(key, None)
        if packed is not None and packed.has_failed:
            self._forget_failed(key)

    def _remember_failed(self, key: NamespacedName) -> None:
        self.failed.setdefault(key.namespace, set()).add(key.name)

    def _forget_failed(self, key: NamespacedName) -> bool:
        """Forget that the values of an object are unknown; return whether they were."""
        names = self.failed.get(key.namespace)
        if names is None or key.name not in names:
            return False
        names.discard(key.name)
        if not names:
            del self.failed[key.namespace]
        return True

    def _remove(self, old: Entry, kept: Collection[str]) -> int:
        """Remove the values of ``old`` except for those in ``kept``; return the bytes of all."""
        values = self._values(old) or frozenset()
        if len(values) > MAX_VALUES:
            self._packed.pop(old.key, None)
        else:
            for value in values:
                if value not in kept:
                    self._drop(value, old)
        return _size_of(values)

    def _drop(self, value: str, old: Entry) -> None:
        found = self._found.get(value)
        if isinstance(found, dict):
            found.pop(old.key, None)
            if len(found) == 1:
                (self._found[value],) = found.values()
        elif found is not None and found.key == old.key:
            del self._found[value]

    def _packed_entries(self, value_hash: int) -> list[Entry]:
        found = [packed.entry for packed in self._packed.values() if packed.has(value_hash)]
        found += [packed.entry for packed in self._identities.values() if packed.has(value_hash)]
        return found

    def _checked_values(self, entry: Entry) -> frozenset[str]:
        return _checked(self.function(entry))

    def _values(self, entry: Entry) -> frozenset[str] | None:
        """Return the values of an entry; ``None`` if the function raised an error, which is logged and counted."""
        try:
            return call_uncounted(self._checked_values, entry)
        except Exception as error:  # noqa: BLE001 - logged; one invalid object must not affect the others
            self.errors += 1
            function_errors.report(error, f"index function {self.name} for {entry.key}")
            _log.error(
                "Index function failed, object is not indexed",
                error=described(error),
                index=self.name,
                object=str(entry.key),
                exc_info=error if self._stacks.is_first(error) else None,
            )
            return None


def _checked(values: Iterable[str]) -> frozenset[str]:
    """Return what an index function returned. Raises :class:`TypeError` for anything but a list of strings."""
    require_list("returned values", values)
    unique = frozenset(values)
    for value in unique:
        if not isinstance(value, str):
            raise TypeError(f"returned values: {value!r:.200}: must be a string")
    return unique


def _packed(entry: Entry, values: Collection[str]) -> _Packed:
    return _Packed(entry, array("q", sorted(map(hash, values))))


def _size_of(values: Collection[str]) -> int:
    """Return the bytes that an index takes for the values of one object."""
    number = len(values)
    if number > MAX_VALUES:
        return PACKED_BYTES + 8 * number
    return VALUE_BYTES * number + sum(map(len, values))


def by_controller(entry: Entry) -> Iterable[str]:
    """Index objects by the namespace and uid of their managing controller, which must be in their namespace."""
    controller = entry.meta.controller
    if controller is None:
        return ()
    return (controller_key(entry.namespace, controller.uid),)


def controller_key(namespace: str, uid: str) -> str:
    """Return the value of :func:`by_controller` for the objects of the controller in ``namespace`` with this uid.

    The uid is not enough: clients of other namespaces can write it into the owner references of their objects.
    """
    return f"{namespace}/{uid}"
