"""The manager: shared dependencies of an operator's controllers, and their start and stop.

A manager starts the servers first (health, metrics, webhooks), then the caches, then the runnables of every replica;
with leader election it then waits until it is the leader. Controllers start last, each as soon as its sources have
synced. On shutdown, running reconciles finish within the grace period, then the Lease is released, and the servers stop
last. When leadership is lost, everything stops immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.cache.budget import NAMESPACE_BYTES, default_total_bytes
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import LeftOut
from cfo.runtime.client.api_client import ApiClients
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.availability import Availability
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.lifecycle import Lifecycle, Runnable, RunnableFunction, StartPhase
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.absent_namespaces import AbsentNamespaces
from cfo.runtime.manager.events import EventBroadcaster, EventRecorder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.leadership import ElectedControllers, Leadership
from cfo.runtime.objects.kinds import NAMESPACE
from cfo.runtime.objects.unstructured import (
    GVK,
    ByKind,
    Object,
    ObjectKind,
    new_object,
    require_kind,
)
from cfo.runtime.process.arguments import require_field_manager, require_parameters, require_type
from cfo.runtime.process.clock import Clock, SystemClock
from cfo.runtime.process.endpoint import Endpoint, parse_bind_address
from cfo.runtime.process.health import Health
from cfo.runtime.process.large_objects import LargeObjects
from cfo.runtime.process.logs import hide_local_variables
from cfo.runtime.process.strings import require_namespace_name, require_strings
from cfo.runtime.process.watchdog import EventLoopWatchdog

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from cfo.runtime.manager.metrics_server import MetricsTLS
    from cfo.runtime.webhook.options import WebhookOptions
    from cfo.runtime.webhook.registration import Webhooks
    from cfo.runtime.webhook.setup import WebhookService


_MAX_ERROR: Final = 300
"""How many characters of an error of an informer are shown."""

_MAX_NAMED: Final = 10
"""How many namespaces that are left out are named by the readiness check."""

START_TIMEOUT: Final = 120.0
"""How many seconds :meth:`Manager.started` and :meth:`Manager.ready` wait by default, as controller-runtime does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Options of a manager.

    ``field_manager`` is the field manager of its client. Set it to the name of the operator: operators that share one,
    such as the default, remove each other's fields when they apply the same object. ``field_managers`` are the other
    field managers that its controllers write with: the cache stores their managedFields entries, so that applies that
    change nothing are skipped. ``namespaces`` limits the cache (``None``: the whole cluster); ``selectors`` (label
    selectors by kind) limit it to some objects of each kind. ``metrics_bind_address`` and ``health_bind_address`` are
    ``HOST:PORT``, ``:PORT``, or ``0`` to disable the server. ``metrics_tls`` serves metrics over HTTPS to authorized
    clients only.
    ``graceful_shutdown_timeout``: seconds that running reconciles have to finish (``None``: no limit). ``qps`` and
    ``burst`` limit the rate of requests on the client side (``None``: only the server limits it). With
    ``leader_election`` only one of several replicas runs the runnables that need the leader, and they can write only
    while it is the leader (``None``: this is the only replica). ``webhook`` configures the webhook server (``None``: no
    webhooks). ``debug_bind_address`` is a loopback address for the reports of :mod:`.debug`, or ``metrics`` to serve
    them on the metrics server, which then needs ``metrics_tls`` (``0``: no reports). ``namespace_bytes`` is how many
    bytes the cache may hold for one namespace, ``total_bytes`` for all together (see
    :class:`~cfo.runtime.cache.cache.Cache`); by default a fifth of the container's memory limit, and 256 MiB without
    one.

    Raises :class:`TypeError` for a value of another type, also for ``namespaces`` or ``field_managers`` that are one
    string, and :class:`ValueError` for ``namespaces`` without any, and for what is no name, field manager or address.
    """

    field_manager: str = "cfo"
    field_managers: Collection[str] = ()
    namespaces: Collection[str] | None = None
    selectors: ByKind[str] = field(default_factory=dict)
    metrics_bind_address: str = "0"
    metrics_tls: MetricsTLS | None = None
    health_bind_address: str = "0"
    debug_bind_address: str = "0"
    namespace_bytes: int = NAMESPACE_BYTES
    total_bytes: int = field(default_factory=default_total_bytes)
    graceful_shutdown_timeout: float | None = 30.0
    qps: float | None = None
    burst: int | None = None
    leader_election: LeaderElectionOptions | None = None
    webhook: WebhookOptions | None = None

    def __post_init__(self) -> None:
        for name in ("namespaces", "field_managers"):
            require_strings(name, getattr(self, name))
        for field_manager in (self.field_manager, *self.field_managers):
            require_field_manager("field_manager", field_manager)
        for name in ("metrics_bind_address", "health_bind_address", "debug_bind_address"):
            _check_address(name, getattr(self, name))
        for name in ("namespace_bytes", "total_bytes"):
            require_type(name, getattr(self, name), int, "an integer")
        for name in ("graceful_shutdown_timeout", "qps", "burst"):
            require_type(name, getattr(self, name), int | float | None, "a number, or None")
        require_type(
            "leader_election",
            self.leader_election,
            LeaderElectionOptions | None,
            "LeaderElectionOptions(...), or None",
        )
        if self.webhook is not None:
            from cfo.runtime.webhook.options import WebhookOptions  # lazily: cryptography

            require_type("webhook", self.webhook, WebhookOptions, "WebhookOptions(...), or None")
        if self.metrics_tls is not None:
            from cfo.runtime.manager.metrics_server import MetricsTLS  # lazily: cryptography

            require_type("metrics_tls", self.metrics_tls, MetricsTLS, "MetricsTLS(...), or None")
        if self.namespaces is not None and not self.namespaces:
            raise ValueError("namespaces: must not be empty; None is the whole cluster")
        for namespace in self.namespaces or ():
            require_namespace_name("namespaces", namespace)


def _check_address(name: str, address: object) -> None:
    """Raise an error with the name of the option, if it is no bind address."""
    require_type(name, address, str, "a string, such as :8080, or 0 to disable")
    if name == "debug_bind_address":
        return  # the reports have rules of their own
    try:
        parse_bind_address(str(address))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


class Servers:
    """The endpoints for metrics, health and debug reports, which every replica serves from the start."""

    def __init__(self, manager: Manager) -> None:
        options = manager.options
        self.debug: Endpoint | None = None
        """The debug server on a loopback address; the metrics server can serve the reports instead."""
        debug_routes: list[web.RouteDef] = []
        if options.debug_bind_address not in ("", "0"):
            debug_routes = self._add_debug_reports(manager)
        self.metrics = self._metrics_endpoint(manager, debug_routes)
        self.health = manager.health.endpoint(options.health_bind_address)

    @property
    def endpoints(self) -> list[Endpoint]:
        """All servers, in the order of their start."""
        endpoints = [self.metrics, self.health]
        if self.debug is not None:
            endpoints.append(self.debug)
        return endpoints

    def _add_debug_reports(self, manager: Manager) -> list[web.RouteDef]:
        """Create the debug server, or return the routes that the metrics server serves instead."""
        # Imported lazily: disabled by default.
        from cfo.runtime.manager.debug import METRICS_SERVER, DebugReports, loopback_endpoint

        address = manager.options.debug_bind_address
        reports = DebugReports(manager._controllers, manager.cache, manager.leadership)
        if address != METRICS_SERVER:
            self.debug = loopback_endpoint(address, reports)
            return []
        if manager.options.metrics_tls is None:
            raise ValueError(
                f"debug_bind_address: {address!r}: requires metrics_tls, which authenticates clients"
            )
        return reports.routes()

    def _metrics_endpoint(self, manager: Manager, debug_routes: list[web.RouteDef]) -> Endpoint:
        options = manager.options
        tls = options.metrics_tls
        if tls is None:
            return manager.metrics.endpoint(options.metrics_bind_address)
        # Imported lazily: only needed with TLS, and loads cryptography.
        from cfo.runtime.manager.metrics_server import MetricsAuthorizer, SecureMetricsEndpoint

        endpoint = SecureMetricsEndpoint(
            options.metrics_bind_address,
            [*manager.metrics.routes(), *debug_routes],
            tls,
            MetricsAuthorizer(manager.api_reader, manager.clock),
            manager.clock,
        )
        if tls.cert_dir is not None:
            manager.health.add_ready_check("metrics-certificate", endpoint.check)
        return endpoint


class Manager:
    """Holds the shared dependencies of an operator's controllers and runs the controllers.

    ``target`` selects the API server: a configuration, or an open transport, which the caller closes (create it with
    ``observe=metrics.observe_exchange`` for the ``rest_client_*`` metrics). Call :meth:`run`, or use
    ``async with Manager(...) as manager: await manager.started()``, which stops the manager at the end of the block.

    ``client`` reads from the cache if possible; ``api_reader`` always reads from the API server.
    """

    def __init__(
        self,
        target: ClientConfig | Transport,
        options: ManagerOptions | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        require_type("options", options, ManagerOptions | None, "ManagerOptions(...), or None")
        self.options = options or ManagerOptions()
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self.large_objects = LargeObjects(self.clock)

        if not isinstance(target, ClientConfig) and not hasattr(target, "request"):
            # Not its value, which can have the credentials of a kubeconfig.
            raise TypeError(
                f"Manager: a {type(target).__name__}: must be a ClientConfig, such as await load_config(), or a "
                "Transport"
            )
        self._owns_transport = isinstance(target, ClientConfig)
        self.transport = self._new_transport(target) if isinstance(target, ClientConfig) else target
        self.mapper = RESTMapper(self.transport, clock=self.clock)
        self.cache = Cache(
            self.transport,
            self.mapper,
            field_managers={self.options.field_manager, *self.options.field_managers},
            namespaces=self.options.namespaces,
            selectors=self.options.selectors,
            clock=self.clock,
            namespace_bytes=self.options.namespace_bytes,
            total_bytes=self.options.total_bytes,
        )
        self.client = Client(
            self.transport, self.mapper, field_manager=self.options.field_manager, cache=self.cache
        )
        self.client.overwrites.count = lambda kind: self.metrics.child_overwrites.labels(kind).inc()
        self.api_reader = Client(
            self.transport, self.mapper, field_manager=self.options.field_manager
        )
        self._api_clients = ApiClients(self.transport.config)

        self.health = Health()
        self._controllers: dict[str, Controller] = {}
        self.incomplete_builders: list[object] = []
        """The builders whose controllers were not created yet; with one, :meth:`run` fails."""
        self._context: AbstractAsyncContextManager[Self] | None = None
        self._has_run = False
        self._events = EventBroadcaster(self.api_reader, clock=self.clock)
        self._availability = Availability(self.mapper, self.cache, clock=self.clock)
        self.leadership = Leadership(
            self.transport.config,
            self.options.leader_election,
            clock=self.clock,
            events=self.events,
            metrics=self.metrics,
        )
        self._lifecycle = Lifecycle(
            grace_period=self.options.graceful_shutdown_timeout,
            clock=self.clock,
            gate=self.leadership.elector,
        )

        self._servers = Servers(self)
        self._add_own_runnables()
        self.metrics.observe_cache(lambda: self.cache.informers)
        self.metrics.cache_held_bytes.set_function(lambda: self.cache.budget.total)
        self.metrics.cache_total_bytes.set_function(lambda: self.cache.budget.total_bytes)
        self.metrics.unavailable_namespaces.set_function(lambda: len(self.cache.unavailable))
        self.health.add_ready_check("controllers", self._check_started)
        self._webhook_service = self._new_webhook_service()

    def add(
        self, runnable: Runnable | RunnableFunction, *, phase: StartPhase | None = None
    ) -> None:
        """Add a runnable; a running manager starts it immediately.

        Without a ``phase`` it starts together with the controllers and only on the leader, unless its attribute
        ``needs_leader`` is false. Raises :class:`TypeError` for a coroutine, a class, and what cannot be run.
        """
        if phase is None:
            phase = (
                StartPhase.LEADER
                if getattr(runnable, "needs_leader", True)
                else StartPhase.ALL_REPLICAS
            )
        self._lifecycle.add(runnable, phase)

    def add_controller(
        self, controller: Controller, group: ElectedControllers | None = None
    ) -> None:
        """Add a controller, to ``group`` if it needs a Lease of its own (:meth:`elect`).

        Raises :class:`ValueError` for a duplicate name.
        """
        if controller.name in self._controllers:
            raise ValueError(
                f"controller {controller.name!r} already exists: logs and metrics need unique names"
            )
        self._controllers[controller.name] = controller
        if group is not None:
            group.add_controller(controller)
        else:
            self.add(controller)

    def elect(self, options: LeaderElectionOptions) -> ElectedControllers:
        """Return a group of controllers that run only while this process, as the leader, also holds another Lease.

        Losing the Lease stops the process, like the loss of the leadership.
        """
        require_type("elect", options, LeaderElectionOptions, "LeaderElectionOptions(...)")
        group = self.leadership.elect(options)
        self.add(group)
        return group

    @property
    def is_leader(self) -> bool:
        """Whether this replica is the leader at this moment; always true without leader election."""
        return self.leadership.is_leader

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """All controllers, including those that have not started."""
        return tuple(self._controllers.values())

    @property
    def metrics_port(self) -> int:
        """The port of the metrics server; 0 while it is not running."""
        return self._servers.metrics.port

    @property
    def health_port(self) -> int:
        """The port of the health server; 0 while it is not running."""
        return self._servers.health.port

    @property
    def debug_port(self) -> int:
        """The port of the debug server on the loopback address; 0 while it is not running."""
        debug = self._servers.debug
        return debug.port if debug is not None else 0

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks that every replica serves; register them here.

        Raises :class:`RuntimeError` if ``ManagerOptions.webhook`` is not set.
        """
        if self._webhook_service is None:
            raise RuntimeError(
                "webhooks are disabled: set ManagerOptions(webhook=WebhookOptions(...))"
            )
        return self._webhook_service.webhooks

    @property
    def webhook_port(self) -> int:
        """The port of the webhook server; 0 while it is not running."""
        service = self._webhook_service
        return service.server.port if service is not None else 0

    def when_available(
        self,
        kind: ObjectKind[Any],
        setup: Callable[[Manager], Awaitable[None] | None],
        *,
        hint: str = "",
    ) -> None:
        """Call ``setup`` once with this manager, as soon as the API server serves ``kind``.

        If the kind is served at the start, this happens before the first controller starts, otherwise once its CRD is
        established. An exception in ``setup`` stops the manager. Waiting for a missing kind requires the permission to
        list and watch CustomResourceDefinitions (:data:`~cfo.runtime.controller.availability.AVAILABILITY_RULES`).

        If the CRD is deleted later, what ``setup`` started stays: informers of the kind report their objects as
        deleted, and wait for the kind.

        ``hint`` explains how the kind is installed. If given, the log says once at info level that the kind is missing.

        Raises :class:`TypeError` if ``setup`` cannot be called with a manager.
        """
        gvk = require_kind("when_available", kind)
        if isinstance(setup, type) or not callable(setup):
            raise TypeError(f"when_available: setup: {setup!r:.200}: must be a function")
        require_parameters("when_available: setup", setup, "manager")
        self._availability.when_available(gvk, lambda: setup(self), hint=hint)

    def add_metrics_server_routes(
        self, routes: Iterable[web.RouteDef], *, public_paths: Collection[str] = ()
    ) -> None:
        """Serve more routes with the metrics, as controller-runtime's ``AddMetricsServerExtraHandler``.

        A client needs the permission to ``get`` the path of a route, except for ``public_paths``, whose content must
        not be secret. Raises :class:`RuntimeError` if the metrics server does not authorize clients
        (``ManagerOptions.metrics_tls``), or is running, and :class:`TypeError` if ``public_paths`` is one string.
        """
        require_strings("public_paths", public_paths)
        add_public_paths = getattr(self._servers.metrics, "add_public_paths", None)
        if add_public_paths is None:
            raise RuntimeError(
                "the metrics server does not authorize clients: set ManagerOptions.metrics_tls"
            )
        self._servers.metrics.add_routes(routes)
        add_public_paths(public_paths)

    def events(self, component: str) -> EventRecorder:
        """Return a recorder for Events reported by ``component`` (usually a controller's name)."""
        return self._events.recorder(component)

    async def api_client(self, *, websockets: bool = False) -> ApiClient:
        """Return the ``ApiClient`` of kubernetes-asyncio for the API server of this manager, which closes it.

        It is for generated APIs, such as ``CoreV1Api``; with ``websockets`` for exec, attach and port-forward
        (:func:`~cfo.runtime.client.open_api_client`). Raises :class:`RuntimeError` unless the manager runs.
        """
        return await self._api_clients.get(websockets=websockets)

    async def started(self, *, timeout: float | None = START_TIMEOUT) -> None:
        """Wait until everything has started, including the controllers.

        With leader election, it therefore waits until this replica is the leader; ``timeout`` should then be ``None``.

        Raises :class:`TimeoutError` after ``timeout`` seconds (``None``: waits forever), which names the controllers
        and the informers that have not synced, each with the RBAC rule or CRD that it lacks; the manager continues.
        Raises the exception of :meth:`run`, or :class:`RuntimeError`, if :meth:`run` ends first.
        """
        _require_timeout("started", timeout)
        with anyio.move_on_after(timeout) as waiting:
            await self._lifecycle.started()
        if waiting.cancelled_caught:
            raise TimeoutError(
                f"the manager has not started after {timeout:g} s: {self._start_state}"
            )

    async def ready(self, *, timeout: float | None = START_TIMEOUT) -> None:
        """Wait until all readiness checks succeed: the controllers run, and API servers call the webhooks.

        For tests and development; a cluster asks the health server instead. Some webhooks and controllers accept only
        objects that were created after their start, and creation times have a precision of one second, so this ends
        with the next full second.

        Raises :class:`TimeoutError` after ``timeout`` seconds (``None``: waits forever), which has the reasons of the
        checks that fail; the manager continues.
        """
        _require_timeout("ready", timeout)
        failures: dict[str, str] = {}
        with anyio.move_on_after(timeout) as waiting:
            while failures := await self.health.failures():  # noqa: ASYNC110 (checks can only be polled)
                await anyio.sleep(0.02)
        if waiting.cancelled_caught:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise TimeoutError(f"the manager is not ready after {timeout:g} s: {reasons}")
        await anyio.sleep(1 - self.clock.now().microsecond / 1_000_000)

    def stop(self) -> None:
        """Request a graceful stop; :meth:`run` returns when it is complete."""
        self._lifecycle.stop()

    async def run(
        self,
        *,
        handle_signals: bool = False,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run until :meth:`stop` or until a runnable fails. A manager runs once.

        With ``handle_signals`` (main thread only) SIGTERM, SIGINT and SIGHUP stop it; a second signal ends the grace
        period. Raises :class:`~cfo.runtime.controller.lifecycle.RunnableFailed` if a runnable failed,
        :class:`~cfo.runtime.controller.lifecycle.GracePeriodExceeded` if one did not stop in time, and
        :class:`ValueError` if :meth:`Builder.complete` was not called, and :class:`RuntimeError` if it runs or has run.
        """
        for builder in self.incomplete_builders:
            raise ValueError(f"{builder}: complete was not called, so it has no controller")
        if self._has_run:
            raise RuntimeError(
                "the manager runs, or has run: call run, or use 'async with manager', which runs it; create a new "
                "one to run again"
            )
        self._has_run = True
        hide_local_variables()
        async with AsyncExitStack() as stack:
            if self._owns_transport:
                await stack.enter_async_context(self.transport)
            if self.leadership.transport is not None:
                await stack.enter_async_context(self.leadership.transport)
            await stack.enter_async_context(self._api_clients)
            await self._lifecycle.run(handle_signals=handle_signals, task_status=task_status)

    async def __aenter__(self) -> Self:
        self._context = self._run_in_background()
        return await self._context.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        assert self._context is not None
        return await self._context.__aexit__(*error)

    @asynccontextmanager
    async def _run_in_background(self) -> AsyncIterator[Self]:
        failures: list[BaseException] = []
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.run)
                try:
                    yield self
                except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 (raised below; also those of pytest.fail and sys.exit)
                    # Raised here, it would cancel the manager: webhook configurations and the Lease would stay.
                    failures.append(error)
                finally:
                    self.stop()
        except BaseExceptionGroup as group:
            failures += group.exceptions
        if len(failures) == 1:
            raise failures[0] from failures[0].__cause__
        if failures:
            raise BaseExceptionGroup("the manager, or the block that runs it, has failed", failures)

    def _add_own_runnables(self) -> None:
        self._lifecycle.add(EventLoopWatchdog(self.metrics.event_loop_lag), StartPhase.SERVERS)
        for endpoint in self._servers.endpoints:
            self._lifecycle.add(endpoint, StartPhase.SERVERS)
        self._lifecycle.add(self.cache, StartPhase.CACHES)
        if self.cache.is_restricted:
            absent = AbsentNamespaces(self.cache, self.api_reader)
            self._lifecycle.add(absent, StartPhase.CACHES)
        self._lifecycle.add(self._events, StartPhase.ALL_REPLICAS)
        self._lifecycle.add(self._availability, StartPhase.ALL_REPLICAS)
        self._lifecycle.add(self._report_left_out, StartPhase.LEADER)
        if self.leadership.elector is not None:
            self._lifecycle.add(self.leadership.elector, StartPhase.ELECTION)

    async def _report_left_out(self) -> None:
        """Record an Event about each object that is not cached; only the leader, so that there is one."""
        events = self.events(self.options.field_manager)

        def report(gvk: GVK, found: LeftOut) -> None:
            obj = _regarding(gvk, found)
            events.event(obj, "Warning", found.reason, found.message, action="Cache")

        self.cache.report_left_out(report)

    def _new_transport(self, config: ClientConfig) -> Transport:
        return Transport(
            config,
            qps=self.options.qps,
            burst=self.options.burst,
            observe=self.metrics.observe_exchange,
            clock=self.clock,
        )

    def _new_webhook_service(self) -> WebhookService | None:
        if self.options.webhook is None:
            return None
        # Imported lazily: only needed with webhooks, and loads cryptography.
        from cfo.runtime.manager.heartbeat import Heartbeat
        from cfo.runtime.webhook.setup import WebhookService

        service = WebhookService(
            self.options.webhook,
            self.transport,
            self.mapper,
            field_manager=self.options.field_manager,
            clock=self.clock,
            metrics=self.metrics,
            events=self.events("webhooks").event,
        )
        webhook = self.options.webhook
        if webhook.lease and webhook.configurations and self.options.leader_election is None:
            heartbeat = Heartbeat(
                self.transport.config,
                webhook.lease,
                webhook.url,
                self.clock,
                is_only=webhook.is_only,
            )
            self._lifecycle.add(heartbeat, heartbeat.phase)
        for runnable, phase in service.runnables:
            self._lifecycle.add(runnable, phase)
        if service.controller is not None:
            self.add_controller(service.controller)
        self.health.add_ready_check("webhooks", service.check)
        return service

    def _check_started(self) -> str:
        """Check that this replica has started; return the informers and namespaces without data.

        With leader election, a replica is ready before its controllers have started, while it waits for the Lease and
        as the leader: it serves webhooks, which must not depend on a missing rule of another kind.
        """
        if self._lifecycle.is_stopping:
            raise RuntimeError("stopping")
        has_election = self.leadership.elector is not None
        if self._lifecycle.has_started:
            return self._without_data
        if has_election and self._lifecycle.has_reached(StartPhase.ELECTION):
            return self._without_data
        raise RuntimeError(self._start_state)

    @property
    def _start_state(self) -> str:
        """What has not started yet, and which informers and namespaces have no data."""
        if not self._has_run:
            return "it does not run: await run(), or use 'async with manager'"
        waiting = ", ".join(self._lifecycle.not_started) or "nothing"
        state = f"not started yet: {waiting}"
        elector = self.leadership.elector
        if elector is not None and elector.problem:
            state += f"; {elector.problem}"
        without_data = self._without_data
        if without_data:
            state += f"; {without_data}"
        return state

    @property
    def _without_data(self) -> str:
        """The informers without data, and the namespaces that are left out; empty if there are none."""
        parts: list[str] = []
        unsynced = [
            _unsynced_text(informer) for informer in self.cache.informers if not informer.has_synced
        ]
        if unsynced:
            parts.append(f"not synced: {', '.join(unsynced)}")
        unavailable = self.cache.unavailable
        left_out = [
            f"{namespace} (missing rule {unavailable.missing_rule(namespace)})"
            for namespace in islice(unavailable, _MAX_NAMED)
        ]
        if len(unavailable) > len(left_out):
            left_out.append(f"and {len(unavailable) - len(left_out)} more")
        if left_out:
            parts.append(f"namespaces left out: {', '.join(left_out)}")
        return "; ".join(parts)


def _require_timeout(method: str, timeout: object) -> None:
    """Raise :class:`TypeError` for a timeout of :class:`Manager` that is not a number of seconds."""
    require_type(
        f"Manager.{method}: timeout", timeout, int | float | None, "a number of seconds, or None"
    )


def _unsynced_text(informer: Informer) -> str:
    """Return the kind of an informer without data and, if it is known, what it needs."""
    if informer.missing_rule:
        return f"{informer.gvk} (missing rule {informer.missing_rule})"
    if informer.is_not_served:
        return f"{informer.gvk} ({informer.problem:.{_MAX_ERROR}})"
    if informer.request_error:
        return f"{informer.gvk} ({informer.request_error:.{_MAX_ERROR}})"
    return str(informer.gvk)


def _regarding(gvk: GVK, found: LeftOut) -> Object:
    """Return the object that an Event about an object that is left out of the cache refers to.

    An Event about a cluster-scoped object is in the namespace ``default``. One that counts in the budget of a namespace
    is reported there, where its creator reads it, as an Event about this namespace.
    """
    if not found.key.namespace and found.namespace:
        return new_object(NAMESPACE, found.namespace, found.namespace)
    obj = new_object(gvk, found.key.name, found.key.namespace)
    obj["metadata"]["uid"] = found.uid
    return obj
