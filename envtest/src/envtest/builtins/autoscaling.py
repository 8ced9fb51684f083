"""The strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import FieldError, forbidden, invalid, required
from envtest.apimachinery.objects import Object
from envtest.builtins.autoscaler_versions import (
    SPEC_ANNOTATIONS,
    STATUS_ANNOTATIONS,
    drop_annotations,
    has_annotations,
    to_v1,
    to_v2,
)
from envtest.builtins.autoscaling_rules import (
    api_version_errors,
    metric_errors,
    reference_errors,
    scaling_rule_errors,
)
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import nonnegative
from envtest.registry.resource import RequestContext

__all__ = ["AutoscalerStrategy", "behavior_defaults"]

_ZERO_REPLICAS = (
    "must specify at least one Object or External metric to support scaling to zero replicas"
)


class AutoscalerStrategy(BuiltinStrategy):
    """Strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: at minimum one replica, and 80 % CPU utilization if no metric is given.

        Annotations of conversions are removed, or, in v1, written again with what was read from them.
        """
        spec = obj["spec"]
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if self.resource.version == "v1":
            self._complete(obj)
            return
        drop_annotations(obj)
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        behavior = spec.get("behavior")
        if behavior is not None:
            spec["behavior"] = behavior_defaults(behavior)

    @staticmethod
    def _complete(obj: Object) -> None:
        """Convert an object of v1 to v2 and back, in place."""
        has_target = obj["spec"].get("targetCPUUtilizationPercentage") is not None
        has_current = (obj.get("status") or {}).get("currentCPUUtilizationPercentage") is not None
        if has_target and not has_current and not has_annotations(obj):
            return  # the conversions change nothing
        new = to_v1(to_v2(obj))
        metadata = obj["metadata"]  # the request pipeline keeps a reference to this dict
        metadata.clear()
        metadata.update(new["metadata"])
        obj.update(spec=new["spec"], status=new["status"])

    def decode_stored(self, obj: Object) -> None:
        """See :meth:`Strategy.decode_stored`: a conversion to v1 leaves nothing to do."""
        if self.resource.version != "v1":
            super().decode_stored(obj)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`."""
        super().prepare_create(obj, ctx)
        self._restore_annotations(obj, None, STATUS_ANNOTATIONS)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: some annotations of v1 belong to the spec or the status."""
        super().prepare_update(new, old, ctx)
        self._restore_annotations(
            new, old, SPEC_ANNOTATIONS if ctx.subresource == "status" else STATUS_ANNOTATIONS
        )

    def _restore_annotations(self, new: Object, old: Object | None, names: Sequence[str]) -> None:
        if self.resource.version != "v1" or not (
            has_annotations(new) or (old is not None and has_annotations(old))
        ):
            return
        before = (old["metadata"].get("annotations") if old is not None else None) or {}
        annotations = {
            name: text
            for name, text in new["metadata"].pop("annotations", {}).items()
            if name not in names
        }
        annotations.update({name: before[name] for name in names if name in before})
        if annotations:
            new["metadata"]["annotations"] = annotations

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the bounds, the scale target and the metrics, with the paths of v2."""
        if ctx.subresource == "status":
            for name in ("currentReplicas", "desiredReplicas"):
                yield from nonnegative(f"status.{name}", obj["status"].get(name))
            return
        if self.resource.version == "v1":
            obj = to_v2(obj)
            old = None if old is None else to_v2(old)
        spec = obj["spec"]
        minimum = spec.get("minReplicas")
        maximum = spec.get("maxReplicas") or 0
        if minimum is not None and minimum < 1:
            yield invalid("spec.minReplicas", minimum, "must be greater than or equal to 1")
        if maximum == 0:
            yield required("spec.maxReplicas", "must be set and greater than 0")
        elif maximum < 0:
            yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1")
        if minimum is not None and maximum < minimum:
            yield invalid(
                "spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`"
            )
        target = spec.get("scaleTargetRef") or {}
        yield from reference_errors(target, "spec.scaleTargetRef")
        before = None if old is None else old["spec"].get("scaleTargetRef") or {}
        if before is None or any(
            target.get(name) != before.get(name) for name in ("apiVersion", "kind")
        ):
            needs_group = target.get("kind") != "ReplicationController"
            yield from api_version_errors(target, "spec.scaleTargetRef", needs_group=needs_group)
        was_invalid = old is not None and any(
            map(_has_invalid_object, old["spec"].get("metrics") or ())
        )
        metrics = spec.get("metrics") or ()
        is_scaled_by_others = any(
            metric.get("type") in ("Object", "External") for metric in metrics
        )
        if minimum == 0 and not is_scaled_by_others:
            yield forbidden("spec.metrics", _ZERO_REPLICAS)
        for position, metric in enumerate(metrics):
            yield from metric_errors(
                metric, f"spec.metrics[{position}]", any_api_version=was_invalid
            )
        for direction in ("scaleUp", "scaleDown"):
            rules = (spec.get("behavior") or {}).get(direction)
            if rules is not None:
                yield from scaling_rule_errors(rules, f"spec.behavior.{direction}")


def _has_invalid_object(metric: Mapping[str, Any]) -> bool:
    described = (metric.get("object") or {}).get("describedObject")
    return described is not None and any(api_version_errors(described, "", needs_group=False))


def behavior_defaults(behavior: Mapping[str, Any]) -> Object:
    """Return a scaling behavior with the defaults of both directions."""
    up = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    }
    down = {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    return {
        "scaleUp": {**up, **(behavior.get("scaleUp") or {})},
        "scaleDown": {**down, **(behavior.get("scaleDown") or {})},
    }
