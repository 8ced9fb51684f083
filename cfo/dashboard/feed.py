"""Watches objects while pages are open, and sends what has changed to all of them.

Objects are watched from when the first page is opened until :data:`LINGER` seconds after the last one was closed;
otherwise there is no informer, no timer and no work. Each message is encoded once, for all pages. Changes are combined
by the :class:`~cfo.summaries.overview.Overview`, which delivers them when events pause, or after one second. Each
stream has a queue of messages, which all streams share; nothing is buffered without a limit.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
import structlog

from cfo.api.reading import milliseconds
from cfo.dashboard.state import PageState, event_message
from cfo.runtime import GVK, Clock, Informer
from cfo.summaries.overview import Overview, interruption
from cfo.summaries.summary import kind_names

MAX_STREAMS: Final = 8
"""The maximum number of open streams: a quarter of the connections of an endpoint."""

_MAX_MESSAGES: Final = 120
_MAX_BYTES: Final = 4 << 20
"""What a reader can be behind the others: one minute of messages, or this many bytes."""


class TooManyStreams(Exception):
    """Raised if another stream would exceed :data:`MAX_STREAMS`."""


class StreamDropped(Exception):
    """Raised by :meth:`Stream.receive` if the reader is too slow."""


class Stream:
    """One reader; ``is_closed`` returns whether its connection is closed. ``user`` is empty if there is only one."""

    def __init__(self, is_closed: Callable[[], bool], user: str = "") -> None:
        self.is_closed = is_closed
        self.user = user
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._dropped = False
        self._changed = anyio.Event()

    def send(self, message: bytes) -> None:
        """Add ``message`` to the queue; a reader that has too much to read is dropped."""
        if self._dropped:
            return
        self._messages.append(message)
        self._size += len(message)
        if len(self._messages) > _MAX_MESSAGES or self._size > _MAX_BYTES:
            self.drop()
        self._changed.set()

    def restart(self) -> None:
        """Forget the messages until now, because a snapshot contains them. Raises :class:`StreamDropped`."""
        if self._dropped:
            raise StreamDropped
        self._messages.clear()
        self._size = 0

    def drop(self) -> None:
        """Make the reader end, whatever it has not read."""
        self._dropped = True
        self._messages.clear()
        self._changed.set()

    async def receive(self) -> bytes:
        """Wait for messages, and return all of them. Raises :class:`StreamDropped`."""
        while not self._messages and not self._dropped:
            self._changed = anyio.Event()
            await self._changed.wait()
        messages = b"".join(self._messages)
        self.restart()
        return messages


LINGER: Final = 30.0
"""Seconds for which objects are still watched after the last page was closed, so that reloading it is cheap."""
SYNC_TIMEOUT: Final = 5.0
"""Seconds that a page waits for the first lists; what is missing then follows as changes."""

_RETRY: Final = 5.0
_CONTROLLERS_DELAY: Final = 2.0
"""Seconds from a change until the numbers of reconciles are read, which are a consequence of it."""

Source = Callable[[], AbstractAsyncContextManager[Overview]]
"""Starts to watch; the end of the block stops it."""
Controllers = Callable[[], Sequence[Mapping[str, Any]]]
"""Returns the numbers of each controller of this process."""

_log = structlog.get_logger(__name__)


class PageFeed:
    """The streams of the open pages, and the state that they show.

    ``scope`` describes what is shown: ``server``, ``namespace`` (empty: all) and ``version``. ``controllers`` is given
    where the process has controllers.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        scope: Mapping[str, str],
        controllers: Controllers | None = None,
    ) -> None:
        self.streams: dict[Stream, None] = {}
        self._source = source
        self._clock = clock
        self._scope = dict(scope)
        self._read_controllers = controllers
        self._opened = anyio.Event()
        self._closed = anyio.Event()
        self._reset()

    def _reset(self) -> None:
        self._state = PageState({})
        self._ready = anyio.Event()
        self._informers: Sequence[Informer] = ()
        self._read_left_out: Callable[[], Mapping[GVK, str]] = dict
        self._kinds: list[dict[str, str]] = []
        self._states_changed = anyio.Event()
        self._worked = anyio.Event()
        self._controllers: Sequence[Mapping[str, Any]] | None = None

    def details(self, identity: str) -> Mapping[str, Any] | None:
        """Return what the page shows of an object that a user opens; ``None`` if it does not exist."""
        return self._state.details(identity)

    @asynccontextmanager
    async def open(
        self, is_closed: Callable[[], bool], user: str = ""
    ) -> AsyncIterator[tuple[Stream, bytes]]:
        """Open a stream for a page of ``user``; yield it with the snapshot that precedes its messages.

        If there are too many, streams of closed connections make room, then those of the user who has most. Raises
        :class:`.TooManyStreams`, and :class:`.StreamDropped` if objects cannot be watched.
        """
        if len(self.streams) >= MAX_STREAMS:
            self._make_room(user)
        stream = Stream(is_closed, user)
        self.streams[stream] = None
        self._opened.set()
        try:
            await self._ready.wait()
            stream.restart()
            yield stream, self._snapshot()
        finally:
            self.streams.pop(stream, None)
            self._closed.set()

    def _make_room(self, user: str) -> None:
        """Drop streams so that ``user`` can open one. Raises :class:`TooManyStreams` if no one has more of them."""
        for stream in list(self.streams):
            if stream.is_closed():
                self._drop(stream)
        if len(self.streams) < MAX_STREAMS:
            return
        counts = Counter(stream.user for stream in self.streams)
        heaviest, count = counts.most_common(1)[0]
        # Otherwise, two users would drop each other's streams in turn.
        if count <= counts[user] + 1:
            raise TooManyStreams
        of_heaviest = [stream for stream in self.streams if stream.user == heaviest]
        self._drop(of_heaviest[-1])

    def _drop(self, stream: Stream) -> None:
        stream.drop()
        del self.streams[stream]

    async def run(self) -> None:
        """Watch while pages are open, until cancelled. A failure is logged, and never raised."""
        while True:
            await self._opened.wait()
            delay = 0.0
            try:
                await self._watch()
            except Exception:  # noqa: BLE001 - logged; the operator does not stop because of its dashboard
                _log.exception("Dashboard failed, will retry")
                delay = _RETRY
            finally:
                for stream in self.streams:
                    stream.drop()
                self._ready.set()
                self._reset()
            await self._clock.sleep(delay)

    async def _watch(self) -> None:
        async with self._source() as overview, anyio.create_task_group() as tasks:
            self._state = PageState(overview.views, overview.related_objects)
            self._informers = tuple(overview.informers)
            self._read_left_out = overview.left_out
            overview.add_left_out_handler(self._on_state)
            for informer in self._informers:
                informer.add_state_handler(self._on_state)
            try:
                with anyio.move_on_after(SYNC_TIMEOUT):
                    await self._wait_for_lists()
                tasks.start_soon(self._follow, overview)
                await self._ready.wait()
                tasks.start_soon(self._follow_states)
                if self._read_controllers is not None:
                    tasks.start_soon(self._follow_controllers, self._read_controllers)
                await self._wait_until_unused()
                tasks.cancel_scope.cancel()
            finally:
                for informer in self._informers:
                    informer.remove_state_handler(self._on_state)

    async def _wait_until_unused(self) -> None:
        """Wait until no page has been open for :data:`LINGER` seconds."""
        while True:
            while self.streams:
                self._closed = anyio.Event()
                await self._closed.wait()
            self._opened = anyio.Event()
            timer = self._clock.call_later(LINGER, self._opened.set)
            await self._opened.wait()
            timer.cancel()
            if not self.streams:
                self._opened = anyio.Event()
                return

    async def _follow(self, overview: Overview) -> None:
        with overview.subscribe() as changes:
            if len(await overview.snapshot()):
                self._apply(await changes.next())
            self._kinds = self._problems()
            self._ready.set()
            async for batch in changes:
                self._send(self._apply(batch))
                self._on_state()  # an object may be shown that was left out
                self._worked.set()

    def _apply(self, batch: Any) -> dict[str, Any]:
        return self._state.apply(batch, self._now())

    # What cannot be read.

    def _on_state(self) -> None:
        self._states_changed.set()

    async def _wait_for_lists(self) -> None:
        while not all(map(_has_outcome, self._informers)):
            self._states_changed = anyio.Event()
            await self._states_changed.wait()

    async def _follow_states(self) -> None:
        while True:
            kinds = self._problems()
            if kinds != self._kinds:
                self._kinds = kinds
                self._send({"kinds": kinds})
            self._states_changed = anyio.Event()
            await self._states_changed.wait()

    def _problems(self) -> list[dict[str, str]]:
        """Return the kinds that cannot be read, with the reason; a kind that is not served is not a problem.

        Their level is a warning if objects are missing, and ``idle`` if details of objects are missing.
        """
        unread: dict[GVK, str] = {}
        served = [informer for informer in self._informers if not informer.is_not_served]
        for informer in served:
            if informer.has_synced or not informer.problem:
                continue
            unread[informer.gvk] = informer.problem
            if informer.is_forbidden:
                unread[informer.gvk] = "permission to list and watch is missing"
        views = self._state.views
        names = kind_names(informer.gvk for informer in served)
        found = [
            _kind_problem(names[gvk], gvk.kind, problem, is_shown=gvk in views)
            for gvk, problem in unread.items()
        ]
        for gvk, text in self._read_left_out().items():
            found.append(_kind_problem(names[gvk], "", text, is_shown=True))
        if self._state.is_truncated:
            problem = "there are too many objects; some are left out"
            found.append(_kind_problem("Objects", "", problem, is_shown=True))
        if lost := interruption(self._informers):
            problem = f"the connection is lost, so the page shows the last known state: {lost}"
            found.append(_kind_problem("Cluster", "", problem, is_shown=True))
        return sorted(found, key=lambda each: each["title"])

    # Reconciles.

    async def _follow_controllers(self, read: Controllers) -> None:
        while True:
            self._worked = anyio.Event()
            numbers = read()
            if numbers != self._controllers:
                self._controllers = numbers
                self._send({"controllers": numbers})
            await self._worked.wait()
            await self._clock.sleep(_CONTROLLERS_DELAY)

    # Messages.

    def _send(self, changes: Mapping[str, Any]) -> None:
        if changes and self.streams:
            message = event_message("changes", {"time": self._now(), **changes})
            for stream in self.streams:
                stream.send(message)

    def _snapshot(self) -> bytes:
        data: dict[str, Any] = {"time": self._now(), "scope": self._scope, "kinds": self._kinds}
        if self._controllers is not None:
            data["controllers"] = self._controllers
        return event_message("snapshot", {**data, **self._state.snapshot()})

    def _now(self) -> int:
        return milliseconds(self._clock.now())


def _kind_problem(title: str, kind: str, problem: str, *, is_shown: bool) -> dict[str, str]:
    """Return why a kind cannot be read; ``is_shown``: whether objects of the kind are shown."""
    level = "idle"
    if is_shown:
        level = "warning"
    return {"title": title, "kind": kind, "problem": problem[:300], "level": level}


def _has_outcome(informer: Informer) -> bool:
    """Return whether the first list was read, or cannot be read at the moment."""
    return informer.has_synced or informer.problem not in ("", "not started")
