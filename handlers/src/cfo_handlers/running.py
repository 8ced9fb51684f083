"""Runs the handlers of a registry in a manager."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.cache import Event, Informer
from cfo.runtime.client import APIError, DiscoveryIncomplete, TransportError
from cfo.runtime.controller import (
    Controller,
    ControllerOptions,
    EnqueueRequestForObject,
    EventHandler,
    ExpectedFailure,
    InformerSync,
    Kind,
    Source,
    StartPhase,
)
from cfo.runtime.manager import Manager
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION, SECRET
from cfo_handlers.activities import run_activity
from cfo_handlers.background import Daemons, Timer
from cfo_handlers.declarations import (
    Activity,
    OperatorRegistry,
    ResourceHandler,
    WebhookHandler,
)
from cfo_handlers.environment import Environment
from cfo_handlers.resource_handlers import ResourceHandlers
from cfo_handlers.resource_selectors import Resource, Selector, resources_of
from cfo_handlers.settings import OperatorSettings
from cfo_handlers.signatures import require_signatures

_log = structlog.get_logger(__name__)

_DISCOVERY_DELAYS: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before each read of the discovery after a CRD changed, because the discovery lags behind."""


class Handlers:
    """The handlers of a registry in a manager; a runnable of all replicas. Created by :func:`add_to`."""

    name = "handlers"

    def __init__(self, manager: Manager, environment: Environment, *, started_up: bool) -> None:
        self.environment = environment
        self.resources: dict[Resource, ResourceHandlers] = {}
        self._manager = manager
        self._started_up = started_up
        self._daemons = Daemons(environment)
        self._work = anyio.CancelScope()
        self._changed = asyncio.Event()
        self._unresolved: set[Selector] = set()
        self._reported: set[Selector] = set()
        self._names: set[str] = set()
        recorder = manager.events(environment.settings.posting.reporting_component)
        environment.connect(manager.client, recorder)
        manager.add(self._daemons, phase=StartPhase.LEADER)
        manager.add(self, phase=StartPhase.ALL_REPLICAS)

    def stop(self) -> None:
        """Call the cleanup handlers; :meth:`run` returns afterwards."""
        self._work.cancel()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Call the startup handlers, and add a controller for each resource that handlers are for."""
        environment = self.environment
        if not self._started_up:
            await run_activity(environment, Activity.STARTUP)
        with self._work:
            await self._add_resources()
            if self._manager.options.webhook is not None:
                await self._register_webhooks()
            task_status.started()
            await self._follow_resources()
        await run_activity(environment, Activity.CLEANUP)

    async def _served(self) -> list[Resource]:
        while True:
            try:
                return resources_of(await self._manager.mapper.resources())
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                _log.warning("Discovery failed, will retry", error=str(error))
                await self.environment.clock.sleep(1.0)

    async def _add_resources(self) -> None:
        """Add the resources that are served now and not handled yet."""
        served = await self._served()
        handlers = [
            handler
            for handler in self.environment.registry.of_type(ResourceHandler)
            if not isinstance(handler, WebhookHandler)
        ]
        self._names = {resource.name for resource in served}
        wanted: dict[Resource, None] = {}
        self._unresolved.clear()
        for handler in handlers:
            found = handler.selector.select(served)
            if handler.selector.is_specific and len(found) > 1:
                _log.warning("Resource is ambiguous, not handled", selector=str(handler.selector))
                continue
            if not found or not handler.selector.is_specific:
                self._unresolved.add(handler.selector)
            for resource in found:
                if {"list", "watch"} <= resource.verbs:
                    wanted[resource] = None
        new = [resource for resource in wanted if resource not in self.resources]
        for resource in new:
            informer = self._informer(resource, handlers)
            self.resources[resource] = ResourceHandlers(
                self.environment, resource, informer, self._daemons
            )
            self.resources[resource].start_indexes()
        for resource in new:
            self._add_controllers(self.resources[resource])
        for selector in self._unresolved - self._reported:
            self._reported.add(selector)
            if selector.is_specific:
                _log.warning("Resource is not served, waiting for it", selector=str(selector))

    def _informer(self, resource: Resource, handlers: Collection[ResourceHandler]) -> Informer:
        """Return the informer of a resource. Secrets are limited to the labels that all their handlers have."""
        cache = self._manager.cache
        if resource.gvk != SECRET:
            return cache.informer(resource.gvk)
        common: set[tuple[str, str]] | None = None
        for handler in handlers:
            if handler.selector.check(resource):
                labels = _required_labels(handler)
                common = labels if common is None else common & labels
        if not common and not cache.is_restricted:
            raise ExpectedFailure(
                "handlers of Secrets must be limited to namespaces, or all by the same labels= with strings"
            )
        selector = ",".join(f"{key}={value}" for key, value in sorted(common or ()))
        return cache.informer(resource.gvk, label_selector=selector)

    def _add_controllers(self, handlers: ResourceHandlers) -> None:
        indexed: list[Source] = [
            InformerSync(other.informer)
            for other in self.resources.values()
            if other.index_handlers and other is not handlers
        ]
        name = str(handlers.resource)
        if handlers.reconciles:
            sources = [self._kind(handlers, handlers.events, handlers), handlers.channel, *indexed]
            self._add_controller(name, handlers.resource, handlers, sources)
        for timer in handlers.timers:
            sources = [self._kind(handlers, EnqueueRequestForObject(), timer), *indexed]
            self._add_controller(f"{name}/{timer.handler.id}", handlers.resource, timer, sources)

    def _kind(
        self, handlers: ResourceHandlers, events: EventHandler, reconciler: ResourceHandlers | Timer
    ) -> Source:
        """Return the source of the events of a resource that concern a reconciler."""
        return Kind(
            handlers.informer,
            events,
            reconciler.is_relevant,
            mapper=self._manager.mapper,
            clock=self._manager.clock,
        )

    def _add_controller(
        self,
        name: str,
        resource: Resource,
        reconciler: ResourceHandlers | Timer,
        sources: Iterable[Source],
    ) -> None:
        worker_limit = self.environment.settings.queueing.worker_limit
        controller = Controller(
            name,
            reconciler,
            kind=resource.gvk,
            options=ControllerOptions(max_concurrent_reconciles=worker_limit),
            metrics=self._manager.metrics,
            clock=self._manager.clock,
        )
        for source in sources:
            controller.watch(source)
        self._manager.add_controller(controller)

    async def _register_webhooks(self) -> None:
        from cfo_handlers.admission import register_webhooks  # loads cryptography

        served = await self._served()
        managed = self.environment.settings.admission.managed or "handlers"
        domain = managed if managed.count(".") else f"{managed}.local"
        count = register_webhooks(self.environment, served, self._manager.webhooks, domain)
        _log.info("Registered webhooks", count=count)

    async def _follow_resources(self) -> None:
        """Add resources that are served later."""
        if self.environment.settings.scanning.disabled:
            await anyio.sleep_forever()
        informer: Informer | None = None
        while True:
            if self._unresolved and informer is None:
                informer = self._manager.cache.informer(
                    CUSTOM_RESOURCE_DEFINITION, metadata_only=True
                )
                informer.add_handler(self._on_definition)
            await self._changed.wait()
            self._changed.clear()
            for delay in _DISCOVERY_DELAYS:
                await self.environment.clock.sleep(delay)
                self._manager.mapper.invalidate()
                await self._add_resources()
                if not self._unresolved:
                    break

    def _on_definition(self, event: Event) -> None:
        is_known = event.initial and event.key.name in self._names
        if event.new is not None and self._unresolved and not is_known:
            self._changed.set()


def _required_labels(handler: ResourceHandler) -> set[tuple[str, str]]:
    """Return the labels, with their values, that a handler requires."""
    labels = handler.labels or {}
    return {(key, value) for key, value in labels.items() if isinstance(value, str)}


def add_to(
    manager: Manager,
    *,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memo: Any = None,
) -> Handlers:
    """Add the handlers of ``registry`` (default: all that were declared without one) to a manager.

    Login handlers are not called, because the manager is connected. Call it in the event loop, before the manager runs.

    Raises :class:`ValueError` for a handler without ``**_``, if there are admission handlers, but no
    ``ManagerOptions.webhook``, and if ``registry`` is not given and no handlers were declared without one.
    """
    environment = Environment(registry, settings, memo, clock=manager.clock)
    require_signatures(environment.registry)
    if registry is None and not environment.registry:
        raise ValueError("add_to: no handlers were declared without a registry: pass registry=")
    admission = environment.registry.of_type(WebhookHandler)
    if admission and manager.options.webhook is None:
        raise ValueError(
            f"add_to: {admission[0]}: on.validate and on.mutate need ManagerOptions(webhook=WebhookOptions(...))"
        )
    return Handlers(manager, environment, started_up=False)
