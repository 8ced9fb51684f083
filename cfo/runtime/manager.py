"""What an operator's controllers share, and what runs them.

A manager starts the servers first (health, metrics, webhooks), then the caches, then what every replica runs; with
leader election it then waits until it leads. Last come the controllers, each as soon as its sources have synced. When
it stops, the controllers first finish the reconciles that run, for as long as the grace period lasts, then the
lease is given up, and the servers go last. When leadership is lost, all ends at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio.abc import TaskStatus

from cfo.runtime.availability import Availability
from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.controller import Controller
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.endpoint import Endpoint
from cfo.runtime.events import EventBroadcaster, EventRecorder
from cfo.runtime.health import Health
from cfo.runtime.leaderelection import LeaderElectionOptions, LeaderElector, LeaseLock
from cfo.runtime.lifecycle import GracePeriodExceeded, Lifecycle, Phase, Runnable, RunnableFailed, RunnableFunction
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import GVK, NamespacedName

if TYPE_CHECKING:
    from cfo.runtime.metrics_server import MetricsTLS
    from cfo.runtime.webhook.options import WebhookOptions
    from cfo.runtime.webhook.registration import Webhooks

__all__ = ["GracePeriodExceeded", "Manager", "ManagerOptions", "Phase", "Runnable", "RunnableFailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """How a manager works.

    ``field_manager`` is that of its client, ``field_managers`` are all others that its controllers write with:
    the cache keeps what they own, for writes that change nothing to be left out. ``namespaces`` limits the
    cache (``None``: the whole cluster), ``selectors`` (label selectors by kind) limit it to some objects of a kind.
    ``metrics_bind_address`` and ``health_bind_address`` are ``host:port``,
    ``:port``, or ``0`` for none. With ``metrics_tls`` metrics are served over HTTPS, to those who may read them.
    ``graceful_shutdown_timeout``: seconds that running reconciles have to finish
    (``None``: as long as it takes). ``qps`` and ``burst`` limit the requests (``None``: the server does).
    With ``leader_election`` only one of several replicas runs what needs the leader, and only while it leads
    may that write (``None``: this is the only replica). ``webhook`` says how webhooks are served (``None``: there
    are none).
    """

    field_manager: str = "cfo"
    field_managers: Collection[str] = ()
    namespaces: Collection[str] | None = None
    selectors: Mapping[GVK, str] = field(default_factory=dict)
    metrics_bind_address: str = "0"
    metrics_tls: MetricsTLS | None = None
    health_bind_address: str = "0"
    graceful_shutdown_timeout: float | None = 30.0
    qps: float | None = None
    burst: int | None = None
    leader_election: LeaderElectionOptions | None = None
    webhook: WebhookOptions | None = None


class Manager:
    """Everything that an operator's controllers share, and what runs them.

    ``target`` says which API server: a configuration, or a transport that is open already (the caller closes it; for
    ``rest_client_*`` metrics it is to be made with ``observe=metrics.observe_exchange``).
    :meth:`run` it, or use it as ``async with Manager(...) as manager: await manager.started()``, which stops it
    at the end of the block.

    ``client`` reads from the cache where it can, ``api_reader`` always asks the API server.
    """

    def __init__(
        self,
        target: ClientConfig | Transport,
        options: ManagerOptions | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options or ManagerOptions()
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self._owns_transport = isinstance(target, ClientConfig)
        self.transport = (
            Transport(
                target,
                qps=self.options.qps,
                burst=self.options.burst,
                observe=self.metrics.observe_exchange,
                clock=self.clock,
            )
            if isinstance(target, ClientConfig)
            else target
        )
        self.mapper = RESTMapper(self.transport, clock=self.clock)
        manager = self.options.field_manager
        self.cache = Cache(
            self.transport,
            self.mapper,
            field_managers={manager, *self.options.field_managers},
            namespaces=self.options.namespaces,
            selectors=self.options.selectors,
            clock=self.clock,
        )
        self.metrics.observe_cache(lambda: self.cache.informers)
        self.client = Client(self.transport, self.mapper, field_manager=manager, cache=self.cache)
        self.api_reader = Client(self.transport, self.mapper, field_manager=manager)
        self.health = Health()
        self._broadcaster = EventBroadcaster(self.api_reader, clock=self.clock)
        self._availability = Availability(self.mapper, self.cache, clock=self.clock)
        self._controllers: dict[str, Controller] = {}
        self._elector = self._new_elector()
        self._lifecycle = Lifecycle(
            grace_period=self.options.graceful_shutdown_timeout, clock=self.clock, gate=self._elector
        )
        self._context: AbstractAsyncContextManager[Self] | None = None
        self._metrics_endpoint = self._new_metrics_endpoint()
        self._health_endpoint = self.health.endpoint(self.options.health_bind_address)
        self._lifecycle.add(self._metrics_endpoint, Phase.SERVERS)
        self._lifecycle.add(self._health_endpoint, Phase.SERVERS)
        self._lifecycle.add(self.cache, Phase.CACHES)
        self._lifecycle.add(self._broadcaster, Phase.EVERYWHERE)
        self._lifecycle.add(self._availability, Phase.EVERYWHERE)
        if self._elector is not None:
            self._lifecycle.add(self._elector, Phase.ELECTION)
        self.health.add_ready_check("controllers", self._check_started)
        self._webhook_service = None
        if self.options.webhook is not None:
            from cfo.runtime.webhook.setup import WebhookService  # only who serves webhooks pays for them

            self._webhook_service = WebhookService(self, self.options.webhook)

    def add(self, runnable: Runnable | RunnableFunction, *, phase: Phase | None = None) -> None:
        """Adds something to run; on a running manager it starts at once.

        Without a ``phase`` it starts with the controllers, on the leader alone, unless its attribute
        ``needs_leader`` is false.
        """
        if phase is None:
            phase = Phase.LEADER if getattr(runnable, "needs_leader", True) else Phase.EVERYWHERE
        self._lifecycle.add(runnable, phase)

    def add_controller(self, controller: Controller) -> None:
        """Adds a controller; raises :class:`ValueError` when there is one of its name."""
        if controller.name in self._controllers:
            raise ValueError(f"there is a controller called {controller.name!r} already: logs and metrics need names")
        self._controllers[controller.name] = controller
        self.add(controller)

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads at this moment; always, when there is no election."""
        return self._elector is None or self._elector.is_leader

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """All controllers, also those that wait for their start."""
        return tuple(self._controllers.values())

    @property
    def metrics_port(self) -> int:
        """The port that metrics are served on; 0 while they are not."""
        return self._metrics_endpoint.port

    @property
    def health_port(self) -> int:
        """The port that health and readiness are served on; 0 while they are not."""
        return self._health_endpoint.port

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks that every replica serves; register them here.

        Raises :class:`RuntimeError` when the options do not say how they are served.
        """
        if self._webhook_service is None:
            raise RuntimeError("this manager serves no webhooks: give it ManagerOptions(webhook=WebhookOptions(...))")
        return self._webhook_service.webhooks

    @property
    def webhook_port(self) -> int:
        """The port that webhooks are served on; 0 while they are not."""
        return self._webhook_service.server.port if self._webhook_service is not None else 0

    def when_available(self, gvk: GVK, setup: Callable[[Manager], Awaitable[None] | None]) -> None:
        """Calls ``setup`` once, with this manager, as soon as the API server serves ``gvk``.

        For kinds that it serves at the start that is before the first controller starts; for those of a
        CustomResourceDefinition that comes later, when it is established. An error in ``setup`` stops the manager.
        Needs the right to list and watch CustomResourceDefinitions
        (:data:`~cfo.runtime.availability.AVAILABILITY_RULES`) where a kind is missing.
        """
        self._availability.when_available(gvk, lambda: setup(self))

    def events(self, component: str) -> EventRecorder:
        """A recorder of Events which ``component`` (a controller's name) reports."""
        return self._broadcaster.recorder(component)

    async def started(self) -> None:
        """Returns when everything has started and the controllers work: with leader election, when this replica leads.

        Raises what :meth:`run` raises, or :class:`RuntimeError`, when it ended before that.
        """
        await self._lifecycle.started()

    def stop(self) -> None:
        """Begins a graceful stop; :meth:`run` returns at its end."""
        self._lifecycle.stop()

    async def run(
        self, *, handle_signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Runs until :meth:`stop`, or until a runnable crashes. A manager runs once.

        With ``handle_signals`` SIGTERM and SIGINT stop it; a second one ends the grace period. Raises
        :class:`RunnableFailed` when a runnable crashed and :class:`GracePeriodExceeded` when one did not end in time.
        """
        async with AsyncExitStack() as stack:
            if self._owns_transport:
                await stack.enter_async_context(self.transport)
            if self._election_transport is not None:
                await stack.enter_async_context(self._election_transport)
            await self._lifecycle.run(handle_signals=handle_signals, task_status=task_status)

    async def __aenter__(self) -> Self:
        self._context = self._run_in_background()
        return await self._context.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None
        return await self._context.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _run_in_background(self) -> AsyncIterator[Self]:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.run)
                try:
                    yield self
                finally:
                    self.stop()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise

    def _new_metrics_endpoint(self) -> Endpoint:
        address, tls = self.options.metrics_bind_address, self.options.metrics_tls
        if tls is None:
            return self.metrics.endpoint(address)
        from cfo.runtime.metrics_server import Reviewer, SecureMetricsEndpoint  # loads what signs certificates

        reviewer = Reviewer(self.api_reader, self.clock)
        return SecureMetricsEndpoint(address, self.metrics.routes(), tls, reviewer, self.clock)

    def _new_elector(self) -> LeaderElector | None:
        self._election_transport: Transport | None = None
        options = self.options.leader_election
        if options is None:
            return None
        # its own connections: renewals wait neither for a limit of requests nor behind others
        self._election_transport = Transport(
            self.transport.config, observe=self.metrics.observe_exchange, clock=self.clock
        )
        lock = LeaseLock(self._election_transport, NamespacedName(options.namespace, options.name))
        return LeaderElector(
            lock, options, clock=self.clock, events=self.events("leader-election"), metrics=self.metrics
        )

    def _check_started(self) -> None:
        if self._lifecycle.is_stopping:
            raise RuntimeError("stopping")
        if self._elector is not None and self._lifecycle.has_reached(Phase.ELECTION):
            return  # a replica that could lead is as ready as one that does, or is about to
        if not self._lifecycle.has_started:
            waiting = ", ".join(self._lifecycle.starting) or "nothing"
            unsynced = [str(informer.gvk) for informer in self.cache.informers if not informer.has_synced]
            raise RuntimeError(
                f"not started yet: {waiting}" + (f"; not synced: {', '.join(unsynced)}" if unsynced else "")
            )
