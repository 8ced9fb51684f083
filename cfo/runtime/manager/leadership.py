"""The leader election of a manager, with or without sharding, and the Leases of single controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.lifecycle import Runnable, RunnableFunction
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.elected_controllers import ElectedControllers
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, LeaderElector, LeaseLock
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.clock import Clock

if TYPE_CHECKING:
    from cfo.runtime.ring.elector import ShardElector
    from cfo.runtime.ring.options import ShardingOptions
    from cfo.runtime.ring.setup import Sharding

__all__ = ["Leadership"]


class Leadership:
    """Creates the electors of a manager; without ``options`` this replica is always the leader.

    ``start`` starts a runnable that only the leader runs; ``events`` returns a recorder for a component.
    """

    def __init__(
        self,
        config: ClientConfig,
        options: LeaderElectionOptions | None,
        sharding: ShardingOptions | None,
        cache: Cache,
        *,
        clock: Clock,
        events: Callable[[str], EventRecorder],
        metrics: Metrics,
        start: Callable[[Runnable | RunnableFunction], None],
    ) -> None:
        self.elector: LeaderElector | ShardElector | None = None
        self.sharding: Sharding | None = None
        """How the replicas share the objects; ``None``: the leader reconciles all of them."""
        self.transport: Transport | None = None
        """The connection of the elector, which the manager opens."""
        self._config = config
        self._clock = clock
        self._events = events
        self._metrics = metrics
        self._groups: list[ElectedControllers] = []
        if options is None:
            return
        self.transport = self._new_transport()
        if sharding is None:
            self.elector = self._new_elector(options, self.transport)
            return
        from cfo.runtime.ring.setup import Sharding  # lazily: disabled by default

        self.sharding = Sharding(
            sharding,
            options,
            _lock(options, self.transport),
            cache,
            clock=clock,
            events=events("leader-election"),
            metrics=metrics,
            start=start,
        )
        self.elector = self.sharding.elector

    @property
    def is_leader(self) -> bool:
        """Whether this replica is the leader at this moment; always true without leader election."""
        return self.elector is None or self.elector.is_leader

    @property
    def electors(self) -> list[LeaderElector | ShardElector]:
        """The elector of the manager, if any, and those of :meth:`elect`."""
        own = [self.elector] if self.elector is not None else []
        return [*own, *(group.elector for group in self._groups)]

    def elect(self, options: LeaderElectionOptions) -> ElectedControllers:
        """Return a group of controllers that needs another Lease; the manager runs it."""
        group = ElectedControllers(
            f"lease {options.name}", self._new_transport(), lambda transport: self._new_elector(options, transport)
        )
        self._groups.append(group)
        return group

    def _new_transport(self) -> Transport:
        # Its own connection pool, so that lease renewals bypass rate limits and queueing.
        return Transport(self._config, observe=self._metrics.observe_exchange, clock=self._clock)

    def _new_elector(self, options: LeaderElectionOptions, transport: Transport) -> LeaderElector:
        return LeaderElector(
            _lock(options, transport),
            options,
            clock=self._clock,
            events=self._events("leader-election"),
            metrics=self._metrics,
        )


def _lock(options: LeaderElectionOptions, transport: Transport) -> LeaseLock:
    return LeaseLock(transport, NamespacedName(options.namespace, options.name))
