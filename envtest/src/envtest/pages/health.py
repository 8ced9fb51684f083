"""``/healthz``, ``/livez``, ``/readyz``, ``/version``, ``/metrics`` and ``/metrics/slis``: health, version and metrics.

The formats follow ``k8s.io/apiserver``'s ``healthz`` package (``?verbose``, ``?exclude=``, one path for each check) and
its request metrics.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.endpoints.request import PageResponse

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["HealthChecks", "RequestLabels", "RequestMetrics", "version_response"]

_TEXT: Final = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
}
_ENDPOINTS: Final = ("healthz", "livez", "readyz")
_ALIVE: Final = ("healthz", "livez")
_HOOKS: Final = (
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-wait-for-first-sync",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
)
_LAST_HOOKS: Final = ("apiservice-openapi-controller", "apiservice-openapiv3-controller")
"""The hooks that kube-apiserver runs after its start, in two parts, in the order of the verbose output."""

Check = Callable[[], bool]


class HealthChecks:
    """Named checks of the three endpoints, with the names and the order of kube-apiserver.

    The checks of this control plane always succeed, since it only listens once it has started.
    """

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Check]] = {endpoint: {} for endpoint in _ENDPOINTS}
        self._runs: dict[str, int] = {}
        for name, endpoints in (
            ("ping", _ENDPOINTS),
            ("log", _ENDPOINTS),
            ("loopback-serving-certificate", _ALIVE),
            ("etcd", _ALIVE),
            ("informer-sync", ("readyz",)),
            *((f"poststarthook/{hook}", _ENDPOINTS) for hook in _HOOKS),
            ("autoregister-completion", _ENDPOINTS),
            *((f"poststarthook/{hook}", _ENDPOINTS) for hook in _LAST_HOOKS),
            ("shutdown", ("readyz",)),
        ):
            self.add(name, lambda: True, endpoints=endpoints)

    def add(self, name: str, check: Check, *, endpoints: Sequence[str] = _ENDPOINTS) -> None:
        """Add ``check`` to ``endpoints``; it must be fast and must not raise."""
        for endpoint in endpoints:
            self._checks[endpoint][name] = check

    def paths(self) -> list[str]:
        """Return the paths of the endpoints and of their checks."""
        checks = [
            f"/{endpoint}/{name}" for endpoint, names in self._checks.items() for name in names
        ]
        return [f"/{endpoint}" for endpoint in self._checks] + checks

    def respond(
        self, path: str, *, verbose: bool = False, exclude: Sequence[str] = ()
    ) -> PageResponse | None:
        """Return the response to a GET, or ``None`` if the path is not a health endpoint or names an unknown check."""
        endpoint, slash, name = path.removeprefix("/").partition("/")
        checks = self._checks.get(endpoint)
        if checks is None or (slash and not name):
            return None
        if name:
            if name not in checks:
                return None
            if checks[name]():
                return PageResponse(200, dict(_TEXT), b"ok")
            return PageResponse(500, dict(_TEXT), b"internal server error: reason withheld\n")
        self._runs[endpoint] = self._runs.get(endpoint, 0) + 1
        lines = []
        failed = False
        for check_name, check in checks.items():
            if check_name in exclude:
                lines.append(f"[+]{check_name} excluded: ok")
            elif check():
                lines.append(f"[+]{check_name} ok")
            else:
                failed = True
                lines.append(f"[-]{check_name} failed: reason withheld")
        unknown = [name for name in exclude if name not in checks]
        if unknown:
            listed = ", ".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
        if failed:
            return PageResponse(
                500, dict(_TEXT), "\n".join([*lines, f"{endpoint} check failed", ""]).encode()
            )
        if verbose:
            return PageResponse(
                200, dict(_TEXT), "\n".join([*lines, f"{endpoint} check passed", ""]).encode()
            )
        return PageResponse(200, dict(_TEXT), b"ok")

    def indicators(self) -> PageResponse:
        """Return the response to ``/metrics/slis``: the result of each check, and how often it was made.

        As in kube-apiserver, there are only the checks of endpoints that were requested.
        """
        return _exposition(self._indicators)

    def _indicators(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        results = GaugeMetricFamily(
            "kubernetes_healthcheck", "The result of a check.", labels=["name", "type"]
        )
        runs = CounterMetricFamily(
            "kubernetes_healthchecks_total",
            "How often a check had a status.",
            labels=["name", "status", "type"],
        )
        for endpoint, count in self._runs.items():
            for name, check in self._checks[endpoint].items():
                succeeds = check()
                results.add_metric([name, endpoint], int(succeeds))
                status = "success" if succeeds else "error"
                runs.add_metric([name, status, endpoint], count)
        yield results
        yield runs


def version_response(version: KubernetesVersion = LATEST) -> PageResponse:
    """Return the response to ``/version``: the Kubernetes version that this control plane emulates."""
    major = str(version.major)
    minor = str(version.minor)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    document = {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(version.minor - 1),
        "gitVersion": str(version),
        "gitCommit": "embedded",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{machine}",
    }
    return PageResponse(
        200,
        {"Content-Type": "application/json"},
        orjson.dumps(document, option=orjson.OPT_INDENT_2),
    )


class RequestLabels(NamedTuple):
    """The labels of the request metrics; ``scope`` is ``cluster``, ``namespace``, ``resource`` or empty."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    code: str = "200"
    dry_run: str = ""


class _Histogram:
    __slots__ = ("buckets", "count", "total")

    def __init__(self, buckets: int) -> None:
        self.count = 0
        self.total = 0.0
        self.buckets = [0] * buckets


class RequestMetrics:
    """Counts requests as kube-apiserver does; the text format is generated only on a scrape."""

    _BOUNDS = (
        0.005,
        0.025,
        0.05,
        0.1,
        0.2,
        0.4,
        0.6,
        0.8,
        1.0,
        1.25,
        1.5,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
        8.0,
        10.0,
        30.0,
    )

    def __init__(
        self,
        objects: Callable[[], Iterator[tuple[str, int]]] = lambda: iter(()),
        others: Callable[[], Iterator[Metric]] = lambda: iter(()),
    ) -> None:
        self._observed: dict[RequestLabels, _Histogram] = {}
        self._objects = objects
        self._others = others
        self.inflight = {"mutating": 0, "readOnly": 0}
        self.watches = 0

    def observe(self, labels: RequestLabels, seconds: float) -> None:
        """Count one request that took ``seconds``."""
        observed = self._observed.get(labels)
        if observed is None:
            observed = _Histogram(len(self._BOUNDS) + 1)
            self._observed[labels] = observed
        observed.count += 1
        observed.total += seconds
        observed.buckets[bisect_left(self._BOUNDS, seconds)] += 1

    def respond(self) -> PageResponse:
        """Return the response to ``/metrics``, in Prometheus' text format."""
        return _exposition(self._families)

    def _families(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        label_names = [*RequestLabels._fields, "component"]
        total = CounterMetricFamily(
            "apiserver_request_total",
            "Requests by verb, resource and HTTP response code.",
            labels=label_names,
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Response latency in seconds by verb and resource.",
            labels=[name for name in label_names if name != "code"],
        )
        for labels, observed in self._observed.items():
            total.add_metric([*labels, "apiserver"], observed.count)
        for labels, observed in self._by_resource().items():
            without_code = [
                value for name, value in zip(labels._fields, labels, strict=True) if name != "code"
            ]
            durations.add_metric(
                [*without_code, "apiserver"], self._cumulative(observed), observed.total
            )
        yield total
        yield durations
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests that are being served.",
            labels=["request_kind"],
        )
        for kind, count in self.inflight.items():
            inflight.add_metric([kind], count)
        yield inflight
        yield GaugeMetricFamily(
            "apiserver_longrunning_requests", "Open watches.", value=self.watches
        )
        stored = GaugeMetricFamily(
            "apiserver_storage_objects", "Stored objects by resource.", labels=["resource"]
        )
        for resource, count in self._objects():
            stored.add_metric([resource], count)
        yield stored
        yield from self._others()

    def _by_resource(self) -> dict[RequestLabels, _Histogram]:
        joined: dict[RequestLabels, _Histogram] = {}
        for labels, observed in self._observed.items():
            sum_of = joined.setdefault(labels._replace(code=""), _Histogram(len(self._BOUNDS) + 1))
            sum_of.count += observed.count
            sum_of.total += observed.total
            sum_of.buckets = [
                left + right for left, right in zip(sum_of.buckets, observed.buckets, strict=True)
            ]
        return joined

    def _cumulative(self, observed: _Histogram) -> list[tuple[str, float]]:
        buckets: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, self._BOUNDS), "+Inf"), observed.buckets, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        return buckets


def _exposition(families: Callable[[], Iterator[Any]]) -> PageResponse:
    """Return a response with metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return PageResponse(200, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}, generate_latest(registry))


class _Collector:
    def __init__(self, families: Callable[[], Iterator[Any]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        """Return the metric families, generated on each scrape."""
        return self._families()
