"""The clusters of a manager: which are engaged, their providers, and the controllers that watch them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
import anyio.abc
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.client.config import ClientConfig, ConfigError
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.tracing import Tracing
from cfo.runtime.client.transport import Transport
from cfo.runtime.clusters.engagement import Engagement
from cfo.runtime.clusters.metrics import ClusterCollector, ObservedExchanges
from cfo.runtime.clusters.options import (
    ClusterNotFound,
    ClusterOptions,
    ClusterProvider,
    ClusterRefused,
    ClusterSelection,
    ClusterSetup,
)
from cfo.runtime.clusters.reconciles import ControllerReconciles, ReconcileDrain
from cfo.runtime.clusters.sources import ClusterKind
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.cluster import Cluster
from cfo.runtime.process.clock import Clock

__all__ = ["ClusterWatch", "Clusters"]

_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/+]{0,252}")
_EVENT_REASON: Final = "ClusterRejected"

_log = structlog.get_logger(__name__)


class ClusterWatch:
    """A kind that a controller watches in the clusters that ``selection`` accepts; ``new_kind`` returns its source."""

    def __init__(self, selection: ClusterSelection, new_kind: Callable[[Cluster], ClusterKind]) -> None:
        self._selects = selection if callable(selection) else None
        self._new_kind = new_kind

    def kinds(self, cluster: Cluster) -> Iterator[ClusterKind]:
        """Yield the source for ``cluster`` if it is selected."""
        if self._selects is None or self._selects(cluster):
            yield self._new_kind(cluster)


class Clusters:
    """The engaged clusters by name, without the local one; a runnable of the manager (:attr:`Manager.clusters`).

    Iterating yields the names. A cluster is in it from the moment that it is engaged, also if its API server does not
    respond (:attr:`Cluster.problem`).
    """

    name = "clusters"
    needs_leader = False

    def __init__(
        self,
        local: Cluster,
        new_cluster: Callable[[str, Transport], Cluster],
        *,
        options: ClusterOptions | None,
        qps: float | None,
        burst: int | None,
        clock: Clock,
        metrics: Metrics,
        tracing: Tracing | None,
    ) -> None:
        self.local = local
        self.clock = clock
        self.options = options or ClusterOptions()
        self.reconciles = ReconcileDrain(clock, self.options.disengage_timeout)
        self._new_cluster = new_cluster
        self._qps = qps
        self._burst = burst
        self._metrics = metrics
        self._tracing = tracing
        self._events = local.events("clusters")
        self._providers: list[ClusterProvider] = []
        self._setups: list[ClusterSetup] = []
        self._controllers: dict[Controller, tuple[ControllerReconciles, Sequence[ClusterWatch]]] = {}
        self._engage_handlers: list[Callable[[Cluster], None]] = []
        self._slots: dict[str, Engagement] = {}
        self._engaged: dict[str, Engagement] = {}
        self._rejected: dict[tuple[object, str], str] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._provider_tasks: anyio.abc.TaskGroup | None = None
        self._stopping = asyncio.Event()
        metrics.registry.register(ClusterCollector(self.values, lambda: len(self._rejected)))

    # For users.

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._engaged))

    def __len__(self) -> int:
        return len(self._engaged)

    def __contains__(self, name: object) -> bool:
        return name in self._engaged

    def __getitem__(self, name: str) -> Cluster:
        engagement = self._engaged.get(name)
        if engagement is None:
            raise ClusterNotFound(name)
        return engagement.cluster

    def values(self) -> list[Cluster]:
        """Return the engaged clusters."""
        return [engagement.cluster for engagement in self._engaged.values()]

    def add_provider(self, provider: ClusterProvider) -> None:
        """Engage the clusters of a provider; a running manager starts it immediately."""
        self._providers.append(provider)
        if self._provider_tasks is not None:
            self._provider_tasks.start_soon(self._provide, provider)

    def add_setup(self, setup: ClusterSetup) -> None:
        """Call ``setup`` for each cluster that is engaged later, before controllers get requests for it.

        If it fails, it is called again after a back-off. Use it to add indexes, or to wait for informers.
        """
        self._setups.append(setup)

    def add_engage_handler(self, handler: Callable[[Cluster], None]) -> None:
        """Call ``handler`` for each engaged cluster: immediately, or after its setup. It must not block or raise."""
        self._engage_handlers.append(handler)
        for engagement in self._engaged.values():
            if engagement.is_ready:
                handler(engagement.cluster)

    def remove_engage_handler(self, handler: Callable[[Cluster], None]) -> None:
        """Stop calling ``handler``; raises :class:`ValueError` if it was not added."""
        self._engage_handlers.remove(handler)

    # For the builder and controllers.

    def add_controller(self, controller: Controller, watches: Sequence[ClusterWatch]) -> None:
        """Make a controller watch the engaged clusters and those that are engaged later."""
        limit = self.options.max_concurrent_reconciles
        reconciles = ControllerReconciles(controller, self._engaged.get, self.reconciles.running, limit)
        controller.cluster_reconciles = reconciles
        self._controllers[controller] = reconciles, watches
        for engagement in self._engaged.values():
            if engagement.is_ready:
                self._attach(engagement, controller, watches)

    def remove_controller(self, controller: Controller) -> None:
        """Remove the sources of a controller in all clusters, and forget it; do nothing if it is unknown."""
        if self._controllers.pop(controller, None) is not None:
            for engagement in self._engaged.values():
                engagement.detach(controller)

    # For providers, through _Aware.

    def engage(self, owner: object, name: str, config: ClientConfig) -> None:
        """Engage a cluster of the provider ``owner``; see :meth:`ClusterAware.engage`."""
        current = self._slots.get(name)
        if current is not None and current.owner is not owner:
            raise ClusterRefused(f"another provider has a cluster of the name {name!r}")
        if current is not None and not current.stopping.is_set():
            if current.config == config:
                return
            self._stop(current)
        elif not _NAME.fullmatch(name):
            raise ClusterRefused("the name of the cluster must have 1 to 253 letters, digits and the characters -._/+")
        elif len(self._active()) >= self.options.max_clusters:
            raise ClusterRefused(f"{self.options.max_clusters} clusters are engaged already (max_clusters)")
        self._slots[name] = engagement = self._new_engagement(owner, name, config)
        self._rejected.pop((owner, name), None)
        if self._tasks is not None:
            self._tasks.start_soon(self._run_engagement, engagement, current)

    def disengage(self, owner: object, name: str) -> None:
        """Disengage a cluster of the provider ``owner``; see :meth:`ClusterAware.disengage`."""
        self._rejected.pop((owner, name), None)
        current = self._slots.get(name)
        if current is not None and current.owner is owner and not current.stopping.is_set():
            self._stop(current)

    def reject(self, owner: object, name: str, reason: str, obj: Mapping[str, Any] | None) -> None:
        """Report that a cluster cannot be engaged; see :meth:`ClusterAware.reject`."""
        was = self._rejected.get((owner, name))
        self.disengage(owner, name)
        self._rejected[owner, name] = reason
        if reason != was:
            _log.warning("Cluster rejected", cluster=name, reason=reason)
            if obj is not None:
                self._events.event(obj, "Warning", _EVENT_REASON, reason, action="Engage")

    # For the manager.

    def reports(self) -> Iterable[Mapping[str, Any]]:
        """Yield a row for each cluster for the debug server; it contains no credentials."""
        for name, engagement in sorted(self._slots.items()):
            informers = engagement.cluster.cache.informers
            yield {
                "cluster": name,
                "server": engagement.cluster.transport.host,
                "state": "disengaging" if engagement.stopping.is_set() else "engaged",
                "informers": len(informers),
                "objects": sum(len(informer.reader) for informer in informers),
                "problem": engagement.cluster.problem,
            }
        for (_, name), reason in sorted(self._rejected.items(), key=lambda item: item[0][1]):
            row = {"cluster": name, "server": "", "state": "rejected", "informers": 0, "objects": 0}
            yield {**row, "problem": reason}

    def stop(self) -> None:
        """Disengage all clusters; :meth:`run` returns when they have ended."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the providers and their clusters until :meth:`stop`; reports the start without waiting for clusters."""
        try:
            async with anyio.create_task_group() as self._tasks:
                async with anyio.create_task_group() as self._provider_tasks:
                    for provider in self._providers:
                        self._provider_tasks.start_soon(self._provide, provider)
                    task_status.started()
                    await self._stopping.wait()
                    self._provider_tasks.cancel_scope.cancel()
                self._provider_tasks = None
                for engagement in self._active():
                    self._stop(engagement)
        finally:
            self._tasks = self._provider_tasks = None

    # Implementation.

    async def _provide(self, provider: ClusterProvider) -> None:
        await provider.run(_Aware(self, provider))

    def _active(self) -> list[Engagement]:
        return [engagement for engagement in self._slots.values() if not engagement.stopping.is_set()]

    def _new_engagement(self, owner: object, name: str, config: ClientConfig) -> Engagement:
        if config.credentials is None:
            try:
                config.ssl_context(Credentials("", config.client_cert_pem, config.client_key_pem))
            except ConfigError as error:
                raise ClusterRefused(str(error)) from None
        exchanges = ObservedExchanges(self._metrics)
        transport = Transport(
            config,
            qps=self._qps,
            burst=self._burst,
            observe=exchanges.observe,
            clock=self.clock,
            tracing=self._tracing,
            max_response_bytes=self.options.max_response_bytes,
        )
        exchanges.cluster = cluster = self._new_cluster(name, transport)
        return Engagement(
            cluster,
            config,
            owner,
            setups=self._setups,
            on_ready=self._on_ready,
            disengage_timeout=self.options.disengage_timeout,
            clock=self.clock,
        )

    async def _run_engagement(self, engagement: Engagement, predecessor: Engagement | None) -> None:
        cluster = engagement.cluster
        structlog.contextvars.bind_contextvars(cluster=cluster.name)  # for the log lines of all its tasks
        try:
            if predecessor is not None:
                await predecessor.finished.wait()
            if not engagement.stopping.is_set():
                self._engaged[cluster.name] = engagement
                _log.info("Cluster engaged", server=cluster.transport.host)
                await engagement.run()
                _log.info("Cluster disengaged")
        except Exception:  # noqa: BLE001 - a failure in one cluster must not affect the others
            _log.exception("Cluster failed, disengaging it")
            self._stop(engagement)
            self._rejected[engagement.owner, cluster.name] = "failed with an unexpected error, which is in the log"
        finally:
            if self._slots.get(cluster.name) is engagement:
                del self._slots[cluster.name]
            self._forget_host(cluster.transport.host)
            engagement.finished.set()

    def _stop(self, engagement: Engagement) -> None:
        name = engagement.cluster.name
        engagement.stop()
        if self._engaged.get(name) is engagement:
            del self._engaged[name]
            for reconciles, _ in self._controllers.values():
                reconciles.drop(name)

    def _on_ready(self, engagement: Engagement) -> None:
        for controller, (_, watches) in self._controllers.items():
            self._attach(engagement, controller, watches)
        for handler in list(self._engage_handlers):
            handler(engagement.cluster)

    def _attach(self, engagement: Engagement, controller: Controller, watches: Sequence[ClusterWatch]) -> None:
        def new_kinds(cluster: Cluster) -> list[ClusterKind]:
            return [kind for watch in watches for kind in watch.kinds(cluster)]

        engagement.attach(controller, new_kinds, lambda: controller in self._controllers)

    def _forget_host(self, host: str) -> None:
        used = {self.local.transport.host, *(slot.cluster.transport.host for slot in self._slots.values())}
        if host not in used:
            self._metrics.forget_host(host)


class _Aware:
    """The view of one provider on the clusters (:class:`~cfo.runtime.clusters.options.ClusterAware`)."""

    def __init__(self, clusters: Clusters, provider: ClusterProvider) -> None:
        self._clusters = clusters
        self._provider = provider

    @property
    def local(self) -> Cluster:
        """The local cluster."""
        return self._clusters.local

    @property
    def clock(self) -> Clock:
        """The clock of the manager."""
        return self._clusters.clock

    def engage(self, name: str, config: ClientConfig) -> None:
        """Engage a cluster."""
        self._clusters.engage(self._provider, name, config)

    def disengage(self, name: str) -> None:
        """Disengage a cluster of this provider."""
        self._clusters.disengage(self._provider, name)

    def reject(self, name: str, reason: str, *, obj: Mapping[str, Any] | None = None) -> None:
        """Disengage the cluster and report ``reason``."""
        self._clusters.reject(self._provider, name, reason, obj)
