"""Which flow schema a request belongs to: the rules of a FlowSchema, compiled for many requests.

As recorded from kube-apiserver, a non-resource URL also matches every path below it, and the name ``*`` of a service
account means all of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.user import User, service_account
from envtest.auth.attributes import Attributes

__all__ = ["FlowRules", "is_long_running", "subject_rules"]

_ANY: Final = "*"
_LONG_VERBS: Final = frozenset({"watch", "proxy"})
_LONG_SUBRESOURCES: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})


def is_long_running(attributes: Attributes) -> bool:
    """Return whether a request has no deadline: watches, logs, and connections to pods."""
    return attributes.verb in _LONG_VERBS or attributes.subresource in _LONG_SUBRESOURCES


class _Names:
    """A list of names in a rule, in which ``*`` means all."""

    __slots__ = ("_all", "_names")

    def __init__(self, names: Iterable[str] | None) -> None:
        self._names = frozenset(names or ())
        self._all = _ANY in self._names

    def __contains__(self, name: str) -> bool:
        return self._all or name in self._names


class _ResourceRule:
    __slots__ = ("_cluster_scope", "_groups", "_namespaces", "_resources", "_verbs")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self._verbs = _Names(rule.get("verbs"))
        self._groups = _Names(rule.get("apiGroups"))
        self._resources = _Names(rule.get("resources"))
        self._namespaces = _Names(rule.get("namespaces"))
        self._cluster_scope = bool(rule.get("clusterScope"))

    def matches(self, attributes: Attributes) -> bool:
        if attributes.verb not in self._verbs or attributes.group not in self._groups:
            return False
        if attributes.combined_resource not in self._resources:
            return False
        if attributes.namespace:
            return attributes.namespace in self._namespaces
        return self._cluster_scope


class _NonResourceRule:
    __slots__ = ("_paths", "_prefixes", "_verbs")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        urls: Sequence[str] = rule.get("nonResourceURLs") or ()
        self._verbs = _Names(rule.get("verbs"))
        self._paths = frozenset(urls)
        self._prefixes = tuple(_prefix(url) for url in urls)

    def matches(self, attributes: Attributes) -> bool:
        if attributes.verb not in self._verbs:
            return False
        return attributes.path in self._paths or attributes.path.startswith(self._prefixes)


def _prefix(url: str) -> str:
    """Return how the paths begin that a URL in a rule matches; an empty string matches all."""
    prefix = url.removesuffix(_ANY)
    if not prefix or prefix.endswith("/"):
        return prefix
    return f"{prefix}/"


class FlowRules:
    """One rule of a FlowSchema: requests of some subjects, for resources or for other paths."""

    __slots__ = ("_accounts", "_groups", "_namespaces", "_other", "_resources", "_users")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        users: list[str] = []
        groups: list[str] = []
        accounts: list[tuple[str, str]] = []
        for subject in rule.get("subjects") or ():
            if subject.get("user"):
                users.append(subject["user"]["name"])
            elif subject.get("group"):
                groups.append(subject["group"]["name"])
            elif subject.get("serviceAccount"):
                account = subject["serviceAccount"]
                accounts.append((account["namespace"], account["name"]))
        self._users = _Names(users)
        self._groups = _Names(groups)
        self._accounts = frozenset(accounts)
        self._namespaces = frozenset(namespace for namespace, name in accounts if name == _ANY)
        self._resources = tuple(map(_ResourceRule, rule.get("resourceRules") or ()))
        self._other = tuple(map(_NonResourceRule, rule.get("nonResourceRules") or ()))

    def applies_to(self, user: User) -> bool:
        """Return whether the user is a subject of the rule."""
        if user.name in self._users or any(group in self._groups for group in user.groups):
            return True
        account = service_account(user.name)
        return account is not None and (account in self._accounts or account[0] in self._namespaces)

    def matches(self, attributes: Attributes) -> bool:
        """Return whether a request of a subject matches."""
        if attributes.is_resource_request:
            return any(rule.matches(attributes) for rule in self._resources)
        return any(rule.matches(attributes) for rule in self._other)


def subject_rules(rules: Iterable[FlowRules], user: User) -> tuple[FlowRules, ...]:
    """Return the rules of which the user is a subject."""
    return tuple(rule for rule in rules if rule.applies_to(user))
