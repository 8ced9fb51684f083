"""A bounded pool of threads whose work can be abandoned, because a thread cannot be cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from cfo.runtime.process.arguments import require_plain_function

T = TypeVar("T")


class ThreadPool:
    """At most ``limit`` threads at once, named ``name``. Used by one event loop.

    When the caller of :meth:`run` is cancelled, its thread is abandoned: nothing waits for it, not even the end of the
    process, but it occupies its place in the pool until its function returns. In :func:`anyio.to_thread.run_sync`, a
    limiter with ``abandon_on_cancel`` frees that place at once, so the number of threads would not be limited.

    Raises :class:`ValueError` for a limit below 1.
    """

    def __init__(self, name: str, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit: {limit}: must be 1 or more threads")
        self.name = name
        self.limit = limit
        self._places = asyncio.Semaphore(limit)

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call ``function`` in a thread, as soon as there is a place for one, and return its result.

        The thread has a copy of the caller's context variables. If the caller is cancelled before the thread has
        started, the function is not called.
        """
        require_plain_function(f"{self.name}: run", function, "a function", can_be_class=True)
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        job = partial(context.run, partial(function, *args, **kwargs))
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            _finish(future, job)
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._places.release)

        try:
            threading.Thread(target=work, name=self.name, daemon=True).start()
        except RuntimeError:  # the process has too many threads
            self._places.release()
            raise
        return await asyncio.wrap_future(future)


def _finish(future: concurrent.futures.Future[T], job: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # cancelled before the thread has started
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - raised in the task that waits
        # A future cannot hold StopIteration, and SystemExit would end the event loop.
        ordinary = isinstance(error, Exception) and not isinstance(error, StopIteration)
        future.set_exception(error if ordinary else RuntimeError(f"the thread raised {error!r}"))
    else:
        future.set_result(result)
