"""Allocation of cluster IPs and node ports to Services, in the order and with the messages of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from ipaddress import IPv4Network, ip_address
from typing import Any, Final, Self

from envtest.apimachinery.errors import internal_error
from envtest.apimachinery.field_errors import FieldError, invalid
from envtest.apimachinery.objects import Object
from envtest.builtins.ip_rules import is_ip
from envtest.builtins.service_rules import needs_health_check

__all__ = ["ServiceAllocator"]

NODE_PORTS: Final = range(30000, 32768)
_ALLOCATED = "provided port is already allocated"


class _Addresses(Sequence[str]):
    """The addresses of a network, without those of the network itself and for broadcasts."""

    def __init__(self, network: IPv4Network) -> None:
        self._network = network

    def __len__(self) -> int:
        return self._network.num_addresses - 2

    def __getitem__(self, index: Any) -> Any:
        return str(self._network[index + 1])


class _Pool:
    """Allocates values of a range: the lowest free one after the last, wrapping around to released ones."""

    def __init__(self, description: str, values: Sequence[Any]) -> None:
        self._description = description
        self._values = values
        self._owners: dict[Any, str] = {}
        self._held: dict[str, set[Any]] = {}
        self._next = 0

    def take(self, owner: str) -> Any:
        """Allocate a free value for ``owner``, a uid.

        Raises StatusError (InternalError, as upstream) if the range is full.
        """
        size = len(self._values)
        for step in range(size):
            value = self._values[(self._next + step) % size]
            if value not in self._owners:
                self._next = (self._next + step + 1) % size
                self.reserve(value, owner)
                return value
        raise internal_error(f"failed to allocate a {self._description}: range is full")

    def is_free(self, value: Any, owner: str) -> bool:
        """Return whether a value is free, or allocated to ``owner``."""
        return self._owners.get(value, owner) == owner

    def reserve(self, value: Any, owner: str) -> bool:
        """Allocate a given value; return whether it was free or already allocated to ``owner``."""
        if not self.is_free(value, owner):
            return False
        self._owners[value] = owner
        self._held.setdefault(owner, set()).add(value)
        return True

    def fork(self) -> Self:
        """Return a copy."""
        copied = copy(self)
        copied._owners = dict(self._owners)
        copied._held = {owner: set(values) for owner, values in self._held.items()}
        return copied

    def settle(self, owner: str, values: set[Any]) -> None:
        """Release all values of ``owner`` except ``values``, which are allocated to it."""
        for value in self._held.pop(owner, set()) - values:
            del self._owners[value]
        for value in values:
            self.reserve(value, owner)


class ServiceAllocator:
    """The cluster IPs of ``network`` and the node ports."""

    def __init__(self, network: IPv4Network) -> None:
        self._network = network
        self._addresses = _Pool("serviceIP", _Addresses(network))
        self._addresses.reserve(str(network[1]), "kubernetes")
        self._ports = _Pool("nodePort", NODE_PORTS)

    def fork(self) -> Self:
        """Return a copy with the same allocations."""
        copied = copy(self)
        copied._addresses = self._addresses.fork()
        copied._ports = self._ports.fork()
        return copied

    def settle(self, obj: Object) -> None:
        """Allocate exactly the values of a stored Service to it."""
        spec = obj["spec"]
        owner = obj["metadata"]["uid"]
        self._addresses.settle(
            owner, {each for each in spec.get("clusterIPs") or () if each and each != "None"}
        )
        self._ports.settle(owner, _node_ports(spec))

    def release(self, owner: str) -> None:
        """Release all values of a Service, by its uid."""
        self._addresses.settle(owner, set())
        self._ports.settle(owner, set())

    def allocate(
        self, obj: Object, before: Mapping[str, Any] | None, *, dry_run: bool
    ) -> Iterator[FieldError]:
        """Allocate values for a Service that is created, or changed from the spec ``before``; yield the first error.

        A dry run allocates nothing, and does not check whether requested addresses are free, or ports in the range.
        """
        spec = obj["spec"]
        owner = obj["metadata"].get("uid") or ""
        if spec.get("type") == "ExternalName":
            return
        if spec.get("clusterIP") != "None":
            requested = spec.get("clusterIP") or ""
            error = self._allocate_address(spec, owner, dry_run=dry_run)
            if error is None and not dry_run and not obj["metadata"].get("name"):
                error = _nameless_error(spec["clusterIP"], requested)
            if error is not None:
                yield error
                return
        ports: set[Any] = set()
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            error = self._allocate_ports(spec, before, owner, ports, dry_run=dry_run)
            if error is not None:
                yield error
                return
        if needs_health_check(spec):
            self._allocate_health_check(spec, owner, ports, dry_run=dry_run)

    def _allocate_address(self, spec: Object, owner: str, *, dry_run: bool) -> FieldError | None:
        address = spec.get("clusterIP")
        if not address:
            address = self._addresses.take(owner)
            spec["clusterIP"] = address
        elif not is_ip(address) or ip_address(address) not in self._network:
            text = f"failed to allocate IP {address}: the provided network does not match the current range"
            return invalid("spec.clusterIPs", [address], text)
        elif not dry_run and not self._addresses.reserve(address, owner):
            text = f"failed to allocate IP {address}: provided IP is already allocated"
            return invalid("spec.clusterIPs", [address], text)
        spec.setdefault("clusterIPs", [address])
        return None

    def _allocate_ports(
        self,
        spec: Object,
        before: Mapping[str, Any] | None,
        owner: str,
        requested: set[Any],
        *,
        dry_run: bool,
    ) -> FieldError | None:
        """Allocate a node port for each port.

        New Services get the same node port for all protocols of a port number.
        """
        ports = spec.get("ports") or ()
        allocates = (
            spec["type"] == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
        )
        kept = _node_ports(before or {})
        wanted = _requested_ports(ports) if before is None else {}
        shared: dict[int, int] = {}
        for position, port in enumerate(ports):
            number = port.get("port") or 0
            node_port = port.get("nodePort") or 0
            if not node_port and not allocates:
                continue
            if number in shared and node_port in (0, shared[number]):
                port["nodePort"] = shared[number]
                continue
            if not node_port:
                node_port = wanted.get(number, 0)
            if not node_port:
                node_port = self._ports.take(owner)
            elif node_port not in kept and not (before is not None and node_port in requested):
                why = self._reserve_port(node_port, owner, requested, dry_run=dry_run)
                if why:
                    return invalid(f"spec.ports[{position}].nodePort", node_port, why)
            port["nodePort"] = node_port
            if before is None:
                shared.setdefault(number, node_port)
        return None

    def _reserve_port(self, port: int, owner: str, requested: set[Any], *, dry_run: bool) -> str:
        """Reserve a requested port; return why it cannot be allocated."""
        if port in requested or not self._ports.is_free(port, owner):
            return _ALLOCATED
        requested.add(port)
        if dry_run:
            return ""
        if port not in NODE_PORTS:
            span = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            return f"provided port is not in the valid range. The range of valid ports is {span}"
        self._ports.reserve(port, owner)
        return ""

    def _allocate_health_check(
        self, spec: Object, owner: str, requested: set[Any], *, dry_run: bool
    ) -> None:
        port = spec.get("healthCheckNodePort")
        if not port:
            spec["healthCheckNodePort"] = self._ports.take(owner)
            return
        why = self._reserve_port(port, owner, requested, dry_run=dry_run)
        if why:
            raise internal_error(f"failed to allocate requested HealthCheck NodePort {port}: {why}")


def _nameless_error(address: str, requested: str) -> FieldError:
    """Return why an address cannot be allocated to a Service without a name: no IPAddress can refer to it."""
    shown = f" {requested}" if requested else ""
    text = (
        f'IPAddress.networking.k8s.io "{address}" is invalid: spec.parentRef.name: Required value'
    )
    return invalid("spec.clusterIPs", [requested], f"failed to allocate IP{shown}: {text}")


def _node_ports(spec: Mapping[str, Any]) -> set[Any]:
    """Return the ports that a spec allocates, including that of the health check."""
    ports = {each.get("nodePort") for each in spec.get("ports") or ()} | {
        spec.get("healthCheckNodePort")
    }
    return {port for port in ports if port}


def _requested_ports(ports: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return the first node port that is requested for each port number."""
    wanted: dict[int, int] = {}
    for port in ports:
        if port.get("nodePort"):
            wanted.setdefault(port.get("port") or 0, port["nodePort"])
    return wanted
