"""The numbers of each controller of this process, from the metrics registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from cfo.runtime.controller import Metrics

__all__ = ["controller_numbers"]


def controller_numbers(metrics: Metrics) -> Sequence[Mapping[str, Any]]:
    """Return for each controller: reconciles, errors, queued and running requests, and the mean time in seconds."""
    total = _sums(metrics.reconcile_total, "_total", "controller")
    errors = _sums(metrics.reconcile_errors, "_total", "controller")
    active = _sums(metrics.active_workers, "", "controller")
    seconds = _sums(metrics.reconcile_time, "_sum", "controller")
    depth = _sums(metrics.queue_depth, "", "name")
    return [
        {
            "name": name,
            "total": int(count),
            "errors": int(errors.get(name, 0)),
            "depth": int(depth.get(name, 0)),
            "active": int(active.get(name, 0)),
            "mean": round(seconds.get(name, 0.0) / count, 6) if count else 0.0,
        }
        for name, count in sorted(total.items())
    ]


def _sums(metric: Counter | Gauge | Histogram, suffix: str, label: str) -> dict[str, float]:
    """Return the sum of the samples whose name ends with ``suffix``, by the value of ``label``."""
    found: dict[str, float] = {}
    for family in metric.collect():
        for sample in family.samples:
            if sample.name == family.name + suffix:
                name = sample.labels[label]
                found[name] = found.get(name, 0.0) + sample.value
    return found
