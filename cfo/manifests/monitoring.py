"""The ServiceMonitor and the alerts for Prometheus."""

from __future__ import annotations

from importlib import resources
from typing import Final

from cfo.manifests.names import LABELS, PREFIX, named
from cfo.operator import METRICS_SERVICE
from cfo.runtime import Object
from cfo.runtime.objects import load_yaml

ABSENCE_ALERT: Final = "CodeFlareOperatorAbsent"
"""The alert whose rule contains the operator's namespace; others have it as a label of their metrics."""

_NAMESPACE: Final = "OPERATOR_NAMESPACE"


def objects(namespace: str) -> list[Object]:
    """Return the ServiceMonitor and the PrometheusRule with the alerts, for the Prometheus operator."""
    rules = load_yaml(resources.files(__package__).joinpath("alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] == ABSENCE_ALERT:
            rule["expr"] = rule["expr"].replace(_NAMESPACE, namespace)
            rule["labels"]["namespace"] = namespace
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
