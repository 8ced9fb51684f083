"""The network from which Services get their cluster IPs, and the address at which the server is reached."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, ip_address
from typing import Final

__all__ = ["DEFAULT_SERVICE_NETWORK", "host_address", "is_local", "parse_service_network"]

DEFAULT_SERVICE_NETWORK: Final = IPv4Network("10.0.0.0/24")
"""The network that kube-apiserver uses without ``--service-cluster-ip-range``."""

_PREFIX_LENGTHS: Final = range(12, 30)
_MAX_SHOWN: Final = 100


def parse_service_network(text: str) -> IPv4Network:
    """Return the network of cluster IPs that ``text`` describes in CIDR notation, such as ``10.0.0.0/16``.

    Raises ValueError if it is not an IPv4 network, or has fewer than 8 addresses or more than 2^20, as kube-apiserver.
    """
    span = f"with a prefix length from {_PREFIX_LENGTHS[0]} to {_PREFIX_LENGTHS[-1]}"
    allowed = f"must be an IPv4 network {span}, such as {DEFAULT_SERVICE_NETWORK}"
    if not isinstance(text, str):
        raise TypeError(f"service-cluster-ip-range: {text!r}: {allowed}")
    try:
        network = IPv4Network(text)
    except ValueError:
        raise ValueError(f"service-cluster-ip-range: {text[:_MAX_SHOWN]!r}: {allowed}") from None
    if network.prefixlen not in _PREFIX_LENGTHS:
        raise ValueError(f"service-cluster-ip-range: {text!r}: {allowed}")
    return network


def is_local(host: str) -> bool:
    """Return whether a server that listens on ``host`` has no address of its own: loopback, all interfaces, a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return True
    return address.is_unspecified or address.is_loopback


def host_address() -> str:
    """Return the address from which this host sends to others; loopback if it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
