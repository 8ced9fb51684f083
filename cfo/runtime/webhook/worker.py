"""Runs the CPU-bound work of large reviews outside of the event loop.

The event loop also renews the leader's Lease and serves ``/healthz``, so no request may hold it for long. A thread is
enough for that, because validators do only work that is linear in a bounded number of entries: Python passes the GIL
on every 5 ms, and the calls that keep it (decoding and encoding JSON) take some 10 ms per MB. There is one thread,
because several could not compute at the same time and would only multiply the time that the event loop waits for the
GIL. A process could be killed at its deadline, but would cost 40 MB of memory and a copy of each object; for work of at
most a few 100 ms that is not worth it.

A review that is cancelled at the API server's timeout leaves the queue at once. If its function already runs, the
response is sent without it, and the function ends within its bound. Small reviews run in the event loop, which takes
less time than passing them to a thread. Of the large ones the smallest is next, so that large ones delay no others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import Final, ParamSpec, TypeVar

__all__ = ["MAX_INLINE", "ReviewWorker"]

MAX_INLINE: Final = 16 * 1024
"""The maximum size in bytes of a request body whose review runs in the event loop."""

P = ParamSpec("P")
T = TypeVar("T")


class ReviewWorker:
    """One thread with a queue. Used by one event loop; :meth:`close` must be called at the end."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._busy = False

    async def run(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(*args, **kwargs)`` for a review whose body has ``size`` bytes."""
        if size <= MAX_INLINE:
            return function(*args, **kwargs)
        await self._turn(size)
        loop = asyncio.get_running_loop()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="admission")
        work: Future[T] = self._executor.submit(copy_context().run, partial(function, *args, **kwargs))

        def release(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._start_next)

        work.add_done_callback(release)
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        """Stop the thread after the function that it runs."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    async def _turn(self, size: int) -> None:
        """Wait until the thread is free, and take it."""
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (size, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._start_next()
            raise

    def _start_next(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
