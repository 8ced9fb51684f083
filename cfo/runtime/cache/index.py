"""Index functions that many controllers need; see :meth:`~cfo.runtime.cache.informer.Informer.add_index`.

They look at metadata alone, so an index of them costs no decoding. The same call returns the same function, so
that controllers which share an informer may each add the index.
"""

from __future__ import annotations

from functools import cache

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.store import IndexFunction

__all__ = ["by_label", "by_owner_uid"]


def by_owner_uid(entry: Entry) -> list[str]:
    """The uids of the object's owners: finds the children of an object."""
    return [reference.uid for reference in entry.meta.owner_references]


@cache
def by_label(label: str) -> IndexFunction:
    """Finds objects by the value of ``label``; those without it are not in the index."""

    def values(entry: Entry) -> list[str]:
        value = entry.meta.labels.get(label)
        return [] if value is None else [value]

    return values
