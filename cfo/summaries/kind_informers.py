"""The informers on which the summaries of one kind depend: the kind itself, its children and its pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache as cached
from typing import TYPE_CHECKING, Final, Unpack

from cfo.runtime import GVK, POD, Cache, Entry, Informer
from cfo.runtime.cache import Selection, controller_key
from cfo.summaries.kind_view import MAX_CHILDREN, MAX_PODS, KindView

if TYPE_CHECKING:
    from cfo.runtime.manager import SelectionKeywords

MAX_CHILD_BYTES: Final = 64 << 10
"""Children with more bytes are not cached, as in the operator, with which the informers are shared: anyone can create
objects with these labels."""
_MAX_POD_BYTES: Final = 256 << 10

_Index = tuple[str, Callable[[Entry], Iterator[str]]]
"""The name of an index and its function, which is the same for all overviews that share an informer."""


class KindInformers:
    """The informers for the summaries of the kind of ``view``.

    An informer of ``cache`` or ``shared`` is used if it has at least the objects that are needed; otherwise, ``cache``
    creates one. ``related`` are the other kinds to watch; what is left out is not part of the summaries.
    """

    def __init__(
        self, view: KindView, cache: Cache, shared: Collection[Informer], related: Collection[GVK]
    ) -> None:
        self._view = view
        self._cache = cache
        self._shared = shared
        self.objects = self._informer(view.gvk)
        self.children: dict[GVK, Informer] = {}
        """The informers of the children, by their kind."""
        for child in view.children:
            if child.gvk in related:
                children = self._informer(
                    child.gvk,
                    label_selector=child.label_selector,
                    metadata_only=child.metadata_only,
                    max_bytes=MAX_CHILD_BYTES,
                )
                self.children[child.gvk] = children.add_index(*_index_by_owner(view.gvk.kind))
        self.pods: Informer | None = None
        if view.pod_label and POD in related:
            pods = self._informer(POD, label_selector=view.pod_label, max_bytes=_MAX_POD_BYTES)
            self.pods = pods.add_index(*_index_by_label(view.pod_label))

    def names_of_object(self, entry: Entry) -> Iterator[str]:
        """Yield the name of an object of the kind."""
        yield entry.name

    def names_of_owners(self, entry: Entry) -> Iterator[str]:
        """Yield the names of the objects of the kind to which a child belongs."""
        for owner in entry.meta.owner_references:
            if owner.kind == self._view.gvk.kind:
                yield owner.name

    def names_by_pod_label(self, entry: Entry) -> Iterator[str]:
        """Yield the name of the object of the kind to which a pod belongs."""
        name = entry.meta.labels.get(self._view.pod_label)
        if name:
            yield name

    def children_of(self, entry: Entry) -> dict[GVK, list[Entry]]:
        """Return children of an object, at most 200 of each kind; a kind that was not read completely is missing."""
        index, _ = _index_by_owner(self._view.gvk.kind)
        owner = controller_key(entry.namespace, entry.meta.uid)
        return {
            kind: informer.reader.entries(index=(index, owner))[:MAX_CHILDREN]
            for kind, informer in self.children.items()
            if informer.has_synced
        }

    def pods_of(self, entry: Entry) -> list[Entry] | None:
        """Return pods of an object, at most 200; ``None`` if pods were not read completely, or are not watched."""
        if self.pods is None or not self.pods.has_synced:
            return None
        index, _ = _index_by_label(self._view.pod_label)
        value = f"{entry.namespace}/{self._view.pod_label_value(entry.name)}"
        return self.pods.reader.entries(index=(index, value))[:MAX_PODS]

    def _informer(self, gvk: GVK, **selection: Unpack[SelectionKeywords]) -> Informer:
        return shared_informer(gvk, self._cache, self._shared, **selection)


def shared_informer(
    gvk: GVK,
    cache: Cache,
    shared: Collection[Informer],
    **selection: Unpack[SelectionKeywords],
) -> Informer:
    """Return an informer of ``cache`` or ``shared`` that has at least the objects of ``selection``, or a new one."""
    label_selector = str(selection.get("label_selector", ""))
    metadata_only = selection.get("metadata_only", False)
    max_bytes = selection.get("max_bytes", Selection().max_bytes)
    for informer in (*shared, *cache.informers):
        existing = informer.selection
        if (
            informer.gvk == gvk
            and existing.metadata_only == metadata_only
            and not existing.fields
            and not existing.field_selector
            and str(existing.label_selector) in ("", label_selector)
            and existing.namespaces == cache.namespaces
            and existing.max_bytes >= max_bytes
        ):
            return informer
    return cache.informer(gvk, **selection)


@cached
def _index_by_owner(kind: str) -> _Index:
    def owners(entry: Entry) -> Iterator[str]:
        for owner in entry.meta.owner_references:
            if owner.kind == kind:
                yield controller_key(entry.namespace, owner.uid)

    return f"overview-owner-{kind}", owners


@cached
def _index_by_label(label: str) -> _Index:
    def values(entry: Entry) -> Iterator[str]:
        value = entry.meta.labels.get(label)
        if value:
            yield f"{entry.namespace}/{value}"

    return f"overview-{label}", values
