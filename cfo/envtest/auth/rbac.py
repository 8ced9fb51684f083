"""The RBAC authorizer: who is bound to which rules, compiled once and again only when a role or binding changed.

Requests of the group ``system:masters`` are allowed before anything is looked up, as in kube-apiserver.
For all others the bindings are indexed by subject; a request then looks at the bindings of its user and
groups alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from cfo.envtest.errors import GroupResource
from cfo.envtest.storage.record import Record
from cfo.envtest.storage.store import Store

from .attributes import Attributes
from .rules import PolicyRule, compile_rules
from .user import MASTERS, User, service_account

__all__ = [
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "RBAC_GROUP",
    "ROLES",
    "ROLE_BINDINGS",
    "Authorizer",
    "Decision",
    "Grant",
    "RBACAuthorizer",
]

RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES = GroupResource(RBAC_GROUP, "roles")
CLUSTER_ROLES = GroupResource(RBAC_GROUP, "clusterroles")
ROLE_BINDINGS = GroupResource(RBAC_GROUP, "rolebindings")
CLUSTER_ROLE_BINDINGS = GroupResource(RBAC_GROUP, "clusterrolebindings")

Subject = tuple[str, str, str]
"""Kind, namespace (of a ServiceAccount) and name."""


class Decision(NamedTuple):
    """Allowed or not, and why; a request without an opinion is not allowed."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Whatever decides whether a request is allowed."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Decides; never awaits."""


class Grant(NamedTuple):
    """What one binding gives one subject. ``missing`` says which role the binding lacks."""

    reason: str
    rules: tuple[PolicyRule, ...]
    missing: str


class RBACAuthorizer:
    """Decides by the roles and bindings in ``store``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[int, int, int, int] | None = None
        self._cluster: dict[Subject, list[Grant]] = {}
        self._namespaced: dict[str, dict[Subject, list[Grant]]] = {}
        self._compiled: dict[tuple[GroupResource, str, str], tuple[Record, tuple[PolicyRule, ...]]] = {}

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether any rule that the user is bound to permits the request."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        missing: dict[str, None] = {}
        for grant in self.grants(attributes.user, attributes.namespace):
            if grant.missing:
                missing[grant.missing] = None
            elif any(rule.allows(attributes) for rule in grant.rules):
                return Decision(True, grant.reason)
        if not missing:
            return Decision(False)
        texts = list(missing)
        return Decision(False, f"RBAC: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """All rules that apply to ``user`` in ``namespace``, and what could not be resolved."""
        rules: list[PolicyRule] = []
        missing: dict[str, None] = {}
        for grant in self.grants(user, namespace):
            rules += grant.rules
            if grant.missing:
                missing[grant.missing] = None
        return rules, list(missing)

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """The grants of ``user``: the cluster's first, then those of ``namespace`` (none where it is empty)."""
        self._refresh()
        tables = [self._cluster]
        if namespace and namespace in self._namespaced:
            tables.append(self._namespaced[namespace])
        subjects: list[Subject] = [("User", "", user.name), *(("Group", "", group) for group in user.groups)]
        account = service_account(user.name)
        if account is not None:
            subjects.append(("ServiceAccount", *account))
        for table in tables:
            for subject in subjects:
                yield from table.get(subject, ())

    def role_rules(self, role_ref: Mapping[str, Any], namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in ``namespace`` refers to, ``None`` where it does not exist."""
        if role_ref.get("kind") == "ClusterRole":
            return self._role(CLUSTER_ROLES, "", role_ref.get("name", ""))
        return self._role(ROLES, namespace, role_ref.get("name", "")) if role_ref.get("kind") == "Role" else None

    def _role(self, resource: GroupResource, namespace: str, name: str) -> tuple[PolicyRule, ...] | None:
        record = self._store.get(resource, namespace, name)
        if record is None:
            return None
        key = (resource, namespace, name)
        compiled = self._compiled.get(key)
        if compiled is None or compiled[0] is not record:
            compiled = self._compiled[key] = (record, compile_rules(record.obj().get("rules")))
        return compiled[1]

    def _refresh(self) -> None:
        changes = self._store.changes
        now = (changes(ROLES), changes(CLUSTER_ROLES), changes(ROLE_BINDINGS), changes(CLUSTER_ROLE_BINDINGS))
        if now == self._seen:
            return
        self._seen = now
        cluster: dict[Subject, list[Grant]] = {}
        namespaced: dict[str, dict[Subject, list[Grant]]] = {}
        for record in self._store.list(CLUSTER_ROLE_BINDINGS):
            self._index(record, "", cluster)
        for record in self._store.list(ROLE_BINDINGS):
            self._index(record, record.namespace, namespaced.setdefault(record.namespace, {}))
        self._cluster, self._namespaced = cluster, namespaced
        for key, (record, _) in list(self._compiled.items()):
            if not self._store.is_current(key[0], record):
                del self._compiled[key]

    def _index(self, record: Record, namespace: str, table: dict[Subject, list[Grant]]) -> None:
        binding = orjson.loads(record.data)
        role_ref = binding.get("roleRef") or {}
        kind, name = role_ref.get("kind", ""), role_ref.get("name", "")
        rules = self.role_rules(role_ref, namespace)
        missing = "" if rules is not None else f'{kind.lower()}.{RBAC_GROUP} "{name}" not found'
        what = f'RoleBinding "{record.name}/{namespace}"' if namespace else f'ClusterRoleBinding "{record.name}"'
        for subject in binding.get("subjects") or ():
            subject_kind, subject_name = subject.get("kind", ""), subject.get("name", "")
            subject_namespace = ""
            described = subject_name
            if subject_kind == "ServiceAccount":
                subject_namespace = subject.get("namespace") or namespace
                described = f"{subject_name}/{subject_namespace}"
            reason = f'RBAC: allowed by {what} of {kind} "{name}" to {subject_kind} "{described}"'
            key = (subject_kind, subject_namespace, subject_name)
            table.setdefault(key, []).append(Grant(reason, rules or (), missing))
