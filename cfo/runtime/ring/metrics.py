"""The metrics of sharding."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["ShardingMetrics"]


class ShardingMetrics:
    """The ``cfo_sharding_*`` metrics of this replica."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._owned = Gauge(
            "cfo_sharding_owned_shards", "Number of shards that this replica reconciles.", registry=registry
        )
        self._members = Gauge("cfo_sharding_members", "Number of replicas that share the shards.", registry=registry)
        self._gained = Counter(
            "cfo_sharding_gained_shards_total", "Total number of shards that this replica started.", registry=registry
        )
        self._seconds = Histogram(
            "cfo_sharding_start_seconds",
            "Seconds from gaining shards until their objects are in the cache and queued.",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )

    def observe(self, owned: int, members: int) -> None:
        """Set the number of owned shards and of members."""
        self._owned.set(owned)
        self._members.set(members)

    def gained(self, shards: int, seconds: float) -> None:
        """Count ``shards`` that were started within ``seconds``."""
        self._gained.inc(shards)
        self._seconds.observe(seconds)
