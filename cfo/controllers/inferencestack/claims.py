"""Reports stacks that no operator reconciles, or that several do.

An operator reconciles the stacks whose label ``operatorVersion`` names its major version, and holds a Lease that is
named after it while it does. A stack without a label, or of a version that no operator serves, is in no operator's
cache; so this controller reads the metadata of all stacks. Exactly one operator reports: that of the highest version
that has a Lease, and of several, the one in the first namespace.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.api.inferencestack.kinds import OPERATOR_VERSION_LABEL, is_operator_version
from cfo.api.inferencestack.names import MANAGED_BY
from cfo.runtime import (
    GVK,
    LEASE,
    READ,
    Clock,
    Event,
    EventRecorder,
    Informer,
    NamespacedName,
    Object,
    Reader,
    Request,
    Result,
    Rule,
)

__all__ = [
    "GRACE_SECONDS",
    "LEASE_LABELS",
    "LEASE_SELECTOR",
    "ClaimMetrics",
    "ClaimReconciler",
    "OperatorLeases",
    "lease_name",
]

LEASE_LABELS: Final = {"app.kubernetes.io/part-of": MANAGED_BY}
LEASE_SELECTOR: Final = f"app.kubernetes.io/part-of={MANAGED_BY}"

GRACE_SECONDS: Final = 60.0
"""How long a stack must be unclaimed before it is reported: an operator that restarts has no Lease for some seconds."""

_LEASE_PREFIX: Final = f"{MANAGED_BY}-"


def lease_name(operator_version: str) -> str:
    """Return the name of the Lease of an operator of this major version."""
    return f"{_LEASE_PREFIX}{operator_version}"


class _LeaseSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, gc=False):
    spec: _LeaseSpec | None = None


_decoder = msgspec.json.Decoder(_Lease)


class OperatorLeases:
    """The Leases of all operators of stacks, in all namespaces.

    A Lease is valid for its duration after its last change was observed; clocks of other machines are not compared.
    """

    def __init__(self, leases: Informer, clock: Clock) -> None:
        self._clock = clock
        self._specs: dict[NamespacedName, tuple[_LeaseSpec, float]] = {}
        self._known: dict[str, list[str]] = {}
        self._listeners: list[Callable[[], None]] = []
        leases.add_handler(self._observe)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when an operator appears or disappears."""
        self._listeners.append(listener)

    def live(self) -> dict[str, list[str]]:
        """Return the sorted namespaces of the operators that hold a Lease, by major version."""
        found: dict[str, list[str]] = {}
        for key, (spec, observed) in sorted(self._specs.items()):
            version = key.name.removeprefix(_LEASE_PREFIX)
            valid = observed + (spec.lease_duration_seconds or 0) > self._clock.monotonic()
            if is_operator_version(version) and spec.holder_identity and valid:
                found.setdefault(version, []).append(key.namespace)
        return found

    def _observe(self, event: Event) -> None:
        if event.new is None:
            self._specs.pop(event.key, None)
        else:
            spec = _decoder.decode(event.new.raw).spec or _LeaseSpec()
            known = self._specs.get(event.key)
            if known is None or known[0] != spec:
                self._specs[event.key] = (spec, self._clock.monotonic())
                self._clock.call_later((spec.lease_duration_seconds or 0) + 0.1, self._check)
        self._check()

    def _check(self) -> None:
        live = self.live()
        if live != self._known:
            self._known = live
            for listener in self._listeners:
                listener()


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
        counts = Count((request.namespace, reason) for (_, request), reason in self._reasons.items())
        gauge = GaugeMetricFamily(
            "inferencestack_unclaimed",
            "The number of InferenceStacks that no operator, or more than one, reconciles",
            labels=("namespace", "reason"),
        )
        for labels, number in sorted(counts.items()):
            gauge.add_metric(labels, number)
        yield gauge


class ClaimReconciler:
    """Reports the stacks of one API group; ``stacks`` reads the metadata of all of them.

    ``version`` and ``namespace`` are those of this operator's Lease.
    """

    rules: Final = (Rule(LEASE.group, "leases", READ[1:]),)

    def __init__(
        self,
        kind: GVK,
        stacks: Reader,
        leases: OperatorLeases,
        events: EventRecorder,
        metrics: ClaimMetrics,
        clock: Clock,
        *,
        version: str,
        namespace: str,
    ) -> None:
        self._kind = kind
        self._stacks = stacks
        self._leases = leases
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._own = (version, namespace)
        self._since: dict[Request, float] = {}

    async def reconcile(self, request: Request) -> Result:
        """Report a stack that has been unclaimed, or claimed twice, for :data:`GRACE_SECONDS`."""
        meta = self._stacks.meta(request)
        live = self._leases.live()
        problem = None
        if meta is not None and not meta.is_deleting and _reporter(live) == self._own:
            problem = _problem(meta.labels.get(OPERATOR_VERSION_LABEL, ""), live)
        if meta is None or problem is None:
            self._since.pop(request, None)
            self._metrics.set(self._kind, request, "")
            return Result()
        since = self._since.setdefault(request, self._clock.monotonic())
        remaining = since + GRACE_SECONDS - self._clock.monotonic()
        if remaining > 0:
            return Result(requeue_after=remaining)
        reason, message = problem
        if self._metrics.set(self._kind, request, reason):
            reference: Object = {
                "apiVersion": self._kind.api_version,
                "kind": self._kind.kind,
                "metadata": {"namespace": request.namespace, "name": request.name, "uid": meta.uid},
            }
            self._events.event(reference, "Warning", reason, message)
        return Result()


def _reporter(live: dict[str, list[str]]) -> tuple[str, str] | None:
    """Return version and namespace of the operator that reports."""
    if not live:
        return None
    version = max(live, key=lambda item: int(item.removeprefix("v")))
    return version, live[version][0]


def _problem(version: str, live: dict[str, list[str]]) -> tuple[str, str] | None:
    serving = live.get(version, [])
    if len(serving) == 1:
        return None
    running = ", ".join(sorted(live))
    if serving:
        where = ", ".join(serving)
        return (
            "ClaimedTwice",
            f"Operators in several namespaces reconcile version {version}: {where}. Remove all but one.",
        )
    if not version:
        return "Unclaimed", f"The label operatorVersion is not set, so no operator reconciles it. Running: {running}."
    return "Unclaimed", f"No operator of version {version} is running. Set the label operatorVersion to: {running}."
