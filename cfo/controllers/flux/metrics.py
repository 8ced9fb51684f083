"""The metrics of FluxSetups: quota, what is used of it, how many FluxJobs wait for it, and how long decisions take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.api.flux.names import ACTIVE
from cfo.controllers.cached_fields import CachedCondition
from cfo.runtime import Reader

_LABELS: Final = ("namespace", "fluxsetup")

_BUCKETS = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class _Spec(msgspec.Struct, frozen=True, gc=False):
    max_size: int = msgspec.field(default=0, name="max-size")


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    used_resources: int = 0
    pending_workloads: int = 0
    admitted_workloads: int = 0
    conditions: tuple[CachedCondition, ...] = ()


class _FluxSetup(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(_FluxSetup)


class FluxSetupMetrics(Collector):
    """Registers the metrics in ``registry``, which are computed at each scrape; ``setups`` reads the FluxSetups."""

    def __init__(self, registry: CollectorRegistry, setups: Reader) -> None:
        self._setups = setups
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, with one sample for each FluxSetup."""
        limit = _gauge("flux_setup_max_pods", "The maximum number of pods of a FluxSetup")
        used = _gauge("flux_setup_used_pods", "The number of pods that hold quota of a FluxSetup")
        pending = _gauge(
            "flux_setup_pending_jobs",
            "The number of FluxJobs that wait for quota of a FluxSetup",
        )
        admitted = _gauge(
            "flux_setup_admitted_jobs",
            "The number of FluxJobs that hold quota of a FluxSetup",
        )
        active = _gauge(
            "flux_setup_active",
            "Whether a FluxSetup governs FluxJobs, with the reason of its condition Active",
            "reason",
        )
        for entry in self._setups.entries():
            setup = _decoder.decode(entry.raw)
            labels = (entry.key.namespace, entry.key.name)
            limit.add_metric(labels, setup.spec.max_size)
            used.add_metric(labels, setup.status.used_resources)
            pending.add_metric(labels, setup.status.pending_workloads)
            admitted.add_metric(labels, setup.status.admitted_workloads)
            for condition in setup.status.conditions:
                if condition.type == ACTIVE:
                    value = 1.0 if condition.status == "True" else 0.0
                    active.add_metric((*labels, condition.reason), value)
        yield from (limit, used, pending, admitted, active)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(*_LABELS, *labels))


def decision_seconds(registry: CollectorRegistry) -> Histogram:
    """Register and return ``flux_setup_decision_seconds``, the duration of decisions about queues."""
    text = "The time that a decision about the queue of a FluxSetup takes"
    return Histogram("flux_setup_decision_seconds", text, buckets=_BUCKETS, registry=registry)
