"""The operator's service account and its RBAC, and roles for users of its APIs and metrics."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from cfo import operator
from cfo.dashboard.in_cluster import PREFIX as DASHBOARD_PREFIX
from cfo.features import KINDS
from cfo.features.contract import OptionalRole, UserRole
from cfo.manifests.names import PREFIX, SERVICE_ACCOUNT, named
from cfo.runtime import Object, Rule, policy_rules

_API = "rbac.authorization.k8s.io/v1"
_LEASES = "coordination.k8s.io"


def access(namespace: str, *, serves_webhooks: bool = True) -> list[Object]:
    """Return the service account in ``namespace``, and its roles with exactly the rules that are always needed."""
    rules = operator.rules(namespace, serves_webhooks=serves_webhooks)
    cluster_wide = [rule for rule in rules if not rule.namespace]
    own = [rule for rule in rules if rule.namespace and rule.group != _LEASES]
    election = [rule for rule in rules if rule.namespace and rule.group == _LEASES]
    return [
        named("v1", "ServiceAccount", SERVICE_ACCOUNT, namespace),
        *_role_and_binding("manager-role", "manager-rolebinding", "", namespace, cluster_wide),
        *_role_and_binding("manager-role", "manager-rolebinding", namespace, namespace, own),
        *_role_and_binding(
            "leader-election-role", "leader-election-rolebinding", namespace, namespace, election
        ),
    ]


def optional_access(role: OptionalRole, namespace: str) -> list[Object]:
    """Return the optional role, its binding to the service account in ``namespace``, and the roles that it binds."""
    name = optional_cluster_role(role).removeprefix(f"{PREFIX}-")
    binding = optional_binding(role).removeprefix(f"{PREFIX}-")
    objects = _role_and_binding(name, binding, "", namespace, role.rules())
    for bound, rules in sorted(role.bound_roles().items()):
        objects.append(named(_API, "ClusterRole", bound, rules=policy_rules(rules)))
    return objects


def optional_cluster_role(role: OptionalRole) -> str:
    """Return the name of the ClusterRole of an optional role."""
    return f"{PREFIX}-manager-{role.name}-role"


def optional_binding(role: OptionalRole) -> str:
    """Return the name of the ClusterRoleBinding of an optional role."""
    return f"{PREFIX}-manager-{role.name}-rolebinding"


def _role_and_binding(
    role: str, binding: str, role_namespace: str, namespace: str, rules: Iterable[Rule]
) -> list[Object]:
    """Return a role with ``rules`` and its binding, both in ``role_namespace``; cluster-scoped if that is empty."""
    prefix = "" if role_namespace else "Cluster"
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": f"{prefix}Role",
        "name": f"{PREFIX}-{role}",
    }
    return [
        named(_API, f"{prefix}Role", f"{PREFIX}-{role}", role_namespace, rules=policy_rules(rules)),
        named(
            _API,
            f"{prefix}RoleBinding",
            f"{PREFIX}-{binding}",
            role_namespace,
            roleRef=reference,
            subjects=[subject],
        ),
    ]


def user_roles() -> list[Object]:
    """Return the roles for users of each kind, to read metrics, and to see the dashboard.

    The dashboard shows the objects of all namespaces.
    """
    view = [{"nonResourceURLs": [f"{DASHBOARD_PREFIX}/*"], "verbs": ["get"]}]
    scrape = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        *[aggregated(role) for role in kind_roles()],
        named(_API, "ClusterRole", f"{PREFIX}-metrics-reader", rules=scrape),
        named(_API, "ClusterRole", f"{PREFIX}-dashboard-viewer", rules=view),
    ]


def kind_roles() -> list[UserRole]:
    """Return the roles for users of all kinds; those with one name are joined."""
    found: dict[str, UserRole] = {}
    for kind in KINDS:
        for role in kind.user_roles():
            known = found.get(role.name)
            if known is None:
                found[role.name] = role
            else:
                found[role.name] = replace(known, rules=[*known.rules, *role.rules])
    return list(found.values())


def aggregated(role: UserRole, prefix: str = PREFIX) -> Object:
    """Return the ClusterRole of ``role``; its name has ``prefix``."""
    obj = named(_API, "ClusterRole", f"{prefix}-{role.name}", rules=policy_rules(role.rules))
    for into in role.into:
        obj["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{into}"] = "true"
    return obj
