"""RBAC rules, as controllers declare them and as manifests contain them."""

from __future__ import annotations

import pytest

from cfo.runtime.objects.rbac import CRUD, READ, WRITE, Rule, policy_rules


def test_rules_of_one_resource_and_resources_with_equal_verbs_are_merged() -> None:
    rules = [
        Rule("networking.k8s.io", "ingresses", READ),
        Rule("networking.k8s.io", "ingresses", WRITE),
        Rule("networking.k8s.io", ("networkpolicies",), CRUD),
        Rule("", ["secrets", "services"], "get"),
        Rule("", "configmaps", "get", ["one"]),
        Rule("", "configmaps", "patch", ["one"]),
        Rule("", "secrets", "get"),
    ]
    assert policy_rules(rules) == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "patch"],
            "resourceNames": ["one"],
        },
        {"apiGroups": [""], "resources": ["secrets", "services"], "verbs": ["get"]},
        {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["ingresses", "networkpolicies"],
            "verbs": list(CRUD),
        },
    ]


def test_declaration_order_does_not_change_policy_rules() -> None:
    rules = [
        Rule("b", "y", "get"),
        Rule("a", "x", "list"),
        Rule("a", "w", "get"),
        Rule("", "pods", "get", ["p"]),
    ]
    assert policy_rules(rules) == policy_rules(reversed(rules))


def test_resource_names_restrict_only_their_rule() -> None:
    rules = [Rule("", "configmaps", "get", ["one"]), Rule("", "configmaps", "create")]
    assert policy_rules(rules) == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get"],
            "resourceNames": ["one"],
        },
    ]


def test_rules_with_equal_content_are_equal() -> None:
    assert Rule("", "pods", READ) == Rule("", ["pods"], list(READ))
    assert len({Rule("", "pods", READ), Rule("", ("pods",), READ)}) == 1


@pytest.mark.parametrize(("resources", "verbs"), [((), READ), ("pods", ())])
def test_rule_requires_resources_and_verbs(
    resources: tuple[str, ...], verbs: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"rule for group .* must not be empty"):
        Rule("", resources, verbs)


@pytest.mark.parametrize(
    ("group", "resource", "reason"),
    [
        ("apps/v1", "deployments", "must be a group without a version"),
        ("apps", "Deployment", "resource 'Deployment': must be in lower case"),
    ],
)
def test_rule_that_can_never_apply_is_rejected(group: str, resource: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"rule for group '{group}': {reason}"):
        Rule(group, resource, READ)


def test_one_name_of_a_rule_may_be_a_string() -> None:
    assert Rule("", "secrets", READ, "tls") == Rule("", ["secrets"], READ, ["tls"])
