"""Starts everything in its order, keeps it running, and stops it in the reverse order.

A manager owns one task group, and in it everything that runs: first the servers (health, metrics,
webhooks), then the caches, then what every replica runs, last the controllers, each as soon as its sources
have synced. Asked to stop (a signal, :meth:`Manager.stop`, or a runnable that crashed) it first lets the
controllers finish the reconciles that run, for as long as the grace period lasts, and stops the servers last.

A runnable is an object with ``run`` (and, if it can end gracefully, ``stop``), or a coroutine function. One that
raises stops the process with its error; one that returns has simply finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.availability import Availability
from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.controller import Controller
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.events import EventBroadcaster, EventRecorder
from cfo.runtime.health import Health
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import GVK
from cfo.runtime.signals import stop_signals

__all__ = ["GracePeriodExceeded", "Manager", "ManagerOptions", "Phase", "Runnable", "RunnableFailed"]

_log = structlog.get_logger("cfo.runtime.manager")


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
    LEADER = 3


class RunnableFailed(Exception):
    """A runnable crashed, and the manager stopped; the cause is its error."""


class GracePeriodExceeded(Exception):
    """Something was still running when the grace period ended, and was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """How a manager works.

    ``field_manager`` is that of its client, ``field_managers`` are all others that its controllers write with:
    the cache keeps what they own, for writes that change nothing to be left out. ``namespaces`` limits the
    cache (``None``: the whole cluster). ``metrics_bind_address`` and ``health_bind_address`` are ``host:port``,
    ``:port``, or ``0`` for none. ``graceful_shutdown_timeout``: seconds that running reconciles have to finish
    (``None``: as long as it takes). ``qps`` and ``burst`` limit the requests (``None``: the server does).
    """

    field_manager: str = "cfo"
    field_managers: Collection[str] = ()
    namespaces: Collection[str] | None = None
    metrics_bind_address: str = "0"
    health_bind_address: str = "0"
    graceful_shutdown_timeout: float | None = 30.0
    qps: float | None = None
    burst: int | None = None


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


class Manager:
    """Everything that an operator's controllers share, and what runs them.

    ``target`` says which API server: a configuration, or a transport that is open already (the caller closes it).
    :meth:`run` it, or use it as ``async with Manager(...) as manager: await manager.started()``, which stops it
    at the end of the block.

    ``client`` reads from the cache where it can, ``api_reader`` always asks the API server.
    """

    def __init__(
        self,
        target: ClientConfig | Transport,
        options: ManagerOptions | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options or ManagerOptions()
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self._owns_transport = isinstance(target, ClientConfig)
        self.transport = (
            Transport(
                target,
                qps=self.options.qps,
                burst=self.options.burst,
                observe=self.metrics.observe_exchange,
                clock=self.clock,
            )
            if isinstance(target, ClientConfig)
            else target
        )
        self.mapper = RESTMapper(self.transport)
        manager = self.options.field_manager
        self.cache = Cache(
            self.transport,
            self.mapper,
            field_managers={manager, *self.options.field_managers},
            namespaces=self.options.namespaces,
            clock=self.clock,
        )
        self.client = Client(self.transport, self.mapper, field_manager=manager, cache=self.cache)
        self.api_reader = Client(self.transport, self.mapper, field_manager=manager)
        self.health = Health()
        self._broadcaster = EventBroadcaster(self.api_reader, clock=self.clock)
        self._availability = Availability(self.mapper, self.cache, clock=self.clock)
        self._controllers: dict[str, Controller] = {}
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._phase: Phase | None = None
        self._tasks: TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: RunnableFailed | GracePeriodExceeded | None = None
        self._context: AbstractAsyncContextManager[Self] | None = None
        self._metrics_endpoint = self.metrics.endpoint(self.options.metrics_bind_address)
        self._health_endpoint = self.health.endpoint(self.options.health_bind_address)
        self._add(self._metrics_endpoint, Phase.SERVERS)
        self._add(self._health_endpoint, Phase.SERVERS)
        self._add(self.cache, Phase.CACHES)
        self._add(self._broadcaster, Phase.EVERYWHERE)
        self._add(self._availability, Phase.EVERYWHERE)
        self.health.add_ready_check("controllers", self._check_started)

    def add(self, runnable: Runnable | RunnableFunction, *, phase: Phase | None = None) -> None:
        """Adds something to run; on a running manager it starts at once.

        Without a ``phase`` it starts with the controllers, on the leader alone, unless its attribute
        ``needs_leader`` is false.
        """
        if phase is None:
            phase = Phase.LEADER if getattr(runnable, "needs_leader", True) else Phase.EVERYWHERE
        self._add(runnable, phase)

    def add_controller(self, controller: Controller) -> None:
        """Adds a controller; raises :class:`ValueError` when there is one of its name."""
        if controller.name in self._controllers:
            raise ValueError(f"there is a controller called {controller.name!r} already: logs and metrics need names")
        self._controllers[controller.name] = controller
        self.add(controller)

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """All controllers, also those that wait for their start."""
        return tuple(self._controllers.values())

    @property
    def metrics_port(self) -> int:
        """The port that metrics are served on; 0 while they are not."""
        return self._metrics_endpoint.port

    @property
    def health_port(self) -> int:
        """The port that health and readiness are served on; 0 while they are not."""
        return self._health_endpoint.port

    def when_available(self, gvk: GVK, setup: Callable[[Manager], Awaitable[None] | None]) -> None:
        """Calls ``setup`` once, with this manager, as soon as the API server serves ``gvk``.

        For kinds that it serves at the start that is before the first controller starts; for those of a
        CustomResourceDefinition that comes later, when it is established. An error in ``setup`` stops the manager.
        Needs the right to list and watch CustomResourceDefinitions
        (:data:`~cfo.runtime.availability.AVAILABILITY_RULES`) where a kind is missing.
        """
        self._availability.when_available(gvk, lambda: setup(self))

    def events(self, component: str) -> EventRecorder:
        """A recorder of Events which ``component`` (a controller's name) reports."""
        return self._broadcaster.recorder(component)

    async def started(self) -> None:
        """Returns when everything has started and the controllers work.

        Raises what :meth:`run` raises, or :class:`RuntimeError`, when it ended before that.
        """
        async with anyio.create_task_group() as tasks:

            async def first(event: asyncio.Event) -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(first, self._started)
            tasks.start_soon(first, self._ended)
        if not self._started.is_set():
            raise self._failure or RuntimeError("the manager was stopped before it had started")

    def stop(self) -> None:
        """Begins a graceful stop; :meth:`run` returns at its end."""
        self._stopping.set()

    async def run(
        self, *, handle_signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Runs until :meth:`stop`, or until a runnable crashes. A manager runs once.

        With ``handle_signals`` SIGTERM and SIGINT stop it; a second one ends the grace period. Raises
        :class:`RunnableFailed` when a runnable crashed and :class:`GracePeriodExceeded` when one did not end in time.
        """
        if self._tasks is not None or self._ended.is_set():
            raise RuntimeError("a manager runs once")
        try:
            async with AsyncExitStack() as stack:
                if self._owns_transport:
                    await stack.enter_async_context(self.transport)
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    grace = anyio.CancelScope()
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

    async def __aenter__(self) -> Self:
        self._context = self._run_in_background()
        return await self._context.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None
        return await self._context.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _run_in_background(self) -> AsyncIterator[Self]:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.run)
                try:
                    yield self
                finally:
                    self.stop()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise

    def _add(self, runnable: Any, phase: Phase) -> None:
        task = _Task(runnable, phase)
        if self._tasks is not None and self._phase is not None and phase <= self._phase:
            self._launch(task)
        else:
            self._waiting.append(task)

    def _launch(self, task: _Task) -> None:
        assert self._tasks is not None
        if self._stopping.is_set():
            return
        self._running.append(task)
        self._tasks.start_soon(self._run_one, task)

    async def _run_one(self, task: _Task) -> None:
        try:
            await task.run()
        except Exception as error:  # noqa: BLE001
            if self._failure is None:
                self._failure = RunnableFailed(f"{task.name} failed: {_describe(error)}")
                self._failure.__cause__ = error
            _log.error("a runnable failed; stopping", runnable=task.name, error=_describe(error), exc_info=error)
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
        _log.info("stopping", grace_period=self.options.graceful_shutdown_timeout)
        timeout = self.options.graceful_shutdown_timeout
        timer = self.clock.call_later(timeout, grace.cancel) if timeout is not None else None
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

    def _check_started(self) -> None:
        if not self._started.is_set():
            waiting = [task.name for task in self._running if not task.status.event.is_set()]
            unsynced = [str(informer.gvk) for informer in self.cache.informers if not informer.has_synced]
            raise RuntimeError(
                f"not started yet: {', '.join(waiting) or 'nothing'}"
                + (f"; not synced: {', '.join(unsynced)}" if unsynced else "")
            )
        if self._stopping.is_set():
            raise RuntimeError("stopping")


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
