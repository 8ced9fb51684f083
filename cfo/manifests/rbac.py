"""The operator's service account and its RBAC, and roles for users of our kinds and of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from cfo import operator
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.features import FEATURES, Feature
from cfo.manifests.names import PREFIX, SERVICE_ACCOUNT, named
from cfo.runtime import CRUD, READ, Object, Rule, policy_rules

__all__ = ["access", "all_rules", "feature_access", "user_roles"]

_API = "rbac.authorization.k8s.io/v1"
_LEASES = "coordination.k8s.io"


def access(namespace: str) -> list[Object]:
    """Return the service account in ``namespace``, and its roles with exactly the rules that are always needed."""
    rules = operator.rules(namespace)
    cluster_wide = [rule for rule in rules if not rule.namespace]
    own = [rule for rule in rules if rule.namespace and rule.group != _LEASES]
    election = [rule for rule in rules if rule.namespace and rule.group == _LEASES]
    return [
        named("v1", "ServiceAccount", SERVICE_ACCOUNT, namespace),
        *_role_and_binding("manager-role", "manager-rolebinding", "", namespace, cluster_wide),
        *_role_and_binding("manager-role", "manager-rolebinding", namespace, namespace, own),
        *_role_and_binding("leader-election-role", "leader-election-rolebinding", namespace, namespace, election),
    ]


def feature_access(feature: Feature, namespace: str) -> list[Object]:
    """Return the ClusterRole of ``feature``, and its binding to the service account in ``namespace``."""
    name = f"manager-{feature.name}"
    return _role_and_binding(f"{name}-role", f"{name}-rolebinding", "", namespace, feature.rules())


def all_rules(namespace: str) -> list[Rule]:
    """Return the rules of the operator in ``namespace`` with all features."""
    return [*operator.rules(namespace), *(rule for feature in FEATURES for rule in feature.rules())]


def _role_and_binding(role: str, binding: str, role_namespace: str, namespace: str, rules: list[Rule]) -> list[Object]:
    """Return a role with ``rules`` and its binding, both in ``role_namespace``; cluster-scoped if that is empty."""
    prefix = "" if role_namespace else "Cluster"
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": f"{PREFIX}-{role}"}
    return [
        named(_API, f"{prefix}Role", f"{PREFIX}-{role}", role_namespace, rules=policy_rules(rules)),
        named(
            _API, f"{prefix}RoleBinding", f"{PREFIX}-{binding}", role_namespace, roleRef=reference, subjects=[subject]
        ),
    ]


def user_roles() -> list[Object]:
    """Return the user roles: to edit and view our kinds, aggregated to admin, edit and view, and to read metrics."""
    stacks = [gvk.group for gvk in INFERENCE_STACKS]
    editors = [
        _aggregated("appwrapper-editor-role", _access(CRUD, "appwrappers", "workload.codeflare.dev"), "admin", "edit"),
        _aggregated("inferencestack-editor-role", _access(CRUD, "inferencestacks", *stacks), "admin", "edit"),
    ]
    read = [*_access(READ, "appwrappers", "workload.codeflare.dev"), *_access(READ, "inferencestacks", *stacks)]
    viewer = _aggregated("viewer-role", read, "view")
    scrape = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [*editors, viewer, named(_API, "ClusterRole", f"{PREFIX}-metrics-reader", rules=scrape)]


def _access(verbs: Sequence[str], plural: str, *groups: str) -> list[Rule]:
    return [rule for group in groups for rule in (Rule(group, plural, verbs), Rule(group, f"{plural}/status", "get"))]


def _aggregated(name: str, rules: list[Rule], *into_roles: str) -> Object:
    role = named(_API, "ClusterRole", f"{PREFIX}-{name}", rules=policy_rules(rules))
    for into in into_roles:
        role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{into}"] = "true"
    return role
