"""When a client is disconnected because it sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["HEAD_SECONDS", "IDLE_SECONDS", "Deadlines"]

HEAD_SECONDS: Final = 32.0
"""Maximum seconds for the first request, and for a request line with its headers, as in kube-apiserver."""
IDLE_SECONDS: Final = 3630.0
"""A client that sends no further request for so long is disconnected."""


class Deadlines:
    """The timers of one connection, which begin when it is opened.

    The timer of an idle connection is not renewed with each request: when it ends, it starts again for the rest.
    ``disconnect`` is called at most once. Like ``net/http``, the server does not respond before it disconnects.
    """

    __slots__ = ("_disconnect", "_head", "_idle", "_idle_since", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, disconnect: Callable[[], None]) -> None:
        self._loop = loop
        self._disconnect = disconnect
        self._idle_since: float | None = loop.time()
        self._idle: asyncio.TimerHandle = loop.call_later(IDLE_SECONDS, self._end_if_idle)
        self._head: asyncio.TimerHandle | None = None
        self.head_begins()

    def head_begins(self) -> None:
        """Expect the rest of a request line and its headers in time; later calls do not extend the time."""
        if self._head is None:
            self._head = self._loop.call_later(HEAD_SECONDS, self._disconnect)

    def request_begins(self) -> None:
        """Wait for the response as long as it takes: the headers of a request are complete."""
        self._idle_since = None
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def request_ends(self) -> None:
        """Expect another request."""
        self._idle_since = self._loop.time()

    def cancel(self) -> None:
        """End the timers with the connection."""
        self._idle.cancel()
        if self._head is not None:
            self._head.cancel()

    def _end_if_idle(self) -> None:
        now = self._loop.time()
        rest = (now if self._idle_since is None else self._idle_since) + IDLE_SECONDS - now
        if rest <= 0:
            self._disconnect()
        else:
            self._idle = self._loop.call_later(max(rest, 60.0), self._end_if_idle)
