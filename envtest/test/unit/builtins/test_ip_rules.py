"""IP addresses and networks in fields."""

from __future__ import annotations

import pytest

from envtest.builtins.ip_rules import (
    cidr_errors,
    cidr_warnings,
    ip_problem,
    ip_warnings,
    is_ip,
    special_address_errors,
)

INVALID = "must be a valid IP address"
ZEROS = "must not have leading 0s"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.0.0.1", ""),
        ("0.0.0.0", ""),
        ("::1", ""),
        ("2001:DB8::1", ""),
        ("010.0.0.1", ZEROS),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ("256.0.0.1", INVALID),
        ("1.2.3", INVALID),
        ("fe80::1%eth0", INVALID),
        ("1" * 5000, INVALID),
        ("", INVALID),
    ],
)
def test_addresses(text: str, problem: str) -> None:
    assert ip_problem(text).startswith(problem)
    assert bool(ip_problem(text)) == bool(problem)
    assert is_ip(text) == (problem != INVALID)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.0.0.0/8", ""),
        ("2001:db8::/32", ""),
        ("10.0.0.0", "must be a valid CIDR value"),
        ("10.0.0.0/255.0.0.0", "must be a valid CIDR value"),
        ("10.0.0.0/33", "must be a valid CIDR value"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
        ("::ffff:1.2.3.4/128", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
    ],
)
def test_networks(text: str, problem: str) -> None:
    assert [problem] * bool(problem) == [
        each.detail[: len(problem)] for each in cidr_errors("p", text)
    ]


def test_forms_that_are_not_canonical_cause_warnings() -> None:
    assert (
        list(ip_warnings("p", "10.0.0.1"))
        == list(ip_warnings("p", ""))
        == list(cidr_warnings("p", "10.0.0.0/8"))
        == []
    )
    assert list(cidr_warnings("p", "2001:DB8::/32")) == [
        'p: IPv6 CIDR value "2001:DB8::/32" should be in RFC 5952 canonical format ("2001:db8::/32")'
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local range"),
        ("224.0.0.5", "link-local multicast"),
        ("x", "valid IP address"),
    ],
)
def test_addresses_without_traffic(text: str, words: str) -> None:
    [error] = special_address_errors(text, "p")
    assert words in str(error)
