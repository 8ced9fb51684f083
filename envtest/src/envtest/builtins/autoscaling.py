"""The strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.apimachinery.field_errors import FieldError, invalid, required
from envtest.apimachinery.objects import Object
from envtest.builtins.autoscaling_rules import metric_errors, reference_errors, scaling_rule_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import nonnegative
from envtest.registry.resource import RequestContext

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
            for name in ("currentReplicas", "desiredReplicas"):
                yield from nonnegative(f"status.{name}", obj["status"].get(name))
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
        yield from reference_errors(target, "spec.scaleTargetRef")
        version = target.get("apiVersion") or ""
        kept = old is not None and version == ((old["spec"].get("scaleTargetRef") or {}).get("apiVersion") or "")
        if "/" not in version and target.get("kind") != "ReplicationController" and not kept:
            yield invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group")
        for position, metric in enumerate(spec.get("metrics") or ()):
            yield from metric_errors(metric, f"spec.metrics[{position}]")
        for direction in ("scaleUp", "scaleDown"):
            rules = (spec.get("behavior") or {}).get(direction)
            if rules is not None:
                yield from scaling_rule_errors(rules, f"spec.behavior.{direction}")


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
