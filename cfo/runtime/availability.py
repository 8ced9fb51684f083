"""Waits for kinds that the API server does not serve yet, by watching CustomResourceDefinitions.

Discovery is the judge of what is served. It is asked at the start, and again when a
CustomResourceDefinition of a group that is waited for comes or changes (becoming established is a change):
a metadata-only informer tells, nothing is polled. Discovery follows the definition a moment later, so that
an event is followed by a few more looks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Event, Informer
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import DiscoveryIncomplete, RESTMapper
from cfo.runtime.kinds import CUSTOM_RESOURCE_DEFINITION
from cfo.runtime.objects import GVK
from cfo.runtime.reconcile import READ, Rule

__all__ = ["AVAILABILITY_RULES", "Availability", "is_served"]

_log = structlog.get_logger("cfo.runtime.availability")


AVAILABILITY_RULES = (Rule("apiextensions.k8s.io", "customresourcedefinitions", READ),)
"""The rights that waiting for a kind needs."""

_LOOKS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between the looks at discovery that follow an event."""

_BACKOFF = (0.5, 30.0)
"""Seconds after which a question without an answer is asked again: at first, and at most."""

Setup = Callable[[], Awaitable[None] | None]


class Availability:
    """Calls functions when the kinds that they need are served; a runnable of the manager.

    A kind whose own API server does not answer is asked for again and again, and keeps no other waiting.
    """

    name = "availability"
    needs_leader = False

    def __init__(self, mapper: RESTMapper, cache: Cache, *, clock: Clock) -> None:
        self._mapper = mapper
        self._cache = cache
        self._clock = clock
        self._pending: list[tuple[GVK, Setup]] = []
        self._changed = asyncio.Event()
        self._groups: set[str] = set()
        self._informer: Informer | None = None

    @property
    def pending(self) -> tuple[GVK, ...]:
        """The kinds that are waited for."""
        return tuple(gvk for gvk, _ in self._pending)

    def when_available(self, gvk: GVK, setup: Setup) -> None:
        """Calls ``setup`` once, as soon as the API server serves ``gvk``."""
        self._pending.append((gvk, setup))
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs until cancelled; started when all kinds that are known to be served are set up.

        Raises what a ``setup`` raises.
        """
        self._changed.clear()
        all_known = await self._set_up_served()
        task_status.started()
        pauses = _pauses()
        while True:
            if self._pending and self._informer is None:
                self._informer = self._cache.informer(CUSTOM_RESOURCE_DEFINITION, metadata_only=True)
                self._informer.add_handler(self._on_event)
            if all_known:
                pauses = _pauses()
                await self._changed.wait()
            else:
                timer = self._clock.call_later(next(pauses), self._changed.set)
                await self._changed.wait()
                timer.cancel()
            self._changed.clear()
            all_known = await self._look()

    def _on_event(self, event: Event) -> None:
        _, _, group = event.key.name.partition(".")
        if event.new is not None and any(gvk.group == group for gvk, _ in self._pending):
            self._groups.add(group)
            self._changed.set()

    async def _look(self) -> bool:
        """Whether it is known of all kinds if they are served, after as many looks as it takes."""
        all_known = True
        for pause in _LOOKS:
            await self._clock.sleep(pause)
            self._mapper.invalidate()
            all_known = await self._set_up_served()
            if not any(gvk.group in self._groups for gvk, _ in self._pending):
                break
        self._groups.clear()
        return all_known

    async def _set_up_served(self) -> bool:
        all_known = True
        for waiting in tuple(self._pending):
            gvk, setup = waiting
            try:
                served = await _ask(self._mapper, gvk, self._clock)
            except DiscoveryIncomplete as error:
                _log.warning("cannot tell whether a kind is served", kind=str(gvk), error=str(error))
                all_known = False
                continue
            if not served:
                _log.debug("waiting for a kind", kind=str(gvk))
                continue
            self._pending.remove(waiting)
            _log.info("kind is available", kind=str(gvk))
            result = setup()
            if inspect.isawaitable(result):
                await result
        return all_known


async def is_served(mapper: RESTMapper, gvk: GVK, clock: Clock) -> bool:
    """Whether the API server serves ``gvk``; asks until there is an answer, for no answer is not "no"."""
    pauses = _pauses()
    while True:
        try:
            return await _ask(mapper, gvk, clock)
        except DiscoveryIncomplete as error:
            pause = next(pauses)
            _log.warning("cannot tell whether a kind is served", kind=str(gvk), error=str(error), retry_in=pause)
            await clock.sleep(pause)


async def _ask(mapper: RESTMapper, gvk: GVK, clock: Clock) -> bool:
    """Asks until discovery answers at all; raises :class:`DiscoveryIncomplete` where it does not for this group."""
    pauses = _pauses()
    while True:
        try:
            await mapper.resource(gvk)
        except UnknownKind:
            return False
        except (APIError, TransportError) as error:
            pause = next(pauses)
            _log.warning("discovery failed", kind=str(gvk), error=str(error), retry_in=pause)
            await clock.sleep(pause)
        else:
            return True


def _pauses() -> Iterator[float]:
    pause, maximum = _BACKOFF
    while True:
        yield pause
        pause = min(2 * pause, maximum)
