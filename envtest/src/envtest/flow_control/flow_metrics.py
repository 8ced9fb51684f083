"""The metrics ``apiserver_flowcontrol_*``: requests by flow, and the limits of the priority levels.

Requests never wait here, so that the limits are those of the configuration: no level borrows seats from another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from envtest.flow_control.flow_controller import Flow

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["FlowMetrics", "seats"]

SERVER_SEATS: Final = 600
"""The requests that kube-apiserver executes at a time by default: 400 that read, 200 that write."""

_PREFIX: Final = "apiserver_flowcontrol_"
_BOUNDS: Final = (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)


class _Count:
    """The requests of a flow: how many were executed, are executed, and in how many seconds."""

    __slots__ = ("buckets", "dispatched", "executing", "seconds")

    def __init__(self) -> None:
        self.dispatched = 0
        self.executing = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(_BOUNDS) + 1)


class FlowMetrics:
    """Counts the requests of one API server; ``levels`` returns the specs of the priority levels."""

    def __init__(self, levels: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        self._levels = levels
        self._counts: dict[tuple[str, str], _Count] = {}

    def begin(self, flow: Flow) -> None:
        """Count a request of a flow, which is executed from now on."""
        count = self._count(flow)
        count.dispatched += 1
        count.executing += 1

    def end(self, flow: Flow, seconds: float) -> None:
        """Count that a request has been executed, in this time."""
        count = self._count(flow)
        count.executing -= 1
        count.seconds += seconds
        count.buckets[bisect_left(_BOUNDS, seconds)] += 1

    def count_watch(self, flow: Flow) -> None:
        """Count a watch: it occupies a seat only while it begins."""
        self._count(flow).dispatched += 1

    def _count(self, flow: Flow) -> _Count:
        key = (flow.schema, flow.level)
        count = self._counts.get(key)
        if count is None:
            count = _Count()
            self._counts[key] = count
        return count

    def families(self) -> Iterator[Metric]:
        """Yield the metric families."""
        yield from self._flow_families()
        yield from self._level_families()

    def _flow_families(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        labels = ["flow_schema", "priority_level"]
        dispatched = CounterMetricFamily(
            f"{_PREFIX}dispatched_requests_total", "Requests that were executed.", labels=labels
        )
        executing = GaugeMetricFamily(
            f"{_PREFIX}current_executing_requests", "Requests that are executed.", labels=labels
        )
        occupied = GaugeMetricFamily(
            f"{_PREFIX}current_executing_seats",
            "Seats that requests occupy: one for each.",
            labels=labels,
        )
        durations = HistogramMetricFamily(
            f"{_PREFIX}request_execution_seconds",
            "Seconds in which requests were executed.",
            labels=[*labels, "type"],
        )
        for key, count in self._counts.items():
            dispatched.add_metric(key, count.dispatched)
            executing.add_metric(key, count.executing)
            occupied.add_metric(key, count.executing)
            durations.add_metric([*key, "regular"], _cumulative(count.buckets), count.seconds)
        yield from (dispatched, executing, occupied, durations)

    def _level_families(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        families = [
            GaugeMetricFamily(f"{_PREFIX}{name}_seats", text, labels=["priority_level"])
            for name, text in (
                ("nominal_limit", "Requests of a level that may be executed at a time."),
                ("lower_limit", "What a level keeps if it lends seats to others."),
                ("upper_limit", "What a level has if it borrows seats from others."),
                ("current_limit", "The present limit of a level."),
                ("target", "The limit that a level should have."),
            )
        ]
        for level, values in seats(self._levels()).items():
            for family, value in zip(families, values, strict=True):
                family.add_metric([level], value)
        yield from families


def seats(levels: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int, int, int, int]]:
    """Return the nominal, lower, upper, current and target number of seats of each priority level."""
    parts = {name: spec.get("exempt") or spec.get("limited") or {} for name, spec in levels.items()}
    total = sum(part.get("nominalConcurrencyShares") or 0 for part in parts.values())
    found: dict[str, tuple[int, int, int, int, int]] = {}
    for name, part in parts.items():
        shares = part.get("nominalConcurrencyShares") or 0
        nominal = -(-SERVER_SEATS * shares // total) if total else 0
        lent = _percent_of(nominal, part.get("lendablePercent") or 0)
        borrowing = part.get("borrowingLimitPercent")
        borrowed = SERVER_SEATS if borrowing is None else _percent_of(nominal, borrowing)
        found[name] = (nominal, nominal - lent, nominal + borrowed, nominal, nominal)
    return found


def _percent_of(number: int, percent: int) -> int:
    """Return a percentage of a number; halves are rounded up."""
    return (number * percent + 50) // 100


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    cumulated: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
        total += count
        cumulated.append((bound, total))
    return cumulated
