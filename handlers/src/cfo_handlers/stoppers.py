"""How daemons are asked to stop."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Coroutine
from typing import Any

import anyio


class DaemonStoppingReason(enum.Flag):
    """Why a daemon must stop."""

    DONE = enum.auto()
    FILTERS_MISMATCH = enum.auto()
    RESOURCE_DELETED = enum.auto()
    OPERATOR_PAUSING = enum.auto()
    OPERATOR_EXITING = enum.auto()
    DAEMON_SIGNALLED = enum.auto()
    DAEMON_CANCELLED = enum.auto()
    DAEMON_ABANDONED = enum.auto()


class DaemonStopped:
    """Whether a daemon must stop: true or false. ``wait(seconds)`` waits for it; a coroutine awaits the result."""

    def __init__(self) -> None:
        self.reason: DaemonStoppingReason | None = None
        self._thread_event = threading.Event()
        self._loop_event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._thread_event.is_set()

    def is_set(self) -> bool:
        """Return whether the daemon must stop."""
        return self._thread_event.is_set()

    def wait(
        self, timeout: float | None = None
    ) -> DaemonStopped | Coroutine[Any, Any, DaemonStopped]:
        """Wait at most ``timeout`` seconds, and return this object; in the event loop, return a coroutine for that."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._thread_event.wait(timeout)
            return self
        return self.wait_in_loop(timeout)

    async def wait_in_loop(self, timeout: float | None) -> DaemonStopped:
        """Wait in the event loop."""
        with anyio.move_on_after(timeout):
            await self._loop_event.wait()
        return self

    def set(self, reason: DaemonStoppingReason) -> None:
        """Ask the daemon to stop; called in the event loop."""
        self.reason = reason if self.reason is None else self.reason | reason
        self._thread_event.set()
        self._loop_event.set()


SyncDaemonStopperChecker = DaemonStopped
AsyncDaemonStopperChecker = DaemonStopped
