"""What Prometheus is told: where the metrics are, and what is worth waking somebody for."""

from __future__ import annotations

from typing import Any

from cfo.manifests.names import LABELS, METRICS_SERVICE, PREFIX, named
from cfo.runtime.objects import Object

__all__ = ["alerts", "objects"]

_RUNBOOK = "https://github.com/project-codeflare/cfo/blob/main/docs/operations.md#"


def objects(namespace: str) -> list[Object]:
    """The ServiceMonitor and the alert rules, for the Prometheus operator."""
    endpoint = {"port": "metrics", "path": "/metrics", "scheme": "http"}
    monitor = {"endpoints": [endpoint], "selector": {"matchLabels": dict(LABELS)}}
    groups = [{"name": PREFIX, "rules": alerts()}]
    return [
        named("monitoring.coreos.com/v1", "ServiceMonitor", METRICS_SERVICE, namespace, spec=monitor),
        named("monitoring.coreos.com/v1", "PrometheusRule", f"{PREFIX}-alerts", namespace, spec={"groups": groups}),
    ]


def alerts() -> list[dict[str, Any]]:
    """The alerts on the operator's metrics; each leads to its symptom in docs/operations.md."""
    job = f'{{job="{METRICS_SERVICE}"}}'
    own = f'job="{METRICS_SERVICE}"'
    return [
        _alert(
            "CodeFlareOperatorAbsent",
            f"absent(up{job} == 1)",
            "10m",
            "critical",
            "No replica of the CodeFlare operator can be scraped: RayClusters may be refused at admission.",
            "the-operator-is-not-running",
        ),
        _alert(
            "CodeFlareOperatorHasNoLeader",
            f"(sum(leader_election_master_status{job}) or vector(0)) < 1 and count(up{job} == 1) > 1",
            "5m",
            "critical",
            "Several replicas run and none leads: nothing is reconciled.",
            "nothing-is-reconciled",
        ),
        _alert(
            "CodeFlareOperatorReconcileErrors",
            f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{job}[10m])) / "
            f"sum by (controller) (rate(controller_runtime_reconcile_total{job}[10m])) > 0.1",
            "15m",
            "warning",
            "More than a tenth of the reconciles of {{ $labels.controller }} fail.",
            "reconciles-fail",
        ),
        _alert(
            "CodeFlareOperatorQueueBacklog",
            f"sum by (name) (workqueue_depth{job}) > 100",
            "15m",
            "warning",
            "The queue {{ $labels.name }} has held more than 100 requests for a quarter of an hour.",
            "queues-grow",
        ),
        _alert(
            "CodeFlareOperatorWebhookSlow",
            "histogram_quantile(0.99, sum by (le, webhook) "
            f"(rate(controller_runtime_webhook_latency_seconds_bucket{job}[5m]))) > 1",
            "10m",
            "warning",
            "One in a hundred calls of {{ $labels.webhook }} takes longer than a second.",
            "admission-is-slow",
        ),
        _alert(
            "CodeFlareOperatorWebhookErrors",
            f'sum by (webhook) (rate(controller_runtime_webhook_requests_total{{{own}, code="500"}}[5m])) > 0',
            "10m",
            "warning",
            "{{ $labels.webhook }} answers with errors: what it guards cannot be written.",
            "admission-fails",
        ),
        _alert(
            "CodeFlareOperatorWebhookCertificateExpires",
            f"min(cfo_webhook_certificate_expiration_timestamp_seconds{job} > 0) - time() < 7 * 24 * 3600",
            "1h",
            "critical",
            "The webhooks' certificate runs out within a week and was not renewed.",
            "the-webhooks-certificate",
        ),
    ]


def _alert(name: str, expression: str, duration: str, severity: str, text: str, symptom: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": duration,
        "labels": {"severity": severity},
        "annotations": {"summary": text, "runbook_url": f"{_RUNBOOK}{symptom}"},
    }
