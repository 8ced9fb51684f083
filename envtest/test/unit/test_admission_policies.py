"""ValidatingAdmissionPolicies: what they see, what they say, and to whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest.admission.standard import standard_chain
from envtest.auth.rbac import RBACAuthorizer
from envtest.errors import GroupResource, StatusError
from envtest.registry import Registry
from envtest.storage import Store
from test.support.admission_world import (
    GROUP,
    MAPS,
    PODS,
    Scripted,
    chain,
    config_map,
    context,
    put,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    put(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


def policy(store: Store, *validations: dict[str, Any], actions: tuple[str, ...] = ("Deny",), **spec: Any) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    body = {"matchConstraints": {"resourceRules": rules}, "validations": list(validations), **spec}
    binding = {"policyName": "p", "validationActions": list(actions), **body.pop("binding", {})}
    put(store, f"{GROUP}/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "p", spec=body)
    kind, plural = "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
    put(store, f"{GROUP}/v1", kind, plural, "b", spec=binding)


async def test_a_policy_denies(store: Store) -> None:
    policy(store, {"expression": "object.data.k != 'bad'", "message": "bad k"})
    admission = chain(store, Scripted(store))
    await admission.validate(context(), {**config_map(), "data": {"k": "good"}}, None)
    with pytest.raises(StatusError) as refusal:
        await admission.validate(context(), {**config_map(), "data": {"k": "bad"}}, None)
    said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: bad k"
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    assert refusal.value.message == f'configmaps "x" is forbidden: {said}'
    assert refusal.value.details == {"name": "x", "kind": "configmaps", "causes": [{"message": said}]}


async def test_messages_and_reasons_of_policies(store: Store) -> None:
    policy(
        store,
        {
            "expression": "variables.n <= 2",
            "messageExpression": "'too many: ' + string(variables.n)",
            "reason": "Forbidden",
        },
        variables=[{"name": "n", "expression": "size(object.data)"}, {"name": "unused", "expression": "object.no"}],
    )
    with pytest.raises(StatusError, match="denied request: too many: 3") as refusal:
        await chain(store, Scripted(store)).validate(context(), {**config_map(), "data": dict.fromkeys("abc")}, None)
    assert refusal.value.code == 403


async def test_a_failing_expression_denies_unless_failures_are_ignored(store: Store) -> None:
    policy(store, {"expression": "object.no.such > 1"})
    with pytest.raises(StatusError, match=r"expression 'object\.no\.such > 1' resulted in error: no such key: no"):
        await chain(store, Scripted(store)).validate(context(), config_map(), None)
    lenient = Store()
    put(lenient, "v1", "Namespace", "namespaces", "a")
    policy(lenient, {"expression": "object.no.such > 1"}, failurePolicy="Ignore")
    await chain(lenient, Scripted(lenient)).validate(context(), config_map(), None)


async def test_a_policy_may_only_warn_and_note(store: Store) -> None:
    policy(store, {"expression": "false", "message": "hm"}, actions=("Warn", "Audit"))
    ctx = context()
    await chain(store, Scripted(store)).validate(ctx, config_map(), None)
    assert ctx.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': hm"]
    (entry,) = json.loads(ctx.audit["validation.policy.admission.k8s.io/validation_failure"])
    assert (entry["policy"], entry["binding"], entry["expressionIndex"]) == ("p", "b", 0)


async def test_a_policy_without_a_binding_or_a_match_does_nothing(store: Store) -> None:
    policy(
        store, {"expression": "false"}, binding={"matchResources": {"namespaceSelector": {"matchLabels": {"no": "x"}}}}
    )
    await chain(store, Scripted(store)).validate(context(), config_map(), None)
    await chain(store, Scripted(store)).validate(context(PODS), {"metadata": {"name": "p"}}, None)


async def test_policies_take_parameters(store: Store) -> None:
    registry = Registry()
    registry.register(MAPS)
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "limits", "parameterNotFoundAction": "Deny"}
    validation = {"expression": "size(object.data) <= int(params.data.most)"}
    policy(store, validation, paramKind=kind, binding={"paramRef": reference})
    admission = standard_chain(store, registry, RBACAuthorizer(store), Scripted(store), service_accounts=False)
    obj = {**config_map(), "data": {"a": "1", "b": "2"}}
    with pytest.raises(StatusError, match="failed to configure binding: no params found for policy binding"):
        await admission.validate(context(), obj, None)
    put(store, "v1", "ConfigMap", "configmaps", "limits", namespace="a", data={"most": "1"})
    with pytest.raises(StatusError, match="failed expression"):
        await admission.validate(context(), obj, None)
    record = store.get(GroupResource("", "configmaps"), "a", "limits")
    assert record is not None
    store.update(GroupResource("", "configmaps"), {**record.obj(), "data": {"most": "2"}}, record)
    await admission.validate(context(), obj, None)
