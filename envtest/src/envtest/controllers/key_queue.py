"""A queue of keys to reconcile: each key is queued once, and is processed by one worker at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from time import thread_time
from typing import Final, Generic, TypeVar

from envtest.apimachinery.clock import Clock, Timer

__all__ = ["KeyQueue"]

K = TypeVar("K", bound=Hashable)

BASE_DELAY: Final = 0.005
MAX_DELAY: Final = 1000.0

_SHORT: Final = 0.02
"""Seconds of CPU time up to which a key does not rest after it was processed."""

_MAX_REST: Final = 1.0
"""The longest rest of a key, in seconds of the event loop."""


class KeyQueue(Generic[K]):
    """Keys to reconcile; failed ones are retried with back-off.

    A key that is added while it is processed is queued again afterwards. Delays are measured by ``clock``.

    A key whose processing takes much CPU time rests as long, at most a second, before it is processed again: an owner
    with thousands of pods reads all pods, and would do so whenever one changes.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, Timer] = {}
        self._started: dict[K, float] = {}
        self._resting: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, key: K) -> None:
        """Add a key, unless it is queued already."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        self._idle.clear()
        if key not in self._processing and key not in self._resting:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after ``seconds``; of several calls for one key, the earliest time applies."""
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when <= self._clock.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = self._clock.call_later(seconds, lambda: self._due(key))

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    @property
    def idle(self) -> bool:
        """Whether no key is queued or processed; keys that wait for a timer do not count."""
        return self._idle.is_set()

    async def wait_idle(self) -> None:
        """Wait until :attr:`idle`."""
        await self._idle.wait()

    async def get(self) -> K:
        """Wait for the next key and return it. The caller must pass it to :meth:`done`."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        self._started[key] = thread_time()
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        """Finish processing a key; a failed key is retried after a delay that doubles with each failure.

        A key that was added meanwhile is queued after the controllers that watch the result, as if each controller
        needed some time to see changes.
        """
        self._processing.discard(key)
        loop = asyncio.get_running_loop()
        taken = thread_time() - self._started.pop(key)
        if taken > _SHORT:
            self._resting[key] = loop.call_later(min(taken, _MAX_REST), self._end_rest, key)
        elif key in self._dirty:
            loop.call_soon(self._make_ready, key)
        if not self._dirty and not self._processing:
            self._idle.set()
        if not failed:
            self._failures.pop(key, None)
            return
        count = self._failures.get(key, 0) + 1
        self._failures[key] = count
        self.add_after(key, min(BASE_DELAY * 2 ** min(count, 20), MAX_DELAY))

    def _end_rest(self, key: K) -> None:
        del self._resting[key]
        if key in self._dirty:
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        self._ready.append(key)
        self._wake.set()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for rest in self._resting.values():
            rest.cancel()
        self._resting.clear()
