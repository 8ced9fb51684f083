"""Event handlers: they map an event of an object to the requests to reconcile.

Informers call handlers synchronously, so a handler must not block. A handler should use metadata (``entry.meta``,
already decoded) and decode the object (``entry.object()``) only if it has to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.controller.reconcile import Request, require_requests
from cfo.runtime.objects.unstructured import ObjectKind, require_kind
from cfo.runtime.process.arguments import function_name, require_plain_function

_MAX_NAME: Final = 253
"""The maximum length of the names of objects."""


def entries_of(event: Event) -> Iterable[Entry]:
    """Return the old and the new state of the object, as far as the event has them.

    The new state can be one that is left out of the store.
    """
    entries = [entry for entry in (event.old, event.new) if entry is not None]
    if event.left_out is not None and event.left_out is not event.old:
        entries.append(event.left_out)
    return entries


class EventHandler(Protocol):
    """Maps an event to requests."""

    async def prepare(self, mapper: RESTMapper) -> None:
        """Prepare the handler; called once before the first event, and may call the API server."""
        return

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the requests to enqueue; duplicates are allowed."""
        ...


class EnqueueRequestForObject(EventHandler):
    """Enqueues a request for the object of the event."""

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the object's own key."""
        return (event.key,)


class EnqueueRequestForOwner(EventHandler):
    """Enqueues a request for the controller of the event's object, if it is of kind ``owner``.

    The reference matches by group and kind, regardless of its API version. A controller whose reference was removed is
    enqueued, too.
    """

    def __init__(self, owner: ObjectKind[Any]) -> None:
        self.owner = require_kind("EnqueueRequestForOwner", owner)
        self._mapper: RESTMapper | None = None

    async def prepare(self, mapper: RESTMapper) -> None:
        """Store the mapper, which determines whether the owner's kind is namespaced."""
        self._mapper = mapper

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the owners in the old and in the new state."""
        owner = self._mapper.cached(self.owner) if self._mapper else None
        namespace = event.key.namespace
        if owner is not None and not owner.namespaced:
            namespace = ""
        found: dict[Request, None] = {}
        for entry in entries_of(event):
            for reference in entry.meta.owner_references:
                if reference.kind != self.owner.kind or not reference.controller:
                    continue
                if len(reference.name) > _MAX_NAME:
                    continue  # of no object; any client can write it
                if reference.api_version.rpartition("/")[0] == self.owner.group:
                    found[Request(namespace, reference.name)] = None
        return found


class EnqueueRequestsFromMapFunc(EventHandler):
    """Enqueues the requests that ``function`` returns for the old and for the new state of an object.

    Raises :class:`TypeError` for a coroutine function: informers call it, and must not wait.
    """

    def __init__(self, function: Callable[[Entry], Iterable[Request]]) -> None:
        require_plain_function(
            "EnqueueRequestsFromMapFunc", function, "a function that returns requests", "entry"
        )
        self.function = function
        self._name = function_name(function)

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the requests of the function without duplicates.

        Raises :class:`TypeError` if the function returns anything else, such as names or one request.
        """
        found: dict[Request, None] = {}
        for entry in entries_of(event):
            for request in require_requests(self._name, self.function(entry)):
                found[request] = None
        return found
