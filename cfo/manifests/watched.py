"""Permissions of an operator that reconciles only some namespaces: it has most of them only there.

Each of its ClusterRoles is divided (:mod:`cfo.features.scopes`). What needs the whole cluster keeps its
ClusterRoleBinding; the rest is in a ClusterRole of its own, which only RoleBindings in the namespaces bind. A role
without rules for the whole cluster is kept, because it removes those of an earlier installation when it is applied.

The configuration is unknown here, so the operator can always read the hosts in other namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cfo.features.scopes import Scopes, is_needed_in_own_namespace, single_permissions
from cfo.manifests.names import MANAGER_ROLE, PREFIX
from cfo.runtime import Object, Rule, name_of, policy_rules
from cfo.runtime.objects import copied

WATCHED_PREFIX: Final = f"{PREFIX}-watched-"
"""What the names of ClusterRoles, and of their RoleBindings, in the watched namespaces begin with."""


def watched_name(name: str) -> str:
    """Return the name of what a ClusterRole, or its binding, called ``name`` becomes in the watched namespaces."""
    return WATCHED_PREFIX + name.removeprefix(f"{PREFIX}-")


def divide(objects: Sequence[Object], namespace: str, watched: Sequence[str]) -> list[Object]:
    """Return ``objects`` with RoleBindings in ``watched`` for the operator in ``namespace``.

    The roles lose in place what is granted there.
    """
    scopes = Scopes(namespace, watched)
    found = [*objects]
    for binding in objects:
        if binding["kind"] != "ClusterRoleBinding":
            continue
        role = _object(objects, "ClusterRole", binding["roleRef"]["name"])
        is_base = name_of(role) == MANAGER_ROLE
        permissions = [rule for rule in _permissions(role) if not is_base or scopes.is_used(rule)]
        divided = [rule for rule in permissions if scopes.is_divided(rule)]
        own = [rule for rule in divided if is_needed_in_own_namespace(rule)]
        role["rules"] = policy_rules(rule for rule in permissions if not scopes.is_divided(rule))
        if divided:
            found += _in_namespaces(role, binding, divided, watched)
        if own:
            own_role = _object(objects, "Role", name_of(role))
            own_role["rules"] = policy_rules([*_permissions(own_role), *own])
    return found


def _in_namespaces(
    role: Object, binding: Object, rules: Sequence[Rule], watched: Sequence[str]
) -> Iterator[Object]:
    """Yield a ClusterRole with ``rules`` and its RoleBindings; ``role`` and ``binding`` are of the whole cluster."""
    divided = copied(role)
    divided["metadata"]["name"] = watched_name(name_of(role))
    divided["rules"] = policy_rules(rules)
    yield divided
    for namespace in watched:
        bound = copied(binding)
        bound["kind"] = "RoleBinding"
        bound["metadata"] |= {"name": watched_name(name_of(binding)), "namespace": namespace}
        bound["roleRef"]["name"] = name_of(divided)
        yield bound


def _object(objects: Sequence[Object], kind: str, name: str) -> Object:
    (found,) = [obj for obj in objects if obj["kind"] == kind and name_of(obj) == name]
    return found


def _permissions(role: Object) -> list[Rule]:
    """Return the rules of a role, each with one resource, verb and name."""
    rules: list[Rule] = []
    for policy in role["rules"]:
        (group,) = policy["apiGroups"]
        names = policy.get("resourceNames", ())
        rules.append(Rule(group, policy["resources"], policy["verbs"], names))
    return list(single_permissions(rules))
