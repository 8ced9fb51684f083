"""The strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.builtins.strategy import BuiltinStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, forbidden, invalid, not_supported, required
from envtest.objects import Object

__all__ = ["AutoscalerStrategy"]


class AutoscalerStrategy(BuiltinStrategy):
    """Strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: at minimum one replica, and 80 % CPU utilization if no metric is given."""
        spec = obj["spec"]
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if self.resource.version == "v2" and not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        behavior = spec.get("behavior")
        if behavior is not None:
            spec["behavior"] = _behavior_defaults(behavior)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the bounds, the scale target and the metrics."""
        if ctx.subresource == "status":
            return
        spec = obj["spec"]
        minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas") or 0
        if minimum is not None and minimum < 1:
            yield invalid("spec.minReplicas", minimum, "must be greater than or equal to 1")
        if maximum < 1:
            yield invalid("spec.maxReplicas", maximum, "must be greater than 0")
        if minimum is not None and maximum < minimum:
            yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`")
        target = spec.get("scaleTargetRef") or {}
        for name in ("kind", "name"):
            if not target.get(name):
                yield required(f"spec.scaleTargetRef.{name}")
        for position, metric in enumerate(spec.get("metrics") or ()):
            yield from _metric_errors(metric, f"spec.metrics[{position}]")


_METRICS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}


def _metric_errors(metric: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = metric.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if kind not in _METRICS:
        yield not_supported(f"{path}.type", kind, tuple(_METRICS))
        return
    expected = _METRICS[kind]
    if metric.get(expected) is None:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    for other in _METRICS.values():
        if other != expected and metric.get(other) is not None:
            yield forbidden(f"{path}.{other}", "must populate the given metric source only")
    if expected in ("resource", "containerResource") and metric.get(expected) is not None:
        if not metric[expected].get("name"):
            yield required(f"{path}.{expected}.name", "must specify a resource name")
        if expected == "containerResource" and not metric[expected].get("container"):
            yield required(f"{path}.{expected}.container", "must specify a container")


def _behavior_defaults(behavior: Mapping[str, Any]) -> Object:
    up = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    }
    down = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    return {
        "scaleUp": {**up, **(behavior.get("scaleUp") or {})},
        "scaleDown": {**down, **(behavior.get("scaleDown") or {})},
    }
