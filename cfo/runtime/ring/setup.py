"""Adds sharding to a manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cfo.runtime.controller.lifecycle import Runnable, RunnableFunction
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, Lock
from cfo.runtime.objects.unstructured import GVK, ObjectKind
from cfo.runtime.ring.elector import ShardElector, ShardGate
from cfo.runtime.ring.handover import ShardHandover
from cfo.runtime.ring.metrics import ShardingMetrics
from cfo.runtime.ring.options import ShardingOptions
from cfo.runtime.ring.requests import ShardedRequests
from cfo.runtime.sharding.ranges import Partition

if TYPE_CHECKING:
    from cfo.runtime.cache.cache import Cache
    from cfo.runtime.controller.controller import Controller
    from cfo.runtime.controller.metrics import Metrics
    from cfo.runtime.manager.events import EventRecorder
    from cfo.runtime.process.clock import Clock

__all__ = ["Sharding"]


class Sharding:
    """The sharding of one manager: its member of the ring, the requests it may work on, and the divided kinds.

    ``start`` starts a runnable that only the leader runs.
    """

    def __init__(
        self,
        options: ShardingOptions,
        election: LeaderElectionOptions,
        lock: Lock,
        cache: Cache,
        *,
        clock: Clock,
        events: EventRecorder,
        metrics: Metrics,
        start: Callable[[Runnable | RunnableFunction], None],
    ) -> None:
        self.options = options
        self.elector = ShardElector(lock, election, options, clock=clock, events=events, metrics=metrics)
        self.requests = ShardedRequests(
            self._partition(frozenset()),
            gate=lambda shard: ShardGate(self.elector, shard),
            may_work_on=self.elector.may_work_on,
            on_idle=self.elector.release,
        )
        self.handover = ShardHandover(
            self.elector,
            self.requests,
            cache,
            ShardingMetrics(metrics.registry),
            clock=clock,
            partition=self._partition,
            enqueue=self._enqueue,
            on_leader=self._start_leader,
        )
        self._cache = cache
        self._start = start
        self._is_leading = False
        self._leader_runnables: list[Runnable | RunnableFunction] = []
        self._controllers: list[Controller] = []
        self._may_divide: frozenset[GVK] = frozenset(kind.gvk for kind in options.divided_kinds)
        self._divided: set[GVK] = {*self._may_divide}
        self._whole: set[GVK] = {kind.gvk for kind in options.whole_kinds}

    def add_leader_runnable(self, runnable: Runnable | RunnableFunction) -> None:
        """Start ``runnable`` when this replica becomes the leader."""
        if self._is_leading:
            self._start(runnable)
        else:
            self._leader_runnables.append(runnable)

    def add_controller(self, controller: Controller) -> None:
        """Let ``controller`` reconcile only objects of the shards of this replica."""
        controller.admit(self.requests)
        self._controllers.append(controller)

    def remove_waiting(self, controller: Controller) -> bool:
        """Forget ``controller``; return whether it was waiting until this replica becomes the leader."""
        if controller in self._controllers:
            self._controllers.remove(controller)
        if controller not in self._leader_runnables:
            return False
        self._leader_runnables.remove(controller)
        return True

    def divide(self, kind: ObjectKind[Any]) -> None:
        """Cache only the objects of this replica's shards, unless the kind is needed as a whole."""
        self._divided.add(kind.gvk)
        if self._cache.partition is not None and kind.gvk not in self._whole:
            try:
                self._cache.partition_kind(kind)
            except RuntimeError:  # the manager is running, and something reads all objects
                self._whole.add(kind.gvk)

    def map_events(self, kind: ObjectKind[Any]) -> None:
        """Cache all objects of the kind, unless :attr:`ShardingOptions.divided_kinds` lists it.

        A handler of a sharded controller maps its events to requests that can be in other namespaces, whose replica
        must therefore see them. Raises :class:`RuntimeError` as :meth:`keep_whole` does.
        """
        if kind.gvk not in self._may_divide:
            self.keep_whole(kind)

    def keep_whole(self, kind: ObjectKind[Any]) -> None:
        """Cache all objects of the kind, because a controller that is not sharded uses it.

        Raises :class:`RuntimeError` if the manager is running and caches a part of them.
        """
        if self._cache.partition is not None and kind.gvk in self._divided - self._whole:
            raise RuntimeError(f"{kind.gvk}: is divided already: list it in ShardingOptions.whole_kinds")
        self._whole.add(kind.gvk)

    async def restrict_cache(self) -> None:
        """Let the cache start without objects of divided kinds; the handover adds those of owned shards."""
        for kind in self._divided - self._whole:
            self._cache.partition_kind(kind)
        await self._cache.set_partition(self._partition(frozenset()))

    def report(self) -> list[dict[str, Any]]:
        """Return one row for each member of the ring, for :mod:`cfo.runtime.manager.debug`."""
        record = self.elector.membership.record
        return [
            {
                "member": identity,
                "self": identity == self.elector.options.identity,
                "shards": ",".join(map(str, sorted(record.owned_by(identity)))),
                "renewals": member.renewals,
                "lease_seconds": member.lease_seconds,
                "running": self.requests.running if identity == self.elector.options.identity else None,
            }
            for identity, member in sorted(record.members.items())
        ]

    def _partition(self, owned: frozenset[int]) -> Partition:
        return Partition(self.options.shards, owned, self.options.key_hash)

    async def _enqueue(self, gained: Partition) -> None:
        for controller in self._controllers:
            await controller.enqueue_existing(gained)

    def _start_leader(self) -> None:
        self._is_leading = True
        for runnable in self._leader_runnables:
            self._start(runnable)
        self._leader_runnables.clear()
