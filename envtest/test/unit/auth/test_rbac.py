"""RBAC: rule matching, bindings, propagation of changes, the escalation check, the bootstrap policy."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.user import ANONYMOUS, AUTHENTICATED, MASTERS, User
from envtest.auth.attributes import attributes_of
from envtest.auth.bootstrap import bootstrap_policy, install_policy
from envtest.auth.escalation import check_escalation
from envtest.auth.policy_rules import compact, compact_string, compile_rules, uncovered
from envtest.auth.rbac import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    RBAC_GROUP,
    ROLE_BINDINGS,
    ROLES,
    RBACAuthorizer,
)
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy
from envtest.storage import Store

ALICE = User("alice", "1", ("team-a", AUTHENTICATED))
BOT = User("system:serviceaccount:a:bot", "2", ("system:serviceaccounts", AUTHENTICATED))


def rule(
    verbs: list[str], resources: list[str], groups: tuple[str, ...] = ("",), **more: Any
) -> dict[str, Any]:
    return {"verbs": verbs, "resources": resources, "apiGroups": list(groups), **more}


def add_role(store: Store, name: str, *rules: dict[str, Any], namespace: str = "") -> None:
    kind, table = ("Role", ROLES) if namespace else ("ClusterRole", CLUSTER_ROLES)
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    store.create(
        table,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": kind,
            "metadata": metadata,
            "rules": list(rules),
        },
    )


def bind(
    store: Store, name: str, role: tuple[str, str], *subjects: dict[str, str], namespace: str = ""
) -> None:
    kind, table = (
        ("RoleBinding", ROLE_BINDINGS)
        if namespace
        else ("ClusterRoleBinding", CLUSTER_ROLE_BINDINGS)
    )
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    ref = {"apiGroup": RBAC_GROUP, "kind": role[0], "name": role[1]}
    obj = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata}
    store.create(table, {**obj, "roleRef": ref, "subjects": list(subjects)})


def allowed(authorizer: RBACAuthorizer, user: User, method: str, path: str, **query: str) -> bool:
    return authorizer.authorize(attributes_of(method, path, query, user)).allowed


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def authorizer(store: Store) -> RBACAuthorizer:
    return RBACAuthorizer(store)


def test_only_masters_are_allowed_without_bindings(authorizer: RBACAuthorizer) -> None:
    assert allowed(authorizer, User("x", groups=(MASTERS,)), "DELETE", "/api/v1/nodes")
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/nodes")


def test_role_binding_grants_only_in_its_namespace(
    store: Store, authorizer: RBACAuthorizer
) -> None:
    add_role(store, "reader", rule(["get", "list"], ["pods"]))
    bind(store, "b", ("ClusterRole", "reader"), {"kind": "User", "name": "alice"}, namespace="a")
    assert allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/pods")
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/b/pods")
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/pods")
    assert not allowed(authorizer, ALICE, "DELETE", "/api/v1/namespaces/a/pods/p")


def test_reason_names_binding_role_and_subject(store: Store, authorizer: RBACAuthorizer) -> None:
    add_role(store, "r", rule(["get"], ["pods"]), namespace="a")
    bind(store, "b", ("Role", "r"), {"kind": "ServiceAccount", "name": "bot"}, namespace="a")
    decision = authorizer.authorize(attributes_of("GET", "/api/v1/namespaces/a/pods/p", {}, BOT))
    assert (
        decision.reason
        == 'RBAC: allowed by RoleBinding "b/a" of Role "r" to ServiceAccount "bot/a"'
    )


def test_reason_names_missing_role(store: Store, authorizer: RBACAuthorizer) -> None:
    bind(store, "b", ("ClusterRole", "gone"), {"kind": "Group", "name": "team-a"})
    decision = authorizer.authorize(attributes_of("GET", "/api/v1/pods", {}, ALICE))
    assert decision == (False, 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')


def test_changes_apply_to_the_next_request(store: Store, authorizer: RBACAuthorizer) -> None:
    bind(store, "b", ("Role", "r"), {"kind": "User", "name": "alice"}, namespace="a")
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/pods")
    add_role(store, "r", rule(["list"], ["pods"]), namespace="a")
    assert allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/pods")
    record = store.get(ROLES, "a", "r")
    assert record is not None
    role = record.obj()
    role["rules"] = [rule(["list"], ["secrets"])]
    store.update(ROLES, role, record)
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/pods")
    assert allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/secrets")
    binding = store.get(ROLE_BINDINGS, "a", "b")
    assert binding is not None
    store.delete(ROLE_BINDINGS, binding)
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/a/secrets")


@pytest.mark.parametrize(
    ("rule_under_test", "method", "path", "query", "expected"),
    [
        (
            rule(["*"], ["*"], ("*",)),
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            {},
            True,
        ),
        (rule(["get"], ["pods"]), "GET", "/api/v1/namespaces/a/pods/p/log", {}, False),
        (rule(["get"], ["pods/log"]), "GET", "/api/v1/namespaces/a/pods/p/log", {}, True),
        (rule(["get"], ["*/log"]), "GET", "/api/v1/namespaces/a/pods/p/log", {}, True),
        (rule(["get"], ["*/log"]), "GET", "/api/v1/namespaces/a/pods/p", {}, False),
        (
            rule(["get"], ["deployments"], ("apps",)),
            "GET",
            "/apis/apps/v1/namespaces/a/deployments/d",
            {},
            True,
        ),
        (
            rule(["get"], ["deployments"], ("",)),
            "GET",
            "/apis/apps/v1/namespaces/a/deployments/d",
            {},
            False,
        ),
        (
            rule(["get", "list"], ["pods"], resourceNames=["p"]),
            "GET",
            "/api/v1/namespaces/a/pods/p",
            {},
            True,
        ),
        (
            rule(["get", "list"], ["pods"], resourceNames=["p"]),
            "GET",
            "/api/v1/namespaces/a/pods/q",
            {},
            False,
        ),
        (
            rule(["get", "list"], ["pods"], resourceNames=["p"]),
            "GET",
            "/api/v1/namespaces/a/pods",
            {},
            False,
        ),
        (
            rule(["get", "list"], ["pods"], resourceNames=["p"]),
            "GET",
            "/api/v1/namespaces/a/pods",
            {"fieldSelector": "metadata.name=p"},
            True,
        ),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, "GET", "/healthz", {}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, "GET", "/healthz/ping", {}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz*"]}, "GET", "/healthz/ping", {}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, "POST", "/healthz", {}, False),
    ],
)
def test_rule_allows_request(
    rule_under_test: dict[str, Any], method: str, path: str, query: dict[str, str], expected: bool
) -> None:
    (compiled,) = compile_rules([rule_under_test])
    assert compiled.allows(attributes_of(method, path, query)) is expected


def test_uncovered_compares_single_permissions() -> None:
    held = compile_rules(
        [rule(["get"], ["pods"]), rule(["list"], ["pods", "*/status"]), rule(["*"], ["secrets"])]
    )
    requested = compile_rules(
        [
            rule(["get", "list"], ["pods"]),
            rule(["list"], ["jobs/status"]),
            rule(["delete"], ["secrets"], resourceNames=["s"]),
        ]
    )
    assert uncovered(held, requested) == []
    more = compile_rules(
        [rule(["get", "watch"], ["pods"]), {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]
    )
    assert uncovered(held, more) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    named = compile_rules([rule(["get"], ["pods"], resourceNames=["p"])])
    assert uncovered(named, compile_rules([rule(["get"], ["pods"])])) != []
    assert uncovered(named, named) == []


def test_missing_permissions_are_compacted() -> None:
    missing = uncovered(
        (),
        compile_rules(
            [
                rule(["get", "list"], ["pods"]),
                rule(["*"], ["jobs"], ("batch",), resourceNames=["x"]),
            ]
        ),
    )
    assert [compact_string(each) for each in compact(missing)] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:["batch"], Resources:["jobs"], ResourceNames:["x"], Verbs:["*"]}',
    ]


def context(plural: str, kind: str, namespace: str = "a", user: User = ALICE) -> RequestContext:
    info = ResourceInfo(RBAC_GROUP, "v1", plural, plural[:-1], kind, bool(namespace), Strategy())
    return RequestContext(user, "create", info, namespace, "", operation="CREATE")


def test_role_cannot_grant_permissions_that_the_user_lacks(
    store: Store, authorizer: RBACAuthorizer
) -> None:
    add_role(store, "reader", rule(["get"], ["pods"]))
    bind(store, "b", ("ClusterRole", "reader"), {"kind": "User", "name": "alice"}, namespace="a")
    role = {"metadata": {"name": "new"}, "rules": [rule(["get"], ["pods"])]}
    check_escalation(authorizer, context("roles", "Role"), role, None)
    role["rules"] = [rule(["get"], ["pods", "secrets"])]
    with pytest.raises(StatusError) as error:
        check_escalation(authorizer, context("roles", "Role"), role, None)
    assert error.value.message == (
        'roles.rbac.authorization.k8s.io "new" is forbidden: '
        'user "alice" (groups=["team-a" "system:authenticated"]) is attempting to grant RBAC permissions '
        'not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    check_escalation(authorizer, context("roles", "Role"), role, dict(role))
    check_escalation(
        authorizer, context("roles", "Role", user=User("root", groups=(MASTERS,))), role, None
    )


def test_escalate_and_bind_permissions_allow_any_grant(
    store: Store, authorizer: RBACAuthorizer
) -> None:
    role = {"metadata": {"name": "new"}, "rules": [rule(["*"], ["*"], ("*",))]}
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "all"},
        "subjects": [],
    }
    add_role(store, "all", *role["rules"])  # type: ignore[misc]
    for obj, plural in ((role, "roles"), (binding, "rolebindings")):
        with pytest.raises(StatusError):
            check_escalation(authorizer, context(plural, "X"), obj, None)
    add_role(
        store,
        "granter",
        rule(["escalate"], ["roles"], (RBAC_GROUP,)),
        rule(["bind"], ["clusterroles"], (RBAC_GROUP,), resourceNames=["all"]),
    )
    bind(store, "g", ("ClusterRole", "granter"), {"kind": "Group", "name": "team-a"})
    for obj, plural in ((role, "roles"), (binding, "rolebindings")):
        check_escalation(authorizer, context(plural, "X"), obj, None)


def test_binding_to_missing_role_is_rejected(authorizer: RBACAuthorizer) -> None:
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "gone"},
        "subjects": [],
    }
    with pytest.raises(
        StatusError, match=r'rolebindings\.rbac\.authorization\.k8s\.io "gone" not found'
    ) as error:
        check_escalation(authorizer, context("rolebindings", "RoleBinding"), binding, None)
    assert error.value.code == 404


def test_aggregation_rule_requires_cluster_admin(store: Store, authorizer: RBACAuthorizer) -> None:
    role = {
        "metadata": {"name": "new"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    }
    with pytest.raises(
        StatusError, match="must have cluster-admin privileges to use the aggregationRule"
    ):
        check_escalation(authorizer, context("clusterroles", "ClusterRole", ""), role, None)
    add_role(store, "all", rule(["*"], ["*"], ("*",)), {"verbs": ["*"], "nonResourceURLs": ["*"]})
    bind(store, "b", ("ClusterRole", "all"), {"kind": "User", "name": "alice"})
    check_escalation(authorizer, context("clusterroles", "ClusterRole", ""), role, None)


def test_bootstrap_policy_grants_discovery_only(store: Store, authorizer: RBACAuthorizer) -> None:
    install_policy(store, "2026-01-01T00:00:00Z")
    assert allowed(authorizer, ANONYMOUS, "GET", "/version")
    assert not allowed(authorizer, ANONYMOUS, "GET", "/api")
    assert allowed(authorizer, ALICE, "GET", "/apis/apps/v1")
    assert allowed(
        authorizer, ALICE, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    )
    assert not allowed(authorizer, ALICE, "GET", "/metrics")
    assert not allowed(authorizer, ALICE, "GET", "/api/v1/namespaces/default/pods")


def test_bootstrap_policy_is_installed_once(store: Store) -> None:
    install_policy(store, "2026-01-01T00:00:00Z")
    revision = store.revision
    install_policy(store, "2026-01-02T00:00:00Z")
    assert store.revision == revision
    names = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in bootstrap_policy()
    ]
    assert len(names) == len(set(names))
