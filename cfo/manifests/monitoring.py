"""The ServiceMonitor and the alerts for Prometheus."""

from __future__ import annotations

from typing import Any

from cfo.manifests.names import LABELS, METRICS_SERVICE, PREFIX, STACK_METRICS_SERVICES, named
from cfo.runtime import Object

__all__ = ["alerts", "objects"]

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


def alerts() -> list[dict[str, Any]]:
    """Return the alerts on the operator's metrics. Each has a link to its section in docs/operations.md."""
    job = f'{{job="{METRICS_SERVICE}"}}'
    own = f'job="{METRICS_SERVICE}"'
    stacks = f'job=~"{STACK_METRICS_SERVICES}"'
    return [
        _alert(
            "CodeFlareOperatorAbsent",
            f"absent(up{job} == 1)",
            "10m",
            "critical",
            "No replica of the CodeFlare operator can be scraped; RayClusters may be rejected at admission.",
            "the-operator-is-not-running",
        ),
        _alert(
            "CodeFlareOperatorHasNoLeader",
            f"(sum(leader_election_master_status{job}) or vector(0)) < 1 and count(up{job} == 1) > 1",
            "5m",
            "critical",
            "Several replicas are running, but there is no leader; nothing is reconciled.",
            "nothing-is-reconciled",
        ),
        _alert(
            "CodeFlareOperatorReconcileErrors",
            f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{job}[10m])) / "
            f"sum by (controller) (rate(controller_runtime_reconcile_total{job}[10m])) > 0.1",
            "15m",
            "warning",
            "More than 10 % of the reconciles of the controller {{ $labels.controller }} fail.",
            "reconciles-fail",
        ),
        _alert(
            "CodeFlareOperatorQueueBacklog",
            f"sum by (name) (workqueue_depth{job}) > 100",
            "15m",
            "warning",
            "The work queue {{ $labels.name }} has contained more than 100 requests for 15 minutes.",
            "queues-grow",
        ),
        _alert(
            "CodeFlareOperatorEventLoopBlocked",
            f"increase(cfo_event_loop_lag_seconds_count{job}[10m]) - ignoring (le) "
            f'increase(cfo_event_loop_lag_seconds_bucket{{{own}, le="1.0"}}[10m]) > 0',
            "5m",
            "warning",
            "The event loop of {{ $labels.pod }} is blocked for more than one second, which delays all its work.",
            "the-event-loop-is-blocked",
        ),
        _alert(
            "CodeFlareOperatorFluxQueueBlocked",
            f"max by (namespace, fluxsetup) (flux_setup_pending_jobs{job}) > 0 "
            f"and max by (namespace, fluxsetup) (flux_setup_admitted_jobs{job}) == 0 "
            f"and max by (namespace, fluxsetup) (flux_setup_used_pods{job}) == 0",
            "15m",
            "warning",
            "FluxJobs wait for FluxSetup {{ $labels.namespace }}/{{ $labels.fluxsetup }}, whose quota is unused.",
            "fluxjobs-wait",
        ),
        _alert(
            "CodeFlareOperatorFluxSetupInvalid",
            f'max by (namespace, fluxsetup, reason) (flux_setup_active{{{own}, reason!~"Ready|Replaced"}}) == 0',
            "15m",
            "warning",
            "FluxSetup {{ $labels.namespace }}/{{ $labels.fluxsetup }} is inactive: {{ $labels.reason }}.",
            "fluxjobs-wait",
        ),
        _alert(
            "CodeFlareOperatorWebhookSlow",
            "histogram_quantile(0.99, sum by (le, webhook) "
            f"(rate(controller_runtime_webhook_latency_seconds_bucket{job}[5m]))) > 1",
            "10m",
            "warning",
            "The 99th percentile of the latency of the webhook {{ $labels.webhook }} exceeds one second.",
            "admission-is-slow",
        ),
        _alert(
            "CodeFlareOperatorWebhookErrors",
            f'sum by (webhook) (rate(cfo_webhook_reviews_total{{{own}, code=~"5.."}}[5m])) > 0',
            "10m",
            "warning",
            "The webhook {{ $labels.webhook }} fails; the API server rejects writes of its kinds.",
            "admission-fails",
        ),
        _alert(
            "CodeFlareOperatorWebhookCertificateExpires",
            f"min(cfo_webhook_certificate_expiration_timestamp_seconds{job} > 0) - time() < 7 * 24 * 3600",
            "1h",
            "critical",
            "The serving certificate of the webhooks expires within a week and has not been renewed.",
            "the-webhook-certificate",
        ),
        _alert(
            "CodeFlareOperatorConfigurationChanged",
            f"max(cfo_configuration_changed{job}) > 0",
            "1h",
            "warning",
            "The ConfigMap of the operator was changed more than an hour ago; restart the operator to apply it.",
            "the-configuration-was-changed",
        ),
        _alert(
            "CodeFlareOperatorInformerNotSynced",
            f"min by (group, kind) (cfo_informer_synced{job}) == 0",
            "10m",
            "critical",
            "The informer of {{ $labels.kind }} has no data; what depends on it is not reconciled.",
            "an-informer-is-not-synced",
        ),
        _alert(
            "RayClusterCAExpires",
            f"min by (namespace) (cfo_raycluster_ca_expiration_timestamp_seconds{job}) - time() < 30 * 24 * 3600",
            "1h",
            "critical",
            "A CA of a RayCluster in namespace {{ $labels.namespace }} expires within 30 days and was not renewed.",
            "a-ca-is-not-renewed",
        ),
        _alert(
            "RayClustersWithoutMTLS",
            f"max by (namespace) (cfo_rayclusters_without_mtls{job}) > 0",
            "1h",
            "warning",
            "{{ $value }} RayClusters in namespace {{ $labels.namespace }} have no mutual TLS; recreate them.",
            "rayclusters-without-mtls",
        ),
        _alert(
            "AppWrappersFail",
            f'max by (namespace) (appwrapper_status_phase{{{own}, phase="Failed"}}) > 0',
            "0s",
            "warning",
            "{{ $value }} AppWrappers in namespace {{ $labels.namespace }} have failed.",
            "appwrappers-fail",
        ),
        _alert(
            "InferenceStackApplicationsFail",
            f'sum by (state) (inferencestack_status_applications{{{stacks}, state=~"Failed|Stalled"}}) > 0',
            "15m",
            "warning",
            "{{ $value }} applications of InferenceStacks are in state {{ $labels.state }}.",
            "applications-of-an-inferencestack-fail",
        ),
        _alert(
            "InferenceStackUnclaimed",
            f"sum by (reason) (inferencestack_unclaimed{{{stacks}}}) > 0",
            "5m",
            "warning",
            "{{ $value }} InferenceStacks are not reconciled by exactly one operator: {{ $labels.reason }}.",
            "an-inferencestack-is-not-reconciled",
        ),
    ]


def _alert(name: str, expression: str, duration: str, severity: str, summary: str, section: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": duration,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "runbook_url": f"{_RUNBOOK}{section}"},
    }
