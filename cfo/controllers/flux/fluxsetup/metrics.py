"""The duration of decisions about the queues of FluxSetups."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

__all__ = ["DecisionMetrics"]

_BUCKETS = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class DecisionMetrics:
    """Registers ``flux_setup_decision_seconds`` in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "flux_setup_decision_seconds",
            "The time that a decision about the queue of a FluxSetup takes",
            buckets=_BUCKETS,
            registry=registry,
        )

    def observe(self, seconds: float) -> None:
        """Record the duration of a decision in seconds."""
        self._seconds.observe(seconds)
