"""The Grafana dashboard of the operator. Each panel has a title, a unit and queries."""

from __future__ import annotations

from typing import Any, Final

from cfo.manifests.names import METRICS_SERVICE, STACK_METRICS_SERVICES

__all__ = ["dashboard"]

_JOB: Final = f'{{job="{METRICS_SERVICE}", namespace=~"$namespace"}}'
_OBJECTS: Final = f'{{job="{METRICS_SERVICE}"}}'
"""Metrics whose label ``namespace`` is that of the objects, not that of the operator."""
_STACK_JOBS: Final = f'{{job=~"{STACK_METRICS_SERVICES}"}}'
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


_PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    ("Reconciles", "ops", _rate("controller_runtime_reconcile_total", "controller", "result")),
    ("Reconcile errors", "ops", _rate("controller_runtime_reconcile_errors_total", "controller")),
    ("Reconcile duration", "s", _quantile("controller_runtime_reconcile_time_seconds", "controller")),
    ("Busy workers", "short", ((f"sum by (controller) (controller_runtime_active_workers{_JOB})", "{{controller}}"),)),
    ("Queue depth", "short", ((f"sum by (name) (workqueue_depth{_JOB})", "{{name}}"),)),
    ("Time in queue", "s", _quantile("workqueue_queue_duration_seconds", "name")),
    ("Retries", "ops", _rate("workqueue_retries_total", "name")),
    (
        "Longest-running reconcile",
        "s",
        ((f"max by (name) (workqueue_longest_running_processor_seconds{_JOB})", "{{name}}"),),
    ),
    ("Admission requests", "reqps", _rate("cfo_webhook_reviews_total", "webhook", "code")),
    ("Admission latency", "s", _quantile("controller_runtime_webhook_latency_seconds", "webhook")),
    (
        "Webhook certificate: time left",
        "s",
        ((f"cfo_webhook_certificate_expiration_timestamp_seconds{_JOB} - time()", "{{pod}}"),),
    ),
    ("Leader", "short", ((f"leader_election_master_status{_JOB}", "{{pod}}"),)),
    ("Requests to the API server", "reqps", _rate("rest_client_requests_total", "method", "code")),
    ("RayClusters by state", "short", ((f"sum by (state) (cfo_rayclusters{_OBJECTS})", "{{state}}"),)),
    (
        "RayClusters without mutual TLS",
        "short",
        ((f"sum by (namespace) (cfo_rayclusters_without_mtls{_OBJECTS})", "{{namespace}}"),),
    ),
    (
        "First CA of a RayCluster: time left",
        "s",
        ((f"min(cfo_raycluster_ca_expiration_timestamp_seconds{_OBJECTS}) - time()", "CA"),),
    ),
    ("AppWrappers by phase", "short", ((f"sum by (phase) (appwrapper_status_phase{_OBJECTS})", "{{phase}}"),)),
    (
        "Phase transitions",
        "ops",
        ((f"sum by (phase) (rate(appwrapper_phase_total{_OBJECTS}[$__rate_interval]))", "{{phase}}"),),
    ),
    (
        "InferenceStacks by readiness",
        "short",
        ((f"sum by (ready) (inferencestack_status_ready{_STACK_JOBS})", "ready: {{ready}}"),),
    ),
    (
        "Applications of InferenceStacks",
        "short",
        ((f"sum by (state) (inferencestack_status_applications{_STACK_JOBS})", "{{state}}"),),
    ),
    (
        "InferenceStacks without exactly one operator",
        "short",
        ((f"sum by (reason) (inferencestack_unclaimed{_STACK_JOBS})", "{{reason}}"),),
    ),
    (
        "Event loop lag",
        "s",
        (
            (
                f"histogram_quantile(1, sum by (le) (rate(cfo_event_loop_lag_seconds_bucket{_JOB}[$__rate_interval])))",
                "maximum",
            ),
        ),
    ),
    (
        "FluxSetups: pods",
        "short",
        (
            (f"sum by (namespace, fluxsetup) (flux_setup_used_pods{_OBJECTS})", "{{namespace}}/{{fluxsetup}} used"),
            (f"sum by (namespace, fluxsetup) (flux_setup_max_pods{_OBJECTS})", "{{namespace}}/{{fluxsetup}} maximum"),
        ),
    ),
    (
        "FluxSetups: jobs",
        "short",
        (
            (
                f"sum by (namespace, fluxsetup) (flux_setup_admitted_jobs{_OBJECTS})",
                "{{namespace}}/{{fluxsetup}} admitted",
            ),
            (
                f"sum by (namespace, fluxsetup) (flux_setup_pending_jobs{_OBJECTS})",
                "{{namespace}}/{{fluxsetup}} waiting",
            ),
        ),
    ),
    ("Memory", "bytes", ((f"process_resident_memory_bytes{_JOB}", "{{pod}}"),)),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as JSON, for Grafana 10 or later."""
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
        "panels": [_panel(index, source, *panel) for index, panel in enumerate(_PANELS)],
    }


def _panel(
    index: int, source: dict[str, str], title: str, unit: str, queries: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    row, column = divmod(index, _COLUMNS)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": source, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(queries)
        ],
    }
