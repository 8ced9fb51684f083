"""A watcher: a bounded queue of changes that never blocks the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from envtest.storage.record import Change

__all__ = ["LaggingWatchers", "Watcher", "WatcherOverflow"]


class WatcherOverflow(Exception):
    """Raised when a watcher fell too far behind and was closed; its client resumes from its last resourceVersion."""


class LaggingWatchers(set["Watcher"]):
    """The watchers with changes that they have not sent.

    Those that wait and have a sender are served together, in one turn of the event loop: all changes up to then are one
    write for each, and no task is woken.
    """

    __slots__ = ("_scheduled",)

    def __init__(self) -> None:
        super().__init__()
        self._scheduled: list[Watcher] = []

    def send_soon(self, watcher: Watcher) -> None:
        """Let a watcher send what it has in the next turn of the event loop, which runs."""
        if not self._scheduled:
            asyncio.get_running_loop().call_soon(self._send)
        self._scheduled.append(watcher)

    def _send(self) -> None:
        scheduled = self._scheduled
        self._scheduled = []
        for watcher in scheduled:
            watcher.send()


class Watcher:
    """Receives the changes of one resource, in all namespaces or in one.

    ``limit`` is the number of changes that may wait; the next one closes the watcher. Call :meth:`next_batch` in a loop
    and :meth:`close` at the end. While the watcher has changes that it has not sent, it is in ``behind``.

    ``sender`` can send changes without the task that waits in :meth:`next_batch`, and returns whether it has; the task
    receives only what it has not sent.
    """

    __slots__ = (
        "_behind",
        "_closed",
        "_detach",
        "_limit",
        "_overflow",
        "_pending",
        "_timer",
        "_until",
        "_waiter",
        "namespace",
        "on_overflow",
        "sender",
    )

    def __init__(
        self,
        namespace: str,
        backlog: Iterable[Change],
        limit: int,
        detach: Callable[[Watcher], None],
        behind: LaggingWatchers,
    ) -> None:
        self.namespace = namespace
        self._behind = behind
        self._pending: list[Change] = list(backlog)
        self._limit = limit
        self._detach = detach
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._overflow = False
        self._closed = False
        self.on_overflow: Callable[[], None] | None = None
        """Called once when the watcher is closed because it fell behind: its owner may be blocked in a send."""
        self.sender: Callable[[list[Change]], bool] | None = None

    def offer(self, change: Change) -> None:
        """Queue a change; the store calls this for each change in order."""
        if self.namespace and change.record.namespace != self.namespace:
            return
        # a client that does not read must not use up the memory of the server
        if len(self._pending) >= self._limit:
            self._overflow = True
            self._pending = []
            self.close()
            if self.on_overflow is not None:
                self.on_overflow()
            return
        self._pending.append(change)
        self._behind.add(self)
        # a task that is not waiting takes the change by itself
        if self.sender is None or self._waiter is None:
            self._wake()
        elif len(self._pending) == 1:  # more changes are sent together with the first
            self._behind.send_soon(self)

    def send(self) -> None:
        """Send what waits, or let the task of the watch do it."""
        sent = False
        if self._pending and self.sender is not None and self._waiter is not None:
            try:
                sent = self.sender(self._pending)
            except Exception:  # noqa: BLE001 - the task of the watch fails in the same way, and ends only this watch
                sent = False
        if sent:
            self._pending = []
            self._behind.discard(self)
        else:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _set_timer(self, until: float | None) -> None:
        """Wake at ``until``; most calls have the time of the previous one, so the timer remains until it changes."""
        if until == self._until:  # a timer for each batch would cost more than the batch
            return
        self._until = until
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if until is not None:
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        self._until = None
        self._timer = None
        self._wake()

    async def next_batch(self, until: float | None = None) -> list[Change]:
        """Return the changes since the last call; wait for the first until the event loop's time ``until``.

        Returns an empty list at that time, and immediately if :attr:`closed`. Raises :class:`WatcherOverflow`.
        """
        if not self._pending:
            self._behind.discard(self)
        if not self._pending and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            self._set_timer(until)
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._overflow:
            raise WatcherOverflow
        batch = self._pending
        self._pending = []
        return batch

    @property
    def closed(self) -> bool:
        """Whether no more changes will arrive."""
        return self._closed

    def close(self) -> None:
        """Detach from the store; pending changes can still be read."""
        if not self._closed:
            self._closed = True
            self._behind.discard(self)
            self._detach(self)
            self._wake()
            self._set_timer(None)
