"""The RBAC authorizer: decides by the rules of the roles that a user is bound to.

Requests of the group ``system:masters`` are allowed before any look-up, as in kube-apiserver. For all others the
bindings are indexed by subject, so that a request only evaluates the bindings of its user and groups. A binding is
indexed again, and a role compiled again, only when it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.user import MASTERS, User, service_account
from envtest.auth.attributes import Attributes
from envtest.auth.policy_rules import PolicyRule, compile_rules
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
"""Resource, namespace and name of a role."""


class Decision(NamedTuple):
    """The decision with its reason; no opinion means not allowed."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides whether a request is allowed."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Return the decision; never awaits."""


class Grant(NamedTuple):
    """The role that one binding grants to one subject; its rules are looked up on use."""

    reason: str
    role: Key


class RBACAuthorizer:
    """Authorizes by the roles and bindings in ``store``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cluster = _Bindings()
        self._namespaced: dict[str, _Bindings] = {}
        self._changed: set[tuple[GroupResource, tuple[str, str]]] | None = None
        self._compiled: dict[Key, tuple[Record, tuple[PolicyRule, ...]]] = {}
        store.journal.append(self._record_change)

    def authorize(self, attributes: Attributes) -> Decision:
        """Report whether a rule that the user is bound to allows the request."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        missing: dict[str, None] = {}
        for grant in self._grants(attributes.user, attributes.namespace):
            rules = self._rules(grant.role)
            if rules is None:
                missing[_not_found_message(grant.role)] = None
            elif any(rule.allows(attributes) for rule in rules):
                return Decision(True, grant.reason)
        if not missing:
            return Decision(False)
        messages = list(missing)
        return Decision(
            False, f"RBAC: {messages[0] if len(messages) == 1 else '[' + ', '.join(messages) + ']'}"
        )

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """Return all rules that apply to ``user`` in ``namespace``, and the errors for missing roles."""
        found: list[PolicyRule] = []
        missing: dict[str, None] = {}
        for grant in self._grants(user, namespace):
            rules = self._rules(grant.role)
            if rules is None:
                missing[_not_found_message(grant.role)] = None
            else:
                found += rules
        return found, list(missing)

    def role_rules(
        self, role_ref: Mapping[str, Any], namespace: str
    ) -> tuple[PolicyRule, ...] | None:
        """Return the rules of the role that a binding in ``namespace`` refers to, ``None`` when it does not exist."""
        return self._rules(_role_key(role_ref, namespace))

    def _grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield the cluster-wide grants of ``user``, then its grants in ``namespace`` unless it is empty."""
        self._refresh()
        bindings = [self._cluster]
        if namespace and namespace in self._namespaced:
            bindings.append(self._namespaced[namespace])
        subjects: list[Subject] = [
            ("User", "", user.name),
            *(("Group", "", group) for group in user.groups),
        ]
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
            compiled = (record, compile_rules(record.obj().get("rules")))
            self._compiled[key] = compiled
        return compiled[1]

    def _record_change(self, resource: GroupResource, change: Change) -> None:
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
            bindings = (
                self._namespaced.setdefault(namespace, _Bindings()) if namespace else self._cluster
            )
            record = self._store.get(resource, namespace, name)
            grants = [] if record is None else list(_subject_grants(record))
            bindings.put(name, grants)


class _Bindings:
    """The grants of one namespace, or of the cluster, by subject; updated one binding at a time."""

    def __init__(self) -> None:
        self._by_subject: dict[Subject, dict[str, Grant]] = {}
        self._subjects: dict[str, list[Subject]] = {}

    def grants(self, subject: Subject) -> Iterable[Grant]:
        """Return the grants of ``subject``."""
        found = self._by_subject.get(subject)
        return () if found is None else list(found.values())

    def put(self, binding: str, grants: list[tuple[Subject, Grant]]) -> None:
        """Replace the grants of a binding; an empty list removes the binding."""
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


def _not_found_message(key: Key) -> str:
    return f'{key[0].resource.removesuffix("s")}.{RBAC_GROUP} "{key[2]}" not found'


def _subject_grants(record: Record) -> Iterator[tuple[Subject, Grant]]:
    """Yield each subject of a binding with its grant."""
    binding = orjson.loads(record.data)
    namespace = record.namespace
    role_ref = binding.get("roleRef") or {}
    kind = role_ref.get("kind", "")
    name = role_ref.get("name", "")
    role = _role_key(role_ref, namespace)
    binding_text = (
        f'RoleBinding "{record.name}/{namespace}"'
        if namespace
        else f'ClusterRoleBinding "{record.name}"'
    )
    for subject in binding.get("subjects") or ():
        subject_kind = subject.get("kind", "")
        subject_name = subject.get("name", "")
        subject_namespace = ""
        subject_text = subject_name
        if subject_kind == "ServiceAccount":
            subject_namespace = subject.get("namespace") or namespace
            subject_text = f"{subject_name}/{subject_namespace}"
        reason = (
            f'RBAC: allowed by {binding_text} of {kind} "{name}" to {subject_kind} "{subject_text}"'
        )
        yield (subject_kind, subject_namespace, subject_name), Grant(reason, role)
