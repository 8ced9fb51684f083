"""The rules of FlowSchemas, compared with what kube-apiserver answered."""

from __future__ import annotations

import pytest

from envtest.apimachinery.user import User
from envtest.auth.attributes import attributes_of
from envtest.flow_control.flow_rules import FlowRules, is_long_running, subject_rules

ALICE = {"kind": "User", "user": {"name": "alice"}}


def resource_rule(**fields: object) -> FlowRules:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], **fields}
    return FlowRules({"subjects": [ALICE], "resourceRules": [rule]})


@pytest.mark.parametrize(
    ("subject", "user", "applies"),
    [
        (ALICE, User("alice"), True),
        (ALICE, User("bob"), False),
        ({"kind": "User", "user": {"name": "*"}}, User("bob"), True),
        ({"kind": "Group", "group": {"name": "dev"}}, User("bob", groups=("ops", "dev")), True),
        ({"kind": "Group", "group": {"name": "d*"}}, User("bob", groups=("dev",)), False),
        ({"kind": "Group", "group": {"name": "*"}}, User("bob", groups=("dev",)), True),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "x"}},
            User("system:serviceaccount:n:x"),
            True,
        ),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "x"}},
            User("system:serviceaccount:n:y"),
            False,
        ),
        (
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}},
            User("system:serviceaccount:n:y"),
            True,
        ),
    ],
)
def test_rule_applies_to_its_subjects(
    subject: dict[str, object], user: User, applies: bool
) -> None:
    rule = FlowRules({"subjects": [subject]})
    assert bool(subject_rules([rule], user)) == applies


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        (resource_rule(namespaces=["n1"]), "GET", "/api/v1/namespaces/n1/pods", True),
        (resource_rule(namespaces=["n1"]), "GET", "/api/v1/namespaces/n1", True),
        (resource_rule(namespaces=["n1"]), "OPTIONS", "/api/v1/namespaces/n1/pods", True),
        (resource_rule(namespaces=["n1"]), "GET", "/api/v1/namespaces/n2/pods", False),
        (resource_rule(namespaces=["*"]), "GET", "/api/v1/namespaces", False),
        (resource_rule(clusterScope=True), "GET", "/api/v1/namespaces", True),
        (resource_rule(clusterScope=True), "GET", "/api/v1/namespaces/n1/pods", False),
        (
            resource_rule(namespaces=["*"], resources=["pods/status"]),
            "GET",
            "/api/v1/namespaces/n1/pods/x/status",
            True,
        ),
        (
            resource_rule(namespaces=["*"], resources=["pods"]),
            "GET",
            "/api/v1/namespaces/n1/pods/x/status",
            False,
        ),
        (
            resource_rule(namespaces=["*"], verbs=["get"]),
            "DELETE",
            "/api/v1/namespaces/n1/pods/x",
            False,
        ),
        (
            resource_rule(namespaces=["*"], apiGroups=["apps"]),
            "GET",
            "/api/v1/namespaces/n1/pods",
            False,
        ),
    ],
)
def test_resource_rule_matches(rule: FlowRules, method: str, path: str, matches: bool) -> None:
    assert rule.matches(attributes_of(method, path, {})) == matches


@pytest.mark.parametrize(
    ("url", "paths", "others"),
    [
        ("/foo", ["/foo", "/foo/", "/foo/a/b"], ["/foob", "/", "/Foo"]),
        ("/foo/", ["/foo/", "/foo/a"], ["/foo"]),
        ("/foo/*", ["/foo/", "/foo/a/b"], ["/foo"]),
        ("*", ["/", "/foo"], []),
    ],
)
def test_url_matches_paths_below_it(url: str, paths: list[str], others: list[str]) -> None:
    rule = FlowRules({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [url]}]})
    assert [path for path in paths if not rule.matches(attributes_of("GET", path, {}))] == []
    assert [path for path in others if rule.matches(attributes_of("GET", path, {}))] == []
    assert not rule.matches(attributes_of("HEAD", paths[0], {}))


@pytest.mark.parametrize(
    ("method", "path", "is_long"),
    [
        ("GET", "/api/v1/namespaces/n/pods/x/log", True),
        ("POST", "/api/v1/namespaces/n/pods/x/exec", True),
        ("GET", "/api/v1/watch/namespaces/n/pods", True),
        ("GET", "/api/v1/namespaces/n/pods/x/status", False),
        ("GET", "/healthz", False),
    ],
)
def test_watches_and_connections_are_long_running(method: str, path: str, is_long: bool) -> None:
    assert is_long_running(attributes_of(method, path, {})) == is_long
