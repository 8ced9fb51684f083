"""What a client sees of the cache: where its reads come from, and where the answers to its writes go.

The client knows no informer; it knows this protocol. Reads that an informer can answer make no
request (decision 4 of the architecture), the answer to a write is readable at once (decision 5), and
the no-op check of :meth:`~cfo.runtime.client.client.Client.apply` compares with what is stored
(decision 3). A client without a cache asks the API server for everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["ClientCache", "Stored"]


class Stored(NamedTuple):
    """An object as the cache keeps it.

    ``object`` is its JSON without ``managedFields``; ``managers`` are the managedFields entries of our
    own field managers, which are kept beside it.
    """

    object: bytes
    managers: tuple[Mapping[str, Any], ...]
    uid: str
    resource_version: str


class ClientCache(Protocol):
    """The cache, as far as a client uses it. No method waits, and none makes a request."""

    def covers(self, gvk: GVK, namespace: str) -> bool:
        """Whether reads of this kind and namespace (empty: all of them) can be answered.

        True when a synced informer of whole objects holds all of them: no selector, not metadata alone.
        """

    def get(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """The object, owned by the caller, or ``None``; asked only where :meth:`covers` is true."""

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        """The objects that match, owned by the caller; asked only where :meth:`covers` is true."""

    def stored(self, gvk: GVK, key: NamespacedName) -> Stored | None:
        """The object in any informer of whole objects that holds it, one with a selector too."""

    def wrote(self, gvk: GVK, answer: bytes) -> None:
        """Takes in the API server's answer to a write (or a quorum read): one whole object.

        A write that removes a last finalizer is answered with the object as it was before: the
        implementation treats what it learns from :meth:`deleted` as final for that uid.
        """

    def deleted(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        """Notes that the object of this uid is gone; an empty uid: there was none, and none is stored."""

    def uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        """Notes that a write of this object may or may not have happened.

        The client's next read of it goes to the API server; its answer ends the uncertainty through
        :meth:`wrote` or :meth:`deleted`.
        """

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        """Whether :meth:`uncertain` was called and nothing certain has been learned since."""

    def uncertain_keys(self, gvk: GVK, namespace: str) -> Collection[NamespacedName]:
        """The objects of this kind and namespace (empty: all of them) that :meth:`is_uncertain` is true of."""
