"""Daemons: functions that run from the creation of an object until its deletion, one for each object.

A daemon is asked to stop through its keyword ``stopped``. If it has a ``cancellation_timeout``, it is cancelled after
the ``cancellation_backoff``, and no longer waited for after the timeout. The object is deleted when its daemons have
ended. A thread cannot be cancelled: it is abandoned (:mod:`cfo.runtime.controller.threads`).
"""

from __future__ import annotations

import asyncio
import copy
import enum
import threading
from collections.abc import Callable, Generator
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.handlers.bodies import Body, Patch
from cfo.runtime.handlers.causes import Cause
from cfo.runtime.handlers.declarations import DaemonHandler
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.execution import Invocation, call_handler, deliver_result, is_async
from cfo.runtime.handlers.patching import apply_patch
from cfo.runtime.handlers.progress import HandlerState
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of, uid_of


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

    def wait(self, timeout: float | None = None) -> DaemonStopped | _Wait:
        """Wait until the daemon must stop, at most ``timeout`` seconds; return this object."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._thread_event.wait(timeout)
            return self
        return _Wait(self, timeout)

    async def wait_in_loop(self, timeout: float | None) -> None:
        """Wait in the event loop."""
        with anyio.move_on_after(timeout):
            await self._loop_event.wait()

    def set(self, reason: DaemonStoppingReason) -> None:
        """Ask the daemon to stop; called in the event loop."""
        self.reason = reason if self.reason is None else self.reason | reason
        self._thread_event.set()
        self._loop_event.set()


SyncDaemonStopperChecker = AsyncDaemonStopperChecker = DaemonStopped


class _Wait:
    """An awaitable that waits for a :class:`DaemonStopped`."""

    def __init__(self, stopped: DaemonStopped, timeout: float | None) -> None:
        self._stopped = stopped
        self._timeout = timeout

    def __bool__(self) -> bool:
        return bool(self._stopped)

    def __await__(self) -> Generator[Any, None, DaemonStopped]:
        yield from self._stopped.wait_in_loop(self._timeout).__await__()
        return self._stopped


class Daemon:
    """A running daemon of an object."""

    def __init__(self, handler: DaemonHandler, cause: Cause, on_end: Callable[[Daemon], None]) -> None:
        self.handler = handler
        self.cause = cause
        self.stopped = DaemonStopped()
        self.ended = asyncio.Event()
        self.scope = anyio.CancelScope()
        self.on_end = on_end
        self.started = False
        cause.specific["stopped"] = self.stopped

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return bool(self.stopped)


class Daemons:
    """Runs all daemons of an operator; a runnable of the leader."""

    name = "daemons"
    needs_leader = True

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._tasks: TaskGroup | None = None
        self._running: set[Daemon] = set()
        self._slots = asyncio.Semaphore(environment.settings.background.max_daemons)
        self._stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running)

    def stop(self) -> None:
        """Ask all daemons to stop; :meth:`run` returns when they have ended or their time is over."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run daemons until :meth:`stop`."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._stopping.wait()
            async with anyio.create_task_group() as stops:
                for daemon in tuple(self._running):
                    stops.start_soon(self._stop_at_exit, daemon)
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    def start(self, daemon: Daemon) -> bool:
        """Start a daemon; return false if the operator is stopping."""
        if self._tasks is None or self._stopping.is_set():
            return False
        self._running.add(daemon)
        self._tasks.start_soon(self._run, daemon)
        return True

    def stop_daemon(self, daemon: Daemon, reason: DaemonStoppingReason) -> None:
        """Ask a daemon to stop; it is cancelled later if necessary."""
        if not daemon.is_stopping and self._tasks is not None:
            daemon.stopped.set(reason)
            if not daemon.started:
                daemon.scope.cancel()
            self._tasks.start_soon(self._cancel_later, daemon)

    async def _stop_at_exit(self, daemon: Daemon) -> None:
        daemon.stopped.set(DaemonStoppingReason.OPERATOR_EXITING)
        await self._cancel_later(daemon, patient=False)

    async def _cancel_later(self, daemon: Daemon, *, patient: bool = True) -> None:
        handler = daemon.handler
        backoff, timeout = handler.cancellation_backoff, handler.cancellation_timeout
        if timeout is None and patient:
            return
        with anyio.move_on_after((backoff or 0) + (0 if timeout is not None else 0.1)):
            await daemon.ended.wait()
        if daemon.ended.is_set():
            return
        daemon.stopped.set(DaemonStoppingReason.DAEMON_CANCELLED)
        daemon.scope.cancel()
        with anyio.move_on_after(timeout or 0):
            await daemon.ended.wait()
        if not daemon.ended.is_set():
            daemon.stopped.set(DaemonStoppingReason.DAEMON_ABANDONED)
            daemon.cause.logger.warning(f"{handler} did not exit in time. Leaving it orphaned.")
            self._end(daemon)

    async def _run(self, daemon: Daemon) -> None:
        structlog.contextvars.unbind_contextvars("causes", "reconcileID")  # those of the reconcile that started it
        try:
            with daemon.scope:
                async with self._slots:
                    await self._call_until_done(daemon)
        finally:
            self._end(daemon)

    def _end(self, daemon: Daemon) -> None:
        self._running.discard(daemon)
        if not daemon.ended.is_set():
            daemon.ended.set()
            daemon.on_end(daemon)
        daemon.stopped.set(DaemonStoppingReason.DONE)

    async def _call_until_done(self, daemon: Daemon) -> None:
        handler, cause, environment = daemon.handler, daemon.cause, self._environment
        stopped = daemon.stopped
        daemon.started = True
        delay = handler.initial_delay
        if delay is not None:
            await stopped.wait_in_loop(delay(**cause.kwargs()) if callable(delay) else delay)
        pool = None if is_async(handler.fn) else environment.daemon_threads
        state = HandlerState(started=environment.now())
        while not stopped and not state.finished:
            cause.patch = Patch()
            invocation = Invocation(environment, handler, cause)
            outcome = await call_handler(
                handler, invocation, state, cause.kwargs_for(handler), logger=cause.logger, pool=pool
            )
            state = state.after(outcome, environment.now())
            deliver_result(handler, outcome, cause.patch)
            await self._apply(cause)
            if not state.finished and (seconds := state.delay(environment.now())):
                await stopped.wait_in_loop(seconds)
        cause.logger.debug(f"{handler} has exited {'on request' if stopped else 'on its own'}.")

    async def _apply(self, cause: Cause) -> None:
        """Send the patch of a daemon; a failure is logged, and the patch is lost."""
        if not cause.patch:
            return
        try:
            await apply_patch(self._environment, cause.resource, dict(cause.body), cause.patch, cause.logger)
        except (APIError, TransportError) as error:
            cause.logger.warning(f"The patch of a daemon was not stored: {error}")


class Memory:
    """The memo, the daemons, and the current state of an object with daemons."""

    __slots__ = ("body", "daemons", "ended", "memo", "uid")

    def __init__(self, obj: Object, memo: Any) -> None:
        self.uid = uid_of(obj)
        self.memo = memo
        self.body: Body | None = None
        self.daemons: dict[str, Daemon] = {}
        self.ended: set[str] = set()
        """The daemons that ended by themselves, and are not started again."""


class Memories:
    """The memories of the objects of one resource. ``memo``: what the memo of each object is copied from."""

    def __init__(self, memo: Any) -> None:
        self._memo = memo
        self._by_key: dict[NamespacedName, Memory] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: NamespacedName) -> Memory | None:
        """Return the memory of an object, or ``None``."""
        return self._by_key.get(key)

    def recall(self, obj: Object) -> tuple[Memory, Memory | None]:
        """Return the memory of an object, and that of the deleted namesake that it replaces."""
        key = key_of(obj)
        known = self._by_key.get(key)
        if known is not None and known.uid == uid_of(obj):
            return known, None
        memory = self._by_key[key] = Memory(obj, copy.copy(self._memo))
        return memory, known

    def forget(self, key: NamespacedName) -> Memory | None:
        """Forget an object; return its memory."""
        return self._by_key.pop(key, None)
