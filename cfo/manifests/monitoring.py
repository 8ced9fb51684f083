"""The ServiceMonitor and the alerts for Prometheus."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from cfo.features.contract import METRICS_SERVICE
from cfo.manifests.names import LABELS, PREFIX, named
from cfo.runtime import Object


def objects(namespace: str) -> list[Object]:
    """Return the ServiceMonitor and the PrometheusRule with the alerts, for the Prometheus operator."""
    endpoint = {"port": "metrics", "path": "/metrics", "scheme": "http", "honorLabels": True}
    monitor = {"endpoints": [endpoint], "selector": {"matchLabels": dict(LABELS)}}
    return [
        named("monitoring.coreos.com/v1", "ServiceMonitor", METRICS_SERVICE, namespace, spec=monitor),
        named("monitoring.coreos.com/v1", "PrometheusRule", f"{PREFIX}-alerts", namespace, spec=_rule_file()),
    ]


def alerts() -> list[dict[str, Any]]:
    """Return the alerts on the metrics of the operator and its features."""
    rules: list[dict[str, Any]] = _rule_file()["groups"][0]["rules"]
    return rules


def _rule_file() -> Any:
    return yaml.safe_load(resources.files(__package__).joinpath("alerts.yaml").read_text())
