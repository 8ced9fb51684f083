"""A controller: sources fill its queue, workers empty it into the reconciler.

It starts to work when all its sources have synced, so that a reconciler never takes "not read yet" for "does
not exist". An exception in a reconcile concerns that request alone: it is logged once, counted, and the
request comes again after a backoff. Asked to :meth:`~Controller.stop`, the workers take no more requests and finish
those they have.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.client.errors import AlreadyExists, APIError, Conflict, TransportError, UnknownKind
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import GVK
from cfo.runtime.reconcile import Reconciler, Request, Result, TerminalError
from cfo.runtime.source import Source
from cfo.runtime.workqueue import QueueShutDown, RateLimiter, WorkQueue

__all__ = ["Controller", "ControllerOptions", "ReconcileTimeout", "reconcile_id"]

_log = structlog.get_logger("cfo.runtime.controller")
_reconcile_id: ContextVar[str] = ContextVar("cfo_reconcile_id", default="")

_EXPECTED = (APIError, TransportError, UnknownKind, TerminalError)
"""Errors whose message says it all: logged without a stack."""

_PANICS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What would be a panic in Go: an error in the program, not in the world."""


def reconcile_id() -> str:
    """The id of the reconcile that runs now, which stands in its log lines; empty outside of one."""
    return _reconcile_id.get()


class ReconcileTimeout(TimeoutError):
    """A reconcile took longer than ``reconcile_timeout`` and was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """How a controller works.

    ``max_concurrent_reconciles``: how many requests are worked on at once. ``reconcile_timeout``: seconds
    after which a reconcile is cancelled and counts as failed (``None``: never). ``rate_limiter``: the backoff of
    failed requests (``None``: :func:`~cfo.runtime.workqueue.default_rate_limiter`). ``needs_leader``: whether
    it runs on the leader alone.
    """

    max_concurrent_reconciles: int = 8
    reconcile_timeout: float | None = None
    rate_limiter: RateLimiter | None = None
    needs_leader: bool = True

    def __post_init__(self) -> None:
        if self.max_concurrent_reconciles < 1:
            raise ValueError(f"max_concurrent_reconciles: {self.max_concurrent_reconciles}: must be 1 or more")
        if self.reconcile_timeout is not None and self.reconcile_timeout <= 0:
            raise ValueError(f"reconcile_timeout: {self.reconcile_timeout}: must be more than 0 seconds, or None")


class Controller:
    """Runs ``reconciler`` for the requests of its sources.

    ``name`` stands in logs and metrics and is unique in a manager; ``kind`` is the primary kind, for the
    logs. Made by :class:`~cfo.runtime.builder.Builder`.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        kind: GVK | None = None,
        options: ControllerOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.reconciler = reconciler
        self.options = options or ControllerOptions()
        self._clock = clock or SystemClock()
        registry = metrics or Metrics()
        self._metrics = registry.controller(name, self.options.max_concurrent_reconciles)
        self.queue: WorkQueue[Request] = WorkQueue(
            rate_limiter=self.options.rate_limiter, clock=self._clock, metrics=registry.queue(name)
        )
        self._sources: list[Source] = []
        self._tasks: TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._context = {"controller": name}
        if kind is not None:
            self._context |= {"controllerGroup": kind.group, "controllerKind": kind.kind}

    @property
    def needs_leader(self) -> bool:
        """Whether it runs on the leader alone."""
        return self.options.needs_leader

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where its requests come from."""
        return tuple(self._sources)

    def watch(self, source: Source) -> None:
        """Adds a source. One that is added to a running controller starts at once."""
        self._sources.append(source)
        if self._tasks is not None:
            self._tasks.start_soon(self._start, source)

    def stop(self) -> None:
        """Takes no more requests; :meth:`run` returns when those that are worked on are finished."""
        self.queue.shut_down()
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Starts the sources, waits until they have synced, and works until :meth:`stop` or cancelled.

        Cancelling it cancels the reconciles that run.
        """
        try:
            with structlog.contextvars.bound_contextvars(**self._context):
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    await self._sync()
                    if not self._stopping.is_set():
                        async with anyio.create_task_group() as workers:
                            for _ in range(self.options.max_concurrent_reconciles):
                                workers.start_soon(self._work)
                            _log.info("started workers", workers=self.options.max_concurrent_reconciles)
                            task_status.started()
                    tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self.queue.shut_down()
            for source in self._sources:
                source.stop()

    async def _start(self, source: Source) -> None:
        await source.start(self.name, self.queue)

    async def _sync(self) -> None:
        """Returns when all sources have synced, or when the controller is to stop."""
        async with anyio.create_task_group() as syncing:

            async def sync() -> None:
                for source in tuple(self._sources):
                    await self._start(source)
                for source in tuple(self._sources):
                    await source.wait_for_sync()
                syncing.cancel_scope.cancel()

            syncing.start_soon(sync)
            await self._stopping.wait()
            syncing.cancel_scope.cancel()

    async def _work(self) -> None:
        while True:
            try:
                request, priority = await self.queue.get()
            except QueueShutDown:
                return
            self._metrics.active_workers.inc()
            try:
                await self._handle(request, priority)
            finally:
                self.queue.done(request)
                self._metrics.active_workers.dec()
            await asyncio.sleep(0)  # reconciles that never wait must not keep the event loop from everything else

    async def _handle(self, request: Request, priority: int) -> None:
        identity = str(uuid.uuid4())
        _reconcile_id.set(identity)
        with structlog.contextvars.bound_contextvars(
            namespace=request.namespace, name=request.name, reconcileID=identity
        ):
            started = self._clock.monotonic()
            try:
                result = await self._reconcile(request)
            except Exception as error:  # noqa: BLE001
                self._failed(request, priority, error)
            else:
                self._succeeded(request, priority, result)
            finally:
                self._metrics.seconds.observe(self._clock.monotonic() - started)
                _reconcile_id.set("")

    async def _reconcile(self, request: Request) -> Result:
        """The reconciler's result; all that goes wrong, but our own cancellation, is an :class:`Exception`."""
        timeout = self.options.reconcile_timeout
        with anyio.CancelScope() as scope:
            timer = self._clock.call_later(timeout, scope.cancel) if timeout is not None else None
            try:
                result: Result | None = await self.reconciler.reconcile(request)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise RuntimeError("something that the reconcile waited for was cancelled") from error
            finally:
                if timer is not None:
                    timer.cancel()
            if not isinstance(result, Result):
                raise TypeError(f"{type(self.reconciler).__name__}.reconcile returned {result!r}: must be a Result")
            return result
        self._metrics.timeouts.inc()
        raise ReconcileTimeout(f"the reconcile took longer than {timeout:g} s and was cancelled")

    def _succeeded(self, request: Request, priority: int, result: Result) -> None:
        self.queue.forget(request)
        if result.requeue_after > 0:
            self._metrics.requeue_after.inc()
            again = priority if result.priority is None else result.priority
            self.queue.add_after(request, result.requeue_after, priority=again)
            _log.debug("reconciled", requeue_after=result.requeue_after)
        else:
            self._metrics.success.inc()
            _log.debug("reconciled")

    def _failed(self, request: Request, priority: int, error: Exception) -> None:
        errors = list(_leaves(error))
        self._metrics.error.inc()
        self._metrics.errors.inc()
        if any(isinstance(leaf, _PANICS) and not isinstance(leaf, UnknownKind) for leaf in errors):
            self._metrics.panics.inc()
        if all(isinstance(leaf, TerminalError) for leaf in errors):
            self.queue.forget(request)
            self._metrics.terminal_errors.inc()
            _log.error("reconcile failed; not retried before something changes", error=_text(errors))
            return
        asked = max((leaf.retry_after or 0.0 for leaf in errors if isinstance(leaf, APIError)), default=0.0)
        delay = max(self.queue.backoff(request), asked)
        self.queue.add_after(request, delay, priority=priority)
        fields = {
            "error": _text(errors),
            "retry_in": round(delay, 3),
            "failures": self.queue.num_requeues(request),
        }
        if all(_is_lost_race(leaf) for leaf in errors):
            _log.debug("reconcile met a conflict", **fields)
        elif all(isinstance(leaf, (*_EXPECTED, ReconcileTimeout)) for leaf in errors):
            _log.error("reconcile failed", **fields)
        else:
            _log.error("reconcile failed", **fields, exc_info=error)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of which ``error`` is made: those of a task group are a tree."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _text(errors: Iterable[BaseException]) -> str:
    return "; ".join(f"{type(error).__name__}: {error}" for error in errors)


def _is_lost_race(error: BaseException) -> bool:
    """Whether trying again, with what the cache will know then, is all that is needed.

    A name that is taken and a field that another manager owns are conflicts too, but stay.
    """
    if not isinstance(error, Conflict) or isinstance(error, AlreadyExists):
        return False
    return all(cause.get("reason") != "FieldManagerConflict" for cause in error.causes)
