"""The progress of the handlers of one change: which have finished, and when the others are called again."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from cfo.runtime.objects import parse_time
from cfo_handlers.causes import ObjectCause, select_changing
from cfo_handlers.declarations import ChangingHandler, Handler
from cfo_handlers.environment import Environment
from cfo_handlers.storage import ProgressRecord

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
        return cls(
            started=_parse_time(record.get("started")) or now,
            stopped=_parse_time(record.get("stopped")),
            delayed=_parse_time(record.get("delayed")),
            purpose=_text(record.get("purpose")),
            retries=_parse_retries(record.get("retries")),
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=_text(record.get("message")),
            children=_parse_children(record.get("subrefs")),
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
        if self.delayed is None:
            return 0.0
        return max(0.0, (self.delayed - now).total_seconds())

    def after(self, outcome: Outcome, now: datetime.datetime) -> HandlerState:
        """Return the state after a call."""
        error = outcome.exception
        delayed = None
        if outcome.delay is not None:
            seconds = min(max(outcome.delay, 0.0), _MAX_DELAY)
            delayed = now + datetime.timedelta(seconds=seconds)
        return replace(
            self,
            stopped=now if outcome.final else None,
            delayed=delayed,
            retries=self.retries + 1,
            success=outcome.final and error is None,
            failure=outcome.final and error is not None,
            message=None if error is None else str(error)[:_MAX_MESSAGE],
            children=self.children | outcome.children,
        )


class Progress:
    """The progress of ``handlers`` in ``states``, and their ``results``, by their identifiers."""

    def __init__(self, handlers: Sequence[Handler], environment: Environment) -> None:
        self.handlers = handlers
        self.states = {handler.id: HandlerState(started=environment.now()) for handler in handlers}
        self.results: dict[str, Any] = {}
        self._environment = environment

    def due(self) -> list[Handler]:
        """Return the handlers that must be called now."""
        now = self._environment.now()
        due = []
        for handler in self.handlers:
            state = self.states[handler.id]
            if not state.finished and not state.delay(now):
                due.append(handler)
        return due

    def record(self, handler: Handler, outcome: Outcome) -> None:
        """Record a call of a handler."""
        self.states[handler.id] = self.states[handler.id].after(outcome, self._environment.now())
        if self.states[handler.id].success:
            self.results[handler.id] = outcome.result

    @property
    def failed(self) -> list[str]:
        """The identifiers of the handlers that have failed."""
        return [identity for identity, state in self.states.items() if state.failure]

    def delay(self) -> float | None:
        """Return the seconds until the next call of a handler; ``None`` if all have finished."""
        now = self._environment.now()
        delays = [state.delay(now) for state in self.states.values() if not state.finished]
        return min(delays, default=None)


class StoredProgress(Progress):
    """The progress of those ``owned`` handlers that a change of an object concerns, as stored in the object."""

    def __init__(self, owned: Collection[ChangingHandler], cause: ObjectCause) -> None:
        assert cause.change is not None
        environment = cause.environment
        super().__init__(select_changing(owned, cause), environment)
        self._cause = cause
        self._storage = environment.settings.persistence.progress_storage
        self._owned = {handler.id for handler in owned}
        records = {
            identity: self._storage.fetch(key=identity, body=cause.body) for identity in self._owned
        }
        now = environment.now()
        purpose = cause.change.reason
        self._stored = {
            name: HandlerState.parse(record, now)
            for name, record in records.items()
            if record is not None
        }
        self.states = {
            identity: replace(self._stored.get(identity, state), purpose=purpose)
            for identity, state in self.states.items()
        }
        self.superseded = {state.purpose for state in self._stored.values()} - {None, purpose}

    def store(self) -> None:
        """Add the progress that changed to the patch."""
        for identity, state in self.states.items():
            if state != self._stored.get(identity):
                self._storage.store(
                    key=identity,
                    record=state.record(),
                    body=self._cause.body,
                    patch=self._cause.patch,
                )

    def purge(self) -> None:
        """Remove all stored progress in the patch, also that of sub-handlers."""
        identities = self._owned | self.states.keys()
        for state in (*self.states.values(), *self._stored.values()):
            identities |= state.children
        for identity in identities:
            self._storage.purge(key=identity, body=self._cause.body, patch=self._cause.patch)


def _parse_time(value: Any) -> datetime.datetime | None:
    try:
        return parse_time(value)
    except ValueError:
        return None


def _format_time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="microseconds")


def _parse_retries(value: Any) -> int:
    if isinstance(value, int) and 0 <= value < _MAX_RETRIES:
        return value
    return 0


def _parse_children(value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        return frozenset()
    return frozenset(filter(_text, value[:_MAX_CHILDREN]))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
