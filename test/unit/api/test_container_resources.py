"""The API server's rules for requests and limits of a container."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.container_resources import container_byte_warnings, resource_errors
from cfo.runtime.objects.field import Path


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, []),
        ({"requests": {"cpu": "1"}}, []),
        ({"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, []),
        ({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": 1}}, []),
        ({"requests": {"cpu": "many"}, "limits": {"cpu": "1"}}, []),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "9" * 1_000_000}}, []),
        (
            {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}},
            ['r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1500m'],
        ),
        (
            {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
            ['r.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2'],
        ),
        (
            {"requests": {"hugepages-2Mi": "2Mi"}},
            ["r.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        ({"requests": {"cpu": "-0"}, "limits": {"cpu": 0}}, []),
        (
            {
                "requests": {"cpu": "-1e+0003"}
            },  # which API servers accept, and this operator does not read
            ['r.requests[cpu]: Invalid value: "-1e+0003": must be greater than or equal to 0'],
        ),
        (
            {"requests": {"cpu": -1}, "limits": {"memory": "-1e-99"}},
            [
                'r.limits[memory]: Invalid value: "-1e-99": must be greater than or equal to 0',
                'r.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
    ],
)
def test_refused_requests_and_limits_are_reported_as_by_the_api_server(
    resources: dict[str, Any], expected: list[str]
) -> None:
    assert list(map(str, resource_errors(resources, Path("r")))) == expected


@pytest.mark.parametrize("name", ["gpu", "storage", "gpus", "nvidia.com/", "a b/c", "x" * 300])
@pytest.mark.parametrize("field", ["limits", "requests"])
def test_name_that_is_no_resource_is_reported_once(field: str, name: str) -> None:
    (error,) = resource_errors({field: {name: "1"}}, Path("r"))
    assert error.field == f"r.{field}"
    assert error.detail.endswith("such as nvidia.com/gpu")


@pytest.mark.parametrize("quantity", ["8", 8, "1500000m", "0.5Gi", "1e3", "8Gi", "many", None, {}])
def test_whole_number_of_bytes_causes_no_warning(quantity: object) -> None:
    resources = {"limits": {"memory": quantity}, "requests": {"cpu": "8m"}}
    assert list(container_byte_warnings([{"resources": resources}, None], Path("c"))) == []


@pytest.mark.parametrize(("quantity", "shown"), [("8m", "8m"), ("0.5", "500m"), ("1e-3", "1e-3")])
def test_fraction_of_a_byte_causes_the_warning_of_the_api_server(quantity: str, shown: str) -> None:
    resources = {"limits": {"memory": quantity}, "requests": {"ephemeral-storage": quantity}}
    rule = f'fractional byte value "{shown}" is invalid, must be an integer'
    assert list(container_byte_warnings([{}, {"resources": resources}], Path("c"))) == [
        f"c[1].resources.limits[memory]: {rule}",
        f"c[1].resources.requests[ephemeral-storage]: {rule}",
    ]
