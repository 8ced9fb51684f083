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
        Rule("b", "ys", "get"),
        Rule("a", "xs", "list"),
        Rule("a", "ws", "get"),
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
        ("apps", "Deployment", "resource 'Deployment': must be one resource in lower case"),
        ("apps", "deployments,pods", "resource 'deployments,pods': must be one resource"),
        ("apps", "", "resource '': must be one resource"),
        ("apps", "deployment/scale", "resource 'deployment/scale': must be the plural name"),
    ],
)
def test_rule_that_can_never_apply_is_rejected(group: str, resource: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"rule for group '{group}': {reason}"):
        Rule(group, resource, READ)


@pytest.mark.parametrize(
    ("group", "verb", "end"),
    [
        ("apps", "list,watch", r"of cfo.runtime"),
        ("apps", "list watch", r"of cfo.runtime"),
        ("apps", "lst", r"; did you mean list\?"),
        ("example.com", "pach", r"; did you mean patch\?"),
        ("apps", "frobnicate", "of cfo.runtime"),
        ("networking.k8s.io", "frobnicate", "of cfo.runtime"),
        ("example.com", "put", "of cfo.runtime"),
    ],
)
def test_verb_that_no_api_server_uses_is_rejected(group: str, verb: str, end: str) -> None:
    expected = f"rule for group '{group}': verb '{verb}': must be a verb such as get, .*{end}$"
    with pytest.raises(ValueError, match=expected):
        Rule(group, "deployments", ["get", verb])


@pytest.mark.parametrize(
    ("group", "verb"),
    [
        ("", "deletecollection"),
        ("certificates.k8s.io", "approve"),
        ("rbac.authorization.k8s.io", "escalate"),
        ("authentication.k8s.io", "impersonate"),
        ("example.com", "frobnicate"),
        ("example.com", "impersonate-on:user-info:list"),
        ("example.com", "*"),
    ],
)
def test_verbs_of_some_resources_are_accepted(group: str, verb: str) -> None:
    assert Rule(group, "things", verb).verbs == (verb,)


@pytest.mark.parametrize(
    ("group", "resource"),
    [("example.com", "equipment"), ("custom.metrics.k8s.io", "latency"), ("apps", "*/scale")],
)
def test_names_that_are_no_plurals_are_accepted_where_they_exist(group: str, resource: str) -> None:
    assert Rule(group, resource, "get").resources == (resource,)


def test_one_name_of_a_rule_may_be_a_string() -> None:
    assert Rule("", "secrets", READ, "tls") == Rule("", ["secrets"], READ, ["tls"])
