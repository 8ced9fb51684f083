"""The type checking of ValidatingAdmissionPolicies for their status."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.admission.policy_types import expression_warnings
from envtest.builtins.table import register_builtins
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo, Strategy
from envtest.schema.schema_node import Schema

DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
WIDGETS = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/status"]}


@pytest.fixture(scope="module")
def registry() -> Registry:
    registry = Registry()
    register_builtins(registry, {})
    schema = Schema({"type": "object", "properties": {"size": {"type": "integer"}}})
    widgets = ResourceInfo(
        "example.com", "v1", "widgets", "widget", "Widget", True, Strategy(), schema=schema
    )
    widgets.is_crd = True
    registry.register(widgets)
    return registry


def warnings(registry: Registry, *rules: dict[str, Any], **spec: Any) -> list[tuple[str, str]]:
    policy = {"spec": {"matchConstraints": {"resourceRules": list(rules)}, **spec}}
    return [(each["fieldRef"], each["warning"]) for each in expression_warnings(policy, registry)]


def test_correct_expressions_have_no_warnings(registry: Registry) -> None:
    sources = [
        "object.spec.replicas > 1",
        "object.metadata.labels['a'] == oldObject.metadata.name",
        "request.dryRun",
    ]
    assert (
        warnings(registry, DEPLOYMENTS, validations=[{"expression": each} for each in sources])
        == []
    )


def test_unknown_fields_are_reported_for_each_type(registry: Registry) -> None:
    found = warnings(
        registry, WIDGETS, DEPLOYMENTS, validations=[{"expression": "object.spec.replicas > 1"}]
    )
    assert found == [
        (
            "spec.validations[0].expression",
            (
                "example.com/v1, Kind=Widget: ERROR: <input>:1:7: undefined field 'spec'\n"
                " | object.spec.replicas > 1\n | ......^\n"
            ),
        )
    ]
    both = warnings(registry, PODS, DEPLOYMENTS, validations=[{"expression": "object.nope"}])[0][1]
    assert [line.partition(":")[0] for line in both.splitlines() if "Kind=" in line] == [
        "/v1, Kind=Pod",
        "apps/v1, Kind=Deployment",
    ]


def test_message_expressions_variables_and_parameters_are_typed(registry: Registry) -> None:
    found = warnings(
        registry,
        WIDGETS,
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        variables=[
            {"name": "size", "expression": "object.size"},
            {"name": "broken", "expression": "object.nope"},
        ],
        validations=[
            {"expression": "variables.size > 'a'", "messageExpression": "params.nope"},
            {"expression": "variables.broken == params.data['x']"},
        ],
    )
    assert [path for path, _ in found] == [
        "spec.validations[0].expression",
        "spec.validations[0].messageExpression",
    ]


@pytest.mark.parametrize(
    "wildcard", [{"apiGroups": ["*"]}, {"apiVersions": ["*"]}, {"resources": ["*"]}]
)
def test_wildcards_are_not_checked(registry: Registry, wildcard: dict[str, Any]) -> None:
    assert (
        warnings(registry, DEPLOYMENTS | wildcard, validations=[{"expression": "object.nope"}])
        == []
    )
