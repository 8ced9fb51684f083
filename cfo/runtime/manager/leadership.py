"""The leader election of a manager, and of controllers that need a separate Lease in addition.

Operators that share a cluster divide its objects by a label, for example one operator for each major version. The
controllers of one part must not run twice, although each operator is the leader of its own replicas. So they wait for a
Lease that is named after their part, and stop before it is released.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup, TaskStatus

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.client.write_gate import WriteGate, write_gates
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.lifecycle import EventStatus
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.manager.leaderelection import (
    LeaderElectionOptions,
    LeaderElector,
    LeadershipLost,
    LeaseLock,
)
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.clock import Clock, first_of


class ElectedControllers:
    """Runs controllers while this process holds a Lease; a runnable of the manager's leader.

    ``transport`` is the connection of its ``elector``. Created by :meth:`Manager.elect`.
    """

    def __init__(self, transport: Transport, elector: LeaderElector) -> None:
        self.name = f"lease {elector.options.name}"
        self._transport = transport
        self.elector = elector
        self._controllers: list[Controller] = []
        self._tasks: TaskGroup | None = None
        self._gates: tuple[WriteGate, ...] = ()
        self._acquired = EventStatus()
        self._stopping = anyio.Event()

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the Lease at this moment."""
        return self.elector.is_leader

    def add_controller(self, controller: Controller) -> None:
        """Add a controller; it starts immediately if this process holds the Lease."""
        self._controllers.append(controller)
        if self._tasks is not None and not self._stopping.is_set():
            self._tasks.start_soon(self._run_controller, controller)

    def stop(self) -> None:
        """Stop the controllers, then release the Lease; :meth:`run` returns afterwards."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Acquire the Lease and run the controllers until :meth:`stop`; report the start immediately.

        Raises :class:`LeadershipLost` when the Lease was lost, and the exceptions of controllers.
        """
        task_status.started()
        try:
            async with self._transport, anyio.create_task_group() as tasks:
                tasks.start_soon(self._elect)
                await first_of(self._acquired.event.wait, self._stopping.wait)
                if self._acquired.event.is_set():
                    await self._run_controllers()
                self.elector.stop()
        except BaseExceptionGroup as group:
            lost, _ = group.split(LeadershipLost)
            if lost is not None:
                raise LeadershipLost(str(_first(lost))) from group
            raise

    async def _elect(self) -> None:
        write_gates.set(())  # the election writes the Lease on which the gates depend
        await self.elector.run(task_status=self._acquired)

    async def _run_controllers(self) -> None:
        self._gates = (*write_gates.get(), self.elector)
        async with anyio.create_task_group() as self._tasks:
            for controller in self._controllers:
                self._tasks.start_soon(self._run_controller, controller)
            await self._stopping.wait()
            for controller in self._controllers:
                controller.stop()
        self._tasks = None

    async def _run_controller(self, controller: Controller) -> None:
        write_gates.set(self._gates)
        await controller.run()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
        electors = [group.elector for group in self._groups]
        if self.elector is not None:
            electors.insert(0, self.elector)
        return electors

    def elect(self, options: LeaderElectionOptions) -> ElectedControllers:
        """Return a group of controllers that needs another Lease; the manager runs it."""
        transport = self._new_transport()
        group = ElectedControllers(transport, self._new_elector(options, transport))
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
