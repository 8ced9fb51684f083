"""Prometheus metrics with the names of controller-runtime and client-go.

Existing dashboards and alerts work unchanged. Each manager has a :class:`Metrics` with its own registry, so that two
managers in one process (tests, two operators) do not share metrics. The buckets match controller-runtime's
``pkg/internal/controller/metrics``, ``pkg/internal/metrics`` and ``pkg/metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import prometheus_client
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.runtime.controller.scrapes import Scrapes
from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.process.endpoint import Endpoint

if TYPE_CHECKING:
    from cfo.runtime.cache.informer import Informer
    from cfo.runtime.client.transport import Exchange

_RECONCILE_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    4.5,
    5,
    6,
    7,
    8,
    9,
    10,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
)
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUEUE_BUCKETS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
_SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_LATENCY_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class _Depths(dict[int, Gauge]):
    """``workqueue_depth`` of one queue by priority."""

    def __init__(self, gauge: Gauge, name: str) -> None:
        super().__init__()
        self._gauge = gauge
        self._name = name

    def __missing__(self, priority: int) -> Gauge:
        gauge = self._gauge.labels(self._name, self._name, str(priority))
        self[priority] = gauge
        return gauge


class QueueMetrics:
    """The ``workqueue_*`` metrics of one queue."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.depth = _Depths(metrics.queue_depth, name)
        self.adds = metrics.queue_adds.labels(name, name)
        self.retries = metrics.queue_retries.labels(name, name)
        self.queued_seconds = metrics.queue_duration.labels(name, name)
        self.work_seconds = metrics.work_duration.labels(name, name)
        self._unfinished = metrics.unfinished_work.labels(name, name)
        self._longest = metrics.longest_running.labels(name, name)

    def observe_running(self, ages: Callable[[], list[float]]) -> None:
        """Call ``ages`` (seconds that each item has been processed) at every scrape."""
        self._unfinished.set_function(lambda: sum(ages()))
        self._longest.set_function(lambda: max(ages(), default=0.0))


class ControllerMetrics:
    """The ``controller_runtime_*`` metrics of one controller."""

    def __init__(self, metrics: Metrics, name: str, max_concurrent_reconciles: int) -> None:
        self.success = metrics.reconcile_total.labels(name, "success")
        self.requeue_after = metrics.reconcile_total.labels(name, "requeue_after")
        self.error = metrics.reconcile_total.labels(name, "error")
        # Exported with value 0, as by controller-runtime, although nothing counts it here.
        metrics.reconcile_total.labels(name, "requeue")
        self.errors = metrics.reconcile_errors.labels(name)
        self.terminal_errors = metrics.terminal_reconcile_errors.labels(name)
        self.panics = metrics.reconcile_panics.labels(name)
        self.timeouts = metrics.reconcile_timeouts.labels(name)
        self.seconds = metrics.reconcile_time.labels(name)
        self.active_workers = metrics.active_workers.labels(name)
        metrics.max_concurrent_reconciles.labels(name).set(max_concurrent_reconciles)


class LeaderElectionMetrics:
    """The ``leader_election_*`` metrics of one lease."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.is_leader = metrics.leader_election_status.labels(name)
        self.slow_path = metrics.leader_election_slowpath.labels(name)


_CODE_ERRORS: Final = (
    "cfo_informer_function_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_webhook_panics_total",
)
"""The counters of errors in a program's functions: each is an error of programming."""


class _Registry(CollectorRegistry):
    """A registry that omits the ``_created`` samples of counters and histograms, which Go does not export."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current samples."""
        for metric in super().collect():
            if metric.type in ("counter", "histogram", "summary"):
                created = f"{metric.name}_created"
                metric.samples = [sample for sample in metric.samples if sample.name != created]
            yield metric


class Metrics:
    """A registry with the metrics of the library; add other metrics with ``registry=metrics.registry``."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = _Registry(auto_describe=True)
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._add_process_metrics()
        self._add_controller_metrics()
        self._add_workqueue_metrics()
        self._add_rest_client_metrics()
        self._add_leader_election_metrics()
        self._caches: list[Callable[[], Iterable[Informer]]] = []
        self.registry.register(_InformerCollector(self._caches))
        self.cache_held_bytes = self._gauge(
            "cfo_cache_held_bytes",
            "Number of bytes in the cache that count in the budgets of namespaces.",
        )
        self.cache_total_bytes = self._gauge(
            "cfo_cache_total_bytes", "Budget of bytes in the cache of all namespaces together."
        )
        self.unavailable_namespaces = self._gauge(
            "cfo_unavailable_namespaces",
            "Number of namespaces that are not reconciled, because a permission is missing there.",
        )
        self.child_overwrites = self._counter(
            "cfo_child_overwrites_total",
            "Number of reports that another client overwrites a child, at most one a minute for each child.",
            ("kind",),
        )
        self.event_loop_lag = self._histogram(
            "cfo_event_loop_lag_seconds",
            "How long the event loop delayed all work of the process, measured four times a second.",
            buckets=_LAG_BUCKETS,
        )

    def _add_process_metrics(self) -> None:
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        prometheus_client.GCCollector(registry=self.registry)
        self.registry.register(_ProcessCollector())

    def _add_controller_metrics(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return self._counter(f"controller_runtime_{name}", text, ("controller", *labels))

        def gauge(name: str, text: str) -> Gauge:
            return self._gauge(f"controller_runtime_{name}", text, ("controller",))

        self.reconcile_total = counter(
            "reconcile_total", "Total number of reconciliations per controller", "result"
        )
        self.reconcile_errors = counter(
            "reconcile_errors_total", "Total number of reconciliation errors per controller"
        )
        self.terminal_reconcile_errors = counter(
            "terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
        )
        self.reconcile_panics = counter(
            "reconcile_panics_total", "Total number of reconciliation panics per controller"
        )
        self.reconcile_timeouts = counter(
            "reconcile_timeouts_total", "Total number of reconciliation timeouts per controller"
        )
        self.reconcile_time = self._histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            ("controller",),
            buckets=_RECONCILE_BUCKETS,
        )
        self.active_workers = gauge(
            "active_workers", "Number of currently used workers per controller"
        )
        self.max_concurrent_reconciles = gauge(
            "max_concurrent_reconciles", "Maximum number of concurrent reconciles per controller"
        )

    def _add_workqueue_metrics(self) -> None:
        labels = ("name", "controller")

        def histogram(name: str, text: str) -> Histogram:
            return self._histogram(f"workqueue_{name}", text, labels, buckets=_QUEUE_BUCKETS)

        self.queue_depth = self._gauge(
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            (*labels, "priority"),
        )
        self.queue_adds = self._counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", labels
        )
        self.queue_retries = self._counter(
            "workqueue_retries_total",
            "Total number of items added to the workqueue with a non-zero delay "
            "(rate-limited requeues, requeue_after or add_after)",
            labels,
        )
        self.queue_duration = histogram(
            "queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
        )
        self.work_duration = histogram(
            "work_duration_seconds", "How long in seconds processing an item from workqueue takes."
        )
        self.unfinished_work = self._gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work that is in progress and not yet observed by work_duration, over all items; "
            "large values mean stuck reconciles",
            labels,
        )
        self.longest_running = self._gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            labels,
        )

    def _add_rest_client_metrics(self) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            text = f"{text} Broken down by verb and host."
            return self._histogram(f"rest_client_{name}", text, ("verb", "host"), buckets=buckets)

        self.requests = self._counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self.request_retries = self._counter(
            "rest_client_request_retries_total",
            "Number of request retries, partitioned by the status code that was retried, verb, and host.",
            ("code", "verb", "host"),
        )
        self.request_duration = histogram(
            "request_duration_seconds", "Request latency in seconds.", _LATENCY_BUCKETS
        )
        self.rate_limited = histogram(
            "rate_limiter_duration_seconds",
            "Client side rate limiter latency in seconds.",
            _LATENCY_BUCKETS,
        )
        self.request_size = histogram("request_size_bytes", "Request size in bytes.", _SIZE_BUCKETS)
        self.response_size = histogram(
            "response_size_bytes", "Response size in bytes.", _SIZE_BUCKETS
        )

    def _add_leader_election_metrics(self) -> None:
        self.leader_election_status = self._gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates "
            "master. 'name' is the string used to identify the lease. Please make sure to group by name.",
            ("name",),
        )
        self.leader_election_slowpath = self._counter(
            "leader_election_slowpath_total",
            "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify "
            "the lease. Please make sure to group by name.",
            ("name",),
        )

    def observe_exchange(self, exchange: Exchange) -> None:
        """Count one request to the API server; pass this as ``observe`` of a transport."""
        method = exchange.method
        host = exchange.host
        self.requests.labels(exchange.code, method, host).inc()
        self.request_duration.labels(method, host).observe(exchange.seconds)
        self.request_size.labels(method, host).observe(exchange.sent)
        self.response_size.labels(method, host).observe(exchange.received)
        if exchange.retry_of:
            self.request_retries.labels(exchange.retry_of, method, host).inc()
        if exchange.rate_limit_delay is not None:
            self.rate_limited.labels(method, host).observe(exchange.rate_limit_delay)

    def observe_cache(self, informers: Callable[[], Iterable[Informer]]) -> None:
        """Export the sizes of the informers that ``informers`` returns at every scrape."""
        require_plain_function("observe_cache", informers, "a function that returns informers")
        self._caches.append(informers)

    def queue(self, name: str) -> QueueMetrics:
        """Return the metrics of the queue ``name``, which is the name of its controller."""
        return QueueMetrics(self, name)

    def controller(self, name: str, max_concurrent_reconciles: int) -> ControllerMetrics:
        """Return the metrics of the controller ``name``; all of them are exported from the start, with value 0."""
        return ControllerMetrics(self, name, max_concurrent_reconciles)

    def leader_election(self, name: str) -> LeaderElectionMetrics:
        """Return the metrics of the Lease ``name``."""
        return LeaderElectionMetrics(self, name)

    def code_errors(self) -> dict[str, float]:
        """Return how many errors of the program's own functions were logged, by metric and labels; empty: none.

        For tests: an operator whose functions raise errors can still bring objects to their desired state.
        """
        samples = (sample for metric in self.registry.collect() for sample in metric.samples)
        return {
            " ".join((sample.name, *sample.labels.values())): sample.value
            for sample in samples
            if sample.name in _CODE_ERRORS and sample.value
        }

    def routes(self) -> list[web.RouteDef]:
        """Return the route ``/metrics`` (Prometheus text format or OpenMetrics, according to the Accept header)."""

        scrapes = Scrapes(self.registry)

        async def serve(request: web.Request) -> web.Response:
            scrape = scrapes.scrape(request.headers.get("Accept", ""))
            headers = {"Content-Type": scrape.content_type, "Vary": "Accept-Encoding"}
            body = scrape.body
            if "gzip" in request.headers.get("Accept-Encoding", ""):
                headers["Content-Encoding"] = "gzip"
                body = scrape.gzipped
            return web.Response(body=body, headers=headers)

        return [web.get("/metrics", serve)]

    def endpoint(self, bind_address: str) -> Endpoint:
        """Return an HTTP server for :meth:`routes`, without authentication."""
        return Endpoint("metrics", bind_address, self.routes())


class _InformerCollector(Collector):
    """Exports for each informer the number and size of its objects and whether it has synced.

    The Go controller-runtime has no such metrics, so they have the prefix ``cfo_``.
    """

    _LABELS = ("group", "version", "kind", "selector", "metadata_only")

    def __init__(self, caches: Iterable[Callable[[], Iterable[Informer]]]) -> None:
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """Yield the current sizes; the informers of a kind in different namespaces are summed."""
        objects = self._family("objects", "Number of objects in the caches of informers.")
        size = self._family("bytes", "Size in bytes of the JSON in the caches of informers.")
        synced = self._family(
            "synced", "Whether the informers have their first lists (1) or wait for one (0)."
        )
        errors = CounterMetricFamily(
            "cfo_informer_function_errors",
            "Number of errors of predicates, map functions, index functions and other event handlers.",
            labels=self._LABELS,
        )
        by_labels: dict[tuple[str, ...], list[Informer]] = {}
        for informers in self._caches:
            for informer in informers():
                by_labels.setdefault(self._labels(informer), []).append(informer)
        for labels, found in by_labels.items():
            objects.add_metric(labels, sum(len(informer.reader) for informer in found))
            size.add_metric(labels, sum(informer.reader.size for informer in found))
            synced.add_metric(labels, all(informer.has_synced for informer in found))
            errors.add_metric(labels, sum(informer.function_errors for informer in found))
        yield from (objects, size, synced, errors)

    def _labels(self, informer: Informer) -> tuple[str, ...]:
        selector = ",".join(informer.selection.params.values())
        metadata_only = str(informer.selection.metadata_only).lower()
        return (*informer.gvk, selector, metadata_only)

    def _family(self, name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"cfo_informer_{name}", text, labels=self._LABELS)


_NETWORK_METRICS = (
    (
        "InOctets",
        "process_network_receive_bytes",
        "Number of bytes received by the process over the network.",
    ),
    (
        "OutOctets",
        "process_network_transmit_bytes",
        "Number of bytes sent by the process over the network.",
    ),
)
"""The counter in ``/proc/self/net/netstat``, and the name and text of its metric."""


class _ProcessCollector(Collector):
    """Exports the process metrics that Go's collector has and Python's lacks; nothing without ``/proc``."""

    def collect(self) -> Iterator[Metric]:
        """Yield the limits and the network counters of this process."""
        try:
            limits = Path("/proc/self/limits").read_text()
            network = Path("/proc/self/net/netstat").read_text()
        except OSError:
            return
        for line in limits.splitlines():
            if line.startswith("Max address space"):
                soft_limit = line.split()[3]
                maximum = 2**64 - 1 if soft_limit == "unlimited" else int(soft_limit)
                yield GaugeMetricFamily(
                    "process_virtual_memory_max_bytes",
                    "Maximum amount of virtual memory available in bytes.",
                    value=float(maximum),
                )
        # Two lines begin with "IpExt:": one has the names of the counters, the next one their values.
        rows = [line.split() for line in network.splitlines() if line.startswith("IpExt:")]
        if len(rows) != 2:
            return
        counters = dict(zip(*rows, strict=True))
        for key, name, text in _NETWORK_METRICS:
            if key in counters:
                yield CounterMetricFamily(name, text, value=float(counters[key]))
