"""Limits how many requests all reviews together send at the same time, and lets clients and namespaces take turns.

The attack: an AppWrapper of 4 kB with many kinds makes the operator ask the API server some 60 questions, and a dry run
of it stores nothing. A hundred of them at once had thousands of requests in flight: no Lease was renewed, and no other
review was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import anyio

MAX_REQUESTS: Final = 8
"""The maximum number of requests in flight."""

_Key: TypeAlias = tuple[str, str]
"""A client address and a namespace."""


class Turns:
    """Lets at most :data:`MAX_REQUESTS` tasks run at once.

    Of those that wait, the namespaces take turns, so that one with many tasks delays another one by one task each. A
    namespace has a turn for each client address, because a pod can name the namespace of another tenant.
    """

    def __init__(self) -> None:
        self._running = 0
        self._waiting: dict[_Key, deque[anyio.Event]] = {}
        """The tasks that wait, by client address and namespace; the first one is the next."""

    @asynccontextmanager
    async def turn(self, client: str, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn of ``namespace`` in the reviews from ``client``, and end it on exit."""
        if self._running < MAX_REQUESTS:
            self._running += 1
        else:
            await self._wait((client, namespace))
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, key: _Key) -> None:
        """Wait until another task passes its turn on."""
        event = anyio.Event()
        self._waiting.setdefault(key, deque()).append(event)
        try:
            await event.wait()
        except BaseException:
            if event.is_set():
                self._pass_on()
            else:
                self._remove(key, event)
            raise

    def _pass_on(self) -> None:
        """Give the turn that has ended to the next task, if any waits."""
        key = next(iter(self._waiting), None)
        if key is None:
            self._running -= 1
            return
        tasks = self._waiting.pop(key)
        tasks.popleft().set()
        if tasks:
            self._waiting[key] = tasks  # now the last one

    def _remove(self, key: _Key, event: anyio.Event) -> None:
        tasks = self._waiting[key]
        tasks.remove(event)
        if not tasks:
            del self._waiting[key]
