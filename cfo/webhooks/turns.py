"""Limits how many requests all reviews together send at the same time, and lets namespaces take turns.

The attack: an AppWrapper of 4 kB with many kinds makes the operator ask the API server some 60 questions, and a dry run
of it stores nothing. A hundred of them at once had thousands of requests in flight: no Lease was renewed, and no other
review was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

MAX_REQUESTS: Final = 8
"""The maximum number of requests in flight."""


class Turns:
    """Lets at most :data:`MAX_REQUESTS` tasks run at once.

    Of those that wait, the namespaces take turns, so that one with many tasks delays another one by one task each.
    """

    def __init__(self) -> None:
        self._running = 0
        self._waiting: dict[str, deque[anyio.Event]] = {}
        """The tasks that wait, by namespace; the first namespace is the next one."""

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn of ``namespace``, and end it on exit."""
        if self._running < MAX_REQUESTS:
            self._running += 1
        else:
            await self._wait(namespace)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, namespace: str) -> None:
        """Wait until another task passes its turn on."""
        event = anyio.Event()
        self._waiting.setdefault(namespace, deque()).append(event)
        try:
            await event.wait()
        except BaseException:
            if event.is_set():
                self._pass_on()
            else:
                self._remove(namespace, event)
            raise

    def _pass_on(self) -> None:
        """Give the turn that has ended to a task of the next namespace, if any waits."""
        namespace = next(iter(self._waiting), None)
        if namespace is None:
            self._running -= 1
            return
        tasks = self._waiting.pop(namespace)
        tasks.popleft().set()
        if tasks:
            self._waiting[namespace] = tasks  # now the last one

    def _remove(self, namespace: str, event: anyio.Event) -> None:
        tasks = self._waiting[namespace]
        tasks.remove(event)
        if not tasks:
            del self._waiting[namespace]
