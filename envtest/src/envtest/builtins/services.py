"""Strategy of v1 Service: defaults, validation, and the allocation of cluster IPs and node ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from ipaddress import IPv4Network
from typing import Any, Self

from envtest.apimachinery.errors import invalid_object
from envtest.apimachinery.field_errors import FieldError
from envtest.apimachinery.name_rules import dns_label, mask_trailing_dash
from envtest.apimachinery.objects import Object
from envtest.builtins.service_allocation import ServiceAllocator
from envtest.builtins.service_rules import (
    address_errors,
    change_errors,
    family_errors,
    is_external,
    needs_health_check,
    service_errors,
    service_warnings,
    status_errors,
)
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import load_balancer_warnings
from envtest.configuration.service_network import DEFAULT_SERVICE_NETWORK
from envtest.registry.resource import RequestContext

__all__ = ["ServiceStrategy"]


class ServiceStrategy(BuiltinStrategy):
    """Strategy of v1 Service; ``network`` contains the cluster IPs."""

    allow_create_on_update = True
    status_creates = True
    allocates = True

    def __init__(self, resource: Any, network: IPv4Network = DEFAULT_SERVICE_NETWORK) -> None:
        super().__init__(resource)
        self._allocator = ServiceAllocator(network)

    def fork(self) -> Self:
        """See :meth:`Strategy.fork`."""
        copied = copy(self)
        copied._allocator = self._allocator.fork()
        return copied

    def adopt(self, obj: Object) -> None:
        """Reserve the addresses and ports of a Service that an earlier process stored."""
        self._allocator.settle(obj)

    def settle(self, obj: Object) -> None:
        """Release the addresses and ports that a Service no longer has."""
        self._allocator.settle(obj)

    def release(self, uid: str) -> None:
        """Release the addresses and ports of a Service that was deleted."""
        self._allocator.release(uid)

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """Require a DNS label."""
        if prefix:
            name = mask_trailing_dash(name)
        return dns_label(name)

    status_warns = True

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warns about fields that are ignored or deprecated."""
        if ctx.subresource == "status":
            return list(load_balancer_warnings(obj))
        return list(service_warnings(obj))

    def set_defaults(self, obj: Object) -> None:
        """Set the type, session affinity, protocols, target ports and traffic policies."""
        spec = obj["spec"]
        spec.setdefault("type", "ClusterIP")
        affinity = spec.setdefault("sessionAffinity", "None")
        if affinity == "None":
            spec.pop("sessionAffinityConfig", None)
        elif affinity == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            client.setdefault("timeoutSeconds", 10800)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (0, "", None):
                port["targetPort"] = port.get("port", 0)
        kind = spec["type"]
        if is_external(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in (obj["status"].get("loadBalancer") or {}).get("ingress") or ():
            if kind == "LoadBalancer" and ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Clear the status, and make ``clusterIP`` and ``clusterIPs`` consistent."""
        super().prepare_create(obj, ctx)
        _sync_cluster_ips(obj["spec"], {})
        _clear_unused_fields(obj["spec"], {})

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Keep allocated addresses and ports as long as the type of the Service needs them."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource:
            return
        spec = new["spec"]
        before = old["spec"]
        _sync_cluster_ips(spec, before)
        if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
            if not spec.get("clusterIP") and not spec.get("clusterIPs") and before.get("clusterIP"):
                spec["clusterIP"] = before["clusterIP"]
                spec["clusterIPs"] = list(before.get("clusterIPs") or ())
            for name in ("ipFamilies", "ipFamilyPolicy"):
                if name not in spec and name in before:
                    spec[name] = before[name]
            _restore_node_ports(spec, before)
        _clear_unused_fields(spec, before)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a Service; allocate addresses and ports if there are none."""
        if ctx.subresource == "status":
            yield from status_errors(obj)
            return
        spec = obj["spec"]
        before = None if old is None else old["spec"]
        errors = list(address_errors(spec)) or list(family_errors(spec))
        if not errors and _needs_allocation(before, ctx):
            unallocated = list(self._allocator.allocate(obj, before, dry_run=ctx.dry_run))
            if unallocated:  # before the metadata is validated
                name = obj["metadata"].get("name") or ""
                raise invalid_object("", "Service", name, unallocated)
        if not errors:
            errors = list(service_errors(obj))
            if before is not None:
                errors += change_errors(spec, before)
        if ctx.dry_run and old is None:
            self._allocator.release(obj["metadata"].get("uid") or "")
        yield from errors


def _needs_allocation(before: Mapping[str, Any] | None, ctx: RequestContext) -> bool:
    """Return whether addresses and ports are allocated: a Service that a write of its status created never has any."""
    if before is None:
        return not ctx.created_by_status
    return bool(before.get("clusterIP")) or before.get("type") == "ExternalName"


def _sync_cluster_ips(spec: Object, before: Mapping[str, Any]) -> None:
    """Make ``clusterIPs`` follow ``clusterIP`` for a client that sets only the latter."""
    cluster_ip = spec.get("clusterIP")
    cluster_ips = spec.get("clusterIPs")
    if cluster_ip and not cluster_ips:
        spec["clusterIPs"] = [cluster_ip]
    elif (
        before.get("clusterIP")
        and cluster_ip != before["clusterIP"]
        and cluster_ips == before.get("clusterIPs")
    ):
        if cluster_ip:
            spec["clusterIPs"] = [cluster_ip]
        else:
            spec.pop("clusterIPs", None)


def _restore_node_ports(spec: Object, before: Mapping[str, Any]) -> None:
    if needs_health_check(spec) and needs_health_check(before):
        spec.setdefault("healthCheckNodePort", before.get("healthCheckNodePort"))
    if spec.get("type") not in ("NodePort", "LoadBalancer"):
        return
    old_node_ports = {
        (port.get("protocol"), port.get("port")): port.get("nodePort")
        for port in before.get("ports") or ()
    }
    for port in spec.get("ports") or ():
        if not port.get("nodePort"):
            number = old_node_ports.get((port.get("protocol"), port.get("port")))
            if number:
                port["nodePort"] = number


def _clear_unused_fields(spec: Object, before: Mapping[str, Any]) -> None:
    """Clear the fields that only the former type uses."""
    kind = spec.get("type")
    old_kind = before.get("type")
    loses_check = needs_health_check(before) and not needs_health_check(spec)
    if loses_check and spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
        spec.pop("healthCheckNodePort", None)
    external = spec.get("externalTrafficPolicy")
    loses_access = is_external(before) and not is_external(spec)
    if loses_access and external == before.get("externalTrafficPolicy"):
        spec.pop("externalTrafficPolicy", None)
    if kind == old_kind:
        return
    if kind == "ExternalName" and old_kind is not None:
        for name in (
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    if kind not in ("NodePort", "LoadBalancer") and old_kind in ("NodePort", "LoadBalancer"):
        old_ports = [port.get("nodePort") for port in before.get("ports") or ()]
        for port in spec.get("ports") or ():
            if port.get("nodePort") in old_ports:
                port.pop("nodePort", None)
    if old_kind == "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
