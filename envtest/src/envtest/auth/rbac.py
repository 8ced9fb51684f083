"""The RBAC authorizer: who is bound to which rules.

Requests of the group ``system:masters`` are allowed before anything is looked up, as in kube-apiserver. For all
others the bindings are indexed by subject, so that a request looks at those of its user and groups alone; a binding
is indexed again, and a role compiled again, only when it has changed itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from envtest.auth.attributes import Attributes
from envtest.auth.rules import PolicyRule, compile_rules
from envtest.auth.user import MASTERS, User, service_account
from envtest.errors import GroupResource
from envtest.storage import Change, Record, Store

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

Key = tuple[GroupResource, str, str]
"""Table, namespace and name of a role."""


class Decision(NamedTuple):
    """Allowed or not, and why; a request without an opinion is not allowed."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Whatever decides whether a request is allowed."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Decides; never awaits."""


class Grant(NamedTuple):
    """What one binding gives one subject: the rules of a role, which is looked up when it matters."""

    reason: str
    role: Key


class RBACAuthorizer:
    """Decides by the roles and bindings in ``store``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cluster = _Bindings()
        self._namespaced: dict[str, _Bindings] = {}
        self._changed: set[tuple[GroupResource, tuple[str, str]]] | None = None
        self._compiled: dict[Key, tuple[Record, tuple[PolicyRule, ...]]] = {}
        store.journal.append(self._note)

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether any rule that the user is bound to permits the request."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        missing: dict[str, None] = {}
        for grant in self._grants(attributes.user, attributes.namespace):
            rules = self._rules(grant.role)
            if rules is None:
                missing[_absent(grant.role)] = None
            elif any(rule.allows(attributes) for rule in rules):
                return Decision(True, grant.reason)
        if not missing:
            return Decision(False)
        texts = list(missing)
        return Decision(False, f"RBAC: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """All rules that apply to ``user`` in ``namespace``, and what could not be resolved."""
        found: list[PolicyRule] = []
        missing: dict[str, None] = {}
        for grant in self._grants(user, namespace):
            rules = self._rules(grant.role)
            if rules is None:
                missing[_absent(grant.role)] = None
            else:
                found += rules
        return found, list(missing)

    def role_rules(self, role_ref: Mapping[str, Any], namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in ``namespace`` refers to, ``None`` where it does not exist."""
        return self._rules(_role_key(role_ref, namespace))

    def _grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """The grants of ``user``: the cluster's first, then those of ``namespace`` (none where it is empty)."""
        self._refresh()
        bindings = [self._cluster]
        if namespace and namespace in self._namespaced:
            bindings.append(self._namespaced[namespace])
        subjects: list[Subject] = [("User", "", user.name), *(("Group", "", group) for group in user.groups)]
        account = service_account(user.name)
        if account is not None:
            subjects.append(("ServiceAccount", *account))
        for each in bindings:
            for subject in subjects:
                yield from each.grants(subject)

    def _rules(self, key: Key) -> tuple[PolicyRule, ...] | None:
        record = self._store.get(*key)
        if record is None:
            self._compiled.pop(key, None)
            return None
        compiled = self._compiled.get(key)
        if compiled is None or compiled[0] is not record:
            compiled = self._compiled[key] = (record, compile_rules(record.obj().get("rules")))
        return compiled[1]

    def _note(self, resource: GroupResource, change: Change) -> None:
        if self._changed is not None and resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            self._changed.add((resource, change.record.key))

    def _refresh(self) -> None:
        if self._changed is None:
            self._changed = {
                (resource, record.key)
                for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS)
                for record in self._store.list(resource)
            }
        while self._changed:
            resource, (namespace, name) = self._changed.pop()
            bindings = self._namespaced.setdefault(namespace, _Bindings()) if namespace else self._cluster
            record = self._store.get(resource, namespace, name)
            bindings.put(name, [] if record is None else list(_subject_grants(record)))


class _Bindings:
    """The grants of one namespace, or of the cluster, by subject; a binding can be replaced on its own."""

    def __init__(self) -> None:
        self._by_subject: dict[Subject, dict[str, Grant]] = {}
        self._subjects: dict[str, list[Subject]] = {}

    def grants(self, subject: Subject) -> Iterable[Grant]:
        """What ``subject`` is bound to."""
        found = self._by_subject.get(subject)
        return () if found is None else list(found.values())

    def put(self, binding: str, grants: list[tuple[Subject, Grant]]) -> None:
        """Replaces the grants of a binding; none at all forgets it."""
        for subject in self._subjects.pop(binding, ()):
            held = self._by_subject.get(subject, {})
            held.pop(binding, None)
            if not held:
                self._by_subject.pop(subject, None)
        for subject, grant in grants:
            self._by_subject.setdefault(subject, {})[binding] = grant
        if grants:
            self._subjects[binding] = [subject for subject, _ in grants]


def _role_key(role_ref: Mapping[str, Any], namespace: str) -> Key:
    name = role_ref.get("name", "")
    return (ROLES, namespace, name) if role_ref.get("kind") == "Role" else (CLUSTER_ROLES, "", name)


def _absent(key: Key) -> str:
    return f'{key[0].resource.removesuffix("s")}.{RBAC_GROUP} "{key[2]}" not found'


def _subject_grants(record: Record) -> Iterator[tuple[Subject, Grant]]:
    """What each subject of a binding gets."""
    binding = orjson.loads(record.data)
    namespace = record.namespace
    role_ref = binding.get("roleRef") or {}
    kind, name = role_ref.get("kind", ""), role_ref.get("name", "")
    role = _role_key(role_ref, namespace)
    what = f'RoleBinding "{record.name}/{namespace}"' if namespace else f'ClusterRoleBinding "{record.name}"'
    for subject in binding.get("subjects") or ():
        subject_kind, subject_name = subject.get("kind", ""), subject.get("name", "")
        subject_namespace = ""
        described = subject_name
        if subject_kind == "ServiceAccount":
            subject_namespace = subject.get("namespace") or namespace
            described = f"{subject_name}/{subject_namespace}"
        reason = f'RBAC: allowed by {what} of {kind} "{name}" to {subject_kind} "{described}"'
        yield (subject_kind, subject_namespace, subject_name), Grant(reason, role)
