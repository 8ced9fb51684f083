"""The metrics ``appwrapper_phase_total`` (transitions) and ``appwrapper_status_phase`` (AppWrappers per phase)."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.runtime import Reader


class _AppWrapperStatus(msgspec.Struct, gc=False):
    phase: str = ""


class _AppWrapper(msgspec.Struct, gc=False):
    status: _AppWrapperStatus | None = None


_decoder = msgspec.json.Decoder(_AppWrapper)


class PhaseMetrics(Collector):
    """Registers the metrics in ``registry``; ``wrappers`` reads the AppWrappers that they count."""

    def __init__(self, registry: CollectorRegistry, wrappers: Reader) -> None:
        self._wrappers = wrappers
        self._total = Counter(
            "appwrapper_phase_total",
            "The total number of times an appwrapper transitioned to a given phase per namespace",
            ("namespace", "phase"),
            registry=registry,
        )
        registry.register(self)

    def count_transition(self, namespace: str, phase: str) -> None:
        """Count the transition of an AppWrapper in ``namespace`` to ``phase``."""
        self._total.labels(namespace, phase).inc()

    def collect(self) -> Iterator[Metric]:
        """Yield the current number of AppWrappers by namespace and phase."""
        gauge = GaugeMetricFamily(
            "appwrapper_status_phase",
            "The number of appwrappers in a phase per namespace",
            labels=("namespace", "phase"),
        )
        counts: Count[tuple[str, str]] = Count()
        for entry in self._wrappers.entries():
            status = _decoder.decode(entry.raw).status
            counts[entry.key.namespace, status.phase if status is not None else ""] += 1
        for labels, number in sorted(counts.items()):
            gauge.add_metric(labels, number)
        yield gauge
