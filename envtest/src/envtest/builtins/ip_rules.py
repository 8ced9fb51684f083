"""IP addresses and networks in fields: their errors, and warnings about forms that are valid but not canonical.

Follows ``k8s.io/apimachinery/pkg/util/validation/ip.go`` with the rules of Kubernetes 1.36: no leading zeros, no IPv4
address in the form of an IPv6 address, no bits beyond the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from envtest.apimachinery.field_errors import FieldError, go_quote, invalid

__all__ = [
    "INVALID_IP",
    "cidr_errors",
    "cidr_warnings",
    "interface_address_errors",
    "ip_errors",
    "ip_problem",
    "ip_warnings",
    "is_ip",
    "is_network",
    "special_address_errors",
]

INVALID_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_INVALID_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_IPV4 = re.compile(r"\d{1,9}(?:\.\d{1,9}){3}", re.ASCII)
_PREFIX = re.compile(r"\d{1,9}", re.ASCII)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address as leniently as Kubernetes before 1.36, which accepts leading zeros."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        numbers = [int(part) for part in text.split(".")] if _IPV4.fullmatch(text) else []
        return IPv4Address(bytes(numbers)) if numbers and max(numbers) <= 255 else None


def _is_mapped(address: IPv4Address | IPv6Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


def _has_zeros(text: str) -> bool:
    return ":" not in text and any(part != "0" and part.startswith("0") for part in text.split("."))


def is_ip(text: str) -> bool:
    """Return whether ``text`` is an IP address, in whatever form."""
    return _parse(text) is not None


def ip_problem(text: str) -> str:
    """Return why ``text`` is not a valid IP address, or an empty string."""
    address = _parse(text)
    if address is None:
        return INVALID_IP
    if _has_zeros(text):
        return "must not have leading 0s"
    return "must not be an IPv4-mapped IPv6 address" if _is_mapped(address) else ""


def ip_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield an error unless ``text`` is a valid IP address."""
    problem = ip_problem(text)
    if problem:
        yield invalid(path, text, problem)


def special_address_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of an address to which no traffic can be sent."""
    address = _parse(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
        return
    if address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if text.startswith("224.0.0.") or (address.version == 6 and text.lower().startswith("ff02:")):
        yield invalid(
            path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        )


def _network(text: str) -> IPv4Network | IPv6Network | None:
    first, slash, size = text.partition("/")
    address = _parse(first)
    if (
        address is None
        or not slash
        or not _PREFIX.fullmatch(size)
        or int(size) > address.max_prefixlen
    ):
        return None
    return ip_network((address.packed, int(size)), strict=False)


def is_network(text: str) -> bool:
    """Return whether a string is a network in CIDR notation."""
    return _network(text) is not None


def cidr_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield an error unless ``text`` is a network in CIDR notation."""
    network = _network(text)
    first, _, size = text.partition("/")
    if network is None:
        yield invalid(path, text, _INVALID_CIDR)
    elif _has_zeros(first) or _has_zeros(size):
        yield invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif _is_mapped(ip_address(first)):
        yield invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif ip_address(first) != network.network_address:
        yield invalid(path, text, "must not have bits set beyond the prefix length")


def interface_address_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield an error unless ``text`` is an address with the length of its network's prefix, in canonical form."""
    network = _network(text)
    first, _, size = text.partition("/")
    if network is None:
        yield invalid(
            path, text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        )
        return
    address = ip_address(first)
    if _has_zeros(first) or _has_zeros(size) or _is_mapped(address) or str(address) != first:
        canonical = f"{address}/{network.prefixlen}"
        yield invalid(path, text, f"must be in canonical form ({go_quote(canonical)})")


def ip_warnings(path: str, text: str) -> Iterator[str]:
    """Warn about an IPv6 address that is not in its canonical form."""
    address = _parse(text)
    if isinstance(address, IPv6Address) and str(address) != text:
        rule = f"should be in RFC 5952 canonical format ({go_quote(str(address))})"
        yield f"{path}: IPv6 address {go_quote(text)} {rule}"


def cidr_warnings(path: str, text: str) -> Iterator[str]:
    """Warn about an IPv6 network that is not in its canonical form."""
    network = _network(text)
    if isinstance(network, IPv6Network) and str(network) != text:
        rule = f"should be in RFC 5952 canonical format ({go_quote(str(network))})"
        yield f"{path}: IPv6 CIDR value {go_quote(text)} {rule}"
