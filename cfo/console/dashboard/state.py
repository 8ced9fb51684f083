"""The state that pages show, updated by changes of summaries; each change of a row is encoded once, for all pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.flux import FLUX_JOB, FLUX_SETUP
from cfo.console.dashboard.history import History
from cfo.console.dashboard.rows import details, events_of, identity_of, past_phases, row_of, waiting_orders
from cfo.console.summaries import Change, ChangeType, Summary

__all__ = ["MAX_EVENTS", "MAX_ROWS", "State", "event_message"]

MAX_ROWS: Final = 10_000
"""The maximum number of objects on a page; objects that are created later are left out."""
MAX_EVENTS: Final = 200
"""The maximum number of Events on a page."""


def event_message(name: str, data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event whose data is JSON, which contains no line break."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))


class State:
    """The rows of all objects, their history and their Events; times are in milliseconds since 1970."""

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}
        self._summaries: dict[str, Summary] = {}
        self._waiting: dict[str, Summary] = {}
        self._setups: dict[str, Summary] = {}
        self._history = History()
        self.is_truncated = False

    def details(self, identity: str) -> Mapping[str, Any] | None:
        """Return what the page shows of an object that a user opens; ``None`` if it does not exist."""
        summary = self._summaries.get(identity)
        return details(summary) if summary is not None else None

    def snapshot(self) -> dict[str, Any]:
        """Return everything for a page that is opened now."""
        events = [event for summary in self._summaries.values() for event in events_of(summary)]
        events.sort(key=lambda event: -event["time"])
        return {
            "rows": [orjson.Fragment(row) for row in self._rows.values()],
            "events": events[:MAX_EVENTS],
            **self._history.snapshot(),
        }

    def apply(self, changes: Iterable[Change], now: int) -> dict[str, Any]:
        """Update the state at the time ``now``, and return what has changed; empty if a page shows nothing of it."""
        rows: list[orjson.Fragment] = []
        removed: list[str] = []
        phases: dict[str, Any] = {}
        events: list[dict[str, Any]] = []
        is_queue_changed = False
        for change in changes:
            summary = change.summary
            identity = identity_of(summary)
            before = self._summaries.get(identity)
            is_queue_changed |= summary.gvk in (FLUX_JOB, FLUX_SETUP)
            if change.type is ChangeType.REMOVED:
                if before is not None:
                    self._forget(identity)
                    removed.append(identity)
                continue
            if before is None and len(self._rows) >= MAX_ROWS:
                self.is_truncated = True
                continue
            self._remember(identity, summary)
            # a copy, because orjson returns at least 4 kB of memory, of which a row is a tenth
            encoded = bytes(memoryview(orjson.dumps(row_of(summary))))
            if self._rows.get(identity) != encoded:
                self._rows[identity] = encoded
                rows.append(orjson.Fragment(encoded))
            known = set(before.warnings) if before is not None else set()
            events += events_of(summary, known)
            if summary.gvk == APPWRAPPER and (new := self._record_phase(identity, summary, now)):
                phases[identity] = new
        events = sorted(events, key=lambda event: -event["time"])[:MAX_EVENTS]
        message = {"rows": rows, "removed": removed, "phases": phases, "events": events}
        if is_queue_changed:
            message["orders"] = self._record_orders(now)
        return {name: value for name, value in message.items() if value}

    def _remember(self, identity: str, summary: Summary) -> None:
        self._summaries[identity] = summary
        if summary.gvk == FLUX_SETUP:
            self._setups[identity] = summary
        elif summary.gvk == FLUX_JOB:
            if summary.fact("position"):
                self._waiting[identity] = summary
            else:
                self._waiting.pop(identity, None)

    def _forget(self, identity: str) -> None:
        self._history.forget(identity)
        for known in (self._rows, self._summaries, self._waiting, self._setups):
            known.pop(identity, None)

    def _record_phase(self, identity: str, summary: Summary, now: int) -> Sequence[Any]:
        return self._history.phases.record(
            identity, now, summary.state, summary.level.value, lambda: past_phases(summary)
        )

    def _record_orders(self, now: int) -> dict[str, Any]:
        orders = waiting_orders(self._setups, self._waiting.values())
        found = {identity: self._history.orders.record(identity, now, names) for identity, names in orders.items()}
        return {identity: samples for identity, samples in found.items() if samples}
