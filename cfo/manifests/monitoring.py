"""The ServiceMonitor and the alerts for Prometheus, and the Grafana dashboard of the operator."""

from __future__ import annotations

from typing import Any, Final

from cfo.features import FEATURES
from cfo.features.contract import METRICS_SERVICE, OBJECTS, OWN, Alert, Panel, merged
from cfo.manifests.names import LABELS, PREFIX, named
from cfo.runtime import Object

_RUNBOOK = "https://github.com/project-codeflare/cfo/blob/main/docs/operations.md#"


def objects(namespace: str) -> list[Object]:
    """Return the ServiceMonitor and the PrometheusRule with the alerts, for the Prometheus operator."""
    endpoint = {"port": "metrics", "path": "/metrics", "scheme": "http", "honorLabels": True}
    monitor = {"endpoints": [endpoint], "selector": {"matchLabels": dict(LABELS)}}
    groups = [{"name": PREFIX, "rules": alerts()}]
    return [
        named("monitoring.coreos.com/v1", "ServiceMonitor", METRICS_SERVICE, namespace, spec=monitor),
        named("monitoring.coreos.com/v1", "PrometheusRule", f"{PREFIX}-alerts", namespace, spec={"groups": groups}),
    ]


_ALERTS: Final = (
    Alert(
        "CodeFlareOperatorAbsent",
        f"absent(up{OBJECTS} == 1)",
        "10m",
        "critical",
        "No replica of the CodeFlare operator can be scraped; RayClusters may be rejected at admission.",
        "the-operator-is-not-running",
    ),
    Alert(
        "CodeFlareOperatorHasNoLeader",
        f"(sum(leader_election_master_status{OBJECTS}) or vector(0)) < 1 and count(up{OBJECTS} == 1) > 1",
        "5m",
        "critical",
        "Several replicas are running, but there is no leader; nothing is reconciled.",
        "nothing-is-reconciled",
    ),
    Alert(
        "CodeFlareOperatorReconcileErrors",
        f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{OBJECTS}[10m])) / "
        f"sum by (controller) (rate(controller_runtime_reconcile_total{OBJECTS}[10m])) > 0.1",
        "15m",
        "warning",
        "More than 10 % of the reconciles of the controller {{ $labels.controller }} fail.",
        "reconciles-fail",
    ),
    Alert(
        "CodeFlareOperatorQueueBacklog",
        f"sum by (name) (workqueue_depth{OBJECTS}) > 100",
        "15m",
        "warning",
        "The work queue {{ $labels.name }} has contained more than 100 requests for 15 minutes.",
        "queues-grow",
    ),
    Alert(
        "CodeFlareOperatorEventLoopBlocked",
        f"increase(cfo_event_loop_lag_seconds_count{OBJECTS}[10m]) - ignoring (le) "
        f'increase(cfo_event_loop_lag_seconds_bucket{{{OWN}, le="1.0"}}[10m]) > 0',
        "5m",
        "warning",
        "The event loop of {{ $labels.pod }} is blocked for more than one second, which delays all its work.",
        "the-event-loop-is-blocked",
    ),
    Alert(
        "CodeFlareOperatorWebhookSlow",
        "histogram_quantile(0.99, sum by (le, webhook) "
        f"(rate(controller_runtime_webhook_latency_seconds_bucket{OBJECTS}[5m]))) > 1",
        "10m",
        "warning",
        "The 99th percentile of the latency of the webhook {{ $labels.webhook }} exceeds one second.",
        "admission-is-slow",
    ),
    Alert(
        "CodeFlareOperatorWebhookErrors",
        f'sum by (webhook) (rate(cfo_webhook_reviews_total{{{OWN}, code=~"5.."}}[5m])) > 0',
        "10m",
        "warning",
        "The webhook {{ $labels.webhook }} fails; the API server rejects writes of its kinds.",
        "admission-fails",
    ),
    Alert(
        "CodeFlareOperatorWebhookCertificateExpires",
        f"min(cfo_webhook_certificate_expiration_timestamp_seconds{OBJECTS} > 0) - time() < 7 * 24 * 3600",
        "1h",
        "critical",
        "The serving certificate of the webhooks expires within a week and has not been renewed.",
        "the-webhook-certificate",
    ),
    Alert(
        "CodeFlareOperatorConfigurationChanged",
        f"max(cfo_configuration_changed{OBJECTS}) > 0",
        "1h",
        "warning",
        "The ConfigMap of the operator was changed more than an hour ago; restart the operator to apply it.",
        "the-configuration-was-changed",
    ),
    Alert(
        "CodeFlareOperatorInformerNotSynced",
        f"min by (group, kind) (cfo_informer_synced{OBJECTS}) == 0",
        "10m",
        "critical",
        "The informer of {{ $labels.kind }} has no data; what depends on it is not reconciled.",
        "an-informer-is-not-synced",
    ),
)


def alerts() -> list[dict[str, Any]]:
    """Return the alerts on the metrics of the operator and its features.

    Each has a link to its section in docs/operations.md.
    """
    return [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.duration,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "runbook_url": f"{_RUNBOOK}{alert.section}"},
        }
        for alert in merged(_ALERTS, [alert for feature in FEATURES for alert in feature.alerts])
    ]


_JOB: Final = f'{{job="{METRICS_SERVICE}", namespace=~"$namespace"}}'
_COLUMNS: Final = 2
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8


def _quantile(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{_JOB}[$__rate_interval])))", legend)
        for share, legend in ((0.5, f"{{{{{by}}}}} p50"), (0.99, f"{{{{{by}}}}} p99"))
    )


def _rate(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return ((f"sum by ({', '.join(by)}) (rate({metric}{_JOB}[$__rate_interval]))", legend),)


_PANELS: Final = (
    Panel("Reconciles", "ops", _rate("controller_runtime_reconcile_total", "controller", "result")),
    Panel("Reconcile errors", "ops", _rate("controller_runtime_reconcile_errors_total", "controller")),
    Panel("Reconcile duration", "s", _quantile("controller_runtime_reconcile_time_seconds", "controller")),
    Panel(
        "Busy workers", "short", ((f"sum by (controller) (controller_runtime_active_workers{_JOB})", "{{controller}}"),)
    ),
    Panel("Queue depth", "short", ((f"sum by (name) (workqueue_depth{_JOB})", "{{name}}"),)),
    Panel("Time in queue", "s", _quantile("workqueue_queue_duration_seconds", "name")),
    Panel("Retries", "ops", _rate("workqueue_retries_total", "name")),
    Panel(
        "Longest-running reconcile",
        "s",
        ((f"max by (name) (workqueue_longest_running_processor_seconds{_JOB})", "{{name}}"),),
    ),
    Panel("Admission requests", "reqps", _rate("cfo_webhook_reviews_total", "webhook", "code")),
    Panel("Admission latency", "s", _quantile("controller_runtime_webhook_latency_seconds", "webhook")),
    Panel(
        "Webhook certificate: time left",
        "s",
        ((f"cfo_webhook_certificate_expiration_timestamp_seconds{_JOB} - time()", "{{pod}}"),),
    ),
    Panel("Leader", "short", ((f"leader_election_master_status{_JOB}", "{{pod}}"),)),
    Panel("Requests to the API server", "reqps", _rate("rest_client_requests_total", "method", "code")),
    Panel(
        "Event loop lag",
        "s",
        (
            (
                f"histogram_quantile(1, sum by (le) (rate(cfo_event_loop_lag_seconds_bucket{_JOB}[$__rate_interval])))",
                "maximum",
            ),
        ),
    ),
    Panel("Memory", "bytes", ((f"process_resident_memory_bytes{_JOB}", "{{pod}}"),)),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as JSON, for Grafana 10 or later."""
    panels = merged(_PANELS, [panel for feature in FEATURES for panel in feature.panels])
    source = {"type": "prometheus", "uid": "${datasource}"}
    namespaces = {
        "name": "namespace",
        "type": "query",
        "datasource": source,
        "query": f'label_values(up{{job="{METRICS_SERVICE}"}}, namespace)',
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }
    return {
        "uid": "codeflare-operator",
        "title": "CodeFlare operator",
        "tags": ["codeflare", "ray", "operator"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, namespaces]},
        "panels": [_panel(index, source, panel) for index, panel in enumerate(panels)],
    }


def _panel(index: int, source: dict[str, str], panel: Panel) -> dict[str, Any]:
    row, column = divmod(index, _COLUMNS)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.name,
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": source, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }
