"""The TTL of Events: kube-apiserver deletes an Event one hour after its last write (``--event-ttl``)."""

from __future__ import annotations

from typing import Final

from envtest.apimachinery.clock import Clock, Timer
from envtest.apimachinery.errors import GroupResource
from envtest.storage import Change, Store
from envtest.storage.record import DELETED

__all__ = ["EVENT_TTL_SECONDS", "EventTTL"]

EVENT_TTL_SECONDS: Final = 3600.0
_EVENTS: Final = GroupResource("", "events")
_Key = tuple[str, str]


class EventTTL:
    """Deletes the Events of ``store`` whose last write is :data:`EVENT_TTL_SECONDS` ago by ``clock``."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._deadlines: dict[
            _Key, float
        ] = {}  # in the order of the deadlines, because each write has the same TTL
        self._timer: Timer | None = None
        store.journal.append(self._observe)

    def fork(self, store: Store, clock: Clock) -> EventTTL:
        """Return the same deadlines for a copy of the store; :meth:`adopt` starts them."""
        copy = EventTTL(store, clock)
        copy._deadlines = dict(self._deadlines)
        return copy

    def adopt(self) -> None:
        """Start the timer, on the running event loop; an Event of an earlier process gets a new TTL."""
        for record in self._store.list(_EVENTS):
            if record.key not in self._deadlines:
                self._deadlines[record.key] = self._clock.time() + EVENT_TTL_SECONDS
        self._schedule()

    def _observe(self, resource: GroupResource, change: Change) -> None:
        if resource != _EVENTS:
            return
        self._deadlines.pop(change.record.key, None)
        if change.type != DELETED:
            self._deadlines[change.record.key] = self._clock.time() + EVENT_TTL_SECONDS
            self._schedule()

    def _schedule(self) -> None:
        first = next(iter(self._deadlines.values()), None)
        if first is not None and (self._timer is None or not self._timer.active):
            self._timer = self._clock.call_later(first - self._clock.time(), self._expire)

    def _expire(self) -> None:
        now = self._clock.time()
        expired = []
        for key, deadline in self._deadlines.items():
            if deadline > now:
                break
            expired.append(key)
        for key in expired:
            del self._deadlines[key]
            record = self._store.get(_EVENTS, *key)
            if record is not None:
                self._store.delete(_EVENTS, record)
        self._schedule()
