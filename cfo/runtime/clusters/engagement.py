"""One provided cluster, from the moment that it is engaged until it is disengaged."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import structlog

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.ratelimit import Backoff
from cfo.runtime.clusters.options import ClusterSetup
from cfo.runtime.clusters.reconciles import RunningReconciles
from cfo.runtime.clusters.sources import ClusterKind
from cfo.runtime.controller.controller import Controller
from cfo.runtime.manager.cluster import Cluster
from cfo.runtime.process.clock import Clock, sleep_unless

__all__ = ["Engagement"]

_FLUSH_SECONDS: Final = 2.0
"""How long queued Events have to be written after a cluster was disengaged."""

_log = structlog.get_logger(__name__)


class Engagement:
    """Runs the connections and informers of ``cluster``, and adds its sources to controllers.

    ``owner`` is the provider. ``setups`` are called in order before ``on_ready`` and before the controllers get
    requests; if one fails, all are called again after a back-off. Each controller gets requests as soon as the kinds
    that it watches have synced, regardless of the others.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        owner: object,
        *,
        setups: Sequence[ClusterSetup],
        on_ready: Callable[[Engagement], None],
        disengage_timeout: float,
        clock: Clock,
    ) -> None:
        self.cluster = cluster
        self.config = config
        self.owner = owner
        self.is_ready = False
        self.stopping = asyncio.Event()
        self.finished = asyncio.Event()
        self.reconciles = RunningReconciles(clock)
        self._setups = setups
        self._on_ready = on_ready
        self._timeout = disengage_timeout
        self._clock = clock
        self._attached: list[tuple[Controller, ClusterKind]] = []
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Run until :meth:`stop`, and then until its reconciles have finished or were cancelled."""
        flushed = asyncio.Event()

        async def write_events() -> None:
            await self.cluster.broadcaster.run()
            flushed.set()

        async with self.cluster.transport, anyio.create_task_group() as tasks:
            await tasks.start(self.cluster.cache.run)
            tasks.start_soon(write_events)
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._set_up)
                await self.stopping.wait()
                self._tasks.cancel_scope.cancel()
            self._tasks = None
            await self.reconciles.drain(self._timeout)
            self.cluster.broadcaster.stop()
            await sleep_unless(self._clock, _FLUSH_SECONDS, flushed)
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Remove the sources from all controllers, and end :meth:`run`."""
        self.stopping.set()
        for controller in {controller for controller, _ in self._attached}:
            self.detach(controller)

    def attach(
        self,
        controller: Controller,
        new_kinds: Callable[[Cluster], Sequence[ClusterKind]],
        is_current: Callable[[], bool],
    ) -> None:
        """Add the sources that ``new_kinds`` returns to ``controller`` once they have synced, if ``is_current``."""
        if self._tasks is not None:
            self._tasks.start_soon(self._attach, controller, new_kinds, is_current)

    def detach(self, controller: Controller) -> None:
        """Remove the sources of this cluster from ``controller``."""
        for attached, kind in self._attached:
            if attached is controller:
                controller.unwatch(kind)
        self._attached = [entry for entry in self._attached if entry[0] is not controller]

    async def _set_up(self) -> None:
        backoff = Backoff(self._clock)
        while True:
            try:
                for setup in self._setups:
                    result = setup(self.cluster)
                    if inspect.isawaitable(result):
                        await result
                break
            except Exception:  # noqa: BLE001 - a failure in one cluster must not affect the others
                backoff.record_failure()
                delay = backoff.delay()
                _log.exception("Setup of the cluster failed, will retry", retry_in_seconds=round(delay, 1))
                await self._clock.sleep(delay)
        self.is_ready = True
        self._on_ready(self)

    async def _attach(
        self,
        controller: Controller,
        new_kinds: Callable[[Cluster], Sequence[ClusterKind]],
        is_current: Callable[[], bool],
    ) -> None:
        try:
            kinds = new_kinds(self.cluster)
            for kind in kinds:
                await kind.prepare()
        except Exception:  # noqa: BLE001 - a failure in one cluster must not affect the others
            _log.exception("Controller cannot watch the cluster", controller=controller.name)
            return
        if self.stopping.is_set() or not is_current():
            return
        for kind in kinds:
            self._attached.append((controller, kind))
            controller.watch(kind)
