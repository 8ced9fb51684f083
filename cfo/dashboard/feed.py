"""Combines the changes of all objects into messages for the open pages.

Objects are watched from when the first page is opened until :data:`LINGER` seconds after the last one was closed;
otherwise there is no informer, no timer and no work. Each message is encoded once, for all pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
import orjson
import structlog

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.flux import FLUX_JOB, FLUX_SETUP
from cfo.dashboard.history import History
from cfo.dashboard.messages import Rows, event_message
from cfo.dashboard.rows import details, events_of, identity_of, milliseconds, past_phases, waiting_orders
from cfo.dashboard.streams import Stream, Streams
from cfo.overview import Change, ChangeType, Overview, Summary
from cfo.runtime import Clock, Informer

__all__ = ["LINGER", "Feed"]

LINGER: Final = 30.0
"""Seconds for which objects are still watched after the last page was closed, so that reloading it is cheap."""
SYNC_TIMEOUT: Final = 5.0
"""Seconds that a page waits for the first lists; what is missing then follows as changes."""

_RETRY: Final = 5.0
_CONTROLLERS_DELAY: Final = 2.0
"""Seconds from a change until the numbers of reconciles are read, which are a consequence of it."""

_log = structlog.get_logger(__name__)


class Feed:
    """The state of all objects, and the streams of the open pages.

    ``source`` starts to watch: it yields the overview, and stops at the end of its block. ``scope`` describes what is
    shown (server, namespace, version). ``controllers`` returns the numbers of each controller of this process, if it
    has controllers.
    """

    def __init__(
        self,
        source: Callable[[], AbstractAsyncContextManager[Overview]],
        clock: Clock,
        scope: Mapping[str, str],
        controllers: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.streams = Streams()
        self._source = source
        self._clock = clock
        self._scope = dict(scope)
        self._read_controllers = controllers
        self._controllers: Sequence[Mapping[str, Any]] | None = None
        self._overview: Overview | None = None
        self._opened = anyio.Event()
        self._closed = anyio.Event()
        self._ready = anyio.Event()
        self._changed = anyio.Event()
        self._kinds: list[dict[str, str]] = []
        self._clear()

    def _clear(self) -> None:
        self._rows = Rows()
        self._summaries: dict[str, Summary] = {}
        self._jobs: dict[str, Summary] = {}
        self._setups: dict[str, Summary] = {}
        self._history = History()

    @property
    def is_watching(self) -> bool:
        """Whether objects are watched."""
        return self._overview is not None

    def details(self, uid: str) -> Mapping[str, Any] | None:
        """Return what the page shows of an object that a user opens; ``None`` if it does not exist."""
        summary = self._summaries.get(uid)
        return details(summary) if summary is not None else None

    @asynccontextmanager
    async def open(self, is_closed: Callable[[], bool]) -> AsyncIterator[Stream]:
        """Open a stream for a page, whose first message is a snapshot. Raises :class:`.TooManyStreams`."""
        with self.streams.open(is_closed) as stream:
            self._opened.set()
            try:
                with anyio.move_on_after(2 * SYNC_TIMEOUT):
                    await self._ready.wait()
                stream.start(self._snapshot())
                yield stream
            finally:
                self._closed.set()

    async def run(self) -> None:
        """Watch while pages are open, until cancelled. A failure is logged; it never ends the process."""
        while True:
            await self._opened.wait()
            try:
                await self._watch()
            except Exception:
                _log.exception("Dashboard failed, will retry")
                await self._clock.sleep(_RETRY)
            finally:
                self._overview = None
                self._ready = anyio.Event()
                self.streams.drop()
                self._clear()

    async def _watch(self) -> None:
        async with self._source() as overview, anyio.create_task_group() as tasks:
            self._overview = overview
            for informer in overview.informers:
                informer.add_state_handler(self._on_state)
            try:
                with anyio.move_on_after(SYNC_TIMEOUT):
                    await overview.wait_for_lists()
                tasks.start_soon(self._follow, overview)
                tasks.start_soon(self._follow_states, overview)
                if self._read_controllers is not None:
                    tasks.start_soon(self._follow_controllers, self._read_controllers)
                await self._wait_until_unused()
                tasks.cancel_scope.cancel()
            finally:
                for informer in overview.informers:
                    informer.remove_state_handler(self._on_state)

    async def _wait_until_unused(self) -> None:
        """Wait until no page has been open for :data:`LINGER` seconds."""
        while True:
            await self._closed.wait()
            self._closed = anyio.Event()
            if len(self.streams):
                continue
            self._opened = anyio.Event()
            timeout = self._clock.call_later(LINGER, self._opened.set)
            await self._opened.wait()
            timeout.cancel()
            if not len(self.streams):
                self._opened = anyio.Event()
                return

    async def _follow(self, overview: Overview) -> None:
        with overview.subscribe() as changes:
            first = await changes.next() if await overview.snapshot() else []
            self._apply(first)
            self._update_kinds(overview.informers)
            self._ready.set()
            async for batch in changes:
                self._send(self._apply(batch))
                self._changed.set()

    async def _follow_states(self, overview: Overview) -> None:
        while True:
            self._state_changed = anyio.Event()
            await self._state_changed.wait()
            if self._update_kinds(overview.informers):
                self._send({"kinds": self._kinds})

    async def _follow_controllers(self, read: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        while True:
            numbers = read()
            if numbers != self._controllers:
                self._controllers = numbers
                self._send({"controllers": numbers})
            await self._changed.wait()
            self._changed = anyio.Event()
            await self._clock.sleep(_CONTROLLERS_DELAY)

    # Changes.

    def _apply(self, changes: Iterable[Change]) -> dict[str, Any]:
        """Update the state, and return the message with all changes."""
        now = milliseconds(self._clock.now())
        rows, gone, phases, events = [], [], {}, []
        queue_changed = False
        for change in changes:
            summary = change.summary
            identity = identity_of(summary)
            queue_changed |= summary.gvk in (FLUX_JOB, FLUX_SETUP)
            if change.type is ChangeType.REMOVED:
                self._forget(identity)
                gone.append(identity)
                continue
            encoded = self._rows.put(identity, summary)
            if encoded is None:
                continue
            rows.append(encoded)
            new_events = events_of(summary, self._summaries.get(identity))
            events += new_events
            self._summaries[identity] = summary
            if summary.gvk == FLUX_SETUP:
                self._setups[identity] = summary
            elif summary.gvk == FLUX_JOB:
                self._jobs[identity] = summary
            elif summary.gvk == APPWRAPPER:
                new = self._history.phases.record(
                    identity, now, summary.state, summary.level.value, past_phases(summary)
                )
                if new:
                    phases[identity] = new
        message: dict[str, Any] = {"rows": rows, "gone": gone, "phases": phases, "events": events}
        if queue_changed:
            message["orders"] = self._record_orders(now)
        return message

    def _forget(self, identity: str) -> None:
        self._rows.remove(identity)
        self._history.forget(identity)
        for known in (self._summaries, self._jobs, self._setups):
            known.pop(identity, None)

    def _record_orders(self, now: int) -> dict[str, Any]:
        orders = waiting_orders(self._setups.values(), self._jobs.values())
        found = {uid: self._history.orders.record(uid, now, names) for uid, names in orders.items()}
        return {uid: samples for uid, samples in found.items() if samples}
