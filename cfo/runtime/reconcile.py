"""The reconciler's contract: given the name of an object, bring the cluster to the state that the object describes.

The contract is controller-runtime's. A reconciler is level-triggered: it is not notified *which* event occurred, and
must be idempotent, because it may run twice, late, or right after a restart. Two workers never reconcile the same
request at the same time; different requests are reconciled concurrently.
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
    "ReconcileError",
    "Reconciler",
    "Request",
    "Result",
    "Rule",
    "TerminalError",
    "policy_rules",
]

Request: TypeAlias = NamespacedName
"""The name of the object to reconcile; ``namespace`` is empty for cluster-scoped objects."""

READ = ("get", "list", "watch")
"""The RBAC verbs that an informer requires."""

WRITE = ("create", "delete", "patch", "update")
"""The RBAC verbs that change an object."""

CRUD = ("create", "delete", "get", "list", "patch", "update", "watch")
"""``READ`` and ``WRITE``."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile.

    ``requeue_after``: seconds after which the request is reconciled again (0: only when something changes).
    ``priority``: the priority of the requeued request (``None``: unchanged). Raises :class:`ValueError` for a negative
    ``requeue_after``.
    """

    requeue_after: float = 0.0
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.requeue_after < 0:
            raise ValueError(f"requeue_after: {self.requeue_after}: must be 0 or more seconds")


@runtime_checkable
class Reconciler(Protocol):
    """Brings the cluster to the state that one object describes."""

    async def reconcile(self, request: Request) -> Result:
        """Reconcile the object named ``request``, which may no longer exist.

        Any exception requeues the request with a back-off that grows with each failure of this request; it is logged
        and counted and affects no other request. After :class:`TerminalError` the request is not retried until
        something changes.
        """
        ...


class ReconcileError(Exception):
    """Base class of expected failures: the log line has the message, and no stack trace.

    A request that fails with it is retried like after any other exception.
    """


class TerminalError(Exception):
    """Raised by a reconciler when a retry cannot help: the request is reconciled again only when something changes.

    ``raise TerminalError("...") from error`` keeps the cause.
    """


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """A permission that a controller requires, declared next to its code; manifests are generated from these rules.

    ``group`` is the API group (empty: core), ``resources`` and ``verbs`` are the fields of a `PolicyRule`_;
    ``resource_names`` limits the rule to objects of these names, ``namespace`` to one namespace (the rule then belongs
    in a Role). Raises :class:`ValueError` without resources or verbs.

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
            raise ValueError(f"rule for group {group!r}: resources {names} and verbs {allowed}: must not be empty")
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "resources", names)
        object.__setattr__(self, "verbs", allowed)
        object.__setattr__(self, "resource_names", tuple(resource_names))
        object.__setattr__(self, "namespace", namespace)


def policy_rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return the smallest sorted list of PolicyRules that grants exactly ``rules`` (their ``namespace`` is ignored).

    Merges the verbs of each resource, then the resources of each group that have the same verbs.
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
