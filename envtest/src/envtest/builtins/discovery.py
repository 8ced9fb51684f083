"""The strategy of discovery.k8s.io EndpointSlice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from envtest.apimachinery.name_rules import (
    dns_label,
    dns_subdomain,
    label_errors,
    label_value,
    qualified_name,
)
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.ip_rules import ip_errors, ip_warnings, special_address_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = ["EndpointSliceStrategy"]

_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MAX_ENDPOINTS = 1000
_MAX_ADDRESSES = 100
_MAX_PORTS = 20_000
_MAX_TOPOLOGY = 16
_MAX_HINTS = 8


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

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`: v1 has no topology, only objects of older versions keep theirs."""
        super().prepare_create(obj, ctx)
        _drop_topology(obj)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: changed endpoints have no topology.

        A change of the labels counts as a generation, and so does topology that is sent and dropped.
        """
        super().prepare_update(new, old, ctx)
        is_changed = _compared(new) != _compared(old)
        if new.get("endpoints") != old.get("endpoints"):
            _drop_topology(new)
        if is_changed:
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about addresses that no controller has written."""
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) in _CONTROLLERS or obj.get(
            "addressType"
        ) == "FQDN":
            return ()
        warnings: list[str] = []
        for position, endpoint in enumerate(obj.get("endpoints") or ()):
            for number, address in enumerate(endpoint.get("addresses") or ()):
                warnings += ip_warnings(f"endpoints[{position}].addresses[{number}]", address)
        return warnings

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the address type, which is immutable, in the endpoints and in the ports."""
        kind = obj.get("addressType") or ""
        endpoints = obj.get("endpoints") or ()
        if not kind:
            yield required("addressType")
        elif kind not in ("FQDN", "IPv4", "IPv6"):
            yield not_supported("addressType", kind, ("FQDN", "IPv4", "IPv6"))
        if len(endpoints) > _MAX_ENDPOINTS:
            yield too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)
        else:
            for position, endpoint in enumerate(endpoints):
                yield from _endpoint_errors(endpoint, kind, f"endpoints[{position}]")
        yield from _ports_errors(obj.get("ports") or ())
        if old is not None and kind != old.get("addressType"):
            yield invalid("addressType", kind, "field is immutable")


def _compared(obj: Object) -> tuple[Any, ...]:
    """Return what a generation counts: everything but the metadata, and the labels."""
    labels = obj["metadata"].get("labels") or {}
    return labels, obj.get("addressType"), obj.get("endpoints"), obj.get("ports")


def _drop_topology(obj: Object) -> None:
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _endpoint_errors(endpoint: Mapping[str, Any], kind: str, path: str) -> Iterator[FieldError]:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > _MAX_ADDRESSES:
        yield too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES)
    for position, address in enumerate(addresses):
        yield from _address_errors(address, kind, f"{path}.addresses", position)
    if endpoint.get("nodeName") is not None:
        for problem in dns_subdomain(endpoint["nodeName"]):
            yield invalid(f"{path}.nodeName", endpoint["nodeName"], problem)
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > _MAX_TOPOLOGY:
        yield too_many(f"{path}.deprecatedTopology", len(topology), _MAX_TOPOLOGY)
    yield from label_errors(topology, f"{path}.deprecatedTopology")
    if endpoint.get("hostname") is not None:
        for problem in dns_label(endpoint["hostname"]):
            yield invalid(f"{path}.hostname", endpoint["hostname"], problem)
    hints = endpoint.get("hints") or {}
    yield from _hint_errors(hints.get("forZones") or (), f"{path}.hints.forZones", label_value)
    yield from _hint_errors(hints.get("forNodes") or (), f"{path}.hints.forNodes", dns_subdomain)


def _address_errors(address: str, kind: str, list_path: str, position: int) -> Iterator[FieldError]:
    path = f"{list_path}[{position}]"
    if kind == "FQDN":
        yield from _domain_errors(address.removesuffix("."), path)
    elif kind in ("IPv4", "IPv6"):
        problems = list(ip_errors(path, address))
        if not problems and (":" in address) != (kind == "IPv6"):
            yield invalid(list_path, address, f"must be an {kind} address")
        yield from problems or special_address_errors(address, path)


def _domain_errors(name: str, path: str) -> Iterator[FieldError]:
    problems = dns_subdomain(name)
    if not name:
        yield required(path)
    elif problems:
        yield invalid(path, name, ",".join(problems))
    elif "." not in name:
        yield invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        for label in name.split("."):
            problems = dns_label(label)
            if problems:
                yield invalid(path, label, ",".join(problems))
                return


def _hint_errors(
    hints: Sequence[Mapping[str, Any]], path: str, problems_of: Callable[[str], list[str]]
) -> Iterator[FieldError]:
    if len(hints) > _MAX_HINTS:
        yield too_many(path, len(hints), _MAX_HINTS)
        return
    names = [hint.get("name") or "" for hint in hints]
    repeated = repeated_positions(names)
    for position, name in enumerate(names):
        if position in repeated:
            yield duplicate(f"{path}[{position}].name", name)
        for problem in problems_of(name):
            yield invalid(f"{path}[{position}].name", name, problem)


def _ports_errors(ports: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    if len(ports) > _MAX_PORTS:
        yield too_many("ports", len(ports), _MAX_PORTS)
        return
    repeated = repeated_positions([port.get("name") or "" for port in ports])
    for position, port in enumerate(ports):
        path = f"ports[{position}]"
        name = port.get("name") or ""
        protocol = port.get("protocol")
        if name:
            for problem in dns_label(name):
                yield invalid(f"{path}.name", name, problem)
        if position in repeated:
            yield duplicate(f"{path}.name", name)
        if protocol not in _PROTOCOLS:
            yield not_supported(f"{path}.protocol", protocol or "", _PROTOCOLS)
        if port.get("appProtocol") is not None:
            for problem in qualified_name(port["appProtocol"]):
                yield invalid(f"{path}.appProtocol", port["appProtocol"], problem)
