"""One API server with all that reads and writes its objects: connection, cache, clients and Events.

A manager has one for the API server that it was created for, the local cluster. Clusters that are engaged at run time
(:mod:`cfo.runtime.clusters`) are further ones.
"""

from __future__ import annotations

from cfo.runtime.cache.cache import Cache
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.events import EventBroadcaster, EventRecorder
from cfo.runtime.process.clock import Clock

__all__ = ["Cluster"]


class Cluster:
    """An API server, as controller-runtime's ``cluster.Cluster``; created by the manager.

    ``name`` is empty for the local cluster. ``client`` reads from the cache if possible; ``api_reader`` always reads
    from the API server. Both write as ``field_manager``.
    """

    def __init__(
        self, name: str, transport: Transport, mapper: RESTMapper, cache: Cache, *, field_manager: str, clock: Clock
    ) -> None:
        self.name = name
        self.transport = transport
        self.mapper = mapper
        self.cache = cache
        self.client = Client(transport, mapper, field_manager=field_manager, cache=cache)
        self.api_reader = Client(transport, mapper, field_manager=field_manager)
        self.broadcaster = EventBroadcaster(self.api_reader, clock=clock)
        """Writes the Events of all recorders of :meth:`events`."""
        self.responds = True
        """Whether the last request to an engaged cluster got a response; always true for the local cluster."""

    def events(self, component: str) -> EventRecorder:
        """Return a recorder for Events reported by ``component`` (usually a controller's name)."""
        return self.broadcaster.recorder(component)

    @property
    def problem(self) -> str:
        """The reason why the cluster cannot be used, as far as it is known; empty if there is none."""
        for informer in self.cache.informers:
            if informer.problem:
                return informer.problem
        return "" if self.responds else "the API server does not respond"
