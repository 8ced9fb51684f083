"""The progress of the handlers of one change: which have finished, and when the others are called again."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeVar

from cfo.runtime.handlers.bodies import Patch
from cfo.runtime.handlers.declarations import Handler
from cfo.runtime.handlers.storage import ProgressRecord, ProgressStorage
from cfo.runtime.objects import parse_time

_MAX_MESSAGE: Final = 1024
_MAX_RETRIES: Final = 2**31
_MAX_CHILDREN: Final = 1000
"""Sub-handlers of a handler: the progress of more does not fit into the 256 KiB that all annotations may have."""
_MAX_DELAY: Final = 10 * 365 * 86400.0
"""Seconds; a later time would not be a valid date."""
_TIMES: Final = ("started", "stopped", "delayed")


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
        retries, children = record.get("retries"), record.get("subrefs")
        started, stopped, delayed = (_parse_time(record.get(name)) for name in _TIMES)
        return cls(
            started=started or now,
            stopped=stopped,
            delayed=delayed,
            purpose=_text(record.get("purpose")),
            retries=retries if isinstance(retries, int) and 0 <= retries < _MAX_RETRIES else 0,
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=_text(record.get("message")),
            children=frozenset(filter(_text, children[:_MAX_CHILDREN])) if isinstance(children, list) else frozenset(),
        )

    def record(self) -> ProgressRecord:
        """Return the record to store."""
        times = {name: getattr(self, name) for name in _TIMES}
        return {
            **{name: value and value.isoformat(timespec="microseconds") for name, value in times.items()},
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
        error, delay = outcome.exception, outcome.delay
        return replace(
            self,
            stopped=now if outcome.final else None,
            delayed=None if delay is None else now + datetime.timedelta(seconds=min(max(delay, 0.0), _MAX_DELAY)),
            retries=self.retries + 1,
            success=outcome.final and error is None,
            failure=outcome.final and error is not None,
            message=None if error is None else str(error)[:_MAX_MESSAGE],
            children=self.children | outcome.children,
        )


HandlerT = TypeVar("HandlerT", bound=Handler)


class Progress(Generic[HandlerT]):
    """The progress of ``handlers`` in ``states``, by their identifiers."""

    def __init__(self, handlers: Sequence[HandlerT], now: datetime.datetime) -> None:
        self.handlers = handlers
        self.states = {handler.id: HandlerState(started=now) for handler in handlers}

    def due(self, now: datetime.datetime) -> list[HandlerT]:
        """Return the handlers that must be called now."""
        states = self.states
        return [item for item in self.handlers if not states[item.id].finished and not states[item.id].delay(now)]

    def record(self, handler: Handler, outcome: Outcome, now: datetime.datetime) -> None:
        """Record a call of a handler."""
        self.states[handler.id] = self.states[handler.id].after(outcome, now)

    @property
    def failed(self) -> list[str]:
        """The identifiers of the handlers that have failed."""
        return [identity for identity, state in self.states.items() if state.failure]

    def delay(self, now: datetime.datetime) -> float | None:
        """Return the seconds until the next call of a handler; ``None`` if all have finished."""
        return min((state.delay(now) for state in self.states.values() if not state.finished), default=None)


class StoredProgress(Progress[HandlerT]):
    """The progress of handlers that are called for a purpose, as stored in the object.

    ``owned`` are all handlers whose progress may be stored.
    """

    def __init__(
        self,
        handlers: Sequence[HandlerT],
        now: datetime.datetime,
        *,
        storage: ProgressStorage,
        body: Mapping[str, Any],
        owned: Iterable[Handler],
        purpose: str,
    ) -> None:
        super().__init__(handlers, now)
        self._storage = storage
        self._body = body
        self._owned = {handler.id for handler in owned}
        records = {identity: storage.fetch(key=identity, body=body) for identity in self._owned}
        self._stored = {name: HandlerState.parse(record, now) for name, record in records.items() if record is not None}
        self.states = {
            identity: replace(self._stored.get(identity, state), purpose=purpose)
            for identity, state in self.states.items()
        }
        self.superseded = {state.purpose for state in self._stored.values()} - {None, purpose}

    def store(self, patch: Patch) -> None:
        """Add the progress that changed to a patch."""
        for identity, state in self.states.items():
            if state != self._stored.get(identity):
                self._storage.store(key=identity, record=state.record(), body=self._body, patch=patch)

    def purge(self, patch: Patch) -> None:
        """Remove all stored progress in a patch, also that of sub-handlers."""
        states = [*self.states.values(), *self._stored.values()]
        for identity in self._owned.union(self.states, *(state.children for state in states)):
            self._storage.purge(key=identity, body=self._body, patch=patch)


def _parse_time(value: Any) -> datetime.datetime | None:
    try:
        return parse_time(value)
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
