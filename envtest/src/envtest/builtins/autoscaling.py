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
        if maximum == 0:
            yield required("spec.maxReplicas", "must be set and greater than 0")
        elif maximum < 0:
            yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1")
        if minimum is not None and maximum < minimum:
            yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`")
        target = spec.get("scaleTargetRef") or {}
        for name in ("kind", "name"):
            if not target.get(name):
                yield required(f"spec.scaleTargetRef.{name}")
        version = target.get("apiVersion") or ""
        kept = old is not None and version == ((old["spec"].get("scaleTargetRef") or {}).get("apiVersion") or "")
        if "/" not in version and target.get("kind") != "ReplicationController" and not kept:
            yield invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group")
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
    present = [source for source in _METRICS.values() if metric.get(source) is not None]
    expected = _METRICS.get(kind)
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if expected is None:
        for _ in range(2):  # kube-apiserver reports it twice
            yield not_supported(f"{path}.type", kind, tuple(_METRICS))
    elif expected not in present:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) > 1:
        for other in present:
            if other != expected:
                yield forbidden(f"{path}.{other}", "must populate the given metric source only")
    for source in present[:1]:
        yield from _source_errors(source, metric[source], f"{path}.{source}")


def _source_errors(source: str, value: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if source not in ("resource", "containerResource"):
        return
    if not value.get("name"):
        yield required(f"{path}.name", "must specify a resource name")
    if source == "containerResource" and not value.get("container"):
        yield required(f"{path}.container", "must specify a container")
    yield from _target_errors(value.get("target") or {}, f"{path}.target")


def _target_errors(target: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the target of a resource metric: a utilization or an average value."""
    kind = target.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    utilization, average = target.get("averageUtilization"), target.get("averageValue")
    if utilization is not None and utilization < 1:
        yield invalid(f"{path}.averageUtilization", utilization, "must be greater than 0")
    if utilization is None and average is None:
        text = "must set either a target raw value or a target utilization"
        yield required(f"{path}.averageUtilization", text)
    elif utilization is not None and average is not None:
        text = "may not set both a target raw value and a target utilization"
        yield forbidden(f"{path}.averageValue", text)


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
