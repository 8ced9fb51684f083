"""From an event of an object to the requests to reconcile.

Handlers run inside the informer's delivery: they must not wait. They look at metadata first
(``entry.meta``, decoded already) and decode the object (``entry.object()``) only where they must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.store import Event
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.objects import GVK
from cfo.runtime.reconcile import Request

__all__ = [
    "EnqueueRequestForObject",
    "EnqueueRequestForOwner",
    "EnqueueRequestsFromMapFunc",
    "EventHandler",
    "entries_of",
]


def entries_of(event: Event) -> Iterable[Entry]:
    """The old and the new state, those which the event has."""
    return [entry for entry in (event.old, event.new) if entry is not None]


class EventHandler(Protocol):
    """Says which requests an event calls for."""

    async def prepare(self, mapper: RESTMapper) -> None:
        """Called once before the first event, for what has to be asked of the API server."""
        ...

    def requests(self, event: Event) -> Iterable[Request]:
        """The requests to queue; the same one may come twice."""
        ...


class EnqueueRequestForObject:
    """Reconciles the object that the event is about."""

    async def prepare(self, mapper: RESTMapper) -> None:
        """Nothing to prepare."""

    def requests(self, event: Event) -> Iterable[Request]:
        """The object's own name."""
        return (event.key,)


class EnqueueRequestForOwner:
    """Reconciles the owners of kind ``owner`` of the object that the event is about.

    An owner reference matches by group and kind: which version wrote it does not matter. With
    ``only_controller`` only the managing owner counts. An owner that the object lost is reconciled too.
    """

    def __init__(self, owner: GVK, *, only_controller: bool = True) -> None:
        self.owner = owner
        self.only_controller = only_controller
        self._mapper: RESTMapper | None = None

    async def prepare(self, mapper: RESTMapper) -> None:
        """Keeps the mapper, which knows whether the owner is namespaced as soon as there are owners."""
        self._mapper = mapper

    def requests(self, event: Event) -> Iterable[Request]:
        """The owners, of the old and of the new state."""
        owner = self._mapper.cached(self.owner) if self._mapper else None
        namespace = event.key.namespace if owner is None or owner.namespaced else ""
        found: dict[Request, None] = {}
        for entry in entries_of(event):
            for reference in entry.meta.owner_references:
                if reference.kind != self.owner.kind or (self.only_controller and not reference.controller):
                    continue
                if GVK.parse(reference.api_version, reference.kind).group == self.owner.group:
                    found[Request(namespace, reference.name)] = None
        return found


class EnqueueRequestsFromMapFunc:
    """Reconciles what ``function`` says; it is asked about the old and the new state of an object."""

    def __init__(self, function: Callable[[Entry], Iterable[Request]]) -> None:
        self.function = function

    async def prepare(self, mapper: RESTMapper) -> None:
        """Nothing to prepare."""

    def requests(self, event: Event) -> Iterable[Request]:
        """What the function says, each request once."""
        return dict.fromkeys(request for entry in entries_of(event) for request in self.function(entry))
