"""Checks of built-in types; ``test_pod_spec.py`` has the cases for pods."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.builtin_types import type_problems
from cfo.api.reading import has_more_values_than

TYPES = {
    "Own": {"any": "object", "one": "scalar", "env": "[EnvVar]", "labels": "{string}"},
    "EnvVar": {"name": "string"},
}


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"any": {"a": [1]}, "one": 1, "env": [{"name": "a"}], "labels": {"a": None}}, []),
        (
            {"any": [], "one": {}},
            [
                'field "spec.any" must be an object',
                'field "spec.one" must be a string, a number, true or false',
            ],
        ),
        ({"env": [None]}, ['field "spec.env[0]" must be an object']),
        ({"env": None, "other": None}, ['unknown field "spec.other"']),
    ],
)
def test_types_of_our_own_are_checked(value: Any, problems: list[str]) -> None:
    found = type_problems(value, "Own", TYPES, path="spec", null_items=False)
    assert [str(problem) for problem in found] == problems


def test_built_in_types_include_those_of_services_and_autoscalers() -> None:
    assert list(type_problems({"port": 80, "targetPort": "http"}, "ServicePort")) == []
    (problem,) = type_problems({"maxSurge": 1}, "DeploymentStrategy")
    assert (problem.path, problem.expected, problem.type_name) == (
        "maxSurge",
        "",
        "DeploymentStrategy",
    )
    metric = {
        "type": "External",
        "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "x"}},
    }
    (problem,) = type_problems(metric, "MetricSpec")
    assert problem.path == "external.target.value"


def test_values_are_counted_up_to_the_limit() -> None:
    assert not has_more_values_than(3, {"a": [1, 2]})
    assert has_more_values_than(2, {"a": [1, 2]})
