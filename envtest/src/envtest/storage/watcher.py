"""A watcher's end of the fan-out: a bounded queue of changes that never makes a writer wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from envtest.storage.record import Change

__all__ = ["Watcher", "WatcherOverflow"]


class WatcherOverflow(Exception):
    """The watcher fell too far behind and was closed; its client resumes from its last resourceVersion."""


class Watcher:
    """Receives the changes of one table, all namespaces or one.

    ``limit`` bounds the changes that wait; more close the watcher. Use as ``async for batch``-like loop over
    :meth:`next_batch`, and :meth:`close` in the end.
    """

    __slots__ = ("_closed", "_detach", "_limit", "_overflow", "_pending", "_waiter", "namespace", "on_overflow")

    def __init__(
        self, namespace: str, backlog: Iterable[Change], limit: int, detach: Callable[[Watcher], None]
    ) -> None:
        self.namespace = namespace
        self._pending: list[Change] = list(backlog)
        self._limit = limit
        self._detach = detach
        self._waiter: asyncio.Future[None] | None = None
        self._overflow = False
        self._closed = False
        self.on_overflow: Callable[[], None] | None = None
        """Called once when the watcher is closed because it fell behind: its owner may be stuck in sending."""

    def offer(self, change: Change) -> None:
        """Called by the store for each change, in order."""
        if self.namespace and change.record.namespace != self.namespace:
            return
        if len(self._pending) >= self._limit:
            self._overflow = True
            self._pending = []
            self.close()
            if self.on_overflow is not None:
                self.on_overflow()
            return
        self._pending.append(change)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next_batch(self, timeout: float | None = None) -> list[Change]:
        """The changes since the last call, waiting for the first at most ``timeout`` seconds.

        Empty after the timeout, and at once when :attr:`closed`. Raises :class:`WatcherOverflow`.
        """
        if not self._pending and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(self._waiter, timeout)
            except TimeoutError:
                pass
            finally:
                self._waiter = None
        if self._overflow:
            raise WatcherOverflow
        batch, self._pending = self._pending, []
        return batch

    @property
    def closed(self) -> bool:
        """Whether no more changes will come."""
        return self._closed

    def close(self) -> None:
        """Detaches from the store; what is pending can still be read."""
        if not self._closed:
            self._closed = True
            self._detach(self)
            self._wake()
