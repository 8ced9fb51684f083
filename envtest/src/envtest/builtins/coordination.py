"""The strategy of coordination.k8s.io Lease."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.apimachinery.field_errors import FieldError, invalid
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import nonnegative
from envtest.registry.resource import RequestContext

__all__ = ["LeaseStrategy"]


class LeaseStrategy(BuiltinStrategy):
    """Strategy of coordination.k8s.io/v1 Lease."""

    allow_create_on_update = True
    has_qualified_finalizers = False

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the duration and the number of transitions."""
        spec = obj["spec"]
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        yield from nonnegative("spec.leaseTransitions", spec.get("leaseTransitions"))
