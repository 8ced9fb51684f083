"""What the project promises of its cost, beside what was recorded of the Go operator, and what became of it.

The limits themselves stand with the benchmarks, as their goals. The figures of the Go operator (codeflare-operator on
controller-runtime) were recorded once with kube-apiserver 1.36 on two noisy cores, at the sizes named: good for ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from test.bench.harness import Outcome, spread
from test.bench.results import Described

__all__ = ["RATIOS", "TARGETS", "Compared", "Ratio", "Target", "Verdict", "compared", "judged", "measured", "ordered"]


@dataclass(frozen=True)
class Target:
    """One line of the promise: ``value`` of ``benchmark`` at ``size``; ``go`` is what was recorded, from least to most.

    ``said`` tells in words what was recorded where there is no such number, or what must be known of it.
    """

    what: str
    benchmark: str
    value: str
    size: int = 0
    go: tuple[float, float] | None = None
    said: str = ""


@dataclass(frozen=True)
class Ratio:
    """A peer needs at least ``at_least`` times as much of ``value`` as we, at the same ``size``."""

    what: str
    benchmark: str
    value: str
    size: int
    peer: str
    at_least: float
    said: str


@dataclass(frozen=True)
class Compared:
    """What became of a ratio: the medians of the peer and of ours, if both were measured."""

    ratio: Ratio
    medians: tuple[float, float] | None

    @property
    def times(self) -> float | None:
        return self.medians[0] / self.medians[1] if self.medians else None

    @property
    def met(self) -> bool | None:
        """``None``: it was not measured."""
        return None if self.times is None else self.times >= self.ratio.at_least


@dataclass(frozen=True)
class Verdict:
    """What became of a target: the median of ours with least and greatest, and whether it is at most ``at_most``."""

    target: Target
    at_most: float
    ours: tuple[float, float, float] | None

    @property
    def met(self) -> bool | None:
        """``None``: it was not measured."""
        return None if self.ours is None else self.ours[0] <= self.at_most


TARGETS = (
    Target("idle RSS, all controllers on, empty cluster", "start", "rss MB", go=(43, 52)),
    Target("exec to ready", "start", "ready s", go=(3.7, 3.7)),
    Target(
        "cold sync of 5,000 RayClusters: CPU, from exec to synced",
        "sync",
        "cpu s",
        5000,
        go=(3.1, 3.6),
        said="client-go's informer alone",
    ),
    Target(
        "RSS of the whole operator then, two policies (and an Ingress) for each",
        "restart-plain",
        "rss MB",
        5000,
        said="188 MB at 3,000; 280 MB for the informer alone at 5,000",
    ),
    Target(
        "memory of each further cached object: multiple of its JSON without managedFields",
        "object-memory",
        "ratio",
        10_000,
        said="40 kB and more for 4.7 kB",
    ),
    Target("300 new RayClusters, until every child is there", "converge", "wall s", 300, go=(84, 84)),
    Target("- CPU", "converge", "cpu s", 300, go=(39.6, 39.6)),
    Target("- requests for each", "converge", "requests each", 300, go=(9, 15)),
    Target("restart with 300 unchanged: writes", "restart", "writes", 300, go=(1500, 1500)),
    Target("- requests", "restart", "requests", 300, go=(2110, 2110)),
    Target("- until quiet", "restart", "quiet s", 300, go=(52, 52)),
    Target("5,000 status updates by others: writes", "storm", "writes", 5000, said="a full reconcile each"),
    Target("- CPU", "storm", "cpu s", 5000),
    Target("60 s at rest with RayClusters: requests", "rest", "requests", 1000, go=(0, 0)),
    Target(
        "60 s at rest with running AppWrappers: requests",
        "appwrappers-rest",
        "requests",
        5000,
        said="a status patch without a change for each",
    ),
    Target(
        "100 new RayClusters on OpenShift (OAuth, mTLS): requests for each, besides those that write its children",
        "openshift-create",
        "besides each",
        100,
        said="27 – 40 in all",
    ),
    Target("restart with 101 unchanged there: writes", "openshift-restart", "writes", 101),
    Target("- requests", "openshift-restart", "requests", 101, go=(2648, 2648)),
    Target("one AppWrapper with a pod, until ready: requests", "appwrapper-one", "requests", go=(13, 13)),
)

RATIOS = (
    Ratio(
        "cold sync of 5,000 with kopf, `on.event` alone: CPU to ours", "sync", "cpu s", 5000, "kopf", 8, "kopf: 14 s"
    ),
    Ratio(
        "cold sync of 5,000 with kopf and an index: CPU to ours", "sync", "cpu s", 5000, "kopf-index", 80, "kopf: 201 s"
    ),
)


def ordered(benchmarks: Mapping[str, Described]) -> dict[str, Described]:
    """First those that targets are about, in their order; then the others."""
    names = dict.fromkeys([target.benchmark for target in TARGETS if target.benchmark in benchmarks])
    return {name: benchmarks[name] for name in names | dict.fromkeys(benchmarks)}


def measured(
    outcomes: Sequence[Outcome], benchmark: str, subject: str, size: int, value: str
) -> tuple[float, float, float] | None:
    """Median, least and greatest, if it was measured."""
    for outcome in outcomes:
        if (outcome.benchmark, outcome.subject, outcome.size) == (benchmark, subject, size):
            return spread(outcome, value) if any(value in sample.values for sample in outcome.samples) else None
    return None


def judged(
    benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome], targets: Sequence[Target] = TARGETS
) -> Iterator[Verdict]:
    """The targets whose benchmarks were run, with what was measured."""
    for target in targets:
        described = benchmarks.get(target.benchmark)
        goals = (
            [goal for goal in described.goals if (goal.value, goal.size) == (target.value, target.size)]
            if described
            else []
        )
        if goals:
            ours = measured(outcomes, target.benchmark, "cfo", target.size, target.value)
            yield Verdict(target, goals[0].at_most, ours)


def compared(
    benchmarks: Mapping[str, Described], outcomes: Sequence[Outcome], ratios: Sequence[Ratio] = RATIOS
) -> Iterator[Compared]:
    """The ratios whose benchmarks were run, with what was measured."""
    for ratio in ratios:
        if ratio.benchmark in benchmarks:
            theirs = measured(outcomes, ratio.benchmark, ratio.peer, ratio.size, ratio.value)
            ours = measured(outcomes, ratio.benchmark, "cfo", ratio.size, ratio.value)
            yield Compared(ratio, (theirs[0], ours[0]) if theirs and ours and ours[0] > 0 else None)
