"""The ServiceMonitor and the alerts for Prometheus."""

from __future__ import annotations

from importlib import resources

import yaml

from cfo.manifests.names import LABELS, PREFIX, named
from cfo.operator import METRICS_SERVICE
from cfo.runtime import Object


def objects(namespace: str) -> list[Object]:
    """Return the ServiceMonitor and the PrometheusRule with the alerts, for the Prometheus operator."""
    rules = yaml.safe_load(resources.files(__package__).joinpath("alerts.yaml").read_text())
    endpoint = {"port": "metrics", "path": "/metrics", "scheme": "http", "honorLabels": True}
    monitor = {"endpoints": [endpoint], "selector": {"matchLabels": dict(LABELS)}}
    return [
        named(
            "monitoring.coreos.com/v1", "ServiceMonitor", METRICS_SERVICE, namespace, spec=monitor
        ),
        named(
            "monitoring.coreos.com/v1", "PrometheusRule", f"{PREFIX}-alerts", namespace, spec=rules
        ),
    ]
