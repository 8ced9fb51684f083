"""Strategies of networking.k8s.io ServiceCIDR and IPAddress: the addresses that Services have."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from envtest.apimachinery.field_errors import FieldError, invalid, required
from envtest.apimachinery.name_rules import dns_subdomain, path_segment
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import PARENT, internal_fields
from envtest.builtins.ip_rules import cidr_errors, ip_problem
from envtest.builtins.nodes import is_dual_stack
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = ["AddressStrategy", "ServiceNetworkStrategy"]

_FAMILIES = 2


class ServiceNetworkStrategy(BuiltinStrategy):
    """Strategy of networking.k8s.io/v1 ServiceCIDR."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the networks: one or two, of different IP families.

        An update can only add the second one.
        """
        if ctx.subresource == "status":
            return
        networks = obj["spec"].get("cidrs") or []
        if old is not None:
            before = old["spec"].get("cidrs") or []
            upgrades = len(before) == 1 and len(networks) == _FAMILIES
            if len(networks) != len(before) and not upgrades:
                yield invalid("spec.cidrs", networks or None, "field is immutable")
                return
            for position, text in enumerate(before):
                if networks[position] != text:
                    yield invalid(
                        f"spec.cidrs[{position}]", networks[position], "field is immutable"
                    )
            if not upgrades:
                return
        if not networks:
            yield required("spec.cidrs", "at least one CIDR required")
        elif len(networks) > _FAMILIES:
            yield invalid(
                "spec.cidrs",
                internal_fields("CIDRs", {"cidrs": networks}),
                "may only hold up to 2 values",
            )
        elif (
            len(networks) == _FAMILIES
            and all(map(_is_network, networks))
            and not is_dual_stack(networks)
        ):
            text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            yield invalid("spec.cidrs", networks, text)
        else:
            for position, text in enumerate(networks):
                yield from _network_errors(text, f"spec.cidrs[{position}]")


def _is_network(text: str) -> bool:
    return not any(cidr_errors("", text))


def _network_errors(text: str, path: str) -> Iterator[FieldError]:
    problems = list(cidr_errors(path, text))
    yield from problems
    if not problems:
        network = str(ip_network(text))
        if network != text:
            yield invalid(path, text, f'must be in canonical form ("{network}")')


class AddressStrategy(BuiltinStrategy):
    """Strategy of networking.k8s.io/v1 IPAddress."""

    generates_names = False

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """Require an IP address in canonical form."""
        problem = ip_problem(name)
        if problem:
            return [problem]
        address = str(ip_address(name))
        return [] if address == name else [f'must be in canonical form ("{address}")']

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the reference to the object that has the address, which is immutable.

        An update also needs a valid ``generateName``; that of a new object is validated with its other metadata.
        """
        prefix = obj["metadata"].get("generateName")
        if old is not None and prefix:
            for problem in self.validate_name(prefix, prefix=True) or ():
                yield invalid("metadata.generateName", prefix, problem)
        parent = obj["spec"].get("parentRef")
        if old is not None and parent != old["spec"].get("parentRef"):
            shown = internal_fields(PARENT, parent) if parent is not None else None
            yield invalid("spec.parentRef", shown, "field is immutable")
        if parent is None:
            yield required("spec.parentRef")
            return
        for name in ("resource", "name"):
            if not parent.get(name):
                yield required(f"spec.parentRef.{name}")
        for name in ("resource", "name", "namespace"):
            if parent.get(name):
                for problem in path_segment(parent[name]):
                    yield invalid(f"spec.parentRef.{name}", parent[name], problem)
        if parent.get("group"):
            for problem in dns_subdomain(parent["group"]):
                yield invalid("spec.parentRef.group", parent["group"], problem)
