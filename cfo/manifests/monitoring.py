"""The ServiceMonitor and the alerts for Prometheus."""

from __future__ import annotations

from typing import Any, Final

from cfo.features import FEATURES
from cfo.features.contract import METRICS_SERVICE, OBJECTS, OWN, Alert
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
        for alert in (*_ALERTS, *(alert for feature in FEATURES for alert in feature.alerts))
    ]
