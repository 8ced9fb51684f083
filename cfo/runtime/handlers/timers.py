"""Timers: functions that are called periodically for each object, one controller for each function.

An object with a timer has no task: its key waits in the queue of the controller until the next call is due.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import orjson

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.handlers.bodies import Body
from cfo.runtime.handlers.causes import Cause, detect_change, matches
from cfo.runtime.handlers.daemons import Memory
from cfo.runtime.handlers.declarations import TimerHandler
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.execution import Invocation, call_handler, deliver_result
from cfo.runtime.handlers.patching import apply_patch
from cfo.runtime.handlers.progress import HandlerState
from cfo.runtime.handlers.resource_selectors import Resource
from cfo.runtime.handlers.source import EventSource
from cfo.runtime.objects.unstructured import NamespacedName, Object, is_deleting, uid_of


@dataclass(slots=True)
class _Schedule:
    """When a timer of an object is called next, in seconds of the monotonic clock."""

    uid: str
    due: float
    changed_at: float
    essence: int = 0
    waits_for_change: bool = False
    state: HandlerState | None = None


class Owner(Protocol):
    """What timers need of the handlers of their resource."""

    informer: Informer
    resource: Resource
    source: EventSource

    def recall(self, obj: Object) -> Memory:
        """Return what is remembered about an object."""
        ...


class Timer:
    """The reconciler of one timer."""

    def __init__(self, environment: Environment, handler: TimerHandler, owner: Owner) -> None:
        self.environment = environment
        self.handler = handler
        self._owner = owner
        self._schedules: dict[NamespacedName, _Schedule] = {}
        self._running: set[NamespacedName] = set()

    def is_running(self, key: NamespacedName) -> bool:
        """Return whether the timer is being called for an object."""
        return key in self._running

    def is_relevant(self, event: Event) -> bool:
        """Return whether an event can start or stop the timer, or change when it is due."""
        if event.old is None or event.new is None:
            return True
        if event.old.meta.deletion_timestamp != event.new.meta.deletion_timestamp:
            return True
        handler = self.handler
        return bool(handler.idle is not None or handler.labels or handler.annotations or handler.when or handler.field)

    async def reconcile(self, request: Request) -> Result:
        """Call the function if it is due; requeue the object for the next call."""
        obj = self._owner.informer.reader.get(request)
        if obj is None or is_deleting(obj):
            self._schedules.pop(request, None)
            return Result()
        memory = self._owner.recall(obj)
        cause = Cause(self.environment, self._owner.resource, Body(obj), memory.memo)
        if not matches(self.handler, cause):
            self._schedules.pop(request, None)
            return Result()
        now = self.environment.clock.monotonic()
        schedule = self._schedules.get(request)
        if schedule is None or schedule.uid != uid_of(obj):
            schedule = self._schedules[request] = _Schedule(uid_of(obj), now + self._initial_delay(cause), now)
        due = self._due(schedule, obj, now)
        if due is None:
            return Result()
        if due > now:
            return Result(requeue_after=due - now)
        self._running.add(request)
        try:
            await self._call(obj, cause, schedule)
        finally:
            self._running.discard(request)
            meta = self._owner.informer.reader.meta(request)
            if meta is not None and meta.is_deleting:
                self._owner.source.enqueue(request, f"{self.handler} returned")
        due = self._due(schedule, obj, now)
        if due is None:
            return Result()
        return Result(requeue_after=max(due - self.environment.clock.monotonic(), 0.001))

    def _initial_delay(self, cause: Cause) -> float:
        delay = self.handler.initial_delay
        return float((delay(**cause.kwargs()) if callable(delay) else delay) or 0.0)

    def _due(self, schedule: _Schedule, obj: Object, now: float) -> float | None:
        """Return when the next call is due; ``None`` if only a change of the object can make it due."""
        idle = self.handler.idle
        if idle is None:
            return None if schedule.waits_for_change else schedule.due
        change = detect_change(self.environment, obj, (), initial=False)
        essence = hash(orjson.dumps(change.new))
        if essence != schedule.essence:
            if schedule.essence:
                schedule.changed_at, schedule.waits_for_change = now, False
            schedule.essence = essence
        return None if schedule.waits_for_change else max(schedule.due, schedule.changed_at + idle)

    async def _call(self, obj: Object, cause: Cause, schedule: _Schedule) -> None:
        environment, handler, clock = self.environment, self.handler, self.environment.clock
        started = clock.monotonic()
        state = schedule.state or HandlerState(started=environment.now())
        invocation = Invocation(environment, handler, cause)
        outcome = await call_handler(handler, invocation, state, cause.kwargs_for(handler), logger=cause.logger)
        deliver_result(handler, outcome, cause.patch)
        ended = clock.monotonic()
        if not outcome.final:
            schedule.state = state.after(outcome, environment.now())
            schedule.due = ended + (outcome.delay or 0.0)
        else:
            schedule.state = None
            if handler.interval is None:
                schedule.waits_for_change = True
            elif handler.sharp and handler.interval > 0:
                schedule.due = started + handler.interval * math.ceil((ended - started) / handler.interval)
            else:
                schedule.due = ended + handler.interval
        if cause.patch:
            try:
                await apply_patch(environment, cause.resource, obj, cause.patch, cause.logger)
            except (APIError, TransportError) as error:
                cause.logger.warning(f"The patch of {handler} was not stored: {error}")
