"""Runs the CPU-bound work of large reviews in a thread.

The attack: any pod can send reviews of several megabytes to the webhooks. The event loop also renews the leader's Lease
and serves ``/healthz``, so no request may hold it for long. A thread is enough for that, because Python passes the GIL
on every 5 ms, and the calls that keep it (decoding and encoding JSON) take some 10 ms per MB. One review computes at a
time, because several would only multiply the time that the event loop waits for the GIL. Small reviews run in the event
loop, which takes less time than passing them to a thread. Of the large ones the smallest is next, so that large ones
delay no others.

A review that is cancelled (at the API server's timeout) leaves the queue at once. A function that already runs cannot
be cancelled: its thread is abandoned, and the next review begins. At most :data:`MAX_THREADS` functions run at once;
while all of them were abandoned, large reviews wait, until their own deadlines. Therefore functions must end soon for
any input: they limit what they read, as the webhooks of RayClusters and AppWrappers do. Tried instead:

* raising an exception in the thread (``PyThreadState_SetAsyncExc``): it took 150 lines to deliver it exactly once, and
  does not reach C code;
* a process for each review: 40 MB of memory and a copy of each object;
* :func:`anyio.to_thread.run_sync`: it does not limit the threads that were abandoned, see
  :class:`~cfo.runtime.process.threads.ThreadPool`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final, ParamSpec, TypeVar

from cfo.runtime.process.threads import ThreadPool

MAX_INLINE: Final = 16 * 1024
"""The maximum size in bytes of a request body whose review runs in the event loop."""

MAX_THREADS: Final = 3
"""The maximum number of functions that run at once, of which all but one were abandoned."""

P = ParamSpec("P")
T = TypeVar("T")


class ReviewWorker:
    """A queue for large reviews. Used by one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPool("admission", MAX_THREADS)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._busy = False

    async def run(
        self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return ``function(*args, **kwargs)`` for a review whose body has ``size`` bytes."""
        if size <= MAX_INLINE:
            return function(*args, **kwargs)
        await self._turn(size)
        try:
            return await self._threads.run(function, *args, **kwargs)
        finally:
            self._start_next()

    async def _turn(self, size: int) -> None:
        """Wait until no other review computes."""
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (size, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled after it was started
                self._start_next()
            raise

    def _start_next(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
