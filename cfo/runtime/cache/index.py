"""An index of a store: its entries by the values that a function returns for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from cfo.runtime.cache.entry import Entry
from cfo.runtime.objects.unstructured import NamespacedName

_log = structlog.get_logger(__name__)

IndexFunction = Callable[[Entry], Iterable[str]]
"""Returns the values under which an entry is indexed; reading ``entry.meta`` is cheaper than decoding the object."""


class Index:
    """Entries by the values that ``function`` returns for them.

    Most values have one entry, which is stored directly: a collection for each value would take more memory than the
    indexed entries.
    """

    def __init__(self, name: str, function: IndexFunction) -> None:
        self.name = name
        self.function = function
        self._found: dict[str, Entry | dict[NamespacedName, Entry]] = {}

    def get(self, value: str) -> list[Entry]:
        """Return the entries that have ``value``."""
        found = self._found.get(value)
        if found is None:
            return []
        if isinstance(found, dict):
            return list(found.values())
        return [found]

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
        """Remove an entry."""
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
            _log.exception(
                "Index function failed, object is not indexed",
                index=self.name,
                object=str(entry.key),
            )
            return frozenset()


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
