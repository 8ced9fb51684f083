"""The interface between the client and the cache.

The client does not depend on informers, only on :class:`ClientCache`. A read that an informer can serve
makes no request, and the response to a write can be read immediately (docs/adr/0007-read-your-own-writes.md). The no-op
check of :meth:`~cfo.runtime.client.client.Client.apply` compares with the cached object
(docs/adr/0006-server-side-apply-only-on-change.md). A client without a cache uses a :class:`ClientCache`,
and sends every read to the API server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec

from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object


class StoredObject(msgspec.Struct, frozen=True):
    """A cached object.

    ``object`` is its JSON without ``managedFields``; ``managers`` are the managedFields entries of our own field
    managers, which the cache stores separately from the object. ``is_partial``: the cache has only its metadata.
    """

    object: bytes
    managers: tuple[Mapping[str, Any], ...]
    uid: str
    resource_version: str
    is_partial: bool = False


class CachedObjects(Protocol):
    """Cached objects of one kind; each read returns copies."""

    def get(self, key: NamespacedName, /) -> Object | None:
        """Return the object, or ``None``."""
        ...

    def list(self, namespace: str = "", selector: str = "", /) -> list[Object]:
        """Return the objects that match; an empty ``namespace`` means all namespaces."""
        ...

    def is_complete(self, namespace: str, /) -> bool:
        """Return whether no object of the namespace (empty: of any) is missing because there is no room for it."""
        ...

    def selects(self, obj: Object, /) -> bool:
        """Return whether an object would be among these if there was room for it."""
        ...


class ClientCache:
    """The part of the cache that the client uses; this base class is an empty one. No method blocks."""

    def covering_reader(
        self, gvk: GVK, namespace: str, label_selector: str = ""
    ) -> CachedObjects | None:
        """Return what serves reads of this kind in this namespace (empty: all namespaces), or ``None``.

        It is a synced informer that is not metadata-only, with all these objects that ``label_selector`` matches.
        """
        return None

    def stored(
        self, gvk: GVK, key: NamespacedName, *, partial: bool = False
    ) -> StoredObject | None:
        """Return the object from any informer, including informers with a selector.

        With ``partial``, the metadata from an informer that is metadata-only is returned if no other has the object.
        """
        return None

    def controller_of_deleted(self, gvk: GVK, key: NamespacedName) -> str:
        """Return the uid of the controller of the object, if another client deleted it and it was not recreated.

        Empty if the object had no controller, or if its deletion is not known.
        """
        return ""

    def check_child(
        self, owner: GVK, gvk: GVK, key: NamespacedName, labels: Mapping[str, str]
    ) -> None:
        """Report that no informer has a child of ``owner``, if a controller reconciles such owners."""

    def record_write(self, gvk: GVK, response: bytes) -> None:
        """Store the API server's response to a write (or a quorum read), which is one complete object.

        The response to a write that removes the last finalizer contains the object's state before the write. The
        implementation therefore treats a deletion that :meth:`record_deletion` reported as final for that uid.
        """

    def record_deletion(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        """Record that the object of this uid was deleted.

        An empty uid means that the object does not exist and was not in the cache.
        """

    def mark_uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        """Record that the outcome of a write to this object is unknown.

        The client's next read of the object goes to the API server. Recording its response with :meth:`record_write` or
        :meth:`record_deletion` clears the mark.
        """

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        """Return whether the state of the object is still unknown since :meth:`mark_uncertain`."""
        return False

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """Return the uncertain objects of this kind and namespace (empty: all namespaces)."""
        return ()
