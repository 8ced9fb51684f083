"""Strategy of v1 Service: defaults, validation, and the allocation of cluster IPs and node ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from ipaddress import IPv4Network, ip_address
from typing import Any, Final, Self

from envtest.builtins.go_rendering import internal
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import INVALID_IP, is_ip, load_balancer_errors, port_name, port_number
from envtest.context import RequestContext
from envtest.errors import internal_error
from envtest.field_errors import FieldError, Verbatim, duplicate, forbidden, invalid, not_supported, required
from envtest.metadata import dns_label, dns_subdomain, label_value, mask_trailing_dash, qualified_name
from envtest.objects import Object
from envtest.service_network import DEFAULT_SERVICE_NETWORK

__all__ = ["ServiceStrategy"]

NODE_PORTS: Final = range(30000, 32768)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")


class _Addresses(Sequence[str]):
    """The addresses of a network, without those of the network itself and for broadcasts."""

    def __init__(self, network: IPv4Network) -> None:
        self._network = network

    def __len__(self) -> int:
        return self._network.num_addresses - 2

    def __getitem__(self, index: Any) -> Any:
        return str(self._network[index + 1])


class _Allocator:
    """Allocates values of a range: the lowest free one after the last, wrapping around to released ones."""

    def __init__(self, description: str, values: Sequence[Any]) -> None:
        self._description = description
        self._values = values
        self._allocated: dict[Any, str] = {}
        self._next = 0

    def take(self, owner: str) -> Any:
        """Allocate a free value for ``owner``, a uid.

        Raises StatusError (InternalError, as upstream) if the range is full.
        """
        size = len(self._values)
        for step in range(size):
            value = self._values[(self._next + step) % size]
            if value not in self._allocated:
                self._next = (self._next + step + 1) % size
                self._allocated[value] = owner
                return value
        raise internal_error(f"failed to allocate a {self._description}: range is full")

    def reserve(self, value: Any, owner: str) -> bool:
        """Allocate a given value; return whether it was free or already allocated to ``owner``."""
        return self._allocated.setdefault(value, owner) == owner

    def fork(self) -> _Allocator:
        """Return a copy."""
        copied = copy(self)
        copied._allocated = dict(self._allocated)
        return copied

    def release(self, owner: str) -> None:
        """Release all values that are allocated to ``owner``."""
        for value in [value for value, holder in self._allocated.items() if holder == owner]:
            del self._allocated[value]


class ServiceStrategy(BuiltinStrategy):
    """Strategy of v1 Service; ``network`` contains the cluster IPs."""

    allow_create_on_update = True

    def __init__(self, resource: Any, network: IPv4Network = DEFAULT_SERVICE_NETWORK) -> None:
        super().__init__(resource)
        self._network = network
        self._addresses = _Allocator("serviceIP", _Addresses(network))
        self._addresses.reserve(str(network[1]), "kubernetes")
        self._node_ports = _Allocator("nodePort", NODE_PORTS)

    def fork(self) -> Self:
        """See :meth:`Strategy.fork`."""
        copied = copy(self)
        copied._addresses, copied._node_ports = self._addresses.fork(), self._node_ports.fork()
        return copied

    def adopt(self, obj: Object) -> None:
        """Reserve the addresses and ports of a Service that an earlier process stored."""
        spec, uid = obj["spec"], obj["metadata"]["uid"]
        for address in spec.get("clusterIPs") or ():
            self._addresses.reserve(address, uid)
        for port in [*(each.get("nodePort") for each in spec.get("ports") or ()), spec.get("healthCheckNodePort")]:
            if port:
                self._node_ports.reserve(port, uid)

    def release(self, uid: str) -> None:
        """Release the addresses and ports of a Service that was deleted."""
        self._addresses.release(uid)
        self._node_ports.release(uid)

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """Require a DNS label."""
        return dns_label(mask_trailing_dash(name) if prefix else name)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warns about fields that are ignored or deprecated."""
        return list(_warnings(obj))

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
        if kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs")):
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
        spec, before = new["spec"], old["spec"]
        _sync_cluster_ips(spec, before)
        if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
            if not spec.get("clusterIP") and not spec.get("clusterIPs") and before.get("clusterIP"):
                spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], list(before.get("clusterIPs") or ())
            for name in ("ipFamilies", "ipFamilyPolicy"):
                if name not in spec and name in before:
                    spec[name] = before[name]
            _restore_node_ports(spec, before)
        _clear_unused_fields(spec, before)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a Service; allocate addresses and ports if there are none."""
        if ctx.subresource == "status":
            yield from load_balancer_errors(obj["status"])
            return
        spec = obj["spec"]
        errors = list(_service_errors(spec))
        if old is not None:
            errors += _change_errors(spec, old["spec"])
        yield from errors
        if not errors:
            yield from self._allocate(obj, dry_run=ctx.dry_run)

    def _allocate(self, obj: Object, *, dry_run: bool) -> Iterator[FieldError]:
        spec, owner = obj["spec"], obj["metadata"].get("uid") or ""
        if spec.get("type") == "ExternalName":
            self.release(owner)
            return
        self._set_families(spec)
        if spec.get("clusterIP") != "None":
            yield from self._allocate_address(spec, owner)
        if spec["type"] in ("NodePort", "LoadBalancer"):
            yield from self._allocate_ports(spec, owner)
        else:
            self._node_ports.release(owner)
        if dry_run:
            self.release(owner)

    @staticmethod
    def _set_families(spec: Object) -> None:
        headless = spec.get("clusterIP") == "None"
        if headless and not spec.get("selector"):
            spec.setdefault("ipFamilyPolicy", "RequireDualStack")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])

    def _allocate_address(self, spec: Object, owner: str) -> Iterator[FieldError]:
        address = spec.get("clusterIP")
        if not address:
            address = spec["clusterIP"] = self._addresses.take(owner)
        elif not is_ip(address) or ip_address(address) not in self._network:
            text = f"failed to allocate IP {address}: the provided network does not match the current range"
            yield invalid("spec.clusterIPs", [address], text)
            return
        elif not self._addresses.reserve(address, owner):
            text = f"failed to allocate IP {address}: provided IP is already allocated"
            yield invalid("spec.clusterIPs", [address], text)
            return
        spec.setdefault("clusterIPs", [address])

    def _allocate_ports(self, spec: Object, owner: str) -> Iterator[FieldError]:
        if spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
            return
        for position, port in enumerate(spec.get("ports") or ()):
            field_path = f"spec.ports[{position}].nodePort"
            requested = port.get("nodePort")
            if not requested:
                port["nodePort"] = self._node_ports.take(owner)
            elif requested not in NODE_PORTS:
                span = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
                text = f"provided port is not in the valid range. The range of valid ports is {span}"
                yield invalid(field_path, requested, text)
            elif not self._node_ports.reserve(requested, owner):
                yield invalid(field_path, requested, "provided port is already allocated")


def _sync_cluster_ips(spec: Object, before: Mapping[str, Any]) -> None:
    """Make ``clusterIP`` the first of ``clusterIPs``, so that a client that sets only one of them sets both."""
    cluster_ip, cluster_ips = spec.get("clusterIP"), spec.get("clusterIPs")
    if cluster_ip and not cluster_ips:
        spec["clusterIPs"] = [cluster_ip]
    elif cluster_ips and not cluster_ip:
        if before.get("clusterIP") and cluster_ips == before.get("clusterIPs"):
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIP"] = cluster_ips[0]
    elif (
        cluster_ip and cluster_ips and cluster_ip != before.get("clusterIP") and cluster_ips == before.get("clusterIPs")
    ):
        spec["clusterIPs"] = [cluster_ip]


def _restore_node_ports(spec: Object, before: Mapping[str, Any]) -> None:
    if spec.get("type") not in ("NodePort", "LoadBalancer"):
        return
    old_node_ports = {
        (port.get("protocol"), port.get("port")): port.get("nodePort") for port in before.get("ports") or ()
    }
    for port in spec.get("ports") or ():
        if not port.get("nodePort"):
            number = old_node_ports.get((port.get("protocol"), port.get("port")))
            if number:
                port["nodePort"] = number


def _clear_unused_fields(spec: Object, before: Mapping[str, Any]) -> None:
    """Clear the fields that only the former type uses."""
    kind, old_kind = spec.get("type"), before.get("type")
    if kind == old_kind:
        return
    if kind == "ExternalName" and old_kind is not None:
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    if kind not in ("NodePort", "LoadBalancer") and old_kind in ("NodePort", "LoadBalancer"):
        if not spec.get("externalIPs") and spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
            spec.pop("externalTrafficPolicy", None)
        old_ports = [port.get("nodePort") for port in before.get("ports") or ()]
        for port in spec.get("ports") or ():
            if port.get("nodePort") in old_ports:
                port.pop("nodePort", None)
    if old_kind == "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)


def _service_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    kind, address = spec.get("type") or "", spec.get("clusterIP") or ""
    ports = spec.get("ports") or ()
    if not ports and kind != "ExternalName" and address != "None":
        yield required("spec.ports")
    if kind == "LoadBalancer" and address == "None":
        yield invalid("spec.clusterIPs[0]", address, "may not be set to 'None' for LoadBalancer services")
    if kind == "NodePort" and address == "None":
        yield invalid("spec.clusterIPs[0]", address, "may not be set to 'None' for NodePort services")
    if kind == "ExternalName":
        if spec.get("clusterIPs"):
            yield forbidden("spec.clusterIPs", "may not be set for ExternalName services")
        name = (spec.get("externalName") or "").removesuffix(".")
        if not name:
            yield required("spec.externalName")
        else:
            for problem in dns_subdomain(name):
                yield invalid("spec.externalName", name, problem)
    yield from _port_errors(ports, headless=address == "None")
    for name, value in (spec.get("selector") or {}).items():
        for problem in qualified_name(name):
            yield invalid("spec.selector", name, problem)
        for problem in label_value(value):
            yield invalid("spec.selector", value, problem)
    affinity = spec.get("sessionAffinity") or ""
    if not affinity:
        yield required("spec.sessionAffinity")
    elif affinity not in ("ClientIP", "None"):
        yield not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if kind not in _TYPES:
        yield not_supported("spec.type", kind, _TYPES)
    for position, each in enumerate(spec.get("clusterIPs") or ()):
        if each not in ("None", "") and not is_ip(each):
            yield invalid(f"spec.clusterIPs[{position}]", each, INVALID_IP)
    for position, each in enumerate(spec.get("externalIPs") or ()):
        if not is_ip(each):
            yield invalid(f"spec.externalIPs[{position}]", each, INVALID_IP)
    for name, values in (
        ("externalTrafficPolicy", ("Cluster", "Local")),
        ("internalTrafficPolicy", ("Cluster", "Local")),
        ("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
    ):
        if spec.get(name) is not None and spec[name] not in values:
            yield not_supported(f"spec.{name}", spec[name], values)
    if spec.get("externalTrafficPolicy") and kind == "ClusterIP" and not spec.get("externalIPs"):
        text = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], text)


def _port_errors(ports: Sequence[Mapping[str, Any]], *, headless: bool) -> Iterator[FieldError]:
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        path, name, number = f"spec.ports[{position}]", port.get("name") or "", port.get("port") or 0
        if len(ports) > 1 and not name:
            yield required(f"{path}.name")
        elif name:
            for problem in dns_label(name):
                yield invalid(f"{path}.name", name, problem)
            if name in names:
                yield duplicate(f"{path}.name", name)
            names.add(name)
        for problem in port_number(number):
            yield invalid(f"{path}.port", number, problem)
        protocol = port.get("protocol") or ""
        if not protocol:
            yield required(f"{path}.protocol")
        elif protocol not in _PROTOCOLS:
            yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
        target = port.get("targetPort", 0)
        for problem in port_number(target) if isinstance(target, int) else port_name(target):
            yield invalid(f"{path}.targetPort", target, problem)
        for problem in qualified_name(port["appProtocol"]) if port.get("appProtocol") else ():
            yield invalid(f"{path}.appProtocol", port["appProtocol"], problem)
        identity = (protocol, number)
        if identity in numbers and not headless:
            shown = {"name": "", "protocol": protocol, "appProtocol": None, "port": number}
            yield duplicate(path, Verbatim(internal({**shown, "targetPort": 0, "nodePort": 0})))
        numbers.add(identity)


def _warnings(obj: Object) -> Iterator[str]:
    """Yield the warnings, with the messages of ``GetWarningsForService``."""
    spec, kind = obj["spec"], obj["spec"].get("type")
    hints = "service.kubernetes.io/topology-aware-hints"
    if hints in (obj["metadata"].get("annotations") or {}):
        yield f"annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if kind == "ExternalName":
        if spec.get("externalIPs"):
            yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    elif spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _change_errors(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of changes to allocated values."""
    if spec.get("type") == "ExternalName" or before.get("type") == "ExternalName":
        return
    old, new = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if old and new and old[0] != new[0]:
        yield invalid("spec.clusterIPs[0]", new, "may not change once set")
    elif old and not new:
        yield invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")
    is_load_balancer = spec.get("type") == before.get("type") == "LoadBalancer"
    if is_load_balancer and spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
        yield invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set")
