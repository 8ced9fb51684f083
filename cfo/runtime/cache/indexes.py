"""Index functions for :meth:`cfo.runtime.cache.informer.Informer.add_index`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.index import IndexFunction

__all__ = ["by_controller", "by_label", "by_owner"]


def by_controller(entry: Entry) -> Iterable[str]:
    """Index objects by the uid of their managing controller."""
    controller = entry.meta.controller
    return (controller.uid,) if controller is not None else ()


def by_owner(entry: Entry) -> Iterable[str]:
    """Index objects by the uids of all their owners."""
    return [reference.uid for reference in entry.meta.owner_references]


@cache
def by_label(label: str) -> IndexFunction:
    """Return a function that indexes objects by the value of ``label``; the same function for the same label."""

    def index(entry: Entry) -> Iterable[str]:
        value = entry.meta.labels.get(label)
        return (value,) if value is not None else ()

    return index
