"""The strategy of scheduling.k8s.io PriorityClass."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = ["PriorityClassStrategy"]


_RESERVED = "priority class names with 'system-' prefix are reserved for system use only."
_POLICIES = ("PreemptLowerPriority", "Never")


class PriorityClassStrategy(BuiltinStrategy):
    """Strategy of scheduling.k8s.io/v1 PriorityClass."""

    has_spec_generation = False

    def set_defaults(self, obj: Object) -> None:
        """Set the default preemption policy, ``PreemptLowerPriority``."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the generation to 1. It never changes, because all fields that it would count are immutable."""
        super().prepare_create(obj, ctx)
        obj["metadata"]["generation"] = 1

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the value, which is limited for users and immutable, and of the name."""
        name = obj["metadata"].get("name") or ""
        value = obj.get("value") or 0
        if name.startswith("system-"):
            if old is None and name not in ("system-node-critical", "system-cluster-critical"):
                text = f"{_RESERVED} error: {name} is not a known system priority class"
                yield forbidden("metadata.name", text)
        elif old is None and value > 1_000_000_000:
            text = "maximum allowed value of a user defined priority is 1000000000"
            yield forbidden("value", text)
        policy = obj.get("preemptionPolicy")
        if old is None and policy == "":
            yield required("preemptionPolicy")
        elif old is None and policy is not None and policy not in _POLICIES:
            yield not_supported("preemptionPolicy", policy, _POLICIES)
        if old is not None:
            if value != (old.get("value") or 0):
                yield forbidden("value", "may not be changed in an update.")
            if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
                yield invalid("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable")
