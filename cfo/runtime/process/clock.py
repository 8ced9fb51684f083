"""Clocks and waiting. Code that measures time, sleeps or times out takes a :class:`Clock`, so that tests control time.

:func:`first_of` and :func:`sleep_unless` wait for the first of several events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import anyio

from cfo.runtime.process.arguments import require_plain_function

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; do nothing if it has already run."""
        ...


class Clock(Protocol):
    """Reads the time, sleeps and schedules callbacks."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary fixed point; never goes backwards."""
        ...

    def boottime(self) -> float:
        """Return monotonic seconds that include the time of machine suspends, if the OS supports it."""
        ...

    def now(self) -> datetime:
        """Return the current date and time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` in the running event loop after ``seconds``."""
        ...


class SystemClock:
    """The clock of the operating system."""

    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        """Return seconds since boot, including suspended time (``CLOCK_BOOTTIME``, Linux; else ``CLOCK_MONOTONIC``)."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """Return the current date and time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        await anyio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` in the running event loop after ``seconds``."""
        require_plain_function("call_later", callback, "a function without parameters")
        return asyncio.get_running_loop().call_later(seconds, callback)


async def first_of(*functions: Callable[[], Awaitable[object]]) -> None:
    """Run ``functions`` concurrently until the first one returns, then cancel the others.

    An exception of one of them also cancels the others, and is raised in an :class:`ExceptionGroup`.
    """
    async with anyio.create_task_group() as tasks:

        async def run(function: Callable[[], Awaitable[object]]) -> None:
            await function()
            tasks.cancel_scope.cancel()

        for function in functions:
            tasks.start_soon(run, function)


async def sleep_unless(clock: Clock, seconds: float, event: anyio.Event) -> bool:
    """Sleep for ``seconds`` or until ``event`` is set; return whether it is set."""
    await first_of(partial(clock.sleep, seconds), event.wait)
    return event.is_set()


def rfc3339(moment: datetime) -> str:
    """Format ``moment`` as ``metav1.Time``: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Format ``moment`` as ``metav1.MicroTime``: UTC, microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
