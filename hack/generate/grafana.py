"""The Grafana dashboard of the operator: ``config/grafana``."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from cfo.operator import METRICS_SERVICE

_JOB: Final = f'{{job="{METRICS_SERVICE}", namespace=~"$namespace"}}'
_OBJECTS: Final = f'{{job="{METRICS_SERVICE}"}}'
"""The selector of metrics whose label ``namespace`` is the objects' namespace, not the operator's."""
_STACKS: Final = f'{{job=~"{METRICS_SERVICE}|inference-stack-operator-v[0-9]+-metrics"}}'
"""The selector of the metrics of all operators that reconcile InferenceStacks."""

_COLUMNS: Final = 2
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8


class Panel(NamedTuple):
    """A panel: each query is an expression and a legend."""

    name: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _counted(
    name: str, metric: str, label: str, selector: str = _OBJECTS, prefix: str = ""
) -> Panel:
    """Return a panel with the sum of ``metric`` for each value of ``label``; the legend is ``prefix`` and the value."""
    return Panel(
        name, "short", ((f"sum by ({label}) ({metric}{selector})", f"{prefix}{{{{{label}}}}}"),)
    )


def _by_setup(metric: str, legend: str) -> tuple[str, str]:
    return (
        f"sum by (namespace, fluxsetup) ({metric}{_OBJECTS})",
        f"{{{{namespace}}}}/{{{{fluxsetup}}}} {legend}",
    )


def _quantile(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{_JOB}[$__rate_interval])))",
            legend,
        )
        for share, legend in ((0.5, f"{{{{{by}}}}} p50"), (0.99, f"{{{{{by}}}}} p99"))
    )


def _rate(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return ((f"sum by ({', '.join(by)}) (rate({metric}{_JOB}[$__rate_interval]))", legend),)


_PANELS: Final = (
    Panel("Reconciles", "ops", _rate("controller_runtime_reconcile_total", "controller", "result")),
    Panel(
        "Reconcile errors", "ops", _rate("controller_runtime_reconcile_errors_total", "controller")
    ),
    Panel(
        "Reconcile duration",
        "s",
        _quantile("controller_runtime_reconcile_time_seconds", "controller"),
    ),
    Panel(
        "Busy workers",
        "short",
        ((f"sum by (controller) (controller_runtime_active_workers{_JOB})", "{{controller}}"),),
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
    Panel(
        "Admission latency", "s", _quantile("controller_runtime_webhook_latency_seconds", "webhook")
    ),
    Panel(
        "Webhook certificate: time left",
        "s",
        ((f"cfo_webhook_certificate_expiration_timestamp_seconds{_JOB} - time()", "{{pod}}"),),
    ),
    Panel("Leader", "short", ((f"leader_election_master_status{_JOB}", "{{pod}}"),)),
    Panel(
        "Requests to the API server", "reqps", _rate("rest_client_requests_total", "method", "code")
    ),
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
    _counted("RayClusters by state", "cfo_rayclusters", "state"),
    _counted("RayClusters without mutual TLS", "cfo_rayclusters_without_mtls", "namespace"),
    Panel(
        "First CA of a RayCluster: time left",
        "s",
        ((f"min(cfo_raycluster_ca_expiration_timestamp_seconds{_OBJECTS}) - time()", "CA"),),
    ),
    _counted("AppWrappers by phase", "appwrapper_status_phase", "phase"),
    Panel(
        "Phase transitions",
        "ops",
        (
            (
                f"sum by (phase) (rate(appwrapper_phase_total{_OBJECTS}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
    ),
    Panel(
        "FluxSetups: pods",
        "short",
        (_by_setup("flux_setup_used_pods", "used"), _by_setup("flux_setup_max_pods", "maximum")),
    ),
    Panel(
        "FluxSetups: jobs",
        "short",
        (
            _by_setup("flux_setup_admitted_jobs", "admitted"),
            _by_setup("flux_setup_pending_jobs", "waiting"),
        ),
    ),
    _counted(
        "InferenceStacks by readiness", "inferencestack_status_ready", "ready", _STACKS, "ready: "
    ),
    _counted(
        "Applications of InferenceStacks", "inferencestack_status_applications", "state", _STACKS
    ),
    _counted(
        "InferenceStacks without exactly one operator",
        "inferencestack_unclaimed",
        "reason",
        _STACKS,
    ),
)


def files() -> dict[str, str]:
    """Return the content of the generated file, by its path from the root of the repository."""
    return {"config/grafana/codeflare-operator.json": json.dumps(dashboard(), indent=2) + "\n"}


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
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                namespaces,
            ]
        },
        "panels": [_panel(index, source, panel) for index, panel in enumerate(_PANELS)],
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
            {
                "refId": chr(ord("A") + number),
                "datasource": source,
                "expr": expression,
                "legendFormat": legend,
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }
