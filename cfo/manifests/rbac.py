"""The operator's service account and its RBAC, and roles for users of its APIs and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cfo import operator
from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.kinds import GROUP as FLUX_GROUP
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.console.dashboard.in_cluster import PREFIX as DASHBOARD_PREFIX
from cfo.features import FEATURES, Feature
from cfo.manifests.names import PREFIX, SERVICE_ACCOUNT, named
from cfo.runtime import CRUD, READ, Object, Rule, policy_rules

__all__ = ["access", "all_rules", "feature_access", "stack_roles", "user_roles", "user_rules"]

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
    """Return the role of ``feature``, its binding to the service account in ``namespace``, and the bound roles."""
    name = f"manager-{feature.name}"
    return [
        *_role_and_binding(f"{name}-role", f"{name}-rolebinding", "", namespace, feature.rules()),
        *(
            named(_API, "ClusterRole", role, rules=policy_rules(rules))
            for role, rules in sorted(feature.bound_roles.items())
        ),
    ]


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
    """Return the user roles.

    The roles to edit and view AppWrappers, MiniClusters, FluxJobs and InferenceStacks are aggregated to admin, edit and
    view. FluxSetups set quotas, so only cluster administrators can edit them, and others can view them. The role to use
    RayClusters with Kubernetes tokens, whose verb is Ray's own, is aggregated to admin and edit. Further roles are to
    read metrics, and to see the dashboard, which shows the objects of all namespaces.
    """
    view = [{"nonResourceURLs": [f"{DASHBOARD_PREFIX}/*"], "verbs": ["get"]}]
    scrape = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        *(_aggregated(name, rules, *into) for name, (rules, *into) in _USER_ROLES.items()),
        named(_API, "ClusterRole", f"{PREFIX}-metrics-reader", rules=scrape),
        named(_API, "ClusterRole", f"{PREFIX}-dashboard-viewer", rules=view),
    ]


def stack_roles(prefix: str) -> list[Object]:
    """Return the roles to edit and view InferenceStacks, aggregated to admin, edit and view; names have ``prefix``."""
    return [
        _aggregated("editor-role", _stack_rules(CRUD), "admin", "edit", prefix=prefix),
        _aggregated("viewer-role", _stack_rules(READ), "view", prefix=prefix),
    ]


def user_rules() -> list[Rule]:
    """Return the rules of all user roles and bound roles, which the installer must have to be able to create them."""
    bound = [rule for feature in FEATURES for rules in feature.bound_roles.values() for rule in rules]
    return [*(rule for rules, *_ in _USER_ROLES.values() for rule in rules), *bound]


def _rules(verbs: Sequence[str], group: str, *resources: str) -> list[Rule]:
    return [rule for name in resources for rule in (Rule(group, name, verbs), Rule(group, f"{name}/status", "get"))]


def _stack_rules(verbs: Sequence[str]) -> list[Rule]:
    return [rule for gvk in INFERENCE_STACKS for rule in _rules(verbs, gvk.group, "inferencestacks")]


_SCALE = Rule(FLUX_GROUP, "miniclusters/scale", ("get", "patch", "update"))

_USER_ROLES: Final[Mapping[str, tuple[list[Rule], *tuple[str, ...]]]] = {
    "appwrapper-editor-role": (_rules(CRUD, APPWRAPPER.group, "appwrappers"), "admin", "edit"),
    "viewer-role": ([*_rules(READ, APPWRAPPER.group, "appwrappers"), *_stack_rules(READ)], "view"),
    "inferencestack-editor-role": (_stack_rules(CRUD), "admin", "edit"),
    "flux-editor-role": ([*_rules(CRUD, FLUX_GROUP, "fluxjobs", "miniclusters"), _SCALE], "admin", "edit"),
    "flux-viewer-role": (_rules(READ, FLUX_GROUP, "fluxjobs", "miniclusters"), "view"),
    "ray-token-user-role": ([Rule(RAY_CLUSTER.group, "rayclusters", "ray:write")], "admin", "edit"),
    "fluxsetup-viewer-role": (_rules(READ, FLUX_GROUP, "fluxsetups"), "view"),
}
"""The rules of each user role, and the roles into which it is aggregated."""


def _aggregated(name: str, rules: list[Rule], *into_roles: str, prefix: str = PREFIX) -> Object:
    role = named(_API, "ClusterRole", f"{prefix}-{name}", rules=policy_rules(rules))
    for into in into_roles:
        role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{into}"] = "true"
    return role
