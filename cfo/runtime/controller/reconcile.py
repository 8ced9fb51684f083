"""The reconciler's contract: given the name of an object, bring the cluster to the state that the object describes.

The contract is controller-runtime's. A reconciler is level-triggered: it is not notified *which* event occurred, and
must be idempotent, because it may run twice, late, or right after a restart. Two workers never reconcile the same
request at the same time; different requests are reconciled concurrently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.arguments import InvalidArgument, wrong_result

Request: TypeAlias = NamespacedName
"""The name of the object to reconcile; ``namespace`` is empty for cluster-scoped objects."""


def is_request(value: object) -> bool:
    """Return whether ``value`` is a :data:`Request` whose parts are strings."""
    return (
        isinstance(value, NamespacedName)
        and isinstance(value.name, str)
        and isinstance(value.namespace, str)
    )


_NOT_REQUESTS: Final = (NamespacedName, str, bytes, Mapping)
"""What can be iterated, but is not a list: the parts of one request are strings."""


def require_requests(name: str, returned: object) -> tuple[Request, ...]:
    """Return the requests in ``returned``, which the function ``name`` of a program returned.

    Raises :class:`TypeError` for anything else, such as names or one request.
    """
    allowed = "requests, such as [Request(namespace, name)]"
    if isinstance(returned, _NOT_REQUESTS) or not isinstance(returned, Iterable):
        raise wrong_result(name, returned, allowed)  # also for None, and the coroutine of a lambda
    requests = tuple(returned)
    for request in requests:
        if not is_request(request):
            raise wrong_result(name, request, allowed, inside=returned)
    return requests


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile.

    ``requeue_after``: seconds after which the request is reconciled again (0: only when something changes). Raises
    :class:`ValueError` for one that is negative or infinite, and :class:`TypeError` for a string or a timedelta.
    ``priority``: that of the request in the queue then; ``None``: the same as before. If the request is added meanwhile
    for an earlier time, the higher priority applies.
    """

    requeue_after: float = 0.0
    priority: int | None = None

    def __post_init__(self) -> None:
        try:
            is_valid = 0 <= self.requeue_after < math.inf
        except TypeError:
            raise TypeError(
                f"requeue_after: {self.requeue_after!r:.200}: must be a number of seconds"
            ) from None
        if not is_valid:
            raise InvalidArgument(f"requeue_after: {self.requeue_after}: must be 0 or more seconds")
        if not isinstance(self.priority, int | None):
            raise TypeError(f"priority: {self.priority!r:.200}: must be an integer or None")


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
