"""Starts the runnables of a process in phases and stops them in reverse order.

All runnables run in one task group. On a stop request (a signal, :meth:`Lifecycle.stop`, or a failed runnable) the
phases stop from the last to the first within the grace period; runnables that are still running after it are
cancelled.

A runnable is an object with ``run`` (and, if it can stop gracefully, ``stop``), or a coroutine function. If a runnable
raises, the process stops with its error; if a runnable returns, it has finished, and the others keep running.

Code that blocks the event loop or ignores its cancellation cannot keep a process alive that handles signals: it ends
:data:`MARGIN_SECONDS` after the grace period, with the tracebacks of its threads.
"""

from __future__ import annotations

import _thread
import asyncio
import faulthandler
import inspect
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable
from weakref import WeakSet

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.client.write_gate import WriteGate, write_gates
from cfo.runtime.process.arguments import require_async_function, wrong_result
from cfo.runtime.process.clock import Clock, Timer, first_of
from cfo.runtime.process.listener import AddressUnavailable
from cfo.runtime.process.printable import described

_log = structlog.get_logger(__name__)

MARGIN_SECONDS = 5.0
"""Seconds after the grace period in which a cancelled process must have ended."""

_ALLOWED: Final = "a coroutine function (async def), or an object with the method run"
"""What a runnable must be."""

_abandoned: WeakSet[asyncio.Task[Any]] = WeakSet()


@runtime_checkable
class Runnable(Protocol):
    """A component that a manager runs.

    A runnable with a method ``stop()`` is stopped by calling it; others are cancelled. A runnable whose attribute
    ``needs_leader`` is false runs on every replica.
    """

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run, and call ``task_status.started()`` when later phases may start."""
        ...


RunnableFunction: TypeAlias = Callable[[], Awaitable[None]]


class StartPhase(IntEnum):
    """The order in which runnables start; they stop in reverse order."""

    SERVERS = 0
    CACHES = 1
    ALL_REPLICAS = 2
    ELECTION = 3
    LEADER = 4


def abandon(task: asyncio.Task[Any]) -> None:
    """Declare that ``task`` ignored its cancellation, and that nothing waits for it any longer.

    If it is still running when a manager that handles signals has stopped, the process is ended
    :data:`MARGIN_SECONDS` later, because the event loop would wait for the task.
    """
    _abandoned.add(task)


class RunnableFailed(Exception):
    """Raised if a runnable failed and the process stopped; ``__cause__`` is the exception of the runnable."""


class ExpectedFailure(Exception):
    """Raised by a runnable to stop the process: its message says all, so it is logged without a traceback."""


class StopImmediately(Exception):
    """Raised by a runnable to stop the process without a grace period; its message says all."""


class GracePeriodExceeded(Exception):
    """Raised if a runnable was still running at the end of the grace period and was cancelled."""


class EventStatus(TaskStatus[object]):
    """A task status that sets ``event``; it can be set twice: by the runnable, and when the runnable returns."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: object = None) -> None:
        """Set the event."""
        self.event.set()


class _Task:
    """A runnable and its state."""

    def __init__(self, runnable: Runnable | RunnableFunction, phase: StartPhase) -> None:
        self.runnable = runnable
        self.phase = phase
        self.status = EventStatus()
        self.finished = anyio.Event()
        self.scope: anyio.CancelScope | None = None
        self.stopping = False

    @property
    def name(self) -> str:
        name = getattr(self.runnable, "name", None) or getattr(self.runnable, "__qualname__", None)
        kind = type(self.runnable).__name__
        if not name:
            return kind
        if isinstance(self.runnable, Runnable):
            return f"{kind} {name}"
        return str(name)

    async def run(self) -> None:
        with anyio.CancelScope() as self.scope:
            if self.stopping:
                return
            if isinstance(self.runnable, Runnable):
                await self.runnable.run(task_status=self.status)
            else:
                self.status.started()
                running: object = self.runnable()
                if not isinstance(running, Awaitable):
                    raise wrong_result(
                        "runnable", running, "a coroutine, as an async function does"
                    )
                await running

    def stop(self) -> None:
        self.stopping = True
        stop = getattr(self.runnable, "stop", None)
        if stop is not None:
            stop()
        elif self.scope is not None:
            self.scope.cancel()


class Lifecycle:
    """Runs the runnables of one process.

    ``grace_period``: seconds that runnables have to stop (``None``: no limit). ``gate`` is checked before each write of
    runnables in :attr:`StartPhase.LEADER`.
    """

    def __init__(
        self, *, grace_period: float | None, clock: Clock, gate: WriteGate | None = None
    ) -> None:
        self._grace_period = grace_period
        self._clock = clock
        self._gate = gate

        self._pending: list[_Task] = []
        self._running: list[_Task] = []
        self._phase: StartPhase | None = None
        self._tasks: TaskGroup | None = None
        self._grace: anyio.CancelScope | None = None

        self._stopping = anyio.Event()
        self._started = anyio.Event()
        self._ended = anyio.Event()
        self._failure: RunnableFailed | GracePeriodExceeded | None = None
        self._interrupted = False
        self._is_immediate = False
        self._ends_process = False
        self._last_resort: object = None

    @property
    def has_started(self) -> bool:
        """Whether all phases have started."""
        return self._started.is_set()

    def has_reached(self, phase: StartPhase) -> bool:
        """Return whether all phases before ``phase`` have started."""
        return self._phase is not None and self._phase >= phase

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping.is_set()

    @property
    def not_started(self) -> list[str]:
        """The names of the runnables that were launched and have not reported that they started."""
        return [task.name for task in self._running if not task.status.event.is_set()]

    def add(self, runnable: Runnable | RunnableFunction, phase: StartPhase) -> None:
        """Add a runnable to ``phase``; start it immediately if that phase has already begun.

        Raises :class:`TypeError` for a coroutine, a class, and what cannot be run.
        """
        given: object = runnable
        if inspect.iscoroutine(given):
            given.close()  # otherwise Python warns that it was never awaited
            name = given.__qualname__
            raise TypeError(
                f"{name}(): must be the coroutine function: pass {name}, without a call"
            )
        if isinstance(runnable, type):
            raise TypeError(f"{runnable.__name__}: must be an instance, not the class")
        if isinstance(runnable, Runnable):
            require_async_function(f"{type(runnable).__name__}.run", runnable.run)
        else:
            require_async_function("runnable", runnable, _ALLOWED)
        task = _Task(runnable, phase)
        if self._tasks is not None and self._phase is not None and phase <= self._phase:
            self._launch(task)
        else:
            self._pending.append(task)

    def stop(self) -> None:
        """Request a graceful stop; :meth:`run` returns when it is complete."""
        self._stopping.set()

    async def started(self) -> None:
        """Wait until all phases have started.

        Raises the exception of :meth:`run`, or :class:`RuntimeError`, if :meth:`run` ends first.
        """
        await first_of(self._started.wait, self._ended.wait)
        if not self._started.is_set():
            raise self._failure or RuntimeError("stopped before all phases had started")

    async def run(
        self,
        *,
        handle_signals: bool = False,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run until :meth:`stop` or until a runnable fails. A Lifecycle runs once.

        With ``handle_signals`` (main thread only) SIGTERM, SIGINT and SIGHUP stop it; a second signal ends the grace
        period, which is not an error, because the user asked for it. A SIGHUP that is ignored (``nohup``) stays
        ignored. Raises :class:`RunnableFailed` if a runnable failed, and :class:`GracePeriodExceeded` if one did not
        stop in time.
        """
        if self._tasks is not None or self._ended.is_set():
            raise RuntimeError("a Lifecycle can run only once; create a new one")
        grace = anyio.CancelScope()
        self._grace = grace
        self._ends_process = handle_signals
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if handle_signals:
                    tasks.start_soon(self._handle_signals, grace)
                await self._start(task_status)
                await self._stopping.wait()
                self._end_process_later(self._grace_period)
                with grace:
                    await self._stop_gracefully(grace)
                if grace.cancelled_caught and not self._is_immediate:
                    self._report_unfinished()
                self._end_process_later(0.0)
                tasks.cancel_scope.cancel()
        finally:
            self._ended.set()
            if all(task.done() for task in _abandoned):
                self._last_resort = None  # the event loop can end
        if self._failure is not None:
            raise self._failure

    def _launch(self, task: _Task) -> None:
        assert self._tasks is not None
        if self._stopping.is_set():
            return
        self._running.append(task)
        self._tasks.start_soon(self._run_task, task)

    async def _run_task(self, task: _Task) -> None:
        if task.phase is StartPhase.LEADER:
            gates = (self._gate,) if self._gate is not None else ()
            write_gates.set(gates)
        try:
            await task.run()
        except Exception as error:  # noqa: BLE001
            self._handle_failure(task, error)
        finally:
            task.finished.set()
            task.status.started()

    def _handle_failure(self, task: _Task, error: Exception) -> None:
        """Log the error of a runnable, keep the first one for :meth:`run`, and stop."""
        if isinstance(error, StopImmediately):
            self._fail(str(error), error)
            self._stop_immediately(str(error))
            return
        text = _describe(error)
        self._fail(f"{task.name} failed: {text}", error)
        is_expected = isinstance(error, (ExpectedFailure, AddressUnavailable))
        stack_trace = None if is_expected else error
        _log.error(
            "Runnable failed, stopping", runnable=task.name, error=text, exc_info=stack_trace
        )
        self.stop()

    def _fail(self, message: str, cause: Exception) -> None:
        """Let :meth:`run` raise ``message``, unless another runnable has failed before."""
        if self._failure is None:
            self._failure = RunnableFailed(message)
            self._failure.__cause__ = cause

    def _stop_immediately(self, reason: str) -> None:
        """Stop, and cancel all runnables; what they have not finished is intended, and not reported."""
        if not self._is_immediate:
            _log.error("Stopping immediately", reason=reason)
        self._is_immediate = True
        if self._grace is not None:
            self._grace.cancel()
        self.stop()

    async def _start(self, task_status: TaskStatus[None]) -> None:
        """Start one phase after the other; return early when a stop is requested."""

        async def start() -> None:
            for phase in StartPhase:
                self._phase = phase
                tasks = [task for task in self._pending if task.phase == phase]
                self._pending = [task for task in self._pending if task.phase != phase]
                for task in tasks:
                    self._launch(task)
                for task in tasks:
                    await task.status.event.wait()
            self._started.set()
            task_status.started()

        await first_of(start, self._stopping.wait)

    async def _stop_gracefully(self, grace: anyio.CancelScope) -> None:
        if not self._is_immediate:
            _log.info("Stopping", grace_period=self._grace_period)
        timer: Timer | None = None
        if self._grace_period is not None:
            timer = self._clock.call_later(self._grace_period, grace.cancel)
        try:
            for phase in reversed(StartPhase):
                tasks = [task for task in self._running if task.phase == phase]
                for task in tasks:
                    if not task.finished.is_set():
                        task.stop()
                for task in tasks:
                    await task.finished.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _end_process_later(self, seconds: float | None) -> None:
        """End the process if it still runs :data:`MARGIN_SECONDS` after ``seconds`` (``None``: never).

        Replaces an earlier call.
        """
        if not self._ends_process or seconds is None:
            return
        token = object()
        self._last_resort = token
        # Not threading.Thread, whose locks may be held by the code that a signal interrupts.
        _thread.start_new_thread(self._end_process, (token, seconds + MARGIN_SECONDS))

    def _end_process(self, token: object, seconds: float) -> None:
        time.sleep(seconds)
        if token is self._last_resort:
            try:
                sys.stderr.write("Error: the process does not stop; it is ended here:\n")
                faulthandler.dump_traceback(file=sys.stderr)
            finally:  # also if no one reads standard error
                os._exit(1)

    def _report_unfinished(self) -> None:
        names = [task.name for task in self._running if not task.finished.is_set()]
        unfinished = ", ".join(names)
        _log.error(
            "Grace period exceeded, cancelling the remaining runnables", unfinished=unfinished
        )
        if self._failure is None and not self._interrupted:
            self._failure = GracePeriodExceeded(
                f"did not stop within the grace period: {unfinished}"
            )

    async def _handle_signals(self, grace: anyio.CancelScope) -> None:
        handled = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            handled.append(signal.SIGHUP)
        received: list[int] = []

        # Python calls it even while the event loop is blocked.
        def on_signal(number: int, frame: object) -> None:
            received.append(number)
            is_first = len(received) == 1
            seconds = self._grace_period if is_first else 0.0
            self._end_process_later(seconds)

        with anyio.open_signal_receiver(*handled) as signals:
            for number in handled:
                signal.signal(number, on_signal)
            async for number in signals:
                name = signal.Signals(number).name
                if self._stopping.is_set():
                    _log.warning("Received second signal, ending the grace period", signal=name)
                    self._interrupted = True
                    grace.cancel()
                    return
                _log.info("Received signal, stopping", signal=name)
                self.stop()


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return described(error)
