"""The strategy of policy PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.apimachinery.field_errors import FieldError, invalid, not_supported
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import BUDGET, internal_fields
from envtest.builtins.strategy import PathSegmentNameStrategy
from envtest.builtins.string_validation import (
    condition_errors,
    label_selector_errors,
    nonnegative,
    percent_above_100_errors,
    percent_or_int_errors,
)
from envtest.registry.resource import RequestContext

__all__ = ["DisruptionBudgetStrategy"]


class DisruptionBudgetStrategy(PathSegmentNameStrategy):
    """Strategy of policy/v1 PodDisruptionBudget."""

    has_qualified_finalizers = False
    validates_metadata = False

    has_spec_generation = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the bounds and the selector or, for an update of the status, in its counts."""
        if ctx.subresource == "status":
            for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
                yield from nonnegative(f"status.{name}", obj["status"].get(name))
            yield from condition_errors(obj["status"].get("conditions") or (), "status.conditions")
            return
        spec = obj["spec"]
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            text = "minAvailable and maxUnavailable cannot be both set"
            yield invalid("spec", internal_fields(BUDGET, spec), text)
        for name in ("minAvailable", "maxUnavailable"):
            if spec.get(name) is not None:
                yield from percent_or_int_errors(f"spec.{name}", spec[name])
                yield from percent_above_100_errors(f"spec.{name}", spec[name])
        yield from label_selector_errors(spec.get("selector"), "spec.selector")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
            yield not_supported(
                "spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")
            )
