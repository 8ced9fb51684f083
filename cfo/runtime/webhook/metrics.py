"""The metrics of webhooks and their certificates, named as in controller-runtime."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Prometheus' default buckets, and two smaller ones, because most admission requests take about a millisecond.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class WebhookMetrics:
    """The metrics of webhooks, most of them by path: those of controller-runtime, and the number of reviews by code."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self._requests = counter(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            ("webhook", "code"),
        )
        self._latency = Histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            ("webhook",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            ("webhook",),
        )
        self._reviews = counter(
            "cfo_webhook_reviews_total",
            "Total number of admission reviews by the code of the response: 200 if allowed, 5xx if the webhook failed.",
            ("webhook", "code"),
        )
        self.panics = counter(
            "controller_runtime_webhook_panics_total", "Total number of webhook panics"
        )
        # Always 0, because nothing is converted. Exported because controller-runtime, and so the Go operator, has it.
        counter(
            "controller_runtime_conversion_webhook_panics_total",
            "Total number of conversion webhook panics",
        )

    def expect(self, path: str) -> None:
        """Create the metrics of ``path``, so that they are exported before its first request."""
        self.in_flight(path)
        self._latency.labels(path)
        for code in ("200", "500"):
            self._requests.labels(path, code)
            self._reviews.labels(path, code)

    def in_flight(self, path: str) -> Gauge:
        """Return the gauge of the requests for ``path`` that are in flight."""
        return self._in_flight.labels(path)

    def record_review(self, path: str, code: int) -> None:
        """Record an admission review whose response has ``code``, while the HTTP status of the response is 200."""
        self._reviews.labels(path, str(code)).inc()

    def observe(self, path: str, code: int, seconds: float) -> None:
        """Record a request whose response had the HTTP status ``code`` and took ``seconds``."""
        self._requests.labels(path, str(code)).inc()
        self._latency.labels(path).observe(seconds)


class CertificateMetrics:
    """The metrics ``certwatcher_*``, and the expiry of the serving certificate."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.reads = counter(
            "certwatcher_read_certificate_total", "Total number of certificate reads"
        )
        self.read_errors = counter(
            "certwatcher_read_certificate_errors_total", "Total number of certificate read errors"
        )
        self.expires = Gauge(
            "cfo_webhook_certificate_expiration_timestamp_seconds",
            "Expiration time of the webhook serving certificate, in seconds since 1970; 0 if there is none.",
            registry=registry,
        )


class OverwriteMetrics:
    """The metric of webhook configurations that another client overwrites repeatedly."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._overwrites = Counter(
            "cfo_webhook_configuration_overwrites_total",
            "Number of times that another client overwrote a webhook configuration twice within a minute, so that it "
            "was not corrected.",
            ("kind", "configuration"),
            registry=registry,
        )

    def count(self, kind: str, configuration: str) -> None:
        """Count one refusal to write the configuration again."""
        self._overwrites.labels(kind, configuration).inc()
