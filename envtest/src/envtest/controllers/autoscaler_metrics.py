"""What kube-controller-manager reports about the metrics of a HorizontalPodAutoscaler when no metrics API is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.objects import Object

__all__ = ["MetricProblem", "unavailable_metrics"]

_RESOURCE_API: Final = (
    "unable to fetch metrics from resource metrics API: the server could not find the requested resource "
    "(get pods.metrics.k8s.io)"
)
_CUSTOM_API: Final = (
    "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
)


class MetricProblem(NamedTuple):
    """Why a metric is not available: the reason, the message, and how the controller introduces the message."""

    reason: str
    message: str
    context: str


def unavailable_metrics(autoscaler: Object) -> list[MetricProblem]:
    """Return the problem of each metric of an autoscaler (version v2)."""
    return [_problem(metric, autoscaler["metadata"]["namespace"]) for metric in autoscaler["spec"].get("metrics") or ()]


def _problem(metric: Mapping[str, Any], namespace: str) -> MetricProblem:
    match metric.get("type"):
        case "Resource":
            name, text = _resource(metric.get("resource") or {})
            return MetricProblem("FailedGetResourceMetric", text, f"failed to get {name} resource metric value")
        case "ContainerResource":
            name, text = _resource(metric.get("containerResource") or {})
            return MetricProblem(
                "FailedGetContainerResourceMetric", text, f"failed to get {name} container metric value"
            )
        case "Pods":
            name = ((metric.get("pods") or {}).get("metric") or {}).get("name", "")
            text = f"unable to get metric {name}: {_CUSTOM_API}"
            return MetricProblem("FailedGetPodsMetric", text, "failed to get pods metric value")
        case "Object":
            source = metric.get("object") or {}
            described, name = source.get("describedObject") or {}, (source.get("metric") or {}).get("name", "")
            where = f"{described.get('kind', '')} on {namespace} {described.get('name', '')}"
            text = f"unable to get metric {name}: {where}/{_CUSTOM_API}"
            return MetricProblem("FailedGetObjectMetric", text, "failed to get object metric value")
    name = ((metric.get("external") or {}).get("metric") or {}).get("name", "")
    text = (
        f"unable to get external metric {namespace}/{name}/nil: unable to fetch metrics from external metrics API: "
        f"the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
    )
    return MetricProblem("FailedGetExternalMetric", text, f"failed to get {name} external metric value")


def _resource(source: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a resource, and why its usage is not known."""
    name = source.get("name", "")
    kind = "usage" if (source.get("target") or {}).get("averageValue") is not None else "utilization"
    return name, f"failed to get {name} {kind}: unable to get metrics for resource {name}: {_RESOURCE_API}"
