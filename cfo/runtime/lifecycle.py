"""Runs what a process consists of: starts it in phases, and stops it in the reverse order.

All of it lives in one task group. Asked to stop (a signal, :meth:`Lifecycle.stop`, or a runnable that crashed)
the phases stop from the last to the first, for as long as the grace period lasts; then what still runs is cancelled.

A runnable is an object with ``run`` (and, if it can end gracefully, ``stop``), or a coroutine function. One that
raises stops the process with its error; one that returns has simply finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Protocol, TypeAlias, runtime_checkable

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.client.write_gate import WriteGate, write_gate
from cfo.runtime.clock import Clock
from cfo.runtime.signals import stop_signals

__all__ = ["GracePeriodExceeded", "Lifecycle", "Phase", "Runnable", "RunnableFailed", "RunnableFunction", "StopAtOnce"]

_log = structlog.get_logger("cfo.runtime.lifecycle")


@runtime_checkable
class Runnable(Protocol):
    """Something that a manager runs.

    If it has a method ``stop()``, that is how it is asked to end; otherwise it is cancelled. If it has an
    attribute ``needs_leader`` that is false, it runs on every replica.
    """

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Runs; calls ``task_status.started()`` when what comes after it may start."""
        ...


RunnableFunction: TypeAlias = Callable[[], Awaitable[None]]


class Phase(IntEnum):
    """When a runnable starts; phases stop in the reverse order."""

    SERVERS = 0
    CACHES = 1
    EVERYWHERE = 2
    ELECTION = 3
    LEADER = 4


class RunnableFailed(Exception):
    """A runnable crashed, and the manager stopped; the cause is its error."""


class StopAtOnce(Exception):
    """Raised by a runnable, it stops the process without a grace period: nothing may go on."""


class GracePeriodExceeded(Exception):
    """Something was still running when the grace period ended, and was cancelled."""


class _Status:
    """A task status that may be told twice: by the runnable, and when it has returned."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def started(self, value: object = None) -> None:
        self.event.set()


class _Task:
    """A runnable, and how far it is."""

    def __init__(self, runnable: Runnable | RunnableFunction, phase: Phase) -> None:
        self.runnable = runnable
        self.phase = phase
        self.status = _Status()
        self.finished = asyncio.Event()
        self.scope: anyio.CancelScope | None = None
        self.stopping = False

    @property
    def name(self) -> str:
        named = getattr(self.runnable, "name", None) or getattr(self.runnable, "__qualname__", None)
        kind = type(self.runnable).__name__
        return f"{kind} {named}" if isinstance(self.runnable, Runnable) and named else named or kind

    async def run(self) -> None:
        with anyio.CancelScope() as self.scope:
            if self.stopping:
                return
            if isinstance(self.runnable, Runnable):
                await self.runnable.run(task_status=self.status)
            else:
                self.status.started()
                await self.runnable()

    def stop(self) -> None:
        self.stopping = True
        stop = getattr(self.runnable, "stop", None)
        if stop is not None:
            stop()
        elif self.scope is not None:
            self.scope.cancel()


class Lifecycle:
    """The runnables of one process. ``grace_period``: seconds that they have to end (``None``: as long as it takes).

    ``gate`` is asked before each write of what runs in :attr:`Phase.LEADER`.
    """

    def __init__(self, *, grace_period: float | None, clock: Clock, gate: WriteGate | None = None) -> None:
        self._grace_period = grace_period
        self._clock = clock
        self._gate = gate
        self._grace: anyio.CancelScope | None = None
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._phase: Phase | None = None
        self._tasks: TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: RunnableFailed | GracePeriodExceeded | None = None

    @property
    def has_started(self) -> bool:
        """Whether all phases have started."""
        return self._started.is_set()

    def has_reached(self, phase: Phase) -> bool:
        """Whether all phases before ``phase`` have started."""
        return self._phase is not None and self._phase >= phase

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    @property
    def starting(self) -> list[str]:
        """The names of those that were launched and have not said that they have started."""
        return [task.name for task in self._running if not task.status.event.is_set()]

    def add(self, runnable: Runnable | RunnableFunction, phase: Phase) -> None:
        """Adds something to run in ``phase``; it starts at once when that phase has begun already."""
        task = _Task(runnable, phase)
        if self._tasks is not None and self._phase is not None and phase <= self._phase:
            self._launch(task)
        else:
            self._waiting.append(task)

    def stop(self) -> None:
        """Begins a graceful stop; :meth:`run` returns at its end."""
        self._stopping.set()

    async def started(self) -> None:
        """Returns when all phases have started.

        Raises what :meth:`run` raises, or :class:`RuntimeError`, when it ended before that.
        """
        async with anyio.create_task_group() as tasks:

            async def first(event: asyncio.Event) -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(first, self._started)
            tasks.start_soon(first, self._ended)
        if not self._started.is_set():
            raise self._failure or RuntimeError("stopped before everything had started")

    async def run(
        self, *, handle_signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Runs until :meth:`stop`, or until a runnable crashes; once.

        With ``handle_signals`` SIGTERM and SIGINT stop it; a second one ends the grace period. Raises
        :class:`RunnableFailed` when a runnable crashed and :class:`GracePeriodExceeded` when one did not end in time.
        """
        if self._tasks is not None or self._ended.is_set():
            raise RuntimeError("what ran already cannot run again: make a new one")
        grace = self._grace = anyio.CancelScope()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if handle_signals:
                    tasks.start_soon(self._watch_signals, grace)
                await self._start(task_status)
                await self._stopping.wait()
                with grace:
                    await self._stop_gracefully(grace)
                if grace.cancelled_caught:
                    self._exceeded()
                tasks.cancel_scope.cancel()
        finally:
            self._ended.set()
        if self._failure is not None:
            raise self._failure

    def _launch(self, task: _Task) -> None:
        assert self._tasks is not None
        if self._stopping.is_set():
            return
        self._running.append(task)
        self._tasks.start_soon(self._run_one, task)

    async def _run_one(self, task: _Task) -> None:
        if task.phase is Phase.LEADER:
            write_gate.set(self._gate)
        try:
            await task.run()
        except Exception as error:  # noqa: BLE001
            if self._failure is None:
                self._failure = RunnableFailed(f"{task.name} failed: {_describe(error)}")
                self._failure.__cause__ = error
            at_once = isinstance(error, StopAtOnce)
            _log.error(
                "a runnable failed; stopping",
                runnable=task.name,
                error=_describe(error),
                exc_info=None if at_once else error,
            )
            if at_once and self._grace is not None:
                self._grace.cancel()
            self.stop()
        finally:
            task.finished.set()
            task.status.started()

    async def _start(self, task_status: TaskStatus[None]) -> None:
        """Starts phase after phase; returns early when asked to stop."""
        async with anyio.create_task_group() as starting:

            async def start() -> None:
                for phase in Phase:
                    self._phase = phase
                    tasks = [task for task in self._waiting if task.phase == phase]
                    self._waiting = [task for task in self._waiting if task.phase != phase]
                    for task in tasks:
                        self._launch(task)
                    for task in tasks:
                        await task.status.event.wait()
                self._started.set()
                task_status.started()
                starting.cancel_scope.cancel()

            starting.start_soon(start)
            await self._stopping.wait()
            starting.cancel_scope.cancel()

    async def _stop_gracefully(self, grace: anyio.CancelScope) -> None:
        _log.info("stopping", grace_period=self._grace_period)
        timeout = self._grace_period
        timer = self._clock.call_later(timeout, grace.cancel) if timeout is not None else None
        try:
            for phase in reversed(Phase):
                tasks = [task for task in self._running if task.phase == phase]
                for task in tasks:
                    if not task.finished.is_set():
                        task.stop()
                for task in tasks:
                    await task.finished.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _exceeded(self) -> None:
        unfinished = ", ".join(task.name for task in self._running if not task.finished.is_set())
        _log.error("the grace period is over; cancelling what still runs", unfinished=unfinished)
        if self._failure is None:
            self._failure = GracePeriodExceeded(f"did not end within the grace period: {unfinished}")

    async def _watch_signals(self, grace: anyio.CancelScope) -> None:
        async for name in stop_signals():
            if self._stopping.is_set():
                _log.warning("second signal; not waiting any longer", signal=name)
                grace.cancel()
                return
            _log.info("signal", signal=name)
            self.stop()


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
