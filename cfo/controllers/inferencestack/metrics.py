"""The metrics of stacks: readiness, states of applications, and stacks that no operator reconciles."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.controllers.cached_fields import CachedCondition, field_reader
from cfo.runtime import GVK, Reader, Request


class _Application(msgspec.Struct, gc=False):
    state: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: tuple[CachedCondition, ...] | None = None
    applications: tuple[_Application, ...] | None = None


_status_of = field_reader("status", kind=_Status, default=_Status())


class StackMetrics(Collector):
    """Counts the stacks of all ``readers`` when ``registry`` is collected."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.readers: list[Reader] = []
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the number of stacks by namespace and readiness, and of applications by namespace and state."""
        stacks: Count[tuple[str, str]] = Count()
        applications: Count[tuple[str, str]] = Count()
        for reader in self.readers:
            for entry in reader.entries():
                namespace = entry.key.namespace
                status = _status_of(entry)
                ready = next(
                    (item.status for item in status.conditions or () if item.type == "Ready"),
                    "Unknown",
                )
                stacks[namespace, ready] += 1
                for application in status.applications or ():
                    applications[namespace, application.state] += 1
        yield _gauge(
            "inferencestack_status_ready",
            "The number of InferenceStacks by the status of Ready",
            "ready",
            stacks,
        )
        yield _gauge(
            "inferencestack_status_applications",
            "The number of applications of InferenceStacks by state",
            "state",
            applications,
        )


class ClaimMetrics(Collector):
    """The metric ``inferencestack_unclaimed``: the stacks that are reported, by namespace and reason."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reasons: dict[tuple[GVK, Request], str] = {}
        registry.register(self)

    def set(self, gvk: GVK, request: Request, reason: str) -> bool:
        """Set the reason why a stack is reported; empty if it is not. Return whether it changed."""
        before = self._reasons.pop((gvk, request), "")
        if reason:
            self._reasons[gvk, request] = reason
        return before != reason

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reported stacks."""
        counts = Count(
            (request.namespace, reason) for (_, request), reason in self._reasons.items()
        )
        text = "The number of InferenceStacks that no operator, or more than one, reconciles"
        yield _gauge("inferencestack_unclaimed", text, "reason", counts)


def _gauge(name: str, help_: str, label: str, counts: Count[tuple[str, str]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_, labels=("namespace", label))
    for labels, number in sorted(counts.items()):
        gauge.add_metric(labels, number)
    return gauge
