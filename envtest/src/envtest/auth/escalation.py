"""The RBAC escalation check: a user cannot grant permissions that it does not have.

As in ``pkg/registry/rbac``, the check runs when roles and bindings are written. It passes for ``system:masters``, for
users that are allowed to ``escalate`` roles or to ``bind`` this role, and otherwise only when the user has every
permission that the role grants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envtest.apimachinery.errors import StatusError, forbidden, not_found
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import MASTERS, User
from envtest.auth.attributes import Attributes
from envtest.auth.policy_rules import (
    PolicyRule,
    compact,
    compact_string,
    compile_rules,
    quoted_list,
    uncovered,
)
from envtest.auth.rbac import RBAC_GROUP, RBACAuthorizer
from envtest.registry.resource import RequestContext

__all__ = ["check_escalation"]

_EVERYTHING = compile_rules(
    [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]
)
_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")


def check_escalation(
    authorizer: RBACAuthorizer, ctx: RequestContext, obj: Object, old: Object | None
) -> None:
    """Check the permissions that ``obj``, a role or binding to be written, grants.

    Raises StatusError: 403 if the user does not have these permissions, 404 if a binding refers to a role that does not
    exist.
    """
    if MASTERS in ctx.user.groups:
        return
    if ctx.info.plural in _ROLES:
        _check_role(authorizer, ctx, obj, old)
    elif ctx.info.plural in _BINDINGS:
        _check_binding(authorizer, ctx, obj, old)


def _check_role(
    authorizer: RBACAuthorizer, ctx: RequestContext, obj: Object, old: Object | None
) -> None:
    rules = obj.get("rules") or []
    aggregation = obj.get("aggregationRule")
    if (
        old is not None
        and (old.get("rules") or []) == rules
        and old.get("aggregationRule") == aggregation
    ):
        return
    name = obj.get("metadata", {}).get("name") or ctx.name
    if _is_allowed(authorizer, ctx, "escalate", ctx.info.plural, name):
        return
    missing = _missing(authorizer, ctx.user, ctx.namespace, compile_rules(rules))
    if missing:
        raise _escalation_error(ctx, name, missing)
    if (aggregation or {}).get("clusterRoleSelectors") and _missing(
        authorizer, ctx.user, "", _EVERYTHING
    ):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(ctx.info.resource, name, why)


def _check_binding(
    authorizer: RBACAuthorizer, ctx: RequestContext, obj: Object, old: Object | None
) -> None:
    role_ref = obj.get("roleRef") or {}
    if (
        old is not None
        and old.get("roleRef") == role_ref
        and old.get("subjects") == obj.get("subjects")
    ):
        return
    role_name = role_ref.get("name", "")
    resource = "roles" if role_ref.get("kind") == "Role" else "clusterroles"
    if _is_allowed(authorizer, ctx, "bind", resource, role_name):
        return
    rules = authorizer.role_rules(role_ref, ctx.namespace)
    if rules is None:
        raise not_found(ctx.info.resource, role_name)
    missing = _missing(authorizer, ctx.user, ctx.namespace, rules)
    if missing:
        raise _escalation_error(ctx, obj.get("metadata", {}).get("name") or ctx.name, missing)


def _is_allowed(
    authorizer: RBACAuthorizer, ctx: RequestContext, verb: str, resource: str, name: str
) -> bool:
    attributes = Attributes(
        user=ctx.user,
        verb=verb,
        group=RBAC_GROUP,
        version="v1",
        resource=resource,
        namespace=ctx.namespace,
        name=name,
        is_resource_request=True,
    )
    return authorizer.authorize(attributes).allowed


def _missing(
    authorizer: RBACAuthorizer, user: User, namespace: str, granted: Sequence[PolicyRule]
) -> list[Mapping[str, Any]]:
    held, _ = authorizer.rules_for(user, namespace)
    return list(compact(uncovered(held, granted)))


def _escalation_error(
    ctx: RequestContext, name: str, missing: Sequence[Mapping[str, Any]]
) -> StatusError:
    permissions = "\n".join(sorted({compact_string(rule) for rule in missing}))
    subject = f'user "{ctx.user.name}" (groups={quoted_list(ctx.user.groups)})'
    why = f"{subject} is attempting to grant RBAC permissions not currently held:\n{permissions}"
    return forbidden(ctx.info.resource, name, why)
