"""Validation of admission policies, their bindings, and the configuration of flow control."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envtest.builtins.admission_policies import PolicyBindingStrategy, PolicyStrategy
from envtest.builtins.catalog import all_resources
from envtest.builtins.flow_control_defaults import LEVELS, SCHEMAS
from envtest.builtins.flowcontrol import FlowSchemaStrategy, PriorityLevelStrategy
from envtest.schema.shaping import copy_json

RESOURCES = {each.kind: each for each in all_resources()}
TRUE = [{"expression": "true"}]
CONTEXT = SimpleNamespace(subresource="")


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def policy_errors(**spec: Any) -> list[str]:
    strategy = PolicyStrategy(RESOURCES["ValidatingAdmissionPolicy"])
    obj = {
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [RULE]}, **copy_json(spec)},
    }
    strategy.default(obj)
    return [str(each) for each in strategy.check(obj, None, CONTEXT)]  # type: ignore[arg-type]


def binding_errors(**spec: Any) -> list[str]:
    strategy = PolicyBindingStrategy(RESOURCES["ValidatingAdmissionPolicyBinding"])
    obj = {
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"], **copy_json(spec)},
    }
    strategy.default(obj)
    return [each.field for each in strategy.check(obj, None, CONTEXT)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"validations": TRUE}, []),
        (
            {"validations": [{"expression": "1"}]},
            [
                'spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int'
            ],
        ),
        (
            {
                "validations": [{"expression": "variables.b"}],
                "variables": [{"name": "a", "expression": "1"}],
            },
            [
                (
                    'spec.validations[0].expression: Invalid value: "variables.b": compilation failed: ERROR: '
                    "<input>:1:10: undefined field 'b'\n | variables.b\n | .........^"
                )
            ],
        ),
        (
            {"validations": [{"expression": "object.x.findAll('[') == []"}]},
            [
                (
                    "spec.validations[0].expression: Internal error: program instantiation failed: "
                    "error parsing regexp: missing closing ]: `[`"
                )
            ],
        ),
        (
            {
                "validations": [{"expression": "variables.a == 'variables.b'"}],
                "variables": [{"name": "a", "expression": "'x'"}],
            },
            [],
        ),
        (
            {"validations": TRUE, "variables": [{"name": "for", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier'],
        ),
        (
            {"validations": TRUE, "auditAnnotations": [{"key": "k", "valueExpression": "1"}]},
            [
                (
                    'spec.auditAnnotations[0].valueExpression: Invalid value: "1": '
                    "must evaluate to one of [string null_type] but got int"
                )
            ],
        ),
        (
            {"validations": [{"expression": "true", "message": "a\nb", "reason": "Because"}]},
            [
                'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks',
                (
                    'spec.validations[0].reason: Unsupported value: "Because": '
                    'supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"'
                ),
            ],
        ),
    ],
)
def test_validations_are_validated(spec: dict[str, Any], expected: list[str]) -> None:
    assert policy_errors(**spec) == expected


def test_parameters_exist_only_with_their_kind() -> None:
    validations = [{"expression": "params.x == 1"}]
    (error,) = policy_errors(validations=validations)
    assert "compilation failed: " in error
    assert not policy_errors(
        validations=validations, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}
    )


def test_references_to_parameters_are_validated() -> None:
    path = "spec.paramRef"
    fields = binding_errors(paramRef={"name": "a", "selector": {}})
    assert fields == [f"{path}.name", f"{path}.selector", f"{path}.parameterNotFoundAction"]
    wrong = policy_errors(validations=TRUE, paramKind={"apiVersion": "a/b/c"})
    assert [each.partition(":")[0] for each in wrong] == [
        "spec.paramKind.apiVersion",
        "spec.paramKind.kind",
    ]
    assert not policy_errors(
        validations=TRUE, paramKind={"apiVersion": "a.io/v1", "kind": "Limits"}
    )


def flow_errors(kind: str, name: str, spec: dict[str, Any]) -> list[str]:
    strategy = {
        "FlowSchema": FlowSchemaStrategy,
        "PriorityLevelConfiguration": PriorityLevelStrategy,
    }[kind](RESOURCES[kind])
    obj = {"metadata": {"name": name}, "spec": copy_json(spec)}
    strategy.default(obj)
    return [str(each) for each in strategy.check(obj, None, CONTEXT)]  # type: ignore[arg-type]


def test_initial_objects_of_flow_control_are_valid() -> None:
    assert not [
        each
        for name, spec in SCHEMAS.items()
        for each in flow_errors("FlowSchema", name, dict(spec))
    ]
    level = "PriorityLevelConfiguration"
    assert not [
        each for name, spec in LEVELS.items() for each in flow_errors(level, name, dict(spec))
    ]


@pytest.mark.parametrize(
    ("queuing", "expected"),
    [
        ({"queues": 4}, ["handSize: Invalid value: 8: should not be greater than queues (4)"]),
        (
            {"queues": 10_000_000, "handSize": 9},
            [
                (
                    "handSize: Invalid value: 9: required entropy bits of deckSize 10000000 and handSize 9 should not "
                    "be greater than 60"
                )
            ],
        ),
    ],
)
def test_queues_are_validated(queuing: dict[str, Any], expected: list[str]) -> None:
    spec = {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}}
    path = "spec.limited.limitResponse.queuing."
    assert flow_errors("PriorityLevelConfiguration", "x", spec) == [
        path + each for each in expected
    ]


def test_mandatory_flow_schema_cannot_be_changed() -> None:
    (error,) = flow_errors(
        "FlowSchema", "catch-all", {**SCHEMAS["catch-all"], "matchingPrecedence": 5}
    )
    assert error.endswith("spec of 'catch-all' must equal the fixed value")


def test_every_problem_of_an_action_and_of_a_policy_name_is_reported() -> None:
    assert binding_errors(validationActions=["X", "X"]) == [
        "spec.validationActions[0]",
        *["spec.validationActions[1]"] * 2,
    ]
    assert binding_errors(policyName="-" * 300) == ["spec.policyName"] * 2
