"""Metrics of AppWrappers, with the names of the Go operator: how many are in each phase, and their transitions."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.controllers.cached_fields import field_reader
from cfo.runtime import Reader

_phase_of = field_reader("status", "phase", kind=str, default="")


class PhaseMetrics(Collector):
    """Registers the metrics in ``registry``; ``wrappers`` reads the AppWrappers that they count."""

    def __init__(self, registry: CollectorRegistry, wrappers: Reader) -> None:
        self._wrappers = wrappers
        self.transitions = Counter(
            "appwrapper_phase_total",
            "The total number of times an appwrapper transitioned to a given phase per namespace",
            ("namespace", "phase"),
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the current number of AppWrappers by namespace and phase."""
        gauge = GaugeMetricFamily(
            "appwrapper_status_phase",
            "The number of appwrappers in a phase per namespace",
            labels=("namespace", "phase"),
        )
        counts: Count[tuple[str, str]] = Count()
        for entry in self._wrappers.entries():
            counts[entry.namespace, _phase_of(entry)] += 1
        for labels, number in sorted(counts.items()):
            gauge.add_metric(labels, number)
        yield gauge
