"""Handlers that accompany an object from its creation to its deletion: daemons and timers.

A daemon is a task of its own. It is asked to stop through its keyword ``stopped``. If it has a
``cancellation_timeout``, it is cancelled after the ``cancellation_backoff``, and no longer waited for after the
timeout. The object is deleted when its daemons have ended. A thread cannot be cancelled: it is abandoned
(:mod:`cfo_handlers.threads`).

A timer has a controller, and no task for an object: its key waits in the queue until the next call is due.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import orjson
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.cache import Event, Reader
from cfo.runtime.client import APIError, TransportError
from cfo.runtime.controller import Channel, Request, Result, abandon, is_panic
from cfo.runtime.objects import NamespacedName, Object, is_deleting, key_of, uid_of
from cfo.runtime.process import function_errors
from cfo_handlers.bodies import Body, Patch
from cfo_handlers.causes import ObjectCause, detect_change, matches
from cfo_handlers.declarations import BackgroundHandler, DaemonHandler, TimerHandler
from cfo_handlers.environment import Environment
from cfo_handlers.execution import call_handler
from cfo_handlers.patching import apply_patch
from cfo_handlers.progress import HandlerState, Outcome
from cfo_handlers.resource_selectors import Resource
from cfo_handlers.stoppers import DaemonStopped, DaemonStoppingReason

_EXIT_SECONDS: Final = 0.1
"""The time that a daemon without a timeout has for its end at the exit, before it is cancelled."""

_STILL_RUNNING_SECONDS: Final = 60.0
"""After how many seconds the log says that a daemon still runs, unless it has a ``cancellation_polling``."""


@dataclass(slots=True)
class Schedule:
    """When a timer of an object is called next, in seconds of the monotonic clock."""

    due: float
    changed_at: float
    essence: int = 0
    waits_for_change: bool = False
    is_running: bool = False
    state: HandlerState | None = None


class Memory:
    """The memo, and what accompanies an object: its daemons, their live view of it, and when its timers are due."""

    __slots__ = ("body", "daemons", "ended", "has_handled_deletion", "memo", "schedules", "uid")

    def __init__(self, obj: Object, memo: Any) -> None:
        self.uid = uid_of(obj)
        self.memo = copy.copy(memo)
        self.body: Body | None = None
        self.daemons: dict[str, Daemon] = {}
        self.ended: set[str] = set()
        """The daemons that ended by themselves, and are not started again."""
        self.schedules: dict[str, Schedule] = {}
        self.has_handled_deletion = False
        """Whether the handlers of its deletion have finished, which may be before its daemons end."""

    @property
    def is_accompanied(self) -> bool:
        """Whether a daemon or a timer runs."""
        if self.daemons:
            return True
        return any(schedule.is_running for schedule in self.schedules.values())


def _initial_delay(handler: BackgroundHandler, cause: ObjectCause) -> float:
    delay = handler.initial_delay
    if callable(delay):
        delay = delay(**cause.kwargs())
    return float(delay or 0.0)


async def _call(handler: BackgroundHandler, cause: ObjectCause, state: HandlerState) -> Outcome:
    """Call a daemon or a timer once, and send its patch; a failure of that is logged, and the patch is lost."""
    outcome = await call_handler(handler, cause, state)
    patch = cause.patch
    cause.patch = Patch()
    try:
        await apply_patch(cause.environment, cause.resource, dict(cause.body), patch, cause.logger)
    except (APIError, TransportError) as error:
        cause.logger.warning(f"The patch of {handler} was not stored: {error}")
    return outcome


@dataclass(eq=False, slots=True)
class Daemon:
    """A daemon of an object. ``channel``: where the object is enqueued when the daemon has ended."""

    handler: DaemonHandler
    cause: ObjectCause
    memory: Memory
    channel: Channel
    stopped: DaemonStopped = field(default_factory=DaemonStopped)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] = field(init=False)
    has_slot: bool = False

    def __post_init__(self) -> None:
        self.cause.specific["stopped"] = self.stopped

    async def run(self) -> None:
        """Call the function until it succeeds, fails, or must stop."""
        cause = self.cause
        environment = cause.environment
        delay = _initial_delay(self.handler, cause)
        if delay:
            await self.stopped.wait_in_loop(delay)
        state = HandlerState(started=environment.now())
        while not self.stopped and not state.finished:
            outcome = await _call(self.handler, cause, state)
            state = state.after(outcome, environment.now())
            delay = state.delay(environment.now())
            if delay and not state.finished:
                await self.stopped.wait_in_loop(delay)
        end = "on request" if self.stopped else "on its own"
        cause.logger.debug(f"{self.handler} has exited {end}.")

    async def cancel(self, *, at_exit: bool) -> None:
        """Cancel it after the time that it has for stopping, which is not limited by default, except ``at_exit``."""
        timeout = self.handler.cancellation_timeout
        if timeout is None and not at_exit:
            await self._report_waiting()
            return
        backoff = self.handler.cancellation_backoff or 0.0
        if timeout is None:
            backoff += _EXIT_SECONDS
        with anyio.move_on_after(backoff):
            await self.has_ended.wait()
        if self.has_ended.is_set():
            return
        self.stopped.set(DaemonStoppingReason.DAEMON_CANCELLED)
        self.task.cancel()  # once: it may ignore that
        with anyio.move_on_after(timeout or 0):
            await self.has_ended.wait()
        if not self.has_ended.is_set():
            self.stopped.set(DaemonStoppingReason.DAEMON_ABANDONED)
            self.cause.logger.warning(f"{self.handler} did not exit in time. Leaving it orphaned.")
            abandon(self.task)
            self.end()

    async def _report_waiting(self) -> None:
        """Log once that the daemon still runs: it is not cancelled, and nothing else says what a deletion waits for."""
        seconds = self.handler.cancellation_polling or _STILL_RUNNING_SECONDS
        with anyio.move_on_after(seconds):
            await self.has_ended.wait()
        if self.has_ended.is_set():
            return
        consequence = ""
        if self.stopped.reason and DaemonStoppingReason.RESOURCE_DELETED in self.stopped.reason:
            consequence = " The object is deleted when it has ended."
        self.cause.logger.warning(
            f"{self.handler} still runs {seconds:g} seconds after it was asked to stop.{consequence} "
            "It must check its keyword stopped, or have a cancellation_timeout."
        )

    def end(self) -> None:
        """Forget the daemon; unless it was asked to stop, it is not started again for the object."""
        if not self.has_ended.is_set():
            self.has_ended.set()
            self.memory.daemons.pop(self.handler.id, None)
            if not self.stopped:
                self.memory.ended.add(self.handler.id)
            self.channel.enqueue([key_of(self.cause.body)], reason=f"{self.handler} ended")
        self.stopped.set(DaemonStoppingReason.DONE)


class Daemons:
    """Runs all daemons of an operator; a runnable of the leader."""

    name = "daemons"

    def __init__(self, environment: Environment) -> None:
        self._tasks: TaskGroup | None = None
        self._running: set[Daemon] = set()
        self._slots = asyncio.Semaphore(environment.settings.background.max_daemons)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask all daemons to stop; :meth:`run` returns when they have ended or their time is over."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run daemons until :meth:`stop`."""
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await self._stopping.wait()
                async with anyio.create_task_group() as stops:
                    for daemon in tuple(self._running):
                        daemon.stopped.set(DaemonStoppingReason.OPERATOR_EXITING)
                        stops.start_soon(partial(daemon.cancel, at_exit=True))
                self._tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            for daemon in self._running:  # such as when the Lease is lost
                daemon.task.cancel()

    def start(self, daemon: Daemon) -> None:
        """Start a daemon, unless the operator is stopping."""
        if self._tasks is not None and not self._stopping.is_set():
            daemon.memory.daemons[daemon.handler.id] = daemon
            self._running.add(daemon)
            # Not in the task group, which would cancel it again at each turn of the event loop.
            daemon.task = asyncio.create_task(self._run(daemon))
            daemon.task.add_done_callback(lambda _: self._forget(daemon))

    def stop_daemon(self, daemon: Daemon, reason: DaemonStoppingReason) -> None:
        """Ask a daemon to stop; it is cancelled later if necessary."""
        if not daemon.stopped and self._tasks is not None:
            daemon.stopped.set(reason)
            if not daemon.has_slot:
                daemon.task.cancel()
            self._tasks.start_soon(partial(daemon.cancel, at_exit=False))

    async def _run(self, daemon: Daemon) -> None:
        # They are those of the reconcile that started it.
        structlog.contextvars.unbind_contextvars("causes", "reconcileID")
        try:
            async with self._slots:
                daemon.has_slot = True
                await daemon.run()
        except (
            Exception
        ) as error:  # such as of the function of its initial delay: only this daemon ends
            function_errors.report(error, str(daemon.handler), is_bug=is_panic(error))
            daemon.cause.logger.exception(f"{daemon.handler} has ended with an error.")

    def _forget(self, daemon: Daemon) -> None:
        self._running.discard(daemon)
        daemon.end()


@dataclass(frozen=True)
class Timer:
    """The reconciler of one timer. ``recall`` returns what is remembered about an object.

    ``channel``: where an object is enqueued whose deletion waited for the end of a call.
    """

    environment: Environment
    handler: TimerHandler
    resource: Resource
    reader: Reader
    recall: Callable[[Object], Memory]
    channel: Channel

    def is_relevant(self, event: Event) -> bool:
        """Return whether an event can start or stop the timer, or change when it is due."""
        if event.old is None or event.new is None:
            return True
        if event.old.meta.deletion_timestamp != event.new.meta.deletion_timestamp:
            return True
        handler = self.handler
        return bool(
            handler.idle is not None
            or handler.labels
            or handler.annotations
            or handler.when
            or handler.field
        )

    async def reconcile(self, request: Request) -> Result:
        """Call the function if it is due; requeue the object for the next call."""
        obj = self.reader.get(request)
        if obj is None or is_deleting(obj):
            return Result()
        memory = self.recall(obj)
        cause = ObjectCause(self.environment, self.resource, Body(obj), memory.memo)
        if not matches(self.handler, cause):
            memory.schedules.pop(self.handler.id, None)
            return Result()
        now = self.environment.clock.monotonic()
        schedule = memory.schedules.get(self.handler.id)
        if schedule is None:
            schedule = Schedule(now + _initial_delay(self.handler, cause), now)
            memory.schedules[self.handler.id] = schedule
        due = self._due(schedule, obj, now)
        if due is not None and due <= now:
            await self._call(request, cause, schedule)
            due = self._due(schedule, obj, now)
        if due is None:
            return Result()
        return Result(requeue_after=max(due - self.environment.clock.monotonic(), 0.001))

    def _due(self, schedule: Schedule, obj: Object, now: float) -> float | None:
        """Return when the next call is due; ``None`` if only a change of the object can make it due."""
        idle = self.handler.idle
        if idle is None:
            return None if schedule.waits_for_change else schedule.due
        change = detect_change(self.environment, obj, (), initial=False)
        essence = hash(orjson.dumps(change.new))
        if essence != schedule.essence:
            if schedule.essence:
                schedule.changed_at = now
                schedule.waits_for_change = False
            schedule.essence = essence
        if schedule.waits_for_change:
            return None
        return max(schedule.due, schedule.changed_at + idle)

    async def _call(self, key: NamespacedName, cause: ObjectCause, schedule: Schedule) -> None:
        environment = self.environment
        handler = self.handler
        clock = environment.clock
        started = clock.monotonic()
        state = schedule.state or HandlerState(started=environment.now())
        schedule.is_running = True
        try:
            outcome = await _call(handler, cause, state)
        finally:
            schedule.is_running = False
            meta = self.reader.meta(key)
            if meta is not None and meta.is_deleting:
                self.channel.enqueue([key], reason=f"{handler} returned")
        ended = clock.monotonic()
        schedule.state = None if outcome.final else state.after(outcome, environment.now())
        if not outcome.final:
            schedule.due = ended + (outcome.delay or 0.0)
        elif handler.interval is None:
            schedule.waits_for_change = True
        elif handler.sharp and handler.interval > 0:
            intervals = math.ceil((ended - started) / handler.interval)
            schedule.due = started + intervals * handler.interval
        else:
            schedule.due = ended + handler.interval
