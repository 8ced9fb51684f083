"""Waits for kinds that the API server does not serve yet, by watching CustomResourceDefinitions.

Discovery decides which kinds are served. It is read at startup, and again when a CustomResourceDefinition of a group
with a pending kind is created or changes (becoming established is a change). A metadata-only informer reports these
events; there is no polling. Discovery lags behind the CRD, so each event triggers several checks.

A kind with a teardown function is followed further: if its CRD is deleted, or a changed CRD no longer serves it, the
function is called, and the kind is pending again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import DiscoveryIncomplete, DiscoveryPosition, Resource, RESTMapper
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.objects.kinds import CUSTOM_RESOURCE_DEFINITION
from cfo.runtime.objects.rbac import READ, Rule
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from cfo.runtime.process.clock import Clock

__all__ = ["AVAILABILITY_RULES", "Availability", "is_served"]

_log = structlog.get_logger(__name__)


AVAILABILITY_RULES = (Rule("apiextensions.k8s.io", "customresourcedefinitions", READ),)
"""The RBAC rules that waiting for a kind requires."""

_CHECK_DELAYS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before each of the discovery checks that follow an event."""

_BACKOFF = (0.5, 30.0)
"""Seconds before discovery is retried after a failure: initial and maximum."""

Setup = Callable[[], Awaitable[None] | None]


class _Followed(NamedTuple):
    """A kind, and what to call when it is served, and when it is no longer served."""

    gvk: GVK
    setup: Setup
    teardown: Setup | None


class Availability:
    """Calls setup functions when their kinds are served; a runnable of the manager.

    If the API server of a kind does not respond, discovery of that kind is retried without delaying other kinds.
    """

    name = "availability"
    needs_leader = False

    def __init__(self, mapper: RESTMapper, cache: Cache, *, clock: Clock) -> None:
        self._mapper = mapper
        self._cache = cache
        self._clock = clock
        self._pending: list[_Followed] = []
        self._served: list[tuple[str, _Followed]] = []
        """Kinds that are set up and have a teardown function, with the names of their CRDs."""
        self._hints: dict[GVK, str] = {}
        self._changed = asyncio.Event()
        self._changed_groups: set[str] = set()
        """Groups in which a kind may be served now."""
        self._reduced: set[str] = set()
        """CRDs whose kind may no longer be served."""
        self._informer: Informer | None = None

    @property
    def pending(self) -> tuple[GVK, ...]:
        """The kinds that are not served yet."""
        return tuple(item.gvk for item in self._pending)

    def when_available(self, gvk: GVK, setup: Setup, *, teardown: Setup | None = None, hint: str = "") -> None:
        """Call ``setup`` once, as soon as the API server serves ``gvk``.

        Call ``teardown`` when it no longer serves it, and then ``setup`` again when it does.
        ``hint`` explains how the kind is installed. If given, the log says once at info level that the kind is missing.
        """
        if hint:
            self._hints[gvk] = hint
        self._pending.append(_Followed(gvk, setup, teardown))
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
            if (self._pending or self._served) and self._informer is None:
                self._informer = self._cache.informer(CUSTOM_RESOURCE_DEFINITION, metadata_only=True)
                self._informer.add_handler(self._on_event)
                self._informer.add_state_handler(self._on_sync)
                self._on_sync()
            if all_known:
                delays = _delays()
                await self._changed.wait()
            else:
                timer = self._clock.call_later(next(delays), self._changed.set)
                await self._changed.wait()
                timer.cancel()
            self._changed.clear()
            all_known = await self._check_pending()

    def _on_sync(self) -> None:
        """Check the kinds whose CRD was deleted before the informer listed CRDs."""
        informer = self._informer
        if informer is None or not informer.has_synced:
            return
        missing = {name for name, _ in self._served if not informer.reader.contains(NamespacedName("", name))}
        if missing:
            self._reduced |= missing
            self._changed.set()
        informer.remove_state_handler(self._on_sync)

    def _on_event(self, event: Event) -> None:
        _, _, group = event.key.name.partition(".")
        if event.new is not None and any(item.gvk.group == group for item in self._pending):
            self._changed_groups.add(group)
            self._changed.set()
        if _may_remove_kinds(event) and any(name == event.key.name for name, _ in self._served):
            self._reduced.add(event.key.name)
            self._changed.set()

    async def _check_pending(self) -> bool:
        """Check discovery until the kinds of the reported CRDs are served or the delays are used up.

        Return whether discovery gave a definite answer for every pending kind.
        """
        all_known = True
        for delay in _CHECK_DELAYS:
            await self._clock.sleep(delay)
            self._mapper.invalidate()
            await self._tear_down_removed()
            all_known = await self._set_up_served()
            if not self._reduced and not any(item.gvk.group in self._changed_groups for item in self._pending):
                break
        self._changed_groups.clear()
        self._reduced.clear()
        return all_known

    async def _tear_down_removed(self) -> None:
        """Tear down the kinds of the reported CRDs that are no longer served."""
        position = self._mapper.position()
        removed: set[str] = set()
        for name, item in tuple(self._served):
            if name not in self._reduced:
                continue
            try:
                resource = await _query(self._mapper, item.gvk, self._clock, since=position)
            except DiscoveryIncomplete as error:
                _log.warning("Failed to determine whether kind is served", kind=str(item.gvk), error=str(error))
                continue
            if resource is None and item.teardown is not None:
                _log.info("Kind is no longer available", kind=str(item.gvk))
                removed.add(name)
                self._served.remove((name, item))
                self._pending.append(item)
                await _call(item.teardown)
        self._reduced -= removed

    async def _set_up_served(self) -> bool:
        all_known = True
        position = self._mapper.position()  # one read answers for all kinds
        for item in tuple(self._pending):
            gvk = item.gvk
            try:
                resource = await _query(self._mapper, gvk, self._clock, since=position)
            except DiscoveryIncomplete as error:
                _log.warning("Failed to determine whether kind is served, will retry", kind=str(gvk), error=str(error))
                all_known = False
                continue
            if resource is None:
                if (hint := self._hints.pop(gvk, "")) != "":
                    _log.info("Kind is not served, waiting for it", kind=str(gvk), hint=hint)
                else:
                    _log.debug("Waiting for kind", kind=str(gvk))
                continue
            self._pending.remove(item)
            _log.info("Kind is available", kind=str(gvk))
            if item.teardown is not None:
                self._served.append((f"{resource.plural}.{gvk.group}", item))
            await _call(item.setup)
        return all_known


def _may_remove_kinds(event: Event) -> bool:
    """Return whether a kind of the CRD may no longer be served: it is deleted, or its spec changed."""
    if event.new is None or event.old is None:
        return event.new is None
    return event.new.meta.is_deleting or event.new.meta.generation != event.old.meta.generation


async def _call(function: Setup) -> None:
    result = function()
    if inspect.isawaitable(result):
        await result


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
            _log.warning("Discovery failed, will retry", kind=str(gvk), error=str(error), retry_in_seconds=delay)
            await clock.sleep(delay)


def _delays() -> Iterator[float]:
    delay, maximum = _BACKOFF
    while True:
        yield delay
        delay = min(2 * delay, maximum)
