"""Names, quantities and scopes of ResourceQuotas, and the bounds of LimitRanges, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.admission.resources import add, format_quantities, parse_quantities
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import all_resources
from envtest.builtins.limits import LimitRangeStrategy, _bounds_errors, scope_errors
from envtest.builtins.resource_names import (
    container_resource_errors,
    quantity_errors,
    quota_resource_errors,
)
from envtest.registry.resource import RequestContext, ResourceInfo


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
    assert [
        each.detail for each in scope_errors({"hard": {hard: "1"}, "scopes": scopes})
    ] == details


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


def test_conflicts_of_a_scope_selector_are_reported_with_internal_values() -> None:
    def selector(*scopes: str) -> dict[str, Any]:
        return {
            "matchExpressions": [{"scopeName": scope, "operator": "Exists"} for scope in scopes]
        }

    (error,) = scope_errors({"hard": {"cpu": "1"}, "scopeSelector": selector("BestEffort")})
    shown = '{"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}'
    path = "spec.scopeSelector.matchExpressions"
    assert str(error) == f"{path}: Invalid value: {shown}: unsupported scope applied to resource"
    (error,) = scope_errors({"scopeSelector": selector("Terminating", "NotTerminating")})
    assert str(error) == f"{path}: Invalid value: null: conflicting scopes"


def limit_range_errors(**item: Any) -> list[str]:
    [resource] = [each for each in all_resources() if each.kind == "LimitRange"]
    strategy = LimitRangeStrategy(resource)
    info = ResourceInfo("", "v1", "x", "x", "LimitRange", namespaced=True, strategy=strategy)
    obj: Object = {"metadata": {"name": "a"}, "spec": {"limits": [item]}}
    strategy.default(obj)
    return [
        str(each)
        for each in strategy.check(
            obj, None, RequestContext(User("u"), "create", info, "default", "a")
        )
    ]


@pytest.mark.parametrize("name", ["x.y/gpu", "hugepages-2Mi"])
def test_defaults_without_overcommitment_are_equal(name: str) -> None:
    assert not limit_range_errors(type="Container", default={name: "2"}, defaultRequest={name: "2"})
    text = f"default value 2 must equal to defaultRequest value 1 in {name}"
    assert limit_range_errors(
        type="Container", default={name: "2"}, defaultRequest={name: "1"}
    ) == [f'spec.limits[0].defaultRequest[{name}]: Invalid value: "1": {text}']
    assert not limit_range_errors(
        type="Container", default={"cpu": "2"}, defaultRequest={"cpu": "1"}
    )


def test_limit_types_without_a_valid_name_are_not_compared_with_standard_types() -> None:
    (error,) = limit_range_errors(type="Bad Type")
    assert "name part must consist of alphanumeric characters" in error
    assert limit_range_errors(type="Odd") == [
        'spec.limits[0].type: Invalid value: "Odd": must be a standard limit type or fully qualified'
    ]


def test_defaults_of_pods_are_only_forbidden() -> None:
    assert limit_range_errors(type="Pod", default={"odd": "1"}, max={"cpu": "1"}) == [
        "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"
    ]


def test_bounds_of_a_limit_range_are_in_ascending_order() -> None:
    item = {"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "3"}, "max": {"cpu": "1"}}
    assert [str(each) for each in _bounds_errors(item, "l")] == [
        'l.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        'l.default[cpu]: Invalid value: "1": default value 3 is greater than max value 1',
    ]
    ratio = {
        "type": "Pod",
        "min": {"cpu": "1"},
        "max": {"cpu": "2"},
        "maxLimitRequestRatio": {"cpu": "3"},
    }
    assert [each.detail for each in _bounds_errors(ratio, "l")] == [
        "ratio 3 is greater than max/min = 2.000000"
    ]


def test_sums_keep_the_format_of_what_is_added() -> None:
    total = add(parse_quantities({"memory": "0"}), parse_quantities({"memory": "600Mi"}))
    assert format_quantities(add(total, parse_quantities({"memory": "424Mi"}))) == {"memory": "1Gi"}
