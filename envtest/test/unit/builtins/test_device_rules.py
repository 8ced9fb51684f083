"""Claims to devices and slices of devices, validated as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.device_rules import (
    claim_spec_errors,
    claim_status_errors,
    configuration_errors,
)
from envtest.builtins.slice_rules import slice_errors

DEVICE = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
REQUEST = {"name": "r", "exactly": DEVICE}
MANY = [REQUEST | {"name": f"r{number}"} for number in range(33)]
SLICE = {"driver": "d.io", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}


def requests(*items: dict[str, Any], **devices: Any) -> list[str]:
    spec = {"devices": {"requests": list(items), **devices}}
    return [str(each).removeprefix("spec.devices.") for each in claim_spec_errors(spec, "spec")]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([REQUEST], []),
        ([REQUEST, REQUEST], ['requests[1]: Duplicate value: "r"']),
        (
            [{"name": "r"}],
            [
                "requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"
            ],
        ),
        (
            [{"name": "r", "exactly": {**DEVICE, "allocationMode": "All"}}],
            [
                "requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'"
            ],
        ),
        (
            [{"name": "r", "firstAvailable": [{"name": "a", **DEVICE, "count": 0}]}],
            ["requests[0].firstAvailable[0].count: Invalid value: 0: must be greater than zero"],
        ),
        (
            MANY,
            ["requests: Too many: 33: must have at most 32 items"],
        ),
    ],
)
def test_requests(items: list[dict[str, Any]], expected: list[str]) -> None:
    assert requests(*items) == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("device.driver == 'x'", ""),
        ('device.attributes["d"].healthy', ""),
        ('device.capacity["d"].memory.isGreaterThan(quantity("1Gi"))', ""),
        ('cel.bind(d, device.attributes["d"], d.a && d.b)', ""),
        ("1", 'Invalid value: "1": must evaluate to bool or the unknown type, not int'),
        ("nosuch.x", 'Invalid value: "nosuch.x": compilation failed: '),
        ("device.", 'Invalid value: "device.": compilation failed: '),
        (
            "device.driver in ['x', 1]",
            "Invalid value: \"device.driver in ['x', 1]\": compilation failed: ",
        ),
        ("", 'Invalid value: "": compilation failed: '),
        ("true||" * 2000 + "true", "Too long: may not be more than 10240 bytes"),
    ],
)
def test_selector_is_a_condition_over_the_device(expression: str, problem: str) -> None:
    pytest.importorskip("cel_expr_python", reason="no CEL on this platform")
    selectors = [{"cel": {"expression": expression}}]
    found = requests({"name": "r", "exactly": {**DEVICE, "selectors": selectors}})
    assert [
        each.startswith(f"requests[0].exactly.selectors[0].cel.expression: {problem}")
        for each in found
    ] == ([True] if problem else [])


def test_constraints_and_configurations_refer_to_requests() -> None:
    alternatives = {"name": "s", "firstAvailable": [{"name": "a", **DEVICE}]}
    constraint = {"requests": ["r", "s/a", "x"], "matchAttribute": "noslash"}
    assert requests(
        REQUEST, alternatives, constraints=[constraint], config=[{"requests": ["s"]}]
    ) == [
        (
            'constraints[0].requests[2]: Invalid value: "x": must be the name of a request in the claim or the name of '
            "a request and a subrequest separated by '/'"
        ),
        (
            'constraints[0].matchAttribute: Invalid value: "noslash": a fully qualified name must be a domain and a '
            "name separated by a slash"
        ),
        "config[0].opaque: Required value",
    ]


def test_parameters_of_drivers_are_objects() -> None:
    assert [
        str(each)
        for each in configuration_errors({"opaque": {"driver": "d.io", "parameters": "x"}}, "c")
    ] == ['c.opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object']


def test_allocations_do_not_change() -> None:
    allocated = {
        "allocation": {"devices": {}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "v"}],
    }
    assert not status_fields(allocated, {})
    assert status_fields({"allocation": {"x": 1}}, allocated) == ["allocation"]
    consumer = {"resource": "pods", "name": "p", "uid": "u"}
    assert status_fields({"reservedFor": [consumer]}, allocated) == ["reservedFor"]
    assert status_fields({**allocated, "reservedFor": [{}, consumer, consumer]}, allocated) == [
        *(f"reservedFor[0].{name}" for name in ("resource", "name", "uid")),
        "reservedFor[2]",
    ]
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert status_fields({**allocated, "reservedFor": [consumer]}, allocated, **deleted) == [
        "reservedFor"
    ]


def status_fields(status: dict[str, Any], old: dict[str, Any], **claim: Any) -> list[str]:
    spec = {"devices": {"requests": [REQUEST]}}
    errors = claim_status_errors(
        {"spec": spec, "status": status, **claim}, {"spec": spec, "status": old}
    )
    return [each.field.removeprefix("status.") for each in errors]


def test_new_allocations_are_validated() -> None:
    good = {"request": "r", "driver": "d.io", "pool": "p/q", "device": "g"}
    bad = {"request": "x", "driver": "D_", "pool": "P", "device": ""}
    configuration = {
        "source": "Odd",
        "requests": ["a/b/c"],
        "opaque": {"driver": "d.io", "parameters": {}},
    }
    devices = {"results": [good, bad], "config": [configuration]}
    selector = {"nodeSelectorTerms": []}
    found = status_fields({"allocation": {"devices": devices, "nodeSelector": selector}}, {})
    assert [field.removeprefix("allocation.") for field in found] == [
        *(f"devices.results[1].{name}" for name in ("request", "driver", "pool", "device")),
        "devices.config[0].source",
        "devices.config[0].requests[0]",
        "nodeSelector.nodeSelectorTerms",
    ]


def test_second_of_two_kinds_is_not_validated() -> None:
    both = {"name": "r", "exactly": {}, "firstAvailable": [{}]}
    [error] = requests(both)
    assert error.endswith("but multiple fields are set")
    attributes = {"matchAttribute": "a/b", "distinctAttribute": ""}
    assert requests(REQUEST, constraints=[attributes]) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"devices": [{"name": "g", "attributes": {"a": {"int": 1}}}]}, []),
        (
            {"allNodes": True},
            [
                (
                    'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, '
                    "`allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"
                )
            ],
        ),
        ({"devices": [{"name": "g"}, {"name": "g"}]}, ['spec.devices[1]: Duplicate value: "g"']),
        (
            {"devices": [{"name": "g", "attributes": {"a": {}}}]},
            [
                'spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified'
            ],
        ),
    ],
)
def test_slices(fields: dict[str, Any], expected: list[str]) -> None:
    assert [str(each) for each in slice_errors({**SLICE, **fields}, SLICE)] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"devices": [{"name": "a", "attributes": {"v": {"version": "1.2.3-a.1+b"}}}]}, []),
        (
            {
                "devices": [
                    {
                        "name": "a",
                        "attributes": {"v": {"version": "1.2"}, "s": {"string": "x" * 65}},
                    }
                ]
            },
            [
                (
                    'devices[0].attributes[v].version: Invalid value: "1.2": must be a string compatible with '
                    "semver.org spec 2.0.0"
                ),
                "devices[0].attributes[s].string: Too long: may not be more than 64 bytes",
            ],
        ),
        (
            {"sharedCounters": [{"name": "c"}, {"name": "c", "counters": {"A_": {"value": "1"}}}]},
            [
                "sharedCounters[0].counters: Required value",
                'sharedCounters[1].counters: Invalid value: "A_"',
            ],
        ),
        (
            {"devices": [{"name": "a", "consumesCounters": [{"counters": {"x": {"value": "1"}}}]}]},
            ["devices[0].consumesCounters[0].counterSet: Required value"],
        ),
        (
            {"devices": [{"name": "a", "nodeName": "n"}]},
            [
                "devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"
            ],
        ),
        (
            {"nodeName": None, "perDeviceNodeSelection": True, "devices": [{"name": "a"}]},
            [
                "devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"
            ],
        ),
        (
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{}, {}]}},
            [
                (
                    'nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":null,"MatchFields":null},'
                    '{"MatchExpressions":null,"MatchFields":null}]: must have exactly one node selector term'
                )
            ],
        ),
        (
            {
                "allNodes": False,
                "devices": [{"name": "a"}],
                "sharedCounters": [{"name": "c", "counters": {"a": {}}}],
            },
            [
                "allNodes: Invalid value: false: must be either unset or set to true",
                'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
            ],
        ),
    ],
)
def test_devices_counters_and_nodes_of_slices(fields: dict[str, Any], expected: list[str]) -> None:
    found = [str(each).removeprefix("spec.") for each in slice_errors({**SLICE, **fields}, None)]
    assert [text for text in expected if not any(each.startswith(text) for each in found)] == []
    assert bool(found) == bool(expected)
