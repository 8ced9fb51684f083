"""The source of a resource's requests, which also collects the events that handlers want to see."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.controller.cause import Cause, CauseType
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.controller.workqueue import LOW_PRIORITY, WorkQueue
from cfo.runtime.handlers.bodies import RawEventType
from cfo.runtime.objects.unstructured import NamespacedName

_log = structlog.get_logger(__name__)

MAX_PENDING: Final = 8


class PendingEvent(NamedTuple):
    """An event for handlers of events: its type in the watch, and the object."""

    type: RawEventType
    entry: Entry


class EventSource:
    """Enqueues the objects of ``informer`` whose handlers may have to run.

    With ``keep_events`` events wait until :meth:`take`; those of one object are merged as far as it exists in both, and
    at most eight are kept. ``is_relevant`` decides about updates. With ``remember_initial``, the objects of the initial
    list are remembered.
    """

    def __init__(
        self,
        informer: Informer,
        *,
        keep_events: bool,
        remember_initial: bool,
        is_relevant: Callable[[Entry, Entry], bool],
    ) -> None:
        self.informer = informer
        self.initial: dict[NamespacedName, str] = {}
        self._keep_events = keep_events
        self._remember_initial = remember_initial
        self._is_relevant = is_relevant
        self._pending: dict[NamespacedName, deque[PendingEvent]] = {}
        self._queue: WorkQueue[Request] | None = None
        self._listed = Cause(CauseType.LISTED, informer.gvk)

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Start adding requests to ``queue``, first for the objects that the informer already holds."""
        self._queue = queue
        self.informer.add_handler(self._deliver)

    async def wait_for_sync(self) -> None:
        """Wait until the objects of the informer's initial list have been enqueued."""
        await self.informer.wait_for_sync()

    def stop(self) -> None:
        """Stop adding requests."""
        if self._queue is not None:
            self._queue = None
            self.informer.remove_handler(self._deliver)

    def take(self, key: NamespacedName) -> list[PendingEvent]:
        """Return and forget the events of an object."""
        return list(self._pending.pop(key, ()))

    def enqueue(self, key: NamespacedName, reason: str) -> None:
        """Enqueue an object; ``reason`` is for logs."""
        if self._queue is not None:
            self._queue.add(key, cause=Cause(CauseType.GENERIC, detail=reason))

    def _deliver(self, event: Event) -> None:
        if self._queue is None:
            return
        if self._remember_initial:
            if event.initial and event.new is not None:
                self.initial[event.key] = event.new.meta.uid
            elif event.new is None:
                self.initial.pop(event.key, None)
        if self._keep_events:
            self._keep(event)
        elif event.old is not None and event.new is not None and not self._is_relevant(event.old, event.new):
            return
        if event.initial:
            self._queue.add(event.key, priority=LOW_PRIORITY, cause=self._listed)
        else:
            self._queue.add(event.key, cause=Cause.of_event(self.informer.gvk, event))

    def _keep(self, event: Event) -> None:
        entry = event.new or event.old
        if entry is None:
            return
        if event.type is EventType.DELETED or event.new is None:
            kind: RawEventType = "DELETED"
        elif event.initial:
            kind = None
        else:
            kind = "ADDED" if event.old is None else "MODIFIED"
        pending = self._pending.setdefault(event.key, deque(maxlen=MAX_PENDING))
        if kind == "MODIFIED" and pending and pending[-1].type != "DELETED":
            kind = pending.pop().type  # the object is reported once, in its current state
        pending.append(PendingEvent(kind, entry))
