"""ValidatingAdmissionPolicies: variables, messages, failure policy, bindings and parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest.admission.standard import standard_chain
from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.auth.rbac import RBACAuthorizer
from envtest.registry.registry import Registry
from envtest.storage import Store
from test.support.admission import (
    CONFIG_MAPS,
    GROUP,
    PODS,
    FakeWebhookClient,
    admission_chain,
    config_map,
    context,
    store_object,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    store_object(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


def add_policy(
    store: Store, *validations: dict[str, Any], actions: tuple[str, ...] = ("Deny",), **spec: Any
) -> None:
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    ]
    body = {"matchConstraints": {"resourceRules": rules}, "validations": list(validations), **spec}
    binding = {"policyName": "p", "validationActions": list(actions), **body.pop("binding", {})}
    store_object(
        store,
        f"{GROUP}/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "p",
        spec=body,
    )
    kind, plural = "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
    store_object(store, f"{GROUP}/v1", kind, plural, "b", spec=binding)


async def test_policy_denies_request(store: Store) -> None:
    add_policy(store, {"expression": "object.data.k != 'bad'", "message": "bad k"})
    admission = admission_chain(store, FakeWebhookClient(store))
    await admission.validate(context(), {**config_map(), "data": {"k": "good"}}, None)
    with pytest.raises(StatusError) as error:
        await admission.validate(context(), {**config_map(), "data": {"k": "bad"}}, None)
    denial = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: bad k"
    assert (error.value.code, error.value.reason) == (422, "Invalid")
    assert error.value.message == f'configmaps "x" is forbidden: {denial}'
    assert error.value.details == {
        "name": "x",
        "kind": "configmaps",
        "causes": [{"message": denial}],
    }


async def test_policy_uses_message_expression_and_reason(store: Store) -> None:
    add_policy(
        store,
        {
            "expression": "variables.n <= 2 || variables.since[0] > timestamp('2024-01-02T00:00:00Z')",
            "messageExpression": "'too many: ' + string(variables.n) + ' in ' + string(variables.age)",
            "reason": "Forbidden",
        },
        variables=[
            {"name": "n", "expression": "size(object.data)"},
            {"name": "since", "expression": "[timestamp('2024-01-01T00:00:00Z')]"},
            {"name": "age", "expression": "timestamp('2024-01-01T01:00:00Z') - variables.since[0]"},
            {"name": "unused", "expression": "object.no"},
        ],
    )
    with pytest.raises(StatusError, match="denied request: too many: 3 in 3600s") as error:
        await admission_chain(store, FakeWebhookClient(store)).validate(
            context(), {**config_map(), "data": dict.fromkeys("abc")}, None
        )
    assert error.value.code == 403


async def test_failing_expression_denies_unless_failure_policy_is_ignore(store: Store) -> None:
    add_policy(store, {"expression": "object.no.such > 1"})
    with pytest.raises(
        StatusError, match=r"expression 'object\.no\.such > 1' resulted in error: no such key: no"
    ):
        await admission_chain(store, FakeWebhookClient(store)).validate(
            context(), config_map(), None
        )
    lenient = Store()
    store_object(lenient, "v1", "Namespace", "namespaces", "a")
    add_policy(lenient, {"expression": "object.no.such > 1"}, failurePolicy="Ignore")
    await admission_chain(lenient, FakeWebhookClient(lenient)).validate(
        context(), config_map(), None
    )


async def test_policy_can_warn_and_audit_without_denying(store: Store) -> None:
    add_policy(store, {"expression": "false", "message": "hm"}, actions=("Warn", "Audit"))
    ctx = context()
    await admission_chain(store, FakeWebhookClient(store)).validate(ctx, config_map(), None)
    assert ctx.warnings == [
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': hm"
    ]
    (entry,) = json.loads(ctx.audit["validation.policy.admission.k8s.io/validation_failure"])
    assert (entry["policy"], entry["binding"], entry["expressionIndex"]) == ("p", "b", 0)


async def test_policy_without_matching_binding_has_no_effect(store: Store) -> None:
    add_policy(
        store,
        {"expression": "false"},
        binding={"matchResources": {"namespaceSelector": {"matchLabels": {"no": "x"}}}},
    )
    await admission_chain(store, FakeWebhookClient(store)).validate(context(), config_map(), None)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    await admission_chain(store, FakeWebhookClient(store)).validate(context(PODS), pod, None)


async def test_policy_reads_parameters(store: Store) -> None:
    registry = Registry()
    registry.register(CONFIG_MAPS)
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "limits", "parameterNotFoundAction": "Deny"}
    validation = {"expression": "size(object.data) <= int(params.data.most)"}
    add_policy(store, validation, paramKind=kind, binding={"paramRef": reference})
    admission = standard_chain(store, registry, RBACAuthorizer(store), FakeWebhookClient(store))
    obj = {**config_map(), "data": {"a": "1", "b": "2"}}
    with pytest.raises(
        StatusError, match="failed to configure binding: no params found for policy binding"
    ):
        await admission.validate(context(), obj, None)
    store_object(
        store, "v1", "ConfigMap", "configmaps", "limits", namespace="a", data={"most": "1"}
    )
    with pytest.raises(StatusError, match="failed expression"):
        await admission.validate(context(), obj, None)
    record = store.get(GroupResource("", "configmaps"), "a", "limits")
    assert record is not None
    store.update(GroupResource("", "configmaps"), {**record.obj(), "data": {"most": "2"}}, record)
    await admission.validate(context(), obj, None)


EXPENSIVE = "lists.range(900000).size() > 0"
"""An expression that costs almost a tenth of the budget of a policy."""

TOO_EXPENSIVE = "lists.range(1000001).size() > 0"
OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def repeated(expression: str, count: int) -> list[str]:
    """Return different expressions of the same cost."""
    return [f"{expression}{' ' * number}" for number in range(count)]


async def denial_of(store: Store) -> str:
    with pytest.raises(StatusError) as error:
        await admission_chain(store, FakeWebhookClient(store)).validate(
            context(), config_map(), None
        )
    return error.value.message.partition("denied request: ")[2]


async def test_validation_that_costs_too_much_denies_the_request(store: Store) -> None:
    add_policy(store, {"expression": TOO_EXPENSIVE})
    reason = "operation cancelled: actual cost limit exceeded"
    assert await denial_of(store) == f"expression '{TOO_EXPENSIVE}' resulted in error: {reason}"


async def test_failure_of_a_policy_without_budget_replaces_the_others(store: Store) -> None:
    add_policy(
        store,
        {"expression": "1 == 2"},
        *({"expression": each} for each in repeated(EXPENSIVE, 12)),
    )
    assert await denial_of(store) == OUT_OF_BUDGET


async def test_match_conditions_have_a_budget(store: Store) -> None:
    conditions = [
        {"name": f"c{number}", "expression": each}
        for number, each in enumerate(repeated(EXPENSIVE, 3))
    ]
    add_policy(store, {"expression": "1 == 2"}, matchConditions=conditions)
    assert await denial_of(store) == OUT_OF_BUDGET


async def test_policy_without_budget_that_ignores_failures_allows_the_request(store: Store) -> None:
    validations = [{"expression": each} for each in repeated(EXPENSIVE, 12)]
    add_policy(store, *validations, failurePolicy="Ignore")
    await admission_chain(store, FakeWebhookClient(store)).validate(context(), config_map(), None)
