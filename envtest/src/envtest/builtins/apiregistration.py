"""The strategy of apiregistration.k8s.io APIService."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.builtins.strategy import BuiltinStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, invalid
from envtest.objects import Object

__all__ = ["APIServiceStrategy"]


class APIServiceStrategy(BuiltinStrategy):
    """Strategy of apiregistration.k8s.io/v1 APIService."""

    def set_defaults(self, obj: Object) -> None:
        """Set the default port of the service, 443."""
        service = obj["spec"].get("service")
        if service is not None:
            service.setdefault("port", 443)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the name, which consists of version and group, and of the priorities."""
        spec = obj["spec"]
        expected = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
        if obj["metadata"].get("name") != expected:
            yield invalid("metadata.name", obj["metadata"].get("name"), 'must be `spec.version+"."+spec.group`')
        for name in ("groupPriorityMinimum", "versionPriority"):
            if not spec.get(name):
                limit = 20000 if name == "groupPriorityMinimum" else 1000
                yield invalid(f"spec.{name}", spec.get(name) or 0, f"must be positive and less than {limit}")
