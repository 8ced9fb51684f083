"""The events that handlers of events have not seen yet."""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from cfo.runtime.cache import Entry, Event
from cfo.runtime.controller import EnqueueRequestForObject
from cfo.runtime.objects import NamespacedName
from cfo_handlers.bodies import RawEventType

MAX_PENDING: Final = 8

PendingEvent: TypeAlias = tuple[RawEventType, Entry]
"""The type of an event in the watch, and the object."""


class EnqueueAndRemember(EnqueueRequestForObject):
    """Enqueues the object of an event, and remembers what is not in the object.

    With ``keep_events`` events wait until :meth:`take`; those of one object are merged as far as it exists in both, and
    at most eight are kept. With ``keep_initial``, ``initial`` are the uids of the objects of the initial list.
    """

    def __init__(self, *, keep_events: bool, keep_initial: bool) -> None:
        self.initial: dict[NamespacedName, str] = {}
        self._keep_initial = keep_initial
        self._keep_events = keep_events
        self._pending: dict[NamespacedName, deque[PendingEvent]] = {}

    def requests(self, event: Event) -> tuple[NamespacedName]:
        """Return the object's own key."""
        entry = event.new or event.old
        if event.new is None:
            self.initial.pop(event.key, None)
        elif self._keep_initial and event.initial:
            self.initial[event.key] = event.new.meta.uid
        if self._keep_events and entry is not None:
            self._keep(event, entry)
        return (event.key,)

    def take(self, key: NamespacedName) -> list[PendingEvent]:
        """Return and forget the events of an object."""
        return list(self._pending.pop(key, ()))

    def _keep(self, event: Event, entry: Entry) -> None:
        kind: RawEventType = "ADDED" if event.old is None else "MODIFIED"
        if event.new is None:
            kind = "DELETED"
        elif event.initial:
            kind = None
        pending = self._pending.setdefault(event.key, deque(maxlen=MAX_PENDING))
        if kind == "MODIFIED" and pending and pending[-1][0] != "DELETED":
            kind, _ = pending.pop()  # the object is reported once, in its current state
        pending.append((kind, entry))
