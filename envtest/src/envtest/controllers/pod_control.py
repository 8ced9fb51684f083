"""Creates and deletes the pods of workloads, and records the Events about it that all workload controllers record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.controllers.events import EventRecorder
from envtest.controllers.loopback_client import LoopbackClient
from envtest.controllers.pod_state import PODS

__all__ = [
    "MAX_BATCH",
    "PodControl",
    "create_in_batches",
    "is_namespace_terminating",
]

MAX_BATCH: Final = 500
"""The most pods that a controller creates or deletes in one reconciliation."""

_FIRST_BATCH: Final = 1


async def create_in_batches(
    count: int, create: Callable[[int], Awaitable[Any]]
) -> tuple[int, StatusError | None]:
    """Call ``create(number)`` for the first ``count`` numbers, in batches of 1, 2, 4 and so on.

    Stops after the batch in which a call is rejected, so that a quota that is used up costs few requests. Returns the
    number of successful calls and the first error, apart from the one in a namespace that is being deleted.
    """
    created = 0
    number = 0
    size = _FIRST_BATCH
    first_error: StatusError | None = None
    while number < count and first_error is None:
        for _ in range(min(size, count - number)):
            try:
                await create(number)
                created += 1
            except StatusError as error:
                if is_namespace_terminating(error):
                    return created, None
                first_error = first_error or error
            number += 1
        size *= 2
    return created, first_error


class PodControl:
    """Creates and deletes pods on behalf of their owners."""

    def __init__(self, client: LoopbackClient, events: EventRecorder) -> None:
        self._client = client
        self._events = events

    async def create(self, owner: Mapping[str, Any], pod: Object) -> Object | None:
        """Create a pod; return ``None`` if one of its name exists. Raises StatusError if it is rejected."""
        try:
            created = await self._client.create(PODS, pod)
        except StatusError as error:
            if not is_namespace_terminating(error):
                await self._events.warning(
                    owner, "FailedCreate", f"Error creating: {error.message}"
                )
            raise
        if created is not None:
            await self._events.normal(
                owner, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}"
            )
        return created

    async def delete(self, owner: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
        """Request the deletion of a pod that is not being deleted. Raises StatusError if it is rejected."""
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        try:
            found = await self._client.delete(
                PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        except StatusError as error:
            await self._events.warning(owner, "FailedDelete", f"Error deleting: {error.message}")
            raise
        if found:
            await self._events.normal(owner, "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    async def delete_all(
        self, owner: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
    ) -> StatusError | None:
        """Request the deletion of at most :data:`MAX_BATCH` pods; return the first error."""
        first_error = None
        for pod in pods[:MAX_BATCH]:
            try:
                await self.delete(owner, pod)
            except StatusError as error:
                first_error = first_error or error
        return first_error


def is_namespace_terminating(error: StatusError) -> bool:
    """Return whether a request was rejected because its namespace is being deleted."""
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
