"""What a reconciler is: it is given a name, and makes the world be as the named object says.

The contract is controller-runtime's. A reconciler is level-triggered: it is never told *what* happened,
may run twice, late, or first of all after a restart, and ends in the same state. One request is never
reconciled by two workers at the same time; different requests are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cfo.runtime.objects import NamespacedName

__all__ = [
    "CRUD",
    "READ",
    "WRITE",
    "Reconciler",
    "Request",
    "Result",
    "Rule",
    "TerminalError",
    "policy_rules",
]

Request: TypeAlias = NamespacedName
"""The name of the object to reconcile; ``namespace`` is empty for cluster-scoped ones."""

READ = ("get", "list", "watch")
"""The verbs that an informer needs."""

WRITE = ("create", "delete", "patch", "update")
"""The verbs that change an object."""

CRUD = ("create", "delete", "get", "list", "patch", "update", "watch")
"""``READ`` and ``WRITE``."""


@dataclass(frozen=True, slots=True)
class Result:
    """What comes next for a request that was reconciled without an error.

    ``requeue_after`` seconds later it is reconciled again (0: only when something changes).
    ``priority`` is that of the requeued request in the queue (``None``: as it was).
    """

    requeue_after: float = 0.0
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.requeue_after < 0:
            raise ValueError(f"requeue_after: {self.requeue_after}: must be 0 or more seconds")


@runtime_checkable
class Reconciler(Protocol):
    """Brings the world to what one object asks for."""

    async def reconcile(self, request: Request) -> Result:
        """Reconciles the object called ``request``, which may be gone.

        Any exception means: try again after a backoff, which grows with each failure of this request. It is
        logged and counted; nothing else stops for it. :class:`TerminalError` means: do not try again before
        something changes.
        """
        ...


class TerminalError(Exception):
    """A retry would not help: the request is reconciled again only when something changes.

    ``raise TerminalError("...") from error`` keeps the cause.
    """


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """A right that a controller needs, declared next to its code; manifests are generated from these.

    ``group`` is the API group (empty: core), ``resources`` and ``verbs`` as in a `PolicyRule`_;
    ``resource_names`` limits the rule to objects of these names, ``namespace`` to one namespace (then it
    belongs into a Role).

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
        resource_names: Iterable[str] = (),
        *,
        namespace: str = "",
    ) -> None:
        names = (resources,) if isinstance(resources, str) else tuple(resources)
        allowed = (verbs,) if isinstance(verbs, str) else tuple(verbs)
        if not names or not allowed:
            raise ValueError(f"a rule for group {group!r} needs resources and verbs, got {names} and {allowed}")
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "resources", names)
        object.__setattr__(self, "verbs", allowed)
        object.__setattr__(self, "resource_names", tuple(resource_names))
        object.__setattr__(self, "namespace", namespace)


def policy_rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The fewest, sorted PolicyRules which grant exactly ``rules`` (whatever their ``namespace``).

    The verbs of one resource come together, then the resources of one group which have the same verbs.
    """
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        for resource in rule.resources:
            verbs.setdefault((rule.group, resource, tuple(sorted(rule.resource_names))), set()).update(rule.verbs)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), allowed in sorted(verbs.items()):
        resources.setdefault((group, names, tuple(sorted(allowed))), []).append(resource)
    merged: list[dict[str, Any]] = []
    for (group, names, allowed_verbs), of_group in resources.items():
        policy: dict[str, Any] = {"apiGroups": [group], "resources": of_group, "verbs": list(allowed_verbs)}
        if names:
            policy["resourceNames"] = list(names)
        merged.append(policy)
    return merged
