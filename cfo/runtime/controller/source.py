"""Sources of the requests of a controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import anyio
import anyio.lowlevel
import structlog

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.controller.availability import is_served
from cfo.runtime.controller.cause import Cause, CauseType
from cfo.runtime.controller.handler import EventHandler
from cfo.runtime.controller.predicate import Predicate, passes, require_predicates
from cfo.runtime.controller.reconcile import Request, is_request
from cfo.runtime.controller.workqueue import LOW_PRIORITY, WorkQueue
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process import function_errors
from cfo.runtime.process.clock import Clock, SystemClock
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.printable import described

_log = structlog.get_logger(__name__)


@runtime_checkable
class Source(Protocol):
    """Adds requests to a controller's queue."""

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Start adding requests to ``queue``; do not wait for the first one. ``controller`` is used in logs."""
        ...

    async def wait_for_sync(self) -> None:
        """Wait until all objects that existed at the start have been enqueued."""
        ...

    def stop(self) -> None:
        """Stop adding requests."""
        ...


class Kind:
    """Informer events: ``handler`` maps each event that passes all ``predicates`` to requests.

    Objects of the initial list are enqueued with low priority, behind new changes. An exception in a predicate or
    handler is logged, counted (``cfo_informer_function_errors_total``) and drops only that event; its stack trace is
    logged once. Equal errors for several objects of the initial list are logged once, and then their number. The
    controller does not wait for an ``optional`` kind that is not served or whose list is forbidden; its events arrive
    once it becomes available.
    """

    def __init__(
        self,
        informer: Informer,
        handler: EventHandler,
        *predicates: Predicate,
        mapper: RESTMapper,
        optional: bool = False,
        clock: Clock | None = None,
    ) -> None:
        require_predicates(f"predicate of {informer.gvk}", predicates)
        self.informer = informer
        self.handler = handler
        self.predicates = predicates
        self.optional = optional
        self._mapper = mapper
        self._clock = clock or SystemClock()
        self._stacks = LoggedStacks()
        self._repeated_errors: int | None = 0
        """The number of errors of the initial list that equal an earlier one; ``None`` after that list."""
        self._controller = ""
        self._queue: WorkQueue[Request] | None = None
        self._listed = Cause(CauseType.LISTED, informer.gvk)

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Start adding requests to ``queue``, first for the objects that the informer already holds.

        Those that it leaves out follow after a list: a controller starts later than its informers, which have reported
        them before.
        """
        await self.handler.prepare(self._mapper)
        self._controller = controller
        self._queue = queue
        self.informer.add_handler(self._deliver, left_out=True)

    async def wait_for_sync(self) -> None:
        """Wait until the objects of the informer's initial list have been enqueued."""
        is_expected = not self.optional or await is_served(
            self._mapper, self.informer.gvk, self._clock
        )
        if is_expected:
            await self.informer.wait_for_sync(unless_forbidden=self.optional)
        self._report_repeated_errors()

    def stop(self) -> None:
        """Stop adding requests."""
        if self._queue is not None:
            self._queue = None
            self.informer.remove_handler(self._deliver)

    def _report_repeated_errors(self) -> None:
        """Log how many equal errors of the initial list were only logged at debug level."""
        if self._repeated_errors:
            _log.error(
                "Predicate or handler failed for more objects of the initial list, events dropped",
                controller=self._controller,
                kind=str(self.informer.gvk),
                events=self._repeated_errors,
            )
        self._repeated_errors = None

    def _deliver(self, event: Event) -> None:
        if self._queue is None:
            return
        try:
            if not all(passes(predicate, event) for predicate in self.predicates):
                return
            requests = tuple(self.handler.requests(event))
        except Exception as error:  # noqa: BLE001 - predicates and handlers are user code and see unvalidated objects
            self.informer.count_error()
            source = f"{self.informer.gvk} {event.key}"
            function = f"predicate or map function of controller {self._controller} for {source}"
            function_errors.report(error, function)
            is_first = self._stacks.is_first(error)
            log = _log.error
            if event.initial and not is_first and self._repeated_errors is not None:
                self._repeated_errors += 1
                log = _log.debug
            log(
                "Predicate or handler failed, event dropped",
                error=described(error),
                controller=self._controller,
                kind=str(self.informer.gvk),
                namespace=event.key.namespace,
                name=event.key.name,
                exc_info=error if is_first else None,
            )
            return
        if not requests:
            return
        if event.initial:
            priority = LOW_PRIORITY
            cause = self._listed
        else:
            priority = 0
            cause = Cause.of_event(self.informer.gvk, event)
        for request in requests:
            self._queue.add(request, priority=priority, cause=cause)


class InformerSync:
    """Delays the start of the controller until ``informer`` has synced, and enqueues nothing.

    It is used for informers that a reconciler reads from without reacting to their events.
    """

    def __init__(self, informer: Informer) -> None:
        self.informer = informer

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Do nothing."""

    async def wait_for_sync(self) -> None:
        """Wait until the informer has listed its objects."""
        await self.informer.wait_for_sync()

    def stop(self) -> None:
        """Do nothing."""


class Channel:
    """Requests that the program enqueues, for triggers that no watch reports, such as timers or external calls."""

    def __init__(self) -> None:
        self._queue: WorkQueue[Request] | None = None
        self._pending: dict[Request, tuple[int, float, Cause]] = {}

    def enqueue(
        self,
        requests: Iterable[Request],
        *,
        priority: int = 0,
        after: float = 0.0,
        reason: str = "",
    ) -> None:
        """Enqueue ``requests``, now or after ``after`` seconds; a request that waits already keeps an earlier time.

        Requests enqueued before the start are kept until then. ``reason`` says why, in a few words, for log lines and
        debug reports.
        """
        if isinstance(requests, NamespacedName):
            raise TypeError(f"Channel.enqueue: {requests!r:.200}: must be a list of requests")
        cause = Cause(CauseType.GENERIC, detail=reason)
        for request in requests:
            if not is_request(request):
                raise TypeError(f"Channel.enqueue: {request!r:.200}: must be a Request")
            if self._queue is not None:
                self._queue.add(request, priority=priority, after=after, cause=cause)
                continue
            known_priority, known_after, _ = self._pending.get(request, (priority, after, cause))
            self._pending[request] = (
                max(priority, known_priority),
                min(after, known_after),
                cause,
            )

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Enqueue the requests kept so far in ``queue``, and later requests directly."""
        self._queue = queue
        for request, (priority, after, cause) in self._pending.items():
            queue.add(request, priority=priority, after=after, cause=cause)
        self._pending.clear()

    async def wait_for_sync(self) -> None:
        """Return immediately."""
        await anyio.lowlevel.checkpoint()

    def stop(self) -> None:
        """Stop adding requests."""
        self._queue = None
