"""The strategy of discovery.k8s.io EndpointSlice."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.apimachinery.field_errors import FieldError, invalid, not_supported, required
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import INVALID_IP, is_ip
from envtest.registry.resource import RequestContext

__all__ = ["EndpointSliceStrategy"]


class EndpointSliceStrategy(BuiltinStrategy):
    """Strategy of discovery.k8s.io/v1 EndpointSlice."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the ports: an empty name, and TCP."""
        for port in obj.get("ports") or ():
            if port.get("name") is None:
                port["name"] = ""
            if port.get("protocol") is None:
                port["protocol"] = "TCP"

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the address type, which is immutable, and of addresses that do not match it."""
        kind = obj.get("addressType") or ""
        if not kind:
            yield required("addressType")
        elif kind not in ("FQDN", "IPv4", "IPv6"):
            yield not_supported("addressType", kind, ("FQDN", "IPv4", "IPv6"))
        for position, endpoint in enumerate(obj.get("endpoints") or ()):
            path = f"endpoints[{position}].addresses"
            if not endpoint.get("addresses"):
                yield required(path, "must contain at least 1 address")
            for number, address in enumerate(endpoint.get("addresses") or ()):
                if kind not in ("IPv4", "IPv6"):
                    continue
                if not is_ip(address):
                    yield invalid(f"{path}[{number}]", address, INVALID_IP)
                elif (":" in address) != (kind == "IPv6"):
                    yield invalid(f"{path}[{number}]", address, f"must be an {kind} address")
        if old is not None and kind != old.get("addressType"):
            yield invalid("addressType", kind, "field is immutable")
