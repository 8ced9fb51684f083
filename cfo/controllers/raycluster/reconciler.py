"""What the controllers that reconcile RayClusters have in common: the first steps of a reconcile, and their watches."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.config import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.watches import add_indexes, all_clusters
from cfo.runtime import Controller, Manager, Request, is_deleting


class ClusterReconciler:
    """One concern of RayClusters. A subclass has the ``reconcile`` method and, in its module, the function ``setup``.

    ``name`` is the name of the controller and the source of its Events.
    """

    name: ClassVar[str]

    def __init__(self, manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
        self._manager = manager
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._clock = manager.clock
        self._config = config
        self._environment = environment
        clusters = manager.cache.informer(RAY_CLUSTER)
        add_indexes(clusters)
        self.clusters = clusters.reader
        """Reads all RayClusters."""

    async def existing(self, request: Request) -> Children | None:
        """Return the writes for a RayCluster; ``None`` if it does not exist or is being deleted."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return None  # the garbage collector deletes its objects
        return Children(self._client, self._events, cluster)

    async def settings(self, request: Request) -> NamespaceSettings:
        """Return the configuration with the profile that applies in the namespace of a RayCluster."""
        return await self._environment.profiles.settings(self._client, request.namespace)

    def all_clusters(self) -> Collection[Request]:
        """Return the requests of all RayClusters."""
        return all_clusters(self.clusters)

    def subscribe(self, controller: Controller, *, access: bool = False) -> None:
        """Feed ``controller`` with the RayClusters whose profile changed, or the decision about their dashboard.

        ``access``: whether the controller depends on that decision.
        """
        self._environment.profiles.subscribe(controller, self.clusters)
        if access:
            self._environment.access.subscribe(self._manager, controller, self.clusters)
