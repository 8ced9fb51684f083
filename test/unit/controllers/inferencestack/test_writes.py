"""Which objects of a stack are written and adopted, and what is reported about the others."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.names import HELM_RELEASE_NAME, MANAGED_BY, MANAGED_BY_LABEL
from cfo.controllers.inferencestack.writes import (
    Written,
    stack_children,
    take_over,
    written_of,
)
from cfo.runtime import Invalid, Object, UnknownKind, owner_reference
from cfo.runtime.client import (
    FIRST_NAME_CHECK_SECONDS,
    Child,
    ChildResult,
    ChildResults,
    NameTaken,
    Outcome,
)
from cfo.runtime.client.errors import InternalError

STACK: Object = {
    "apiVersion": "doublewordai.co/v1alpha1",
    "kind": "InferenceStack",
    "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
}
HELM = {
    "manager": "helm",
    "operation": "Update",
    "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{HELM_RELEASE_NAME}": {}}}},
}


def obj(**metadata: Any) -> Object:
    identity = {"name": "a", "namespace": "ns", "uid": "x", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": identity | metadata}


def test_fields_of_helm_are_taken_over() -> None:
    metadata = take_over(obj(managedFields=[HELM]))["metadata"]
    assert [entry["operation"] for entry in metadata["managedFields"]] == ["Apply"]
    assert take_over(obj()) == {}


def deployment(**volume: Any) -> Object:
    pod = {"serviceAccountName": "account", "volumes": [volume]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {"template": {"spec": pod}},
    }


def test_deployment_requires_the_objects_of_the_stack_that_its_pods_use() -> None:
    desired = [obj(), deployment(configMap={"name": "a"})]
    first, second = stack_children(STACK, desired, {})
    assert second.requires == (first.id,)
    (foreign,) = stack_children(STACK, [deployment(configMap={"name": "b"})], {})
    assert foreign.requires == ()


def test_only_a_network_policy_is_corrected_at_once_if_it_is_overwritten_again_and_again() -> None:
    policy = {**obj(), "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    children = stack_children(STACK, [obj(), policy], {})
    assert [child.can_wait for child in children] == [True, False]


def test_object_of_a_kind_that_is_no_longer_served_is_no_error() -> None:
    (child,) = stack_children(STACK, [obj()], {})
    results = ChildResults(STACK)
    results.add(ChildResult(child=child, outcome=Outcome.UNSERVED, error=UnknownKind("missing")))
    written_of(results, []).raise_errors()


def test_ownership_is_by_controller() -> None:
    (child,) = stack_children(STACK, [obj()], {})
    assert child.belongs is not None
    assert child.has_owner_reference
    assert child.belongs(obj(ownerReferences=[owner_reference(STACK)]))
    assert not child.belongs(obj(labels={MANAGED_BY_LABEL: MANAGED_BY}))


def result(name: str, outcome: Outcome, message: str, error: Exception | None) -> ChildResult:
    child = Child.present(obj(name=name))
    return ChildResult(child=child, outcome=outcome, message=message, error=error)


@pytest.mark.parametrize(
    ("outcome", "reason"), [(Outcome.TAKEN, "NameTaken"), (Outcome.WAITING, "Deleting")]
)
def test_reason_of_a_taken_name_shows_whether_it_becomes_free(
    outcome: Outcome, reason: str
) -> None:
    taken = NameTaken(obj(), STACK)
    results = ChildResults(STACK)
    results.add(result("a", outcome, str(taken), taken))
    assert written_of(results, []).failure_reason == reason


def test_taken_name_and_lasting_failure_are_in_the_status() -> None:
    results = ChildResults(STACK)
    results.add(result("a", Outcome.FAILED, "later", InternalError(500)))
    assert written_of(results, []) == Written(failures=[], errors=results.errors, is_disturbed=True)
    taken = NameTaken(obj(), STACK)
    results.add(result("b", Outcome.REFUSED, "refused", Invalid(422)))
    results.add(result("c", Outcome.TAKEN, str(taken), taken))
    written = written_of(results, ["host a is used"])
    assert written.failures == [
        "host a is used",
        "refused",
        "ConfigMap a already exists and does not belong to this InferenceStack",
    ]
    assert written.failure_reason == "HostNotFree"
    assert written_of(results, []).failure_reason == "ReconcileError"
    assert written.retry_after == FIRST_NAME_CHECK_SECONDS
    with pytest.raises(ExceptionGroup):
        written.raise_errors()
