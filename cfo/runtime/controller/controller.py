"""The controller: sources add requests to its queue, workers pass them to the reconciler.

Workers start after all sources have synced, so that a reconciler never mistakes "not cached yet" for "does not exist".
For the same reason, the requests of a namespace that the cache leaves out wait until it is available.
An exception in a reconcile affects only that request: it is logged and counted, and the request is requeued with
back-off. Retries that fail in the same place are logged without the stack trace. Namespaces take turns, and while
several wait, none of them gets more than half of the workers. On :meth:`~Controller.stop` the workers stop accepting
requests and finish the current ones.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.errors import (
    AlreadyExists,
    APIError,
    Conflict,
    NotFound,
    OwnerDeleted,
    TransportError,
    UnknownKind,
    is_schema_mismatch,
    missing_rule,
)
from cfo.runtime.client.ratelimit import ExponentialRateLimiter
from cfo.runtime.client.unread_errors import Results, collected_results
from cfo.runtime.controller.cause import Cause, CauseType
from cfo.runtime.controller.loops import LIMIT, WINDOW_SECONDS, ReconcileLoops
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Reconciler, Request, Result
from cfo.runtime.controller.source import Source
from cfo.runtime.controller.workqueue import QueueShutDown, WorkQueue
from cfo.runtime.objects.errors import (
    InvalidResource,
    ReconcileError,
    TerminalError,
    clear_frames,
)
from cfo.runtime.objects.unstructured import GVK
from cfo.runtime.process import function_errors
from cfo.runtime.process.arguments import (
    InvalidArgument,
    require_parameters,
    require_plain_function,
    wrong_result,
)
from cfo.runtime.process.clock import Clock, SystemClock, first_of
from cfo.runtime.process.large_objects import LargeObjects, RoomTaken
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.printable import described

_log = structlog.get_logger(__name__)
_reconcile_id: ContextVar[str] = ContextVar("cfo_reconcile_id", default="")

_PANICS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    InvalidArgument,
    LookupError,
    NameError,
    TypeError,
)
"""Programming errors, which would be panics in Go; counted as ``controller_runtime_reconcile_panics_total``."""


def reconcile_id() -> str:
    """Return the ID of the current reconcile, as in its log lines; empty outside a reconcile."""
    return _reconcile_id.get()


class ReconcileTimeout(TimeoutError):
    """Raised when a reconcile exceeds ``reconcile_timeout`` and is cancelled."""


_EXPECTED = (
    APIError,
    TransportError,
    UnknownKind,
    ReconcileError,
    ReconcileTimeout,
    TerminalError,
)
"""Errors that are logged without a stack trace, because their message is sufficient."""

_SCHEMA_HINT: Final = (
    "the applied object has a field that the schema lacks, or a value of another type"
)

_CONFLICTS_EXPECTED: Final = 7
"""How many conflicts of a request in a row are logged at debug level only.

An outdated cache causes them, and is up to date long before: with the default back-off the seventh retry is 0.6 seconds
after the first conflict.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Options of a controller.

    ``max_concurrent_reconciles``: the number of workers. ``reconcile_timeout``: seconds after which a reconcile is
    cancelled and counted as failed (``None``: never). ``rate_limiter``: the back-off of failed requests (``None``:
    :class:`~cfo.runtime.client.ratelimit.DefaultRateLimiter`). ``needs_leader``: whether the controller runs only
    on the leader. Raises :class:`TypeError` for values of another type,
    and :class:`ValueError` for values out of range.
    """

    max_concurrent_reconciles: int = 8
    reconcile_timeout: float | None = None
    rate_limiter: ExponentialRateLimiter | None = None
    needs_leader: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.max_concurrent_reconciles, int):
            raise TypeError(
                f"max_concurrent_reconciles: {self.max_concurrent_reconciles!r:.200}: must be an integer"
            )
        if self.max_concurrent_reconciles < 1:
            raise ValueError(
                f"max_concurrent_reconciles: {self.max_concurrent_reconciles}: must be 1 or more"
            )
        if not isinstance(self.reconcile_timeout, int | float | None):
            raise TypeError(
                f"reconcile_timeout: {self.reconcile_timeout!r:.200}: must be a number of seconds, or None"
            )
        if self.reconcile_timeout is not None and self.reconcile_timeout <= 0:
            raise ValueError(
                f"reconcile_timeout: {self.reconcile_timeout}: must be more than 0 seconds, or None"
            )


class Controller:
    """Runs ``reconciler`` for the requests of its sources.

    ``name`` identifies the controller in logs and metrics and is unique in a manager; ``kind`` is the primary kind, for
    logs only. ``namespaces``: requests in other namespaces are dropped, whichever source they come from (``None``: no
    request is). ``large_objects`` lets one reconcile at a time have large ones. ``unavailable`` are the namespaces that
    the cache leaves out. ``report_invalid`` is called for an object that does not fit its class. Usually created by
    :class:`~cfo.runtime.manager.builder.Builder`.

    Raises :class:`TypeError` if ``reconciler`` is a class or a function, or its ``reconcile`` is not a coroutine
    function.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        kind: GVK | None = None,
        options: ControllerOptions | None = None,
        namespaces: Collection[str] | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        large_objects: LargeObjects | None = None,
        unavailable: UnavailableNamespaces | None = None,
        report_invalid: Callable[[Request, InvalidResource], None] | None = None,
    ) -> None:
        if isinstance(reconciler, type):
            raise TypeError(f"{reconciler.__name__}: must be an instance, not the class")
        if not hasattr(reconciler, "reconcile"):
            raise TypeError(
                f"{reconciler!r:.200}: must be an object with the method async def reconcile(self, request)"
            )
        if not inspect.iscoroutinefunction(reconciler.reconcile):
            raise TypeError(
                f"{type(reconciler).__name__}.reconcile: must be a coroutine function (async def)"
            )
        method = f"{type(reconciler).__name__}.reconcile"
        require_parameters(method, reconciler.reconcile, "request")
        self.name = name
        self.kind = kind
        self.options = options or ControllerOptions()
        self.reconciler = reconciler
        self._namespaces: frozenset[str] | None = None
        if namespaces is not None:
            self._namespaces = frozenset(namespaces)
        self._clock = clock or SystemClock()
        self._large_objects = large_objects or LargeObjects(self._clock)
        # Not "or": one without namespaces is false.
        self._unavailable = UnavailableNamespaces() if unavailable is None else unavailable
        self._unavailable.add_handler(self._on_availability)
        if report_invalid is not None:
            require_plain_function("report_invalid", report_invalid, "a function")
        self._report_invalid = report_invalid
        self._parked: dict[str, dict[Request, int]] = {}
        """The requests of namespaces that are left out, and their priorities."""
        registry = metrics or Metrics()
        self._metrics = registry.controller(name, self.options.max_concurrent_reconciles)
        self.queue: WorkQueue[Request] = WorkQueue(
            rate_limiter=self.options.rate_limiter,
            clock=self._clock,
            metrics=registry.queue(name),
            share_of=attrgetter("namespace"),
            max_share=(self.options.max_concurrent_reconciles + 1) // 2,
        )
        self._loops = ReconcileLoops()
        self._stacks = LoggedStacks()
        self._sources: list[Source] = []
        self._tasks: TaskGroup | None = None
        self._stopping = anyio.Event()
        self._context = {"controller": name}
        if kind is not None:
            self._context |= {"controllerGroup": kind.group, "controllerKind": kind.kind}

    @property
    def needs_leader(self) -> bool:
        """Whether the controller runs only on the leader."""
        return self.options.needs_leader

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the controller's requests."""
        return tuple(self._sources)

    def watch(self, source: Source) -> None:
        """Add a source; start it immediately if the controller is running.

        Raises :class:`TypeError` for what is no :class:`~cfo.runtime.controller.source.Source`.
        """
        if isinstance(source, type) or not isinstance(source, Source):
            raise TypeError(f"source: {source!r:.200}: must be a Source, such as Channel()")
        self._sources.append(source)
        if self._tasks is not None:
            self._tasks.start_soon(source.start, self.name, self.queue)

    def stop(self) -> None:
        """Stop accepting requests; :meth:`run` returns when the current reconciles have finished."""
        self.queue.shut_down()
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Start the sources, wait until they have synced, and run the workers until :meth:`stop`.

        Cancelling it cancels the running reconciles.
        """
        try:
            with structlog.contextvars.bound_contextvars(**self._context):
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    await self._sync()
                    # A stop ends the wait early. A reconcile would then take objects for deleted.
                    if not self._stopping.is_set():
                        await self._run_workers(task_status)
                    tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self.queue.shut_down()
            for source in self._sources:
                source.stop()

    async def _sync(self) -> None:
        """Wait until all sources have synced or a stop is requested."""

        async def sync() -> None:
            for source in tuple(self._sources):
                await source.start(self.name, self.queue)
            for source in tuple(self._sources):
                await source.wait_for_sync()

        await first_of(sync, self._stopping.wait)

    async def _run_workers(self, task_status: TaskStatus[None]) -> None:
        """Run the workers until :meth:`stop`; raises :class:`RuntimeError` if they end before."""
        count = self.options.max_concurrent_reconciles
        async with anyio.create_task_group() as workers:
            for _ in range(count):
                workers.start_soon(self._work)
            _log.info("Starting workers", workers=count)
            task_status.started()
        if not self._stopping.is_set():
            raise RuntimeError("the workers ended, because a reconcile cancelled its own task")

    async def _work(self) -> None:
        while True:
            try:
                request, priority = await self.queue.get()
            except QueueShutDown:
                return
            self._metrics.active_workers.inc()
            try:
                is_selected = self._is_selected(request)
                if is_selected and request.namespace not in self._unavailable:
                    await self._handle(request, priority)
                else:
                    self._large_objects.release((self.name, request))
                    if is_selected:
                        self._parked.setdefault(request.namespace, {})[request] = priority
            finally:
                self.queue.done(request)
                self._metrics.active_workers.dec()
            await asyncio.sleep(0)  # a reconcile that never awaits would starve the event loop

    def _is_selected(self, request: Request) -> bool:
        """Return whether a request is in one of the namespaces, or for a cluster-scoped object.

        A source can name an object of another namespace: cluster-scoped objects are watched whichever namespaces the
        informers are limited to.
        """
        if self._namespaces is None or not request.namespace:
            return True
        return request.namespace in self._namespaces

    def _on_availability(self, namespace: str) -> None:
        """Enqueue the requests of a namespace that is available again, also those that wait after failures there."""
        if namespace in self._unavailable:
            return
        requests = self._parked.pop(namespace, {})
        for queued in self.queue.items():
            if queued.item.namespace == namespace and not queued.running and queued.seconds < 0:
                requests.setdefault(queued.item, queued.priority)
        cause = Cause(CauseType.GENERIC, detail="the namespace is available again")
        for request, priority in requests.items():
            self.queue.add(request, priority=priority, cause=cause)

    async def _handle(self, request: Request, priority: int) -> None:
        identity = str(uuid.uuid4())
        _reconcile_id.set(identity)
        with structlog.contextvars.bound_contextvars(
            namespace=request.namespace,
            name=request.name,
            reconcileID=identity,
            causes=self.queue.causes(request),
        ):
            started = self._clock.monotonic()
            try:
                with (
                    collected_results() as results,
                    self._large_objects.reconcile((self.name, request), request.namespace),
                ):
                    result = await self._reconcile(request)
            except Exception as error:  # noqa: BLE001
                causes = list(_flatten(error))
                if any(isinstance(cause, RoomTaken) for cause in causes):
                    self._repeat_with_room(request, priority)
                else:
                    self._failed(request, priority, error)
                for cause in causes:
                    clear_frames(cause)
            else:
                self._succeeded(request, priority, result)
                self._report_unread(request, results)
            finally:
                self._metrics.seconds.observe(self._clock.monotonic() - started)
                _reconcile_id.set("")

    def _repeat_with_room(self, request: Request, priority: int) -> None:
        """Put a request back until there is room for its large objects, and then let it run first: it has the room."""
        self._metrics.requeue_after.inc()
        _log.debug("Reconcile waits, because another one has large objects in memory")
        repeat = partial(self.queue.add, request, priority=priority, first=True)
        self._large_objects.wait((self.name, request), request.namespace, repeat)

    async def _reconcile(self, request: Request) -> Result:
        """Return the reconciler's result; raise an :class:`Exception` for any failure except our own cancellation."""
        timeout = self.options.reconcile_timeout
        if timeout is None:
            return await self._call(request)
        with anyio.CancelScope() as scope:
            timer = self._clock.call_later(timeout, scope.cancel)
            try:
                return await self._call(request)
            finally:
                timer.cancel()
        self._metrics.timeouts.inc()
        raise ReconcileTimeout(
            f"the reconcile exceeded its timeout of {timeout:g} s and was cancelled"
        )

    async def _call(self, request: Request) -> Result:
        try:
            result: Result | None = await self.reconciler.reconcile(request)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # our own cancellation: the process stops, or the timeout has passed
            raise RuntimeError("an operation that the reconcile awaited was cancelled") from error
        except SystemExit as error:  # would end the event loop, and all other reconciles with it
            raise RuntimeError(
                f"the reconcile called sys.exit({error.code!r:.200}): it must raise another exception"
            ) from error
        if not isinstance(result, Result):
            name = f"{type(self.reconciler).__name__}.reconcile"
            raise wrong_result(name, result, "a Result, such as Result(requeue_after=60)")
        return result

    def _function(self, request: Request) -> str:
        """Return what fails in a reconcile of ``request``, for tests."""
        return f"reconcile of {request} by controller {self.name}"

    def _succeeded(self, request: Request, priority: int, result: Result) -> None:
        function_errors.report_success(self._function(request))
        self.queue.forget(request)
        self._stacks.forget(request)
        if self._loops.record(request, self._clock.monotonic()):
            _log.warning(
                "Object is reconciled continually, check whether the reconciler's own writes trigger it",
                reconciles=LIMIT,
                seconds=WINDOW_SECONDS,
            )
        if result.requeue_after > 0:
            self._metrics.requeue_after.inc()
            if result.priority is not None:
                priority = result.priority
            cause = Cause(CauseType.REQUEUE_AFTER, detail=f"{result.requeue_after:g} s")
            self.queue.add_after(request, result.requeue_after, priority=priority, cause=cause)
            _log.debug("Reconciled", requeue_after=result.requeue_after)
        else:
            self._metrics.success.inc()
            _log.debug("Reconciled")

    def _report_unread(self, request: Request, results: Iterable[Results]) -> None:
        """Report errors that the reconciler has not read: otherwise nothing would show them."""
        errors = [error for result in results for error in result.unread_errors]
        if not errors:
            return
        text = "; ".join(map(described, errors))
        _log.warning(
            "Errors of children were not read",
            error=text,
            hint="call results.raise_errors(), so that the reconcile is retried",
        )
        unread = InvalidArgument(
            f"errors of children were not read, call results.raise_errors(): {text}"
        )
        function_errors.report(unread, self._function(request))

    def _failed(self, request: Request, priority: int, error: Exception) -> None:
        errors = list(_flatten(error))
        text = "; ".join(map(described, errors))
        self._metrics.error.inc()
        self._metrics.errors.inc()
        if any(map(is_panic, errors)):
            self._metrics.panics.inc()
        function = self._function(request)
        function_errors.report_failure(function, text)
        for leaf in errors:
            if isinstance(leaf, Exception) and not isinstance(leaf, _EXPECTED):
                function_errors.report(leaf, function, is_bug=is_panic(leaf))
            if isinstance(leaf, InvalidResource) and self._report_invalid is not None:
                self._report_invalid(request, leaf)

        # Retry if a retry can remove at least one of the errors.
        if all(isinstance(leaf, TerminalError) for leaf in errors):
            self.queue.forget(request)
            self._metrics.terminal_errors.inc()
            _log.error(
                "Terminal reconcile error, will not retry until the object changes", error=text
            )
            return

        requested_delays = [
            leaf.retry_after or 0.0 for leaf in errors if isinstance(leaf, APIError)
        ]
        delay = max([self.queue.backoff(request), *requested_delays])
        cause = Cause(CauseType.RETRY, detail=type(errors[0]).__name__)
        self.queue.add_after(request, delay, priority=priority, cause=cause)
        failures = self.queue.num_requeues(request)
        fields = {"error": text, "retry_in": round(delay, 3), "failures": failures}
        is_conflict = all(map(_is_transient_conflict, errors))
        if is_conflict and failures <= _CONFLICTS_EXPECTED:
            _log.debug("Reconcile conflict, will retry", **fields)
        elif is_conflict:
            hint = _conflict_hint(errors)
            _log.warning("Reconcile conflicts each time, will retry", **fields, hint=hint)
        elif failures == 1 and all(self._is_missing(request, leaf) for leaf in errors):
            # Only the retry can tell whether the object was deleted or lacks the subresource.
            _log.debug("Reconciled object was not found, will retry", **fields)
        elif all(isinstance(leaf, _EXPECTED) for leaf in errors):
            if any(map(is_schema_mismatch, errors)):
                fields["hint"] = _SCHEMA_HINT
            missing = dict.fromkeys(filter(None, map(missing_rule, errors)))
            if missing:
                fields["missing_rule"] = ", ".join(missing)
            _log.error("Reconcile failed, will retry", **fields)
        else:
            stack_trace = error if self._stacks.is_new(request, errors) else None
            _log.error("Reconcile failed, will retry", **fields, exc_info=stack_trace)

    def _is_missing(self, request: Request, error: BaseException) -> bool:
        """Return whether the API server did not find the object of ``request``, as if it was deleted meanwhile."""
        if not isinstance(error, NotFound) or self.kind is None:
            return False
        details = error.details
        is_same_group = (details.get("group") or "") == self.kind.group
        return is_same_group and details.get("name") == request.name


def _flatten(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in ``error``: task groups raise nested exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _flatten(inner)
    else:
        yield error


def is_panic(error: BaseException) -> bool:
    """Return whether the error would be a panic in Go; :class:`UnknownKind` is a LookupError, but not a bug."""
    return isinstance(error, _PANICS) and not isinstance(error, UnknownKind)


def _is_transient_conflict(error: BaseException) -> bool:
    """Return whether a retry with an updated cache resolves the conflict, or finds that the owner was deleted.

    Return false if the name is taken (AlreadyExists) or another manager owns a field, because those conflicts persist.
    """
    if isinstance(error, OwnerDeleted):
        return True
    if not isinstance(error, Conflict) or isinstance(error, AlreadyExists):
        return False
    return all(cause.get("reason") != "FieldManagerConflict" for cause in error.causes)


def _conflict_hint(errors: list[BaseException]) -> str:
    """Return the usual reason for conflicts that do not end."""
    if any(isinstance(error, OwnerDeleted) for error in errors):
        return "create nothing for an owner that is being deleted"
    return (
        "each write returns the new object and leaves its argument unchanged: "
        "write what the last write returned, or what was just read"
    )
