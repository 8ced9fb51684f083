"""The attributes of a request, from its method, path and query, as in ``requestinfo.go`` of ``k8s.io/apiserver``.

This runs before routing: paths that are not served also have attributes, so that a user without permissions gets 403
instead of a 404, which would reveal which resources exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envtest.apimachinery.errors import GroupResource, StatusError, forbidden, forbidden_path
from envtest.apimachinery.user import ANONYMOUS, User

__all__ = ["Attributes", "attributes_of", "forbidden_message", "forbidden_request"]

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Attributes(NamedTuple):
    """The input of authorization (``authorizer.Attributes``). ``name`` is empty for whole collections."""

    user: User = ANONYMOUS
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource_request: bool = False
    label_selector: str = ""
    field_selector: str = ""

    def with_user(self, user: User) -> Attributes:
        """Return the same request from ``user``."""
        return self._replace(user=user)

    def with_verb(self, verb: str) -> Attributes:
        """Return the same request with another verb."""
        return self._replace(verb=verb)

    @property
    def combined_resource(self) -> str:
        """The name in RBAC rules: ``resource/subresource``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(
    method: str, path: str, query: Mapping[str, str], user: User = ANONYMOUS
) -> Attributes:
    """Return the attributes of a request. ``query`` maps each parameter to its first value."""
    non_resource = Attributes(user=user, verb=method.lower(), path=path)
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return non_resource
    prefix, *rest = parts
    group = ""
    if prefix == "apis":
        if len(rest) < 3:
            return non_resource
        group, *rest = rest
    version, *rest = rest
    verb = _VERBS.get(method, "")
    if rest[0] in ("proxy", "watch"):
        if len(rest) < 2:
            return non_resource
        verb, *rest = rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    field_selector = ""
    if not name and verb == "get":
        verb = "watch" if _is_true(query.get("watch")) else "list"
        field_selector = query.get("fieldSelector", "")
        name = _exact_name(field_selector)
    elif not name and verb == "watch":
        field_selector = query.get("fieldSelector", "")
        name = _exact_name(field_selector)
    elif not name and verb == "delete":
        verb = "deletecollection"
        field_selector = query.get("fieldSelector", "")
    return Attributes(
        user=user,
        verb=verb,
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        path=path,
        is_resource_request=True,
        label_selector=query.get("labelSelector", "") if not name or field_selector else "",
        field_selector=field_selector,
    )


def forbidden_message(attributes: Attributes, reason: str = "") -> str:
    """Return the message of a 403, without the name of the object that precedes it."""
    user = f'User "{attributes.user.name}" cannot {attributes.verb}'
    if attributes.is_resource_request:
        scope = (
            f'in the namespace "{attributes.namespace}"'
            if attributes.namespace
            else "at the cluster scope"
        )
        message = f'{user} resource "{attributes.combined_resource}" in API group "{attributes.group}" {scope}'
    else:
        message = f'{user} path "{attributes.path}"'
    return f"{message}: {reason}" if reason else message


def forbidden_request(attributes: Attributes, reason: str = "") -> StatusError:
    """Return the 403 for a request that is not allowed."""
    message = forbidden_message(attributes, reason)
    if not attributes.is_resource_request:
        return forbidden_path(message)
    return forbidden(GroupResource(attributes.group, attributes.resource), attributes.name, message)


def _is_true(value: str | None) -> bool:
    """Parse a boolean query parameter as apimachinery does: any value except ``false`` and ``0`` is true."""
    return value is not None and value.lower() not in ("false", "0")


def _exact_name(field_selector: str) -> str:
    """Return the only name that a field selector allows; RBAC's resourceNames then apply to the list."""
    for requirement in field_selector.split(","):
        for operator in ("==", "="):
            key, found, value = requirement.partition(operator)
            if found:
                if (
                    key == "metadata.name"
                    and value
                    and value not in (".", "..")
                    and not set(value) & set("/%")
                ):
                    return value
                break
    return ""
