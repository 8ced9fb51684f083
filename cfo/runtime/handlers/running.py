"""Runs handlers: in a manager of the program (:func:`add_to`), or as a whole operator (:func:`operator`)."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.clock import first_of
from cfo.runtime.controller import Controller, ControllerOptions
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.endpoint import Endpoint
from cfo.runtime.handler import EnqueueRequestForObject
from cfo.runtime.handlers.activities import log_in, run_activity
from cfo.runtime.handlers.daemons import Daemons
from cfo.runtime.handlers.declarations import Activity, ResourceHandler, WebhookHandler
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.errors import ErrorsMode
from cfo.runtime.handlers.patching import plain
from cfo.runtime.handlers.registry import OperatorRegistry
from cfo.runtime.handlers.resource_handlers import ResourceHandlers
from cfo.runtime.handlers.selectors import Resource, Selector, resources_of
from cfo.runtime.handlers.settings import OperatorSettings
from cfo.runtime.kinds import CUSTOM_RESOURCE_DEFINITION, SECRET
from cfo.runtime.leaderelection import LeaderElectionOptions
from cfo.runtime.lifecycle import Phase
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.source import InformerSync, Kind, Source
from cfo.runtime.threads import ThreadPool

__all__ = ["Handlers", "LogFormat", "add_to", "configure", "operator", "run"]

_log = structlog.get_logger(__name__)

FIELD_MANAGER: Final = "kopf"
_CHECK_DELAYS: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds before each discovery after a CRD has changed: discovery lags behind the CRD."""


class LogFormat(enum.Enum):
    """The formats of logs; ``PLAIN`` and ``FULL`` are the same."""

    PLAIN = enum.auto()
    FULL = enum.auto()
    JSON = enum.auto()


class Handlers:
    """The handlers of a registry in a manager; a runnable of all replicas. Created by :func:`add_to`."""

    name = "handlers"
    needs_leader = False

    def __init__(self, manager: Manager, environment: Environment, *, started_up: bool) -> None:
        self.environment = environment
        self.resources: dict[Resource, ResourceHandlers] = {}
        self._manager = manager
        self._started_up = started_up
        self._daemons = Daemons(environment)
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._unresolved: set[Selector] = set()
        self._reported: set[Selector] = set()
        self._names: set[str] = set()
        environment.connect(manager.client, manager.events(environment.settings.posting.reporting_component))
        manager.add(self._daemons, phase=Phase.LEADER)
        manager.add(self, phase=Phase.ALL_REPLICAS)

    def stop(self) -> None:
        """Call the cleanup handlers; :meth:`run` returns afterwards."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Call the startup handlers, and add a controller for each resource that handlers are for."""
        environment = self.environment
        if not self._started_up:
            await run_activity(environment, Activity.STARTUP)
        await self._add_resources()
        if self._manager.options.webhook is not None:
            await self._register_webhooks()
        task_status.started()
        await first_of(self._stopping.wait, self._follow_resources)
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
            if handler.selector is None:
                continue
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
            self.resources[resource] = ResourceHandlers(self.environment, resource, informer, self._daemons)
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
        own = [handler for handler in handlers if handler.selector is not None and handler.selector.check(resource)]
        labels = [
            {(key, value) for key, value in (handler.labels or {}).items() if isinstance(value, str)} for handler in own
        ]
        common = set.intersection(*labels)
        return cache.informer(resource.gvk, label_selector=",".join(f"{key}={value}" for key, value in sorted(common)))

    def _add_controllers(self, handlers: ResourceHandlers) -> None:
        manager, resource = self._manager, handlers.resource
        options = ControllerOptions(max_concurrent_reconciles=self.environment.settings.queueing.worker_limit)
        indexed: list[Source] = [
            InformerSync(other.informer)
            for other in self.resources.values()
            if other.index_handlers and other is not handlers
        ]
        if handlers.reconciles:
            controller = Controller(
                str(resource),
                handlers,
                kind=resource.gvk,
                options=options,
                metrics=manager.metrics,
                clock=manager.clock,
            )
            controller.watch(handlers.source)
            for source in indexed:
                controller.watch(source)
            manager.add_controller(controller)
        for timer in handlers.timers:
            controller = Controller(
                f"{resource}/{timer.handler.id}",
                timer,
                kind=resource.gvk,
                options=options,
                metrics=manager.metrics,
                clock=manager.clock,
            )
            events = Kind(
                handlers.informer,
                EnqueueRequestForObject(),
                timer.is_relevant,
                mapper=manager.mapper,
                clock=manager.clock,
            )
            for source in (events, *indexed):
                controller.watch(source)
            manager.add_controller(controller)

    async def _register_webhooks(self) -> None:
        from cfo.runtime.handlers.admission import register_webhooks  # lazily: loads cryptography

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
                informer = self._manager.cache.informer(CUSTOM_RESOURCE_DEFINITION, metadata_only=True)
                informer.add_handler(self._on_definition)
            await self._changed.wait()
            self._changed.clear()
            for delay in _CHECK_DELAYS:
                await self.environment.clock.sleep(delay)
                self._manager.mapper.invalidate()
                await self._add_resources()
                if not self._unresolved:
                    break

    def _on_definition(self, event: Event) -> None:
        if event.new is not None and self._unresolved and not (event.initial and event.key.name in self._names):
            self._changed.set()


def add_to(
    manager: Manager,
    *,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memo: Any = None,
) -> Handlers:
    """Add the handlers of ``registry`` (default: all that were declared without one) to a manager.

    Login handlers are not called, because the manager is connected. Call it in the event loop, before the manager runs.
    Admission handlers need ``ManagerOptions.webhook``.
    """
    return Handlers(manager, Environment(registry, settings, memo, clock=manager.clock), started_up=False)


async def _wait_for(flag: Any) -> None:
    if isinstance(flag, threading.Event):
        await ThreadPool("stop-flag", 1).run(flag.wait)
    elif isinstance(flag, asyncio.Event):
        await flag.wait()
    elif flag is not None:
        await flag
    else:
        await anyio.sleep_forever()


def _raise(flag: Any) -> None:
    if isinstance(flag, asyncio.Future):
        if not flag.done():
            flag.set_result(None)
    elif flag is not None:
        flag.set()


async def operator(
    *,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memo: Any = None,
    lifecycle: Callable[..., Any] | None = None,
    clusterwide: bool = False,
    namespaces: Collection[str] = (),
    namespace: str | None = None,
    standalone: bool | None = None,
    peering_name: str | None = None,
    priority: int | None = None,
    liveness_endpoint: str | None = None,
    stop_flag: Any = None,
    ready_flag: Any = None,
    handle_signals: bool = False,
    **ignored: Any,
) -> None:
    """Run an operator until ``stop_flag`` is set, or forever; ``ready_flag`` is set when it has started.

    ``namespaces`` limit it (empty or ``clusterwide``: all namespaces). With ``peering_name``, unless ``standalone``, it
    takes part in leader election with a Lease of this name. ``liveness_endpoint``: a URL such as
    ``http://0.0.0.0:8080/healthz`` that responds with the results of the probes. ``handle_signals`` (main thread only):
    SIGTERM and SIGINT stop it. Other parameters of kopf are ignored.

    Raises :class:`ValueError` for invalid parameters, and the errors of startup handlers, of logins and of the manager.
    """
    selected = tuple(namespaces) or ((namespace,) if namespace else ())
    if clusterwide and selected:
        raise ValueError("either clusterwide or namespaces can be given, not both")
    for name in selected:
        if not all(character.isalnum() or character == "-" for character in name):
            raise ValueError(f"namespace {name!r}: must be a name; patterns are not supported")
    for name in sorted(name for name, value in ignored.items() if value is not None):
        _log.warning("Parameter is ignored", parameter=name)
    environment = Environment(registry, settings, memo, lifecycle=lifecycle)
    peering = environment.settings.peering
    if peering_name is not None:
        peering.name, peering.mandatory = peering_name, True
    await run_activity(environment, Activity.STARTUP)
    config = await log_in(environment)
    home = os.environ.get("POD_NAMESPACE") or config.namespace
    election = None
    if peering.mandatory and not (standalone or peering.standalone):
        election = LeaderElectionOptions(name=peering.name, namespace=home)
    webhook = None
    if environment.registry.of_type(WebhookHandler):
        from cfo.runtime.handlers.webhook_servers import webhook_options  # lazily: loads cryptography

        admission = environment.settings.admission
        webhook = webhook_options(admission.server, admission.managed, home)
    options = ManagerOptions(
        field_manager=FIELD_MANAGER, namespaces=selected or None, leader_election=election, webhook=webhook
    )
    manager = Manager(config, options)
    Handlers(manager, environment, started_up=True)
    if liveness_endpoint:
        manager.add(_liveness(environment, liveness_endpoint), phase=Phase.SERVERS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_when_started, manager, ready_flag)
        tasks.start_soon(_stop_with, manager, stop_flag)
        try:
            await manager.run(handle_signals=handle_signals)
        finally:
            tasks.cancel_scope.cancel()


async def _set_when_started(manager: Manager, ready_flag: Any) -> None:
    try:
        await manager.started()
    except Exception:  # noqa: BLE001 - run() raises the same error
        return
    _raise(ready_flag)


async def _stop_with(manager: Manager, stop_flag: Any) -> None:
    await _wait_for(stop_flag)
    manager.stop()


def _liveness(environment: Environment, url: str) -> Endpoint:
    """Return a server whose response contains the results of the probes."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise ValueError(f"liveness endpoint {url!r}: must be http://HOST:PORT/PATH")
    lock = asyncio.Lock()
    cached: list[tuple[float, bytes]] = []

    async def respond(_: web.Request) -> web.Response:
        async with lock:
            now = environment.clock.monotonic()
            if not cached or now - cached[0][0] >= 10.0:
                results = await run_activity(
                    environment, Activity.PROBE, default_errors=ErrorsMode.IGNORED, retry=False
                )
                cached[:] = [(now, orjson.dumps({key: plain(value) for key, value in results.items()}))]
        return web.Response(body=cached[0][1], content_type="application/json")

    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "localhost"
    return Endpoint("liveness", f"{host}:{parts.port or 80}", [web.get(parts.path or "/", respond)])


def run(**options: Any) -> None:
    """Run :func:`operator` with its parameters in an event loop of its own; SIGTERM and SIGINT stop it."""
    options.pop("loop", None)
    in_main_thread = threading.current_thread() is threading.main_thread()
    asyncio.run(operator(handle_signals=in_main_thread, **options))


def configure(
    *,
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: Any = None,
    **_: Any,
) -> None:
    """Configure logging: at info level, or debug with ``debug`` or ``verbose``, or warning with ``quiet``."""
    from cfo.runtime import logs

    level = "debug" if debug or verbose else "warning" if quiet else "info"
    logs.configure("json" if str(getattr(log_format, "name", log_format)).lower() == "json" else "console", level)
    logging.getLogger("kopf").setLevel(level.upper())
