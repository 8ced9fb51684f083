"""The strategy of node.k8s.io RuntimeClass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envtest.apimachinery.field_errors import FieldError, duplicate, invalid, required
from envtest.apimachinery.name_rules import dns_label, label_errors
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import identity, repeated_positions
from envtest.builtins.container_resources import container_requirement_errors
from envtest.builtins.go_rendering import TOLERATION, internal_fields
from envtest.builtins.node_labels import DEPRECATED_LABELS
from envtest.builtins.scheduling_rules import toleration_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = ["RuntimeClassStrategy"]


class RuntimeClassStrategy(BuiltinStrategy):
    """Strategy of node.k8s.io/v1 RuntimeClass."""

    allow_create_on_update = True
    has_qualified_finalizers = False

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about deprecated labels of nodes."""
        labels = (obj.get("scheduling") or {}).get("nodeSelector") or ()
        return [
            f"scheduling.nodeSelector: {DEPRECATED_LABELS[label]}"
            for label in labels
            if label in DEPRECATED_LABELS
        ]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the handler, which is immutable, the overhead and the scheduling."""
        handler = obj.get("handler") or ""
        if old is not None and handler != (old.get("handler") or ""):
            yield invalid("handler", handler, "field is immutable")
        if not handler:
            yield required("handler")
        else:
            for problem in dns_label(handler):
                yield invalid("handler", handler, problem)
        overhead = obj.get("overhead")
        scheduling = obj.get("scheduling")
        if overhead is not None:
            yield from container_requirement_errors(
                {"limits": overhead.get("podFixed")}, "overhead"
            )
        if scheduling is not None:
            yield from label_errors(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
            tolerations = scheduling.get("tolerations") or ()
            yield from toleration_errors(tolerations, "scheduling.tolerations")
            for position in sorted(repeated_positions(map(identity, tolerations))):
                shown = internal_fields(TOLERATION, tolerations[position])
                yield duplicate(f"scheduling.tolerations[{position}]", shown)
