"""The objects of whole namespaces: the default-deny NetworkPolicy, and the binding of certificate requesters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cfo.api.raycluster.names import (
    DEFAULT_DENY_LABEL,
    DEFAULT_DENY_NAME,
    REQUESTER_ROLE,
    REQUESTERS_LABEL,
)
from cfo.controllers.raycluster.certificate_requesters import decide_binding, desired_binding
from cfo.controllers.raycluster.default_deny import decide_policy
from cfo.runtime import NamespacedName
from cfo.runtime.client import Child, Update


def policy(namespace: str, is_wanted: bool) -> Child:
    return decide_policy(namespace, is_selected=is_wanted)


def binding(namespace: str, is_wanted: bool) -> Child:
    return decide_binding(namespace, is_wanted=is_wanted)


@pytest.mark.parametrize(
    ("decide", "label"),
    [(policy, DEFAULT_DENY_LABEL), (binding, REQUESTERS_LABEL)],
    ids=["default deny", "certificate requesters"],
)
@pytest.mark.parametrize("is_wanted", [True, False])
def test_object_of_a_namespace_is_recognized_by_its_label(
    decide: Callable[[str, bool], Child], label: str, is_wanted: bool
) -> None:
    child = decide("ns", is_wanted)
    assert child.is_absent is not is_wanted
    assert child.key == decide("ns", not is_wanted).key
    assert child.belongs is not None
    assert child.belongs({"metadata": {"labels": {label: "anything"}}})
    assert not child.belongs({"metadata": {"labels": {"other": "label"}}})
    assert not child.belongs({"metadata": {}})


@pytest.mark.parametrize("decide", [policy, binding])
def test_object_of_a_namespace_has_no_owner_reference(
    decide: Callable[[str, bool], Child],
) -> None:
    assert not decide("ns", True).has_owner_reference


def test_policy_replaces_rules_that_another_client_added() -> None:
    child = policy("ns", True)
    assert child.update is Update.REPLACE
    assert child.key == NamespacedName("ns", DEFAULT_DENY_NAME)


def test_binding_grants_the_role_to_the_accounts_of_one_namespace() -> None:
    found = desired_binding("ns")
    assert found["roleRef"]["name"] == REQUESTER_ROLE
    assert [subject["name"] for subject in found["subjects"]] == ["system:serviceaccounts:ns"]
    assert found["metadata"]["name"] != desired_binding("other")["metadata"]["name"]


def test_names_of_bindings_are_valid_for_the_longest_namespaces() -> None:
    first, second = (desired_binding("n" * 62 + end) for end in "ab")
    assert len(first["metadata"]["name"]) <= 253
    assert first["metadata"]["name"] != second["metadata"]["name"]
