"""The network from which Services get their cluster IPs."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final

__all__ = ["DEFAULT_SERVICE_NETWORK", "parse_service_network"]

DEFAULT_SERVICE_NETWORK: Final = IPv4Network("10.0.0.0/24")
"""The network that kube-apiserver uses without ``--service-cluster-ip-range``."""

_PREFIX_LENGTHS: Final = range(12, 30)


def parse_service_network(text: str) -> IPv4Network:
    """Return the network of cluster IPs that ``text`` describes in CIDR notation, such as ``10.0.0.0/16``.

    Raises ValueError if it is not an IPv4 network, or has fewer than 8 addresses or more than 2^20, as kube-apiserver.
    """
    network = IPv4Network(text)
    if network.prefixlen not in _PREFIX_LENGTHS:
        span = f"{_PREFIX_LENGTHS[0]} to {_PREFIX_LENGTHS[-1]}"
        raise ValueError(f"service network {text}: the prefix length must be from {span}")
    return network
