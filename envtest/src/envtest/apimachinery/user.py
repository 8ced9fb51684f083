"""Users, well-known user and group names, and the names of service accounts and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "ANONYMOUS",
    "AUTHENTICATED",
    "CREDENTIAL_ID",
    "MASTERS",
    "UNAUTHENTICATED",
    "User",
    "node_name",
    "service_account",
    "service_account_groups",
    "service_account_username",
    "user_from_info",
    "user_info",
    "with_groups",
]


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
ANONYMOUS: Final = User("system:anonymous", groups=(UNAUTHENTICATED,))
_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
_NODE_PREFIX = "system:node:"


def with_groups(user: User, *groups: str) -> User:
    """Return the user with ``groups`` added."""
    missing = tuple(group for group in groups if group not in user.groups)
    return User(user.name, user.uid, user.groups + missing, user.extra) if missing else user


def user_info(user: User) -> dict[str, Any]:
    """Return the ``UserInfo`` of ``authentication.k8s.io/v1``, without empty fields."""
    info: dict[str, Any] = {}
    if user.name:
        info["username"] = user.name
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def user_from_info(
    name: str, uid: str, groups: Iterable[str], extra: Mapping[str, Iterable[str]] | None
) -> User:
    """Return the user in the spec of a SubjectAccessReview."""
    return User(
        name, uid, tuple(groups), {key: tuple(values) for key, values in (extra or {}).items()}
    )


def service_account_username(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of each service account in ``namespace``."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def service_account(username: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account with this user name, ``None`` for other users."""
    if not username.startswith(_SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, separator, name = username.removeprefix(_SERVICE_ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if separator and namespace and name and ":" not in name else None


def node_name(username: str) -> str | None:
    """Return the node with this user name, ``None`` for other users."""
    name = username.removeprefix(_NODE_PREFIX)
    return name if name and name != username else None
