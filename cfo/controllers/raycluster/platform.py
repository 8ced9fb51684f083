"""What the cluster offers beyond Kubernetes: is it OpenShift, and which optional kinds are there?"""

from __future__ import annotations

from collections.abc import Callable

from cfo.api.raycluster.kinds import ROUTE
from cfo.runtime.cache.informer import Informer
from cfo.runtime.controller import Controller
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.handler import EventHandler
from cfo.runtime.manager import Manager
from cfo.runtime.objects import GVK
from cfo.runtime.source import Kind

__all__ = ["UNKNOWN_RETRY_SECONDS", "OptionalKind", "Platform"]

UNKNOWN_RETRY_SECONDS = 5.0
"""When to ask again what could not be known."""


class OptionalKind:
    """A kind that this cluster may serve, now or later.

    Controllers that are to hear of its objects subscribe; their sources start when the kind is served. One that may not
    be read keeps nobody waiting.
    """

    def __init__(self, manager: Manager, gvk: GVK, *, label_selector: str = "", field_selector: str = "") -> None:
        self._manager = manager
        self._gvk = gvk
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._waiting: list[Callable[[Informer], None]] = []
        self._informer: Informer | None = None
        manager.when_available(gvk, self._available)

    @property
    def informer(self) -> Informer | None:
        """The informer; ``None`` while the kind was never served."""
        return self._informer

    def subscribe(self, controller: Controller, handler: EventHandler) -> None:
        """Feeds ``controller`` with the events of the kind, from the moment it is served."""

        def attach(informer: Informer) -> None:
            controller.watch(Kind(informer, handler, mapper=self._manager.mapper, optional=True))

        self.when_served(attach)

    def when_served(self, act: Callable[[Informer], None]) -> None:
        """Calls ``act`` with the informer as soon as the kind is served: now, or later."""
        if self._informer is not None:
            act(self._informer)
        else:
            self._waiting.append(act)

    def _available(self, manager: Manager) -> None:
        self._informer = manager.cache.informer(
            self._gvk, label_selector=self._label_selector, field_selector=self._field_selector
        )
        for act in self._waiting:
            act(self._informer)
        self._waiting.clear()


class Platform:
    """Tells OpenShift from vanilla Kubernetes: OpenShift serves the group of Routes.

    Once it was OpenShift, it stays so: an API that goes away for a while does not make a cluster vanilla, which
    would expose dashboards by other means. Discovery is asked once; that Routes came later, ``routes`` tells.
    """

    def __init__(self, mapper: RESTMapper, routes: OptionalKind) -> None:
        self._mapper = mapper
        self._routes = routes
        self._openshift: bool | None = None

    async def is_openshift(self) -> bool:
        """Whether this is OpenShift; raises :class:`~cfo.runtime.discovery.DiscoveryIncomplete` while unknown."""
        if self._routes.informer is not None:
            self._openshift = True
        elif self._openshift is None:
            self._openshift = await self._mapper.serves_group(ROUTE.group)
        return self._openshift
