"""Waits for kinds that the API server does not serve yet, by watching CustomResourceDefinitions.

Discovery decides which kinds are served. It is read at startup, and again when a CustomResourceDefinition of a group
with a pending kind is created or changes (becoming established is a change). A metadata-only informer reports these
events; there is no polling. Discovery lags behind the CRD, so each event triggers several checks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import (
    DiscoveryIncomplete,
    DiscoveryPosition,
    Resource,
    RESTMapper,
)
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.objects.kinds import CUSTOM_RESOURCE_DEFINITION
from cfo.runtime.objects.rbac import READ, Rule
from cfo.runtime.objects.unstructured import GVK
from cfo.runtime.process.clock import Clock

_log = structlog.get_logger(__name__)


AVAILABILITY_RULES = (Rule("apiextensions.k8s.io", "customresourcedefinitions", READ),)
"""The RBAC rules that waiting for a kind requires."""

CHECK_DELAYS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before each of the discovery checks that follow an event."""

_FIRST_RETRY_DELAY = 0.5
"""Seconds before discovery is retried after the first failure; the delay doubles with each further one."""

_MAX_RETRY_DELAY = 30.0
"""The maximum delay in seconds before discovery is retried."""

Setup = Callable[[], Awaitable[None] | None]


class Availability:
    """Calls setup functions when their kinds are served; a runnable of the manager.

    If the API server of a kind does not respond, discovery of that kind is retried without delaying other kinds.
    """

    name = "availability"

    def __init__(self, mapper: RESTMapper, cache: Cache, *, clock: Clock) -> None:
        self._mapper = mapper
        self._cache = cache
        self._clock = clock
        self._pending: list[tuple[GVK, Setup]] = []
        self._hints: dict[GVK, str] = {}
        self._changed = asyncio.Event()
        self._changed_groups: set[str] = set()
        """Groups in which a kind may be served now."""
        self._watches_crds = False

    @property
    def pending(self) -> tuple[GVK, ...]:
        """The kinds that are not served yet."""
        return tuple(gvk for gvk, _ in self._pending)

    def when_available(self, gvk: GVK, setup: Setup, *, hint: str = "") -> None:
        """Call ``setup`` once, as soon as the API server serves ``gvk``.

        ``hint`` explains how the kind is installed. If given, the log says once at info level that the kind is missing.
        """
        if hint:
            self._hints[gvk] = hint
        self._pending.append((gvk, setup))
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; report the start when all kinds that are known to be served have been set up.

        Raises any exception of a ``setup`` function.
        """
        self._changed.clear()
        all_known = await self._set_up_served()
        task_status.started()
        delays = _delays()
        while True:
            if self._pending and not self._watches_crds:
                self._watches_crds = True
                crds = self._cache.informer(CUSTOM_RESOURCE_DEFINITION, metadata_only=True)
                crds.add_handler(self._on_event)
            if all_known:
                delays = _delays()
                await self._changed.wait()
            else:
                timer = self._clock.call_later(next(delays), self._changed.set)
                await self._changed.wait()
                timer.cancel()
            self._changed.clear()
            all_known = await self._check_pending()

    def _on_event(self, event: Event) -> None:
        if event.new is None:
            return
        _, _, group = event.key.name.partition(".")  # the name of a CRD is PLURAL.GROUP
        if any(gvk.group == group for gvk, _ in self._pending):
            self._changed_groups.add(group)
            self._changed.set()

    async def _check_pending(self) -> bool:
        """Check discovery until the kinds of the reported CRDs are served or the delays are used up.

        Return whether discovery gave a definite answer for every pending kind.
        """
        all_known = True
        for delay in CHECK_DELAYS:
            await self._clock.sleep(delay)
            self._mapper.invalidate(groups_only=True)
            all_known = await self._set_up_served()
            if not any(gvk.group in self._changed_groups for gvk, _ in self._pending):
                break
        self._changed_groups.clear()
        return all_known

    async def _set_up_served(self) -> bool:
        """Set up the pending kinds that are served; return whether discovery gave an answer for all of them."""
        all_known = True
        available: set[GVK] = set()
        position = self._mapper.position()  # one read answers for all kinds
        for item in tuple(self._pending):
            gvk, setup = item
            try:
                resource = await _query(self._mapper, gvk, self._clock, since=position)
            except DiscoveryIncomplete as error:
                _log.warning(
                    "Failed to determine whether kind is served, will retry",
                    kind=str(gvk),
                    error=str(error),
                )
                all_known = False
                continue
            if resource is None:
                hint = self._hints.pop(gvk, "")
                if hint:
                    _log.info("Kind is not served, waiting for it", kind=str(gvk), hint=hint)
                else:
                    _log.debug("Waiting for kind", kind=str(gvk))
                continue
            self._pending.remove(item)
            if gvk not in available:  # several controllers can wait for it
                _log.info("Kind is available", kind=str(gvk))
            available.add(gvk)
            result = setup()
            if inspect.isawaitable(result):
                await result
        return all_known


async def is_served(mapper: RESTMapper, gvk: GVK, clock: Clock) -> bool:
    """Return whether the API server serves ``gvk``; retries until discovery gives a definite answer."""
    delays = _delays()
    while True:
        try:
            return await _query(mapper, gvk, clock) is not None
        except DiscoveryIncomplete as error:
            delay = next(delays)
            _log.warning(
                "Failed to determine whether kind is served, will retry",
                kind=str(gvk),
                error=str(error),
                retry_in_seconds=delay,
            )
            await clock.sleep(delay)


async def _query(
    mapper: RESTMapper, gvk: GVK, clock: Clock, *, since: DiscoveryPosition | None = None
) -> Resource | None:
    """Return the resource of a kind according to a read after ``since``, or ``None``; retries until discovery responds.

    Raises :class:`DiscoveryIncomplete` if only the server of this group does not respond.
    """
    delays = _delays()
    while True:
        try:
            return await mapper.resource(gvk, since=since)
        except UnknownKind:
            return None
        except (APIError, TransportError) as error:
            delay = next(delays)
            _log.warning(
                "Discovery failed, will retry",
                kind=str(gvk),
                error=str(error),
                retry_in_seconds=delay,
            )
            await clock.sleep(delay)


def _delays() -> Iterator[float]:
    delay = _FIRST_RETRY_DELAY
    while True:
        yield delay
        delay = min(2 * delay, _MAX_RETRY_DELAY)
