"""Runs the CPU-bound work of reviews: in the event loop if it is small, else in a thread.

The attack: any pod can send reviews of several megabytes to the webhooks. The event loop also renews the leader's Lease
and serves ``/healthz``, so no request may hold it for long. A thread is enough for that, because Python passes the GIL
on every 5 ms, and the calls that keep it (decoding and encoding JSON) take some 10 ms per MB. One review computes at a
time, because several would only multiply the time that the event loop waits for the GIL. Of the reviews that wait for
the thread, at most :data:`MAX_WAITING`, :mod:`.fair_queue` determines the next: large ones delay no others, nor do the
many of one namespace.

Small reviews run in the event loop, which takes less time than passing them to a thread. Which are small depends on
their weight, an estimate of the work, because a body of 13 kB can make a webhook compute 600 kB. When many arrive at
once, other tasks run after each :data:`MAX_ITERATION`.

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
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from cfo.runtime.process.threads import ThreadPool
from cfo.runtime.webhook.fair_queue import FairQueue, WaitingReview

MAX_INLINE: Final = 16 * 1024
"""The maximum weight in bytes of a review that runs in the event loop; it takes some 5 ms."""

MAX_ITERATION: Final = 8 * MAX_INLINE
"""The weight in bytes after which no more functions run in the same iteration of the event loop."""

MAX_THREADS: Final = 3
"""The maximum number of functions that run at once, of which all but one were abandoned."""

MAX_WAITING: Final = 50
"""The maximum number of reviews that wait for the thread."""

P = ParamSpec("P")
T = TypeVar("T")


class TooManyReviews(Exception):
    """Raised for a review that is not begun because too many others wait; the message is the limit."""


class ReviewWorker:
    """A queue for reviews. Used by one event loop."""

    def __init__(self) -> None:
        self._iteration_weight = 0
        self._threads = ThreadPool("admission", MAX_THREADS)
        self._waiting = FairQueue()
        self._first: deque[asyncio.Future[None]] = deque()
        """The reviews that come before all others, see :meth:`run_next`."""
        self._busy = False

    async def run(
        self,
        client: tuple[str, str],
        weight: int,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return ``function(*args, **kwargs)`` for a review of ``weight`` bytes. Raises :class:`TooManyReviews`.

        ``client`` is the address that sent the review, and the namespace that it is about.
        """
        if weight <= MAX_INLINE:
            await self._inline_turn(weight)
            return function(*args, **kwargs)
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyReviews(f"{MAX_WAITING} reviews that wait")
        await self._turn(client, weight)
        return await self._run_in_thread(partial(function, *args, **kwargs))

    async def run_next(
        self, weight: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like :meth:`run`, but before all reviews that wait: for one that holds what it has computed in the thread.

        So at most two reviews hold such results, however many wait.
        """
        if weight <= MAX_INLINE:
            await self._inline_turn(weight)
            return function(*args, **kwargs)
        await self._next_turn()
        return await self._run_in_thread(partial(function, *args, **kwargs))

    async def _inline_turn(self, weight: int) -> None:
        """Wait until a function of ``weight`` can run in this iteration of the event loop: usually at once."""
        while self._iteration_weight >= MAX_ITERATION:  # noqa: ASYNC110 (each iteration allows some of them)
            await asyncio.sleep(0)
        if self._iteration_weight == 0:
            asyncio.get_running_loop().call_soon(self._start_iteration)
        self._iteration_weight += weight

    def _start_iteration(self) -> None:
        self._iteration_weight = 0

    async def _run_in_thread(self, function: Callable[[], T]) -> T:
        try:
            return await self._threads.run(function)
        finally:
            self._start_next()

    async def _turn(self, client: tuple[str, str], weight: int) -> None:
        """Wait until no other review computes, and this one is next in the queue."""
        if not self._busy:
            self._busy = True
            return
        review = WaitingReview(*client, weight, asyncio.get_running_loop().create_future())
        self._waiting.add(review)
        await self._begin(review.turn, lambda: self._waiting.discard(review))

    async def _next_turn(self) -> None:
        """Wait until no other review computes."""
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first.append(turn)
        await self._begin(turn, lambda: None)

    async def _begin(self, turn: asyncio.Future[None], leave: Callable[[], None]) -> None:
        """Wait for a turn; ``leave`` removes a review that is cancelled before, unless it was passed over."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                leave()
            else:
                self._start_next()
            raise

    def _start_next(self) -> None:
        """Start the next review, and pass over those that were cancelled a moment ago."""
        while self._first or len(self._waiting):
            turn = self._first.popleft() if self._first else self._waiting.pop().turn
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
