"""The strategy of apiregistration.k8s.io APIService."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, go_quote, invalid, not_supported, required
from envtest.apimachinery.name_rules import dns_1035_label, dns_subdomain, path_segment
from envtest.apimachinery.objects import Object, set_condition
from envtest.builtins.strategy import PathSegmentNameStrategy
from envtest.builtins.string_validation import port_number
from envtest.registry.resource import RequestContext

__all__ = ["APIServiceStrategy"]


class APIServiceStrategy(PathSegmentNameStrategy):
    """Strategy of apiregistration.k8s.io/v1 APIService."""

    has_qualified_finalizers = False

    def set_defaults(self, obj: Object) -> None:
        """Set the default port of the service, 443."""
        service = obj["spec"].get("service")
        if service is not None:
            service.setdefault("port", 443)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`: an APIService of this server is available at once."""
        super().prepare_create(obj, ctx)
        if obj["spec"].get("service") is None:
            message = "Local APIServices are always available"
            condition = {
                "type": "Available",
                "status": "True",
                "reason": "Local",
                "message": message,
            }
            set_condition(obj["status"].setdefault("conditions", []), condition, now=ctx.now)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the name, which consists of version and group, the priorities and the service."""
        if ctx.subresource == "status":
            for position, condition in enumerate(obj["status"].get("conditions") or ()):
                if condition.get("status") not in _STATUSES:
                    path = f"status.conditions[{position}].status"
                    yield not_supported(path, condition.get("status") or "", _STATUSES)
            return
        spec = obj["spec"]
        group = spec.get("group") or ""
        version = spec.get("version") or ""
        text = f'must be `spec.version+"."+spec.group`: {go_quote(f"{version}.{group}")}'
        prefix = obj["metadata"].get("generateName")
        if prefix and prefix != f"{version}.{group}" and not any(path_segment(prefix)):
            yield invalid("metadata.generateName", prefix, text)
        name = obj["metadata"].get("name") or ""
        if name and name != f"{version}.{group}" and not any(path_segment(name)):
            yield invalid("metadata.name", name, text)
        if not group and version != "v1":
            yield required(
                "spec.group", "only v1 may have an empty group and it better be legacy kube"
            )
        if group:
            for problem in dns_subdomain(group):
                yield invalid("spec.group", group, problem)
        for problem in dns_1035_label(version):
            yield invalid("spec.version", version, problem)
        for name, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            if not 0 < (spec.get(name) or 0) <= limit:
                yield invalid(
                    f"spec.{name}", spec.get(name) or 0, f"must be positive and less than {limit}"
                )
        yield from _connection_errors(spec)


_STATUSES: Final = ("True", "False", "Unknown")


def _connection_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    service = spec.get("service")
    bundle = spec.get("caBundle") or ""
    insecure = spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            size = len(b64decode(bundle, validate=False))
            yield invalid(
                "spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle"
            )
        if insecure:
            yield invalid(
                "spec.insecureSkipTLSVerify",
                True,
                "local APIServices may not have insecureSkipTLSVerify",
            )
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"spec.service.{name}")
    problems = port_number(service.get("port") or 0)
    if problems:
        yield invalid(
            "spec.service.port",
            service.get("port") or 0,
            f"port is not valid: {', '.join(problems)}",
        )
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")
