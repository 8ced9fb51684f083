"""Metrics of the provided clusters. The Go libraries have none, so the names have the prefix ``cfo_``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.runtime.client.transport import Exchange
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.cluster import Cluster

__all__ = ["ClusterCollector", "ObservedExchanges"]


class ClusterCollector(Collector):
    """Exports the state of each engaged cluster at every scrape, and nothing about clusters that were disengaged."""

    def __init__(self, clusters: Callable[[], Iterable[Cluster]], rejected: Callable[[], int]) -> None:
        self._clusters = clusters
        self._rejected = rejected

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        up = self._family("up", "Whether the API server of the cluster responds and its informers watch it.")
        objects = self._family("objects", "Number of objects in the caches of the cluster's informers.")
        size = self._family("bytes", "Size in bytes of the JSON in the caches of the cluster's informers.")
        for cluster in self._clusters():
            readers = [informer.reader for informer in cluster.cache.informers]
            up.add_metric((cluster.name,), not cluster.problem)
            objects.add_metric((cluster.name,), sum(map(len, readers)))
            size.add_metric((cluster.name,), sum(reader.size for reader in readers))
        yield from (up, objects, size)
        yield GaugeMetricFamily(
            "cfo_clusters_rejected",
            "Number of clusters that are not engaged, because their kubeconfigs are invalid or there are too many.",
            value=self._rejected(),
        )

    def _family(self, name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"cfo_cluster_{name}", text, labels=("cluster",))


class ObservedExchanges:
    """Counts the requests to one provided cluster, and stores in :attr:`Cluster.responds` whether it responds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.cluster: Cluster | None = None

    def observe(self, exchange: Exchange) -> None:
        """Count one request."""
        self._metrics.observe_exchange(exchange)
        if self.cluster is not None:
            self.cluster.responds = exchange.code != "<error>"
