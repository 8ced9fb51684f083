"""The leader election of a manager, and the Leases of single controllers."""

from __future__ import annotations

from collections.abc import Callable

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.elected_controllers import ElectedControllers
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, LeaderElector, LeaseLock
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.clock import Clock

__all__ = ["Leadership"]


class Leadership:
    """Creates the electors of a manager; without ``options`` this replica is always the leader.

    ``events`` returns a recorder for a component.
    """

    def __init__(
        self,
        config: ClientConfig,
        options: LeaderElectionOptions | None,
        *,
        clock: Clock,
        events: Callable[[str], EventRecorder],
        metrics: Metrics,
    ) -> None:
        self.elector: LeaderElector | None = None
        self.transport: Transport | None = None
        """The connection of the elector, which the manager opens."""
        self._config = config
        self._clock = clock
        self._events = events
        self._metrics = metrics
        self._groups: list[ElectedControllers] = []
        if options is not None:
            self.transport = self._new_transport()
            self.elector = self._new_elector(options, self.transport)

    @property
    def is_leader(self) -> bool:
        """Whether this replica is the leader at this moment; always true without leader election."""
        return self.elector is None or self.elector.is_leader

    @property
    def electors(self) -> list[LeaderElector]:
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
            LeaseLock(transport, NamespacedName(options.namespace, options.name)),
            options,
            clock=self._clock,
            events=self._events("leader-election"),
            metrics=self._metrics,
        )
