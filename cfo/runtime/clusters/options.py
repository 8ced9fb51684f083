"""What users of several clusters select and implement: scopes, settings, providers, errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.cluster import Cluster
from cfo.runtime.objects.errors import TerminalError
from cfo.runtime.process.clock import Clock

__all__ = [
    "ClusterAware",
    "ClusterNotFound",
    "ClusterOptions",
    "ClusterProvider",
    "ClusterRefused",
    "ClusterScope",
    "ClusterSelection",
    "ClusterSetup",
    "EngageableClusters",
]


class ClusterNotFound(TerminalError):
    """Raised if no cluster of this name is engaged: it is unknown, or it was disengaged.

    A reconcile that fails with it is not retried. Use :class:`~cfo.runtime.clusters.sources.EngagedClusters` to
    reconcile again when the cluster is engaged.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name!r} is not engaged")
        self.name = name


class ClusterRefused(Exception):
    """Raised by :meth:`ClusterAware.engage` for a cluster that is not engaged; the message is one line."""


class ClusterScope(Enum):
    """The clusters in which a builder watches a kind."""

    LOCAL = "local"
    """Only the cluster that the manager was created for."""
    PROVIDED = "provided"
    """All clusters that providers engage, without the local one."""
    ALL = "all"
    """The local cluster and all that providers engage."""


ClusterSelection: TypeAlias = ClusterScope | Callable[[Cluster], bool]
"""A scope, or a function that selects some of the provided clusters."""

ClusterSetup: TypeAlias = Callable[[Cluster], Awaitable[None] | None]
"""A function that prepares a cluster, for example with indexes, before controllers get requests for it."""


class EngageableClusters(Protocol):
    """The engaged clusters, for sources and handlers; :attr:`Manager.clusters` implements it."""

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the engaged clusters."""
        ...

    def add_engage_handler(self, handler: Callable[[Cluster], None]) -> None:
        """Call ``handler`` for each engaged cluster: immediately, or after its setup. It must not block or raise."""
        ...

    def remove_engage_handler(self, handler: Callable[[Cluster], None]) -> None:
        """Stop calling ``handler``; raises :class:`ValueError` if it was not added."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Settings of the clusters that providers engage.

    ``max_clusters``: how many are engaged at the same time; further ones are refused. ``disengage_timeout``: seconds
    that the running reconciles of a cluster have to finish after it was disengaged or a stop was requested, before they
    are cancelled. ``max_concurrent_reconciles``: how many workers of a controller one cluster occupies at the same time
    (0: a quarter of them), so that a slow cluster does not delay the others; a cluster that does not respond gets one.
    ``max_response_bytes``: the maximum size of a response of a provided cluster. Raises :class:`ValueError` for values
    out of range.
    """

    max_clusters: int = 100
    disengage_timeout: float = 10.0
    max_concurrent_reconciles: int = 0
    max_response_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, least in (("max_clusters", 1), ("max_concurrent_reconciles", 0), ("max_response_bytes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)}: must be {least} or more")
        if self.disengage_timeout < 0:
            raise ValueError(f"disengage_timeout: {self.disengage_timeout}: must be 0 or more seconds")


class ClusterAware(Protocol):
    """What a provider calls when clusters come and go (multicluster-runtime's ``Aware``)."""

    @property
    def local(self) -> Cluster:
        """The local cluster, for providers that read from it."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the manager."""
        ...

    def engage(self, name: str, config: ClientConfig) -> None:
        """Engage a cluster; if another configuration is engaged under this name, disengage that one first.

        Does nothing if ``config`` is engaged already. Returns immediately, also if the API server does not respond.
        Raises :class:`ClusterRefused` if the name is invalid or belongs to another provider, if there are too many
        clusters, or if the certificates of ``config`` are invalid.
        """
        ...

    def disengage(self, name: str) -> None:
        """Disengage a cluster of this provider, and forget that it was rejected; do nothing if there is none."""
        ...

    def reject(self, name: str, reason: str, *, obj: Mapping[str, Any] | None = None) -> None:
        """Disengage the cluster and report ``reason`` in the log, a metric, and an Event about ``obj``.

        ``reason`` is one line and contains no credentials.
        """
        ...


class ClusterProvider(Protocol):
    """Discovers clusters; implement it for other sources than kubeconfigs.

    If it raises, the process stops, like with any other runnable. If it returns, its clusters stay engaged.
    """

    async def run(self, aware: ClusterAware) -> None:
        """Engage and disengage clusters until cancelled."""
        ...
