"""Performance targets of the project, the recorded figures of the Go operator, and their comparison with results.

The limits of the targets are the goals of the benchmarks. The figures of the Go operator (codeflare-operator on
controller-runtime) were recorded once, with kube-apiserver 1.36 on two noisy cores, at the sizes given here: use them
for ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from test.bench.harness import Outcome, spread
from test.bench.results import BenchmarkDescription


@dataclass(frozen=True)
class Target:
    """A target for ``value`` of ``benchmark`` at ``size``; its limit is the benchmark's goal.

    A title that starts with ``- `` continues the previous target without such a title. ``go`` is the recorded range of
    the Go operator, from minimum to maximum. ``note`` is the recorded figure in words if there is no such range, and
    otherwise a remark on it.
    """

    title: str
    benchmark: str
    value: str
    size: int = 0
    go: tuple[float, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class RatioTarget:
    """A target for the median of ``peer`` divided by the median of cfo: at least ``at_least``, at the same ``size``."""

    title: str
    benchmark: str
    value: str
    size: int
    peer: str
    at_least: float
    recorded: str


@dataclass(frozen=True)
class RatioResult:
    """The medians of the peer and cfo, or ``None`` if one of them was not measured."""

    target: RatioTarget
    medians: tuple[float, float] | None

    @property
    def factor(self) -> float | None:
        """The median of the peer divided by the median of cfo."""
        return self.medians[0] / self.medians[1] if self.medians else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; ``None`` if it was not measured."""
        return None if self.factor is None else self.factor >= self.target.at_least


@dataclass(frozen=True)
class TargetResult:
    """Median, minimum and maximum of cfo, or ``None`` if it was not measured; ``at_most`` limits the median."""

    target: Target
    at_most: float
    measured: tuple[float, float, float] | None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; ``None`` if it was not measured."""
        return None if self.measured is None else self.measured[0] <= self.at_most


TARGETS = (
    Target("idle RSS, all controllers enabled, empty cluster", "start", "rss MB", go=(43, 52)),
    Target("exec to ready", "start", "ready s", go=(3.7, 3.7)),
    Target("- CPU until idle", "start", "cpu s"),
    Target(
        "cold sync of 5,000 RayClusters: CPU from exec to synced",
        "sync",
        "cpu s",
        5000,
        go=(3.1, 3.6),
        note="client-go informer only",
    ),
    Target(
        "RSS of the whole operator with 5,000 RayClusters, two NetworkPolicies and an Ingress each",
        "restart-plain",
        "rss MB",
        5000,
        note="188 MB at 3,000; informer only: 280 MB at 5,000",
    ),
    Target(
        "memory per additional cached object: multiple of its JSON without managedFields",
        "object-memory",
        "ratio",
        10_000,
        note="40 kB or more for an object of 4.7 kB",
    ),
    Target(
        "300 new RayClusters: time until all children exist", "converge", "wall s", 300, go=(84, 84)
    ),
    Target("- CPU", "converge", "cpu s", 300, go=(39.6, 39.6)),
    Target("- requests per cluster", "converge", "requests per object", 300, go=(9, 15)),
    Target(
        "300 unchanged RayClusters: writes at restart", "restart", "writes", 300, go=(1500, 1500)
    ),
    Target("- requests at restart", "restart", "requests", 300, go=(2110, 2110)),
    Target("- time from exec until idle", "restart", "until idle s", 300, go=(52, 52)),
    Target(
        "1,000 suspended RayClusters that are older than the operator: CPU of its first run",
        "suspended",
        "first cpu s",
        1000,
    ),
    Target("- writes per cluster", "suspended", "first writes per object", 1000),
    Target("5,000 suspended RayClusters: CPU of a restart", "suspended", "cpu s", 5000),
    Target("- RSS", "suspended", "rss MB", 5000),
    Target(
        "5,000 status updates by another client: writes",
        "storm",
        "writes",
        5000,
        note="a full reconcile for each update",
    ),
    Target("- CPU", "storm", "cpu s", 5000),
    Target("60 s idle with 1,000 RayClusters: requests", "idle", "requests", 1000, go=(0, 0)),
    Target(
        "60 s idle with 5,000 running AppWrappers: requests",
        "appwrappers-idle",
        "requests",
        5000,
        note="a status patch without changes for each AppWrapper",
    ),
    Target(
        "100 new RayClusters on OpenShift (OAuth, mTLS): requests per cluster, without the writes of its children",
        "openshift-create",
        "overhead per object",
        100,
        note="27 – 40 including these writes",
    ),
    Target(
        "101 unchanged RayClusters on OpenShift: writes at restart",
        "openshift-restart",
        "writes",
        101,
    ),
    Target("- requests at restart", "openshift-restart", "requests", 101, go=(2648, 2648)),
    Target(
        "one AppWrapper with a pod: requests until ready", "appwrapper-one", "requests", go=(13, 13)
    ),
    Target("300 new MiniClusters: writes per MiniCluster", "flux-create", "writes per object", 300),
    Target("300 unchanged MiniClusters: writes at restart", "flux-restart", "writes", 300),
    Target("- requests at restart", "flux-restart", "requests", 300),
    Target(
        "10,000 waiting FluxJobs: CPU of one decision of the queue",
        "flux-decision",
        "cpu ms",
        10_000,
    ),
    Target("- memory of the queue per job", "flux-queue-memory", "bytes", 10_000),
    Target(
        "1,000 FluxJobs submitted at once: CPU until the queue is decided",
        "flux-burst",
        "cpu s",
        1000,
    ),
    Target(
        "300 new InferenceStacks of three applications: writes of objects per stack",
        "inferencestacks",
        "child writes per stack",
        300,
    ),
    Target(
        "300 unchanged InferenceStacks: writes at restart", "inferencestacks-restart", "writes", 300
    ),
    Target("- requests at restart", "inferencestacks-restart", "requests", 300),
    Target(
        "- memory per cached object: multiple of its JSON", "inferencestacks-memory", "ratio", 100
    ),
)

RATIO_TARGETS = (
    RatioTarget(
        "cold sync of 5,000 RayClusters: CPU of kopf with `on.event` only, relative to cfo",
        "sync",
        "cpu s",
        5000,
        "kopf",
        8,
        "kopf: 14 s",
    ),
    RatioTarget(
        "cold sync of 5,000 RayClusters: CPU of kopf with an index, relative to cfo",
        "sync",
        "cpu s",
        5000,
        "kopf-index",
        80,
        "kopf: 201 s",
    ),
)


def order_by_targets(
    benchmarks: Mapping[str, BenchmarkDescription],
) -> dict[str, BenchmarkDescription]:
    """Return the benchmarks that have targets, in the order of the targets, and then the others."""
    names = dict.fromkeys(
        [target.benchmark for target in TARGETS if target.benchmark in benchmarks]
    )
    return {name: benchmarks[name] for name in names | dict.fromkeys(benchmarks)}


def measurement(
    outcomes: Sequence[Outcome], benchmark: str, subject: str, size: int, value: str
) -> tuple[float, float, float] | None:
    """Return median, minimum and maximum of a value, or ``None`` if it was not measured."""
    for outcome in outcomes:
        if (outcome.benchmark, outcome.subject, outcome.size) == (benchmark, subject, size):
            return (
                spread(outcome, value)
                if any(value in sample.values for sample in outcome.samples)
                else None
            )
    return None


def check_targets(
    benchmarks: Mapping[str, BenchmarkDescription],
    outcomes: Sequence[Outcome],
    targets: Sequence[Target] = TARGETS,
) -> Iterator[TargetResult]:
    """Yield the result of each target whose benchmark was run and has a goal for it."""
    for target in targets:
        description = benchmarks.get(target.benchmark)
        goals = (
            [
                goal
                for goal in description.goals
                if (goal.value, goal.size) == (target.value, target.size)
            ]
            if description
            else []
        )
        if goals:
            measured = measurement(outcomes, target.benchmark, "cfo", target.size, target.value)
            yield TargetResult(target, goals[0].at_most, measured)


def check_ratios(
    benchmarks: Mapping[str, BenchmarkDescription],
    outcomes: Sequence[Outcome],
    targets: Sequence[RatioTarget] = RATIO_TARGETS,
) -> Iterator[RatioResult]:
    """Yield the result of each ratio target whose benchmark was run."""
    for target in targets:
        if target.benchmark in benchmarks:
            peer = measurement(outcomes, target.benchmark, target.peer, target.size, target.value)
            own = measurement(outcomes, target.benchmark, "cfo", target.size, target.value)
            yield RatioResult(target, (peer[0], own[0]) if peer and own and own[0] > 0 else None)
