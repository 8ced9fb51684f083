"""Sources and handlers of requests for several clusters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.clusters.options import EngageableClusters
from cfo.runtime.controller.cause import Cause, CauseType
from cfo.runtime.controller.handler import EnqueueRequestForObject, EventHandler
from cfo.runtime.controller.predicate import Predicate
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.controller.source import Kind
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.manager.cluster import Cluster
from cfo.runtime.objects.unstructured import ClusterRequest
from cfo.runtime.process.clock import Clock

if TYPE_CHECKING:
    from cfo.runtime.sharding.ranges import Partition

_log = structlog.get_logger(__name__)

__all__ = ["ClusterKind", "EngagedClusters", "EnqueueForEachCluster"]


class ClusterKind(Kind):
    """The events of a kind in one provided cluster; its requests get the name of the cluster.

    A request that the handler already created for a cluster (:meth:`NamespacedName.in_cluster`) keeps it, also if it is
    the local one. Call :meth:`prepare` before adding it to a controller, which does not wait for it.
    """

    def __init__(
        self,
        cluster: Cluster,
        informer: Informer,
        handler: EventHandler,
        *predicates: Predicate,
        optional: bool,
        clock: Clock,
    ) -> None:
        in_cluster = _InCluster(handler, cluster.name)
        super().__init__(informer, in_cluster, *predicates, mapper=cluster.mapper, optional=optional, clock=clock)
        self.cluster = cluster.name
        self._stopped = False

    async def prepare(self) -> None:
        """Prepare the handler, and wait until the informer has listed its objects."""
        await self.handler.prepare(self._mapper)
        await super().wait_for_sync()

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Start adding requests to ``queue``, unless the cluster was disengaged meanwhile."""
        if not self._stopped:
            await super().start(controller, queue)

    async def wait_for_sync(self) -> None:
        """Return immediately: a controller must not wait for a provided cluster."""

    def stop(self) -> None:
        """Stop adding requests."""
        self._stopped = True
        super().stop()


class _InCluster:
    """Adds the name of the cluster to the requests of a handler."""

    def __init__(self, handler: EventHandler, cluster: str) -> None:
        self._handler = copy.copy(handler)  # prepare() stores the mapper of the cluster in it
        self._cluster = cluster
        self._prepared = False

    async def prepare(self, mapper: RESTMapper) -> None:
        """Prepare the handler once."""
        if not self._prepared:
            await self._handler.prepare(mapper)
            self._prepared = True

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the requests of the handler, in the cluster."""
        return [
            request if isinstance(request, ClusterRequest) else request.in_cluster(self._cluster)
            for request in self._handler.requests(event)
        ]


class EnqueueForEachCluster:
    """Enqueues the requests of ``handler`` once for each engaged cluster.

    With it, an object of the local cluster is reconciled for each cluster separately: a failure in one of them is
    retried without the others. ``clusters`` is :attr:`Manager.clusters`; the default handler is
    :class:`~cfo.runtime.controller.handler.EnqueueRequestForObject`.
    """

    def __init__(self, clusters: EngageableClusters, handler: EventHandler | None = None) -> None:
        self._clusters = clusters
        self._handler = handler or EnqueueRequestForObject()

    async def prepare(self, mapper: RESTMapper) -> None:
        """Prepare the handler."""
        await self._handler.prepare(mapper)

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the requests for all engaged clusters."""
        requests = tuple(self._handler.requests(event))
        return [request.in_cluster(cluster) for cluster in self._clusters for request in requests]


class EngagedClusters:
    """Enqueues the requests that ``function`` returns for a cluster when it is engaged.

    Clusters that are already engaged at the start are included. The requests get the name of the cluster, like those of
    :class:`ClusterKind`.
    """

    def __init__(self, clusters: EngageableClusters, function: Callable[[Cluster], Iterable[Request]]) -> None:
        self._clusters = clusters
        self._function = function
        self._queue: WorkQueue[Request] | None = None

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Enqueue the requests for all engaged clusters, and later for each new one."""
        self._queue = queue
        self._clusters.add_engage_handler(self._engaged)

    async def wait_for_sync(self) -> None:
        """Return immediately."""

    def stop(self) -> None:
        """Stop adding requests."""
        if self._queue is not None:
            self._queue = None
            self._clusters.remove_engage_handler(self._engaged)

    async def enqueue_existing(self, partition: Partition) -> None:
        """Enqueue the requests in ``partition`` for all engaged clusters."""
        engaged = partial(self._engaged, partition=partition)
        self._clusters.add_engage_handler(engaged)
        self._clusters.remove_engage_handler(engaged)

    def _engaged(self, cluster: Cluster, partition: Partition | None = None) -> None:
        if self._queue is None:
            return
        cause = Cause(CauseType.GENERIC, detail=f"cluster {cluster.name} was engaged")
        try:
            requests = tuple(self._function(cluster))
        except Exception:  # noqa: BLE001 - the function is code of the library's users
            _log.exception("Function of EngagedClusters failed", cluster=cluster.name)
            return
        for request in requests:
            if partition is not None and not partition.covers(request.namespace, request.name):
                continue
            named = request if isinstance(request, ClusterRequest) else request.in_cluster(cluster.name)
            self._queue.add(named, cause=cause)
