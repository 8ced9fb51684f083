"""RBAC rules, declared next to the code that needs them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from cfo.runtime.process.arguments import require_type

READ = ("get", "list", "watch")
"""The RBAC verbs that an informer requires."""

WRITE = ("create", "delete", "patch", "update")
"""The RBAC verbs that change an object."""

CRUD = ("create", "delete", "get", "list", "patch", "update", "watch")
"""``READ`` and ``WRITE``."""


_KUBERNETES_VERBS: Final = (
    *CRUD,
    "deletecollection",
    "approve",
    "attest",
    "bind",
    "escalate",
    "impersonate",
    "sign",
    "use",
    "*",
)
"""The verbs that Kubernetes asks for; those after ``deletecollection`` are for some resources only."""

_NOT_VERBS = frozenset({"read", "write", "crud", "all", "post", "put", "head", "options"})
"""Words for several verbs, and HTTP methods, which API servers would accept and never ask for."""

_NAME: Final = re.compile(r"[a-z0-9*]+([-:./][a-z0-9*]+)*")
"""Resources and verbs."""

_SIMILAR: Final = 0.75
"""How similar an unknown verb is to a known one that was probably meant: ``lst`` to ``list`` is 0.86."""

_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
"""Versions of APIs, which no group is called."""


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """A permission that a controller requires, declared next to its code; manifests are generated from these rules.

    ``group`` is the API group (empty: core), ``resources`` and ``verbs`` are the fields of a `PolicyRule`_;
    ``resource_names`` limits the rule to objects of these names, ``namespace`` to one namespace (the rule then belongs
    in a Role). One resource, verb or name may be a string.

    Raises :class:`ValueError` without resources or verbs, for a version or ``core`` as group, for a kind or a singular
    name as resource, for several of them in one string, for a verb that Kubernetes never asks for in a group of its
    own, and for one that looks mistyped. Other verbs are allowed in the groups of other APIs. Raises
    :class:`TypeError` for what is no string.

    .. _PolicyRule: https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/role-v1/
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...]
    namespace: str

    def __init__(
        self,
        group: str,
        resources: str | Iterable[str],
        verbs: str | Iterable[str],
        resource_names: str | Iterable[str] = (),
        *,
        namespace: str = "",
    ) -> None:
        require_type("Rule: group", group, str, "an API group, such as apps; that of core is empty")
        require_type("Rule: namespace", namespace, str, "the name of a namespace")
        names = _strings("resources", resources)
        allowed = _strings("verbs", verbs)
        if not names or not allowed:
            raise ValueError(
                f"rule for group {group!r}: resources {names} and verbs {allowed}: must not be empty"
            )
        if "/" in group:
            raise ValueError(f"rule for group {group!r}: must be a group without a version")
        if group == "core" or _VERSION.fullmatch(group):
            raise ValueError(
                f"rule for group {group!r}: must be an API group, such as apps; that of core resources is empty"
            )
        for resource in names:
            if not _NAME.fullmatch(resource):
                raise ValueError(
                    f"rule for group {group!r}: resource {resource!r:.200}: must be one resource in lower case, such "
                    "as deployments"
                )
            if _is_singular(group, resource):
                raise ValueError(
                    f"rule for group {group!r}: resource {resource!r:.200}: must be the plural name, such as "
                    "deployments"
                )
        for verb in allowed:
            _check_verb(group, verb)
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "resources", names)
        object.__setattr__(self, "verbs", allowed)
        object.__setattr__(self, "resource_names", _strings("resource_names", resource_names))
        object.__setattr__(self, "namespace", namespace)


def _check_verb(group: str, verb: str) -> None:
    """Raise :class:`ValueError` for a verb that API servers would accept in a role, and never ask for."""
    if verb in _KUBERNETES_VERBS:
        return
    is_word = verb not in _NOT_VERBS and _NAME.fullmatch(verb) is not None
    similar = get_close_matches(verb, _KUBERNETES_VERBS, n=1, cutoff=_SIMILAR)
    if is_word and not similar and not _is_of_kubernetes(group):
        return
    message = (
        f"rule for group {group!r}: verb {verb!r:.200}: must be a verb such as get, list, watch, create, update, "
        "patch or delete; READ and CRUD are constants of cfo.runtime"
    )
    if is_word and similar:
        message += f"; did you mean {similar[0]}?"
    raise ValueError(message)


def _is_singular(group: str, resource: str) -> bool:
    """Return whether no API server has ``resource``: all names of Kubernetes are plurals, except those of metrics."""
    if not _is_of_kubernetes(group) or group.endswith(".metrics.k8s.io"):
        return False
    name = resource.partition("/")[0]
    return not name.endswith(("s", "*"))


def _is_of_kubernetes(group: str) -> bool:
    return "." not in group or group.endswith(".k8s.io")


def _strings(name: str, values: str | Iterable[str]) -> tuple[str, ...]:
    """Return what the parameter ``name`` of a rule got. Raises :class:`TypeError` unless it is strings."""
    require_type(f"Rule: {name}", values, Iterable, "a string or a list of strings")
    found = (values,) if isinstance(values, str) else tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(
                f"Rule: {name}: {value!r:.200}: must be a string; READ and CRUD need a star among others, as in "
                "(*READ, 'patch')"
            )
    return found


def policy_rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return the smallest sorted list of PolicyRules that grants exactly ``rules`` (their ``namespace`` is ignored).

    Merges the verbs of each resource, then the resources of each group that have the same verbs.
    """
    verbs_of: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        names = tuple(sorted(rule.resource_names))
        for resource in rule.resources:
            verbs_of.setdefault((rule.group, resource, names), set()).update(rule.verbs)

    resources_of: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), granted in sorted(verbs_of.items()):
        verbs = tuple(sorted(granted))
        resources_of.setdefault((group, names, verbs), []).append(resource)

    merged: list[dict[str, Any]] = []
    for (group, names, verbs), resources in resources_of.items():
        policy: dict[str, Any] = {
            "apiGroups": [group],
            "resources": resources,
            "verbs": list(verbs),
        }
        if names:
            policy["resourceNames"] = list(names)
        merged.append(policy)
    return merged
