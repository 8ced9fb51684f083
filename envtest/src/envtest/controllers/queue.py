"""A queue of keys to work on: each is there once, and nobody else works on a key while somebody does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["KeyQueue"]

K = TypeVar("K", bound=Hashable)

FIRST_DELAY: Final = 0.005
LONGEST_DELAY: Final = 30.0


class KeyQueue(Generic[K]):
    """Keys that are added while they are worked on come again afterwards; those that fail come later and later."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._taken: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        """Adds a key; nothing happens if it waits already."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._taken:
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Adds a key when ``seconds`` have passed; the sooner of two wishes holds."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def take(self) -> K:
        """The next key; give it back with :meth:`done`."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._taken.add(key)
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        """Ends the work on a key; a failed one is tried again after a delay that doubles each time."""
        self._taken.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake.set()
        if not failed:
            self._failures.pop(key, None)
            return
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(FIRST_DELAY * 2 ** min(count, 20), LONGEST_DELAY))

    def close(self) -> None:
        """Forgets all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
