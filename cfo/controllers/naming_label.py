"""Objects that a label relates to an object of another kind."""

from __future__ import annotations

from collections.abc import Iterable

from cfo.runtime import Entry, Informer, NamespacedName, Reader, Request
from cfo.runtime.cache import IndexFunction


class NamingLabel:
    """A label with which objects name an object of another kind in their namespace."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._index: IndexFunction = lambda entry: map(str, self.requests(entry))

    def requests(self, entry: Entry) -> Iterable[Request]:
        """Return the object that the label of ``entry`` names, if it has the label."""
        name = entry.meta.labels.get(self._label)
        return (NamespacedName(entry.namespace, name),) if name else ()

    def add_index(self, objects: Informer) -> Informer:
        """Add the index that :meth:`entries` reads to the informer of a kind that has the label."""
        return objects.add_index(self._label, self._index)

    def entries(self, objects: Reader, named: NamespacedName) -> list[Entry]:
        """Return the objects whose label names ``named``; any client can set the label."""
        return objects.entries(index=(self._label, str(named)))
