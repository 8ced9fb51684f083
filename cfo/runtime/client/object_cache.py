"""The interface between the client and the cache.

The client does not depend on informers, only on the protocol :class:`ClientCache`. A read that an informer can serve
makes no request, and the response to a write can be read immediately (docs/adr/0007-read-your-own-writes.md). The no-op
check of :meth:`~cfo.runtime.client.client.Client.apply` compares with the cached object
(docs/adr/0006-server-side-apply-only-on-change.md). A client without a cache uses :class:`NullCache` and sends every
read to the API server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from cfo.runtime.client.partial_objects import Transform
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object

__all__ = ["ClientCache", "NullCache", "StoredObject"]


class StoredObject(NamedTuple):
    """A cached object.

    ``object`` is its JSON without ``managedFields``; ``managers`` are the managedFields entries of our own field
    managers, which the cache stores separately from the object. ``is_whole`` is false if fields may be missing, because
    the kind has a transform.
    """

    object: bytes
    managers: tuple[Mapping[str, Any], ...]
    uid: str
    resource_version: str
    is_whole: bool = True


class ClientCache(Protocol):
    """The part of the cache that the client uses. No method blocks or makes a request."""

    def covers(self, gvk: GVK, namespace: str, label_selector: str = "") -> bool:
        """Return whether the cache can serve reads of this kind in this namespace (empty: all namespaces).

        True if a synced informer that is not metadata-only holds all these objects that ``label_selector`` matches.
        """

    def get(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """Return a copy of the object, or ``None``; call it only if :meth:`covers` is true."""

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        """Return copies of the matching objects; call it only if :meth:`covers` is true."""

    def stored(self, gvk: GVK, key: NamespacedName) -> StoredObject | None:
        """Return the object from any informer that is not metadata-only, including informers with a selector."""

    def transform_of(self, gvk: GVK) -> Transform | None:
        """Return what removes fields of the cached objects of this kind; ``None`` if they are whole."""

    def controller_of_deleted(self, gvk: GVK, key: NamespacedName) -> str:
        """Return the uid of the controller of the object, if another client deleted it and it was not recreated.

        Empty if the object had no controller, or if its deletion is not known.
        """

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

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """Return the uncertain objects of this kind and namespace (empty: all namespaces)."""


class NullCache(ClientCache):
    """A cache that holds nothing and records nothing, for a client without a cache."""

    def covers(self, gvk: GVK, namespace: str, label_selector: str = "") -> bool:
        """Return false."""
        return False

    def get(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """Return ``None``."""
        return None

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        """Return an empty list."""
        return []

    def stored(self, gvk: GVK, key: NamespacedName) -> StoredObject | None:
        """Return ``None``."""
        return None

    def transform_of(self, gvk: GVK) -> Transform | None:
        """Return ``None``."""
        return None

    def controller_of_deleted(self, gvk: GVK, key: NamespacedName) -> str:
        """Return the empty string."""
        return ""

    def record_write(self, gvk: GVK, response: bytes) -> None:
        """Do nothing."""

    def record_deletion(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        """Do nothing."""

    def mark_uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        """Do nothing."""

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        """Return false."""
        return False

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """Return nothing."""
        return ()
