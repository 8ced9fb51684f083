"""The progress of the handlers of one change: which have finished, and when the others are called again."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from cfo.runtime.handlers.bodies import Patch
from cfo.runtime.handlers.declarations import Handler
from cfo.runtime.handlers.progress_storage import ProgressRecord, ProgressStorage
from cfo.runtime.objects.parsers import parse_time

_MAX_MESSAGE: Final = 1024
_MAX_RETRIES: Final = 2**31
_MAX_CHILDREN: Final = 1000
"""Sub-handlers of a handler: the progress of more does not fit into the 256 KiB that all annotations may have."""
_MAX_DELAY: Final = 10 * 365 * 86400.0
"""Seconds; a later time would not be a valid date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one call of a handler. ``delay``: seconds until the next call, if it is not ``final``."""

    final: bool
    delay: float | None = None
    result: Any = None
    exception: Exception | None = None
    children: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerState:
    """The progress of one handler, with UTC times; ``purpose`` is the reason for which it runs."""

    started: datetime.datetime
    stopped: datetime.datetime | None = None
    delayed: datetime.datetime | None = None
    purpose: str | None = None
    retries: int = 0
    success: bool = False
    failure: bool = False
    message: str | None = None
    children: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, record: ProgressRecord, now: datetime.datetime) -> Self:
        """Return the state in a stored record; fields that are not valid count as absent."""
        retries = record.get("retries")
        children = record.get("subrefs")
        return cls(
            started=_parse_time(record.get("started")) or now,
            stopped=_parse_time(record.get("stopped")),
            delayed=_parse_time(record.get("delayed")),
            purpose=_text(record.get("purpose")),
            retries=retries if isinstance(retries, int) and 0 <= retries < _MAX_RETRIES else 0,
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=_text(record.get("message")),
            children=_identities(children) if isinstance(children, list) else frozenset(),
        )

    def record(self) -> ProgressRecord:
        """Return the record to store."""
        return {
            "started": _format_time(self.started),
            "stopped": _format_time(self.stopped),
            "delayed": _format_time(self.delayed),
            "purpose": self.purpose,
            "retries": self.retries,
            "success": self.success,
            "failure": self.failure,
            "message": self.message,
            "subrefs": sorted(self.children) or None,
        }

    @property
    def finished(self) -> bool:
        """Whether the handler is not called again."""
        return self.success or self.failure

    def delay(self, now: datetime.datetime) -> float:
        """Return the seconds until the next call."""
        return max(0.0, (self.delayed - now).total_seconds()) if self.delayed is not None else 0.0

    def after(self, outcome: Outcome, now: datetime.datetime) -> HandlerState:
        """Return the state after a call."""
        error = outcome.exception
        return replace(
            self,
            stopped=now if outcome.final else None,
            delayed=None if outcome.delay is None else now + _delay(outcome.delay),
            retries=self.retries + 1,
            success=outcome.final and error is None,
            failure=outcome.final and error is not None,
            message=None if error is None else str(error)[:_MAX_MESSAGE],
            children=self.children | outcome.children,
        )


class Progress:
    """The progress of the handlers ``selected`` for a purpose, as stored in the object.

    ``owned`` are all handlers whose progress may be stored.
    """

    def __init__(
        self,
        storage: ProgressStorage,
        body: Mapping[str, Any],
        *,
        owned: Iterable[Handler],
        selected: Iterable[Handler],
        purpose: str,
        now: datetime.datetime,
    ) -> None:
        self._storage = storage
        self._body = body
        self._owned = {handler.id for handler in owned}
        self._stored: dict[str, HandlerState] = {}
        for identity in self._owned:
            record = storage.fetch(key=identity, body=body)
            if record is not None:
                self._stored[identity] = HandlerState.parse(record, now)
        self.states: dict[str, HandlerState] = {}
        for handler in selected:
            state = self._stored.get(handler.id) or HandlerState(started=now)
            self.states[handler.id] = replace(state, purpose=purpose)
        self.superseded = {
            state.purpose for state in self._stored.values() if state.purpose is not None and state.purpose != purpose
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def record(self, identity: str, outcome: Outcome, now: datetime.datetime) -> None:
        """Record a call of a handler."""
        self.states[identity] = self.states[identity].after(outcome, now)

    @property
    def done(self) -> bool:
        """Whether all selected handlers have finished."""
        return all(state.finished for state in self.states.values())

    def delay(self, now: datetime.datetime) -> float | None:
        """Return the seconds until the next call of a handler; ``None`` if all have finished."""
        delays = [state.delay(now) for state in self.states.values() if not state.finished]
        return min(delays) if delays else None

    def counts(self) -> tuple[int, int]:
        """Return how many handlers succeeded, and how many failed."""
        states = self.states.values()
        return sum(state.success for state in states), sum(state.failure for state in states)

    def store(self, patch: Patch) -> None:
        """Add the progress that changed to a patch."""
        for identity, state in self.states.items():
            if state != self._stored.get(identity):
                self._storage.store(key=identity, record=state.record(), body=self._body, patch=patch)

    def purge(self, patch: Patch) -> None:
        """Remove all stored progress in a patch, also that of sub-handlers."""
        states = [*self.states.values(), *self._stored.values()]
        identities = self._owned | set(self.states) | {child for state in states for child in state.children}
        for identity in identities:
            self._storage.purge(key=identity, body=self._body, patch=patch)


def _delay(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=min(max(seconds, 0.0), _MAX_DELAY))


def _format_time(value: datetime.datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds")


def _parse_time(value: Any) -> datetime.datetime | None:
    try:
        return parse_time(value)
    except ValueError:
        return None


def _identities(values: list[Any]) -> frozenset[str]:
    return frozenset(value for value in values[:_MAX_CHILDREN] if isinstance(value, str))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
