"""Nodes and the addresses of Services, validated as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.builtins.addresses import AddressStrategy
from envtest.builtins.catalog import all_resources
from envtest.builtins.table import strategy_for
from envtest.registry.resource import RequestContext, ResourceInfo

RESOURCES = {each.kind: each for each in all_resources()}


def errors(
    kind: str, old: dict[str, Any] | None = None, subresource: str = "", **fields: Any
) -> list[str]:
    """Return the errors of an object, as an update of ``old`` or as a new object."""
    resource = RESOURCES[kind]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        resource.group, resource.version, "x", "x", kind, namespaced=False, strategy=strategy
    )
    ctx = RequestContext(User("u"), "update", info, "", "a", subresource)
    objects = [{"metadata": {"name": "a"}, **each} for each in (fields, old) if each is not None]
    for each in objects:
        strategy.decode(each, ctx)
        strategy.default(each)
    return [
        str(each)
        for each in strategy.validate(objects[0], objects[1] if old is not None else None, ctx)
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}, []),
        (
            {"spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}},
            [
                (
                    'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more '
                    "than one CIDR for each IP family"
                )
            ],
        ),
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}},
            [
                (
                    'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule",'
                    '"TimeAdded":null}: taints must be unique by key and effect pair'
                )
            ],
        ),
        (
            {"status": {"capacity": {"x.y/gpu": "500m"}, "allocatable": {"cpu": "1"}}},
            ['status.capacity.x.y/gpu: Invalid value: "500m": must be an integer'],
        ),
        ({"status": {"declaredFeatures": ["A9", "A9/b", "A9/b/C"]}}, []),
        (
            {"status": {"declaredFeatures": ["B", "B", "A"]}},
            [
                'status.declaredFeatures[1]: Duplicate value: "B"',
                'status.declaredFeatures[2]: Invalid value: "A": list must be sorted alphabetically',
            ],
        ),
        (
            {"status": {"declaredFeatures": ["A/9"]}},
            [
                (
                    'status.declaredFeatures[0]: Invalid value: "A/9": invalid feature name "A/9": must start '
                    "with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature "
                    "or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                )
            ],
        ),
        (
            {"status": {"declaredFeatures": ["A" * 254]}},
            [
                (
                    f'status.declaredFeatures[0]: Invalid value: "{"A" * 254}": invalid feature name '
                    f'"{"A" * 254}": must be no more than 253 characters'
                )
            ],
        ),
    ],
)
def test_new_nodes(fields: dict[str, Any], expected: list[str]) -> None:
    assert errors("Node", **fields) == expected


def test_updates_of_nodes() -> None:
    spec = {"providerID": "p", "podCIDRs": ["10.0.0.0/24"]}
    assert errors("Node", {"spec": spec}, spec=spec) == []
    assert errors("Node", {"spec": spec}, spec={**spec, "providerID": "q"}) == [
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'
    ]
    negative = {"status": {"allocatable": {"cpu": "-1"}}}
    text = 'status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0'
    assert errors("Node", {}, **negative) == [text, text]
    assert errors("Node", {}, "status", **negative) == [text]


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (["10.0.0.0/24", "fd00::/112"], []),
        ([], ["spec.cidrs: Required value: at least one CIDR required"]),
        (
            ["10.0.0.1/24"],
            [
                'spec.cidrs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length'
            ],
        ),
    ],
)
def test_service_networks(networks: list[str], expected: list[str]) -> None:
    assert errors("ServiceCIDR", spec={"cidrs": networks}) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("10.0.0.0/24", "10.0.0.0/24 fd00::/112", []),
        (
            "10.0.0.0/24",
            "10.1.0.0/24",
            ['spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable'],
        ),
        (
            "10.0.0.0/24",
            "10.1.0.0/24 fd00::/112",
            ['spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable'],
        ),
        (
            "10.0.0.0/24 fd00::/112",
            "10.1.0.0/24 fd01::/112",
            [
                'spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable',
                'spec.cidrs[1]: Invalid value: "fd01::/112": field is immutable',
            ],
        ),
        (
            "10.0.0.0/24 fd00::/112",
            "10.0.0.0/24",
            ['spec.cidrs: Invalid value: ["10.0.0.0/24"]: field is immutable'],
        ),
        ("10.0.0.0/24", "", ["spec.cidrs: Invalid value: null: field is immutable"]),
    ],
)
def test_service_networks_are_immutable(before: str, after: str, expected: list[str]) -> None:
    old = {"spec": {"cidrs": before.split()}}
    assert errors("ServiceCIDR", old, spec={"cidrs": after.split()}) == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("10.0.0.1", None),
        ("10.0.0.01", "must not have leading 0s"),
        ("fd00::0", 'must be in canonical form ("fd00::")'),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ("x", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_names_of_addresses(name: str, problem: str | None) -> None:
    assert AddressStrategy(RESOURCES["IPAddress"]).validate_name(name) == (
        [problem] if problem else []
    )
