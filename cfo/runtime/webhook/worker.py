"""Runs the CPU-bound work of large reviews outside of the event loop, and ends it at its deadline.

The event loop also renews the leader's Lease and serves ``/healthz``, so no request may hold it for long. A thread is
enough for that, because Python passes the GIL on every 5 ms, and the calls that keep it (decoding and encoding JSON)
take some 10 ms per MB. There is one thread, because several could not compute at the same time and would only multiply
the time that the event loop waits for the GIL. Small reviews run in the event loop, which takes less time than passing
them to a thread. Of the large ones the smallest is next, so that large ones delay no others.

**The deadline.** A review that is cancelled (at the API server's timeout) leaves the queue at once. If its function
already runs, :class:`Interrupted` is raised in the thread, between two bytecodes of Python code
(``PyThreadState_SetAsyncExc``), again and again until the function ends. A call into C code ends first; if that takes
longer than :data:`ABANDON_AFTER`, another thread takes over the queue, and the old one ends after that call. At most
:data:`MAX_ABANDONED` such threads exist; while there are so many, reviews wait, until their own deadlines. Only C code
that never releases the GIL cannot be ended; limits of the input prevent it. The alternatives are worse: a process that
is killed costs 40 MB of memory and a copy of each object; checks of a deadline in every function can be forgotten.

Therefore functions must be pure: what they hold or change when they are interrupted may be left incomplete.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

import structlog

__all__ = ["ABANDON_AFTER", "MAX_ABANDONED", "MAX_INLINE", "Interrupted", "ReviewWorker"]

MAX_INLINE: Final = 16 * 1024
"""The maximum size in bytes of a request body whose review runs in the event loop."""

ABANDON_AFTER: Final = 1.0
"""The time in seconds after which another thread replaces one that does not react to its interruption."""

MAX_ABANDONED: Final = 4
"""The maximum number of threads that were replaced and have not ended yet."""

_INTERRUPT_INTERVAL: Final = 0.05  # seconds between interruptions of a function that catches them

P = ParamSpec("P")
T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Interrupted(BaseException):
    """Raised in a function whose review was cancelled. It must not be caught."""


class _Job:
    """A call of ``function`` in a thread, whose outcome is passed to ``deliver`` in ``loop``."""

    def __init__(
        self, function: Callable[[], Any], deliver: Callable[[_Job], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._deliver = deliver
        self._loop = loop
        self._lock = threading.Lock()
        self._thread = 0
        self._ended = False
        self._interrupted = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.delivered = False
        self.abandoned = False

    def run(self) -> None:
        """Call the function in the current thread and deliver the outcome, despite interruptions at any point."""
        while True:
            try:
                self._run()
            except Interrupted as error:
                self.error = self.error or error
            else:
                return

    def _run(self) -> None:
        if not self._thread:
            self._thread = threading.get_ident()
            try:
                self.value = self._function()
            except BaseException as error:  # noqa: BLE001 - raised where the outcome is awaited
                self.error = error
        with self._lock:
            self._ended = True
        if self._interrupted:
            _set_pending_exception(self._thread, None)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._deliver, self)

    def interrupt(self) -> None:
        """Raise :class:`Interrupted` in the function, unless it has not begun or has ended."""
        with self._lock:
            if self._thread and not self._ended:
                self._interrupted = True
                _set_pending_exception(self._thread, Interrupted)


def _set_pending_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Let the thread raise an exception at its next bytecode; ``None`` withdraws one that it has not raised yet."""
    import ctypes  # imported lazily: only needed once a function exceeds its deadline

    pointer = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), pointer)


def _run_jobs(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()


class ReviewWorker:
    """One thread with a queue. Used by one event loop; :meth:`close` must be called at the end."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._busy = False
        self._abandoned = 0

    async def run(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(*args, **kwargs)`` for a review whose body has ``size`` bytes.

        If the caller is cancelled, the function is interrupted.
        """
        if size <= MAX_INLINE:
            return function(*args, **kwargs)
        await self._turn(size)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def deliver(job: _Job) -> None:
            if not outcome.done():
                _set_outcome(outcome, job)
            if not job.delivered:
                job.delivered = True
                self._release(job)

        job = _Job(partial(copy_context().run, function, *args, **kwargs), deliver, loop)
        self._submit(job)
        try:
            return await outcome
        except asyncio.CancelledError:
            self._end(job, loop, loop.time() + ABANDON_AFTER)
            raise

    def close(self) -> None:
        """Stop the thread after the function that it runs."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _submit(self, job: _Job) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=_run_jobs, args=(self._jobs,), name="admission", daemon=True).start()
        self._jobs.put(job)

    def _end(self, job: _Job, loop: asyncio.AbstractEventLoop, abandon_at: float) -> None:
        """Interrupt the function of ``job`` until it ends; let another thread take over at ``abandon_at``."""
        if job.delivered:
            return
        job.interrupt()
        if not job.abandoned and loop.time() >= abandon_at:
            job.abandoned = True
            self._abandoned += 1
            _log.error("Review ignores its interruption, continuing in another thread", abandoned=self._abandoned)
            self.close()
            if self._abandoned < MAX_ABANDONED:
                self._start_next()
        interval = ABANDON_AFTER if job.abandoned else _INTERRUPT_INTERVAL
        loop.call_later(interval, self._end, job, loop, abandon_at)

    def _release(self, job: _Job) -> None:
        """Start the next review after ``job`` has ended, unless another thread already took over."""
        if job.abandoned:
            self._abandoned -= 1
            if self._abandoned < MAX_ABANDONED - 1:
                return
        self._start_next()

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


def _set_outcome(outcome: asyncio.Future[Any], job: _Job) -> None:
    error = job.error
    if error is None:
        outcome.set_result(job.value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        outcome.set_exception(error)
    else:  # would end the event loop, or have another meaning there
        outcome.set_exception(RuntimeError(f"the review raised {error!r}"))
