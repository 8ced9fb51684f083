"""The operator's service account and its rights, and roles for the users of AppWrappers and of metrics."""

from __future__ import annotations

from cfo import operator
from cfo.manifests.names import PREFIX, SERVICE_ACCOUNT, named
from cfo.runtime.objects import Object
from cfo.runtime.reconcile import CRUD, READ, Rule, policy_rules

__all__ = ["access", "user_roles"]

_API = "rbac.authorization.k8s.io/v1"
_LEASES = "coordination.k8s.io"


def access(namespace: str) -> list[Object]:
    """The service account in ``namespace``, and roles that grant it exactly what the controllers declare."""
    rules = operator.rules(namespace)
    everywhere = [rule for rule in rules if not rule.namespace]
    own = [rule for rule in rules if rule.namespace and rule.group != _LEASES]
    election = [rule for rule in rules if rule.namespace and rule.group == _LEASES]
    return [
        named("v1", "ServiceAccount", SERVICE_ACCOUNT, namespace),
        *_granted("manager-role", "manager-rolebinding", "", namespace, everywhere),
        *_granted("manager-role", "manager-rolebinding", namespace, namespace, own),
        *_granted("leader-election-role", "leader-election-rolebinding", namespace, namespace, election),
    ]


def _granted(role: str, binding: str, limit: str, namespace: str, rules: list[Rule]) -> list[Object]:
    """A role with ``rules`` and its binding, both of namespace ``limit`` (empty: of the cluster)."""
    prefix = "" if limit else "Cluster"
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": f"{PREFIX}-{role}"}
    return [
        named(_API, f"{prefix}Role", f"{PREFIX}-{role}", limit, rules=policy_rules(rules)),
        named(_API, f"{prefix}RoleBinding", f"{PREFIX}-{binding}", limit, roleRef=reference, subjects=[subject]),
    ]


def user_roles() -> list[Object]:
    """Who may edit AppWrappers and who may see them follows the cluster's own edit and view roles."""
    group = "workload.codeflare.dev"
    status = Rule(group, "appwrappers/status", "get")
    editor = _aggregated("appwrapper-editor-role", [Rule(group, "appwrappers", CRUD), status], "admin", "edit")
    viewer = _aggregated("viewer-role", [Rule(group, "appwrappers", READ), status], "view")
    scrape = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [editor, viewer, named(_API, "ClusterRole", f"{PREFIX}-metrics-reader", rules=scrape)]


def _aggregated(name: str, rules: list[Rule], *roles: str) -> Object:
    role = named(_API, "ClusterRole", f"{PREFIX}-{name}", rules=policy_rules(rules))
    for into in roles:
        role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{into}"] = "true"
    return role
