"""Names, quantities and scopes of ResourceQuotas, and the bounds of LimitRanges, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.admission.resources import add, format_quantities, parse_quantities
from envtest.builtins.limits import _bounds_errors, scope_errors
from envtest.builtins.resource_names import container_resource_errors, quantity_errors, quota_resource_errors


@pytest.mark.parametrize(
    "name", ["pods", "requests.cpu", "hugepages-2Mi", "count/deployments.apps", "requests.x.y/gpu"]
)
def test_quotas_limit_standard_and_qualified_resources(name: str) -> None:
    assert not list(quota_resource_errors(name, "p"))


@pytest.mark.parametrize(("name", "count"), [("foo", 2), ("storage", 1), ("count/", 2)])
def test_other_names_are_refused(name: str, count: int) -> None:
    assert len(list(quota_resource_errors(name, "p"))) == count


def test_containers_request_compute_resources_and_devices() -> None:
    for name in ("cpu", "hugepages-2Mi", "nvidia.com/gpu"):
        assert not list(container_resource_errors(name, "p"))
    assert [each.detail for each in container_resource_errors("pods", "p")] == [
        "must be a standard resource for containers"
    ]
    assert [each.detail for each in container_resource_errors("requests.x.y/gpu", "p")] == [
        "doesn't follow extended resource name standard"
    ]


@pytest.mark.parametrize(
    ("name", "quantity", "detail"),
    [
        ("pods", "1500m", "must be an integer"),
        ("nvidia.com/gpu", "500m", "must be an integer"),
        ("cpu", "500m", ""),
        ("cpu", "-1", "must be greater than or equal to 0"),
    ],
)
def test_quantities(name: str, quantity: str, detail: str) -> None:
    assert [each.detail for each in quantity_errors(name, quantity, "p")] == [detail] * bool(detail)


@pytest.mark.parametrize(
    ("hard", "scopes", "details"),
    [
        ("pods", ["BestEffort"], []),
        ("cpu", ["BestEffort"], ["unsupported scope applied to resource"]),
        ("pods", ["Odd"], ["unsupported scope"]),
        ("pods", ["Terminating", "NotTerminating"], ["conflicting scopes"]),
        ("x.y/z", ["BestEffort"], []),
    ],
)
def test_scopes_fit_the_resources(hard: str, scopes: list[str], details: list[str]) -> None:
    assert [each.detail for each in scope_errors({"hard": {hard: "1"}, "scopes": scopes})] == details


@pytest.mark.parametrize(
    ("requirement", "fields"),
    [
        ({"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}, []),
        ({"scopeName": "PriorityClass", "operator": "In"}, ["values"]),
        ({"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}, ["values"]),
        ({"scopeName": "Terminating", "operator": "In", "values": ["a"]}, ["operator"]),
        ({"scopeName": "Odd", "operator": "Near"}, ["scopeName", "operator"]),
    ],
)
def test_scope_selectors(requirement: dict[str, Any], fields: list[str]) -> None:
    errors = scope_errors({"scopeSelector": {"matchExpressions": [requirement]}})
    assert [each.field.rpartition(".")[2] for each in errors] == fields


def test_bounds_of_a_limit_range_are_in_ascending_order() -> None:
    item = {"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "3"}, "max": {"cpu": "1"}}
    assert [str(each) for each in _bounds_errors(item, "l")] == [
        'l.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        'l.default[cpu]: Invalid value: "1": default value 3 is greater than max value 1',
    ]
    ratio = {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}
    assert [each.detail for each in _bounds_errors(ratio, "l")] == ["ratio 3 is greater than max/min = 2.000000"]


def test_sums_keep_the_format_of_what_is_added() -> None:
    total = add(parse_quantities({"memory": "0"}), parse_quantities({"memory": "600Mi"}))
    assert format_quantities(add(total, parse_quantities({"memory": "424Mi"}))) == {"memory": "1Gi"}
