"""Where the requests of a controller come from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from cfo.runtime.availability import is_served
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.handler import EventHandler
from cfo.runtime.predicate import Predicate
from cfo.runtime.reconcile import Request
from cfo.runtime.workqueue import LOW_PRIORITY, WorkQueue

__all__ = ["Channel", "Kind", "Source", "Synced"]

_log = structlog.get_logger("cfo.runtime.source")


class Source(Protocol):
    """Feeds a controller's queue."""

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Feeds ``queue`` from now on; does not wait for anything to come. ``controller`` is for the logs."""
        ...

    async def wait_for_sync(self) -> None:
        """Returns when the queue has heard of everything that existed at the start."""
        ...

    def stop(self) -> None:
        """Feeds nothing any more."""
        ...


class Kind:
    """The objects of an informer: an event that passes all ``predicates`` becomes requests by ``handler``.

    What an informer lists first is queued with low priority, after fresh changes. An error in a predicate or
    handler loses that event alone: it is logged, and the others go on. Nobody waits for an ``optional`` kind that
    the API server does not serve, or does not let us list; its objects are heard of when it does.
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
        self.informer = informer
        self.handler = handler
        self.predicates = predicates
        self.optional = optional
        self._mapper = mapper
        self._clock = clock or SystemClock()
        self._controller = ""
        self._queue: WorkQueue[Request] | None = None

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Feeds ``queue`` from now on, with what the informer holds already first."""
        await self.handler.prepare(self._mapper)
        self._controller, self._queue = controller, queue
        self.informer.add_handler(self._deliver)

    async def wait_for_sync(self) -> None:
        """Returns when the informer has listed its objects and the queue has heard of them."""
        if self.optional and not await is_served(self._mapper, self.informer.gvk, self._clock):
            return
        await self.informer.wait_for_sync(unless_forbidden=self.optional)

    def stop(self) -> None:
        """Feeds nothing any more."""
        if self._queue is not None:
            self._queue = None
            self.informer.remove_handler(self._deliver)

    def _deliver(self, event: Event) -> None:
        if self._queue is None:
            return
        try:
            if not all(predicate(event) for predicate in self.predicates):
                return
            requests = tuple(self.handler.requests(event))
        except Exception:  # noqa: BLE001 - logged; an object that others wrote, and functions that users wrote
            _log.exception(
                "an event was lost to an error in a predicate or handler",
                controller=self._controller,
                kind=str(self.informer.gvk),
                namespace=event.key.namespace,
                name=event.key.name,
            )
            return
        priority = LOW_PRIORITY if event.initial else 0
        for request in requests:
            self._queue.add(request, priority=priority)


class Synced:
    """No source of requests, but a condition: the controller works only when ``informer`` has synced.

    For what a reconciler reads and need not hear of.
    """

    def __init__(self, informer: Informer) -> None:
        self.informer = informer

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Nothing to feed."""

    async def wait_for_sync(self) -> None:
        """Returns when the informer has listed its objects."""
        await self.informer.wait_for_sync()

    def stop(self) -> None:
        """Nothing to stop."""


class Channel:
    """Requests that the program itself makes, for what no watch tells: a timer, a message from outside."""

    def __init__(self) -> None:
        self._queue: WorkQueue[Request] | None = None
        self._early: dict[Request, int] = {}

    def enqueue(self, requests: Iterable[Request], *, priority: int = 0) -> None:
        """Queues ``requests``; those from before the start are kept until then."""
        for request in requests:
            if self._queue is None:
                self._early[request] = max(priority, self._early.get(request, priority))
            else:
                self._queue.add(request, priority=priority)

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Feeds ``queue`` from now on."""
        self._queue = queue
        for request, priority in self._early.items():
            queue.add(request, priority=priority)
        self._early.clear()

    async def wait_for_sync(self) -> None:
        """Nothing to wait for."""
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Feeds nothing any more."""
        self._queue = None
