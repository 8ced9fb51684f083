"""The running reconciles of provided clusters: how many one cluster may have, and their end.

A worker that waits for a slow API server does not reconcile other clusters meanwhile. Therefore a cluster occupies only
some workers of a controller; further requests are set aside until one of them has finished. When a cluster is
disengaged, and when the process stops, running reconciles have a limited time to finish, and are cancelled afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.clusters.options import ClusterNotFound
from cfo.runtime.controller.cause import Causes
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.cluster import Cluster
from cfo.runtime.process.clock import Clock, sleep_unless

__all__ = ["ControllerReconciles", "EngagedCluster", "ReconcileDrain", "RunningReconciles"]

_CANCEL_SECONDS: Final = 1.0
"""How long to wait for reconciles that were cancelled; code in threads cannot be cancelled."""

_log = structlog.get_logger(__name__)


class RunningReconciles:
    """A set of running reconciles that can be cancelled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scopes: set[anyio.CancelScope] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def include(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Make the reconcile that runs in ``scope`` a member of the set until the end of the block."""
        self._scopes.add(scope)
        self._idle.clear()
        try:
            yield
        finally:
            self._scopes.discard(scope)
            if not self._scopes:
                self._idle.set()

    async def drain(self, timeout: float) -> None:
        """Wait until all have finished; after ``timeout`` seconds, cancel those that still run."""
        if self._idle.is_set() or await sleep_unless(self._clock, timeout, self._idle):
            return
        for scope in list(self._scopes):
            scope.cancel()
        if not await sleep_unless(self._clock, _CANCEL_SECONDS, self._idle):
            _log.warning("Reconciles did not end after they were cancelled", running=len(self._scopes))


class EngagedCluster(Protocol):
    """A cluster that is engaged, or is being disengaged."""

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        ...

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the cluster is disengaged."""
        ...

    @property
    def reconciles(self) -> RunningReconciles:
        """Its running reconciles."""
        ...


class ReconcileDrain:
    """Ends the reconciles of all controllers with provided clusters when the manager stops; a runnable of the leader.

    It stops together with the controllers, so that they do not wait for API servers that do not respond.
    """

    name = "cluster-reconciles"
    needs_leader = True

    def __init__(self, clock: Clock, timeout: float) -> None:
        self.running = RunningReconciles(clock)
        self._timeout = timeout
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the reconciles; :meth:`run` returns afterwards."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait for :meth:`stop`, then for the reconciles."""
        task_status.started()
        await self._stopping.wait()
        await self.running.drain(self._timeout)


class ControllerReconciles:
    """The reconciles of one controller (:class:`~cfo.runtime.controller.controller.ClusterReconciles`).

    ``engaged`` returns an engaged cluster by name. ``running`` are the reconciles of all controllers. ``limit``: how
    many workers one cluster occupies (0: a quarter of them).
    """

    def __init__(
        self,
        controller: Controller,
        engaged: Callable[[str], EngagedCluster | None],
        running: RunningReconciles,
        limit: int,
    ) -> None:
        self._controller = controller
        self._engaged = engaged
        self._all_running = running
        self._limit = limit or max(1, controller.options.max_concurrent_reconciles // 4)
        self._running: dict[str, int] = {}
        self._aside: dict[str, dict[Request, tuple[int, Causes]]] = {}

    def admit(self, request: Request, priority: int) -> bool:
        """Return whether to reconcile the request now; requests of clusters that are not engaged are dropped."""
        if not request.cluster:
            return True
        engagement = self._engaged(request.cluster)
        if engagement is None:
            self._controller.queue.forget(request)
            return False
        if self._running.get(request.cluster, 0) < self._limit_of(request.cluster):
            return True
        aside = self._aside.setdefault(request.cluster, {})
        aside[request] = priority, self._controller.queue.causes(request)
        return False

    async def run(self, request: Request, reconcile: Callable[[Request], Awaitable[Result]]) -> Result:
        """Call ``reconcile``.

        Its failures and results after the cluster was disengaged are ignored, because nothing must be queued for it.
        """
        engagement = self._engaged(request.cluster)
        with anyio.CancelScope() as scope, self._all_running.include(scope):
            if engagement is None:
                return await reconcile(request)
            with engagement.reconciles.include(scope), self._counted(request.cluster):
                try:
                    result = await reconcile(request)
                except Exception as error:
                    not_found = isinstance(error, ClusterNotFound) and error.name == request.cluster
                    if not (not_found or engagement.stopping.is_set()):
                        raise
                    _log.debug("Reconcile ended after the cluster was disengaged", error=str(error))
                    return Result()
                return Result() if engagement.stopping.is_set() else result
        _log.info("Reconcile cancelled, because the cluster was disengaged or the process stops")
        return Result()

    def drop(self, cluster: str) -> None:
        """Drop all requests of a cluster that are queued or set aside."""
        self._aside.pop(cluster, None)
        self._controller.queue.drop(lambda request: request.cluster == cluster)

    def _limit_of(self, cluster: str) -> int:
        engagement = self._engaged(cluster)
        return self._limit if engagement is None or engagement.cluster.responds else 1

    @contextmanager
    def _counted(self, cluster: str) -> Iterator[None]:
        self._running[cluster] = self._running.get(cluster, 0) + 1
        try:
            yield
        finally:
            self._running[cluster] -= 1
            if not self._running[cluster]:
                del self._running[cluster]
            self._resume(cluster)

    def _resume(self, cluster: str) -> None:
        """Queue the requests again that were set aside and may run now."""
        aside = self._aside.get(cluster)
        for _ in range(self._limit_of(cluster) - self._running.get(cluster, 0)):
            if not aside:
                self._aside.pop(cluster, None)
                return
            request = next(iter(aside))
            priority, causes = aside.pop(request)
            for cause in causes:
                self._controller.queue.add(request, priority=priority, cause=cause)
