"""Writes the objects that belong to a RayCluster, without taking over objects of other owners.

When an object cannot be written, a Warning Event on the RayCluster names the object and the reason. The other objects
are still written; the reconcile then fails at its end and is retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

import structlog

from cfo.api.raycluster.cluster import has_cluster_labels, is_owned_by
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.runtime import (
    GVK,
    AlreadyExists,
    Client,
    Clock,
    EventRecorder,
    EventType,
    Object,
    Reader,
    controller_of,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.client import (
    NAME_CONFLICT_RETRY_SECONDS,
    PREDECESSOR_RETRY_SECONDS,
    NameTaken,
    OwnedWrites,
)

_log = structlog.get_logger("cfo.controllers.raycluster")

SYNC_RETRY_SECONDS: Final = 0.5
"""How long to wait for an informer that has not listed its objects yet."""


def belongs_to(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` belongs to ``cluster``: by an owner reference with its uid, or by its labels.

    An object that another controller owns never belongs to it, regardless of its labels.
    """
    if is_owned_by(obj, cluster):
        return True
    return controller_of(obj) is None and has_cluster_labels(obj, cluster)


class RecentEvents:
    """Records Events, but none that was recorded within the last minute: a RayCluster is reconciled for many causes."""

    _SECONDS: ClassVar[float] = 60.0
    _LIMIT: ClassVar[int] = 4096
    """How many are remembered at most; one that is forgotten is only recorded again."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._recorded: dict[int, float] = {}

    def event(self, obj: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an Event about ``obj``."""
        key, now = hash((uid_of(obj), reason, message)), self._clock.monotonic()
        if now - self._recorded.get(key, -self._SECONDS) < self._SECONDS:
            return
        self._recorded.pop(key, None)  # the order of the others is that of their times
        self._recorded[key] = now
        if len(self._recorded) > self._LIMIT:
            del self._recorded[next(iter(self._recorded))]
        self._recorder.event(obj, type_, reason, message)


class Children(OwnedWrites):
    """The writes of one concern in one reconcile of ``cluster``."""

    def __init__(
        self, client: Client, events: RecentEvents, cluster: Object, facts: RayClusterFacts
    ) -> None:
        super().__init__(client, cluster)
        self._events = events
        self.cluster = cluster
        self.facts = facts

    def owns(self, obj: Object) -> bool:
        """Return whether ``obj`` belongs to the cluster, by its owner reference or its labels."""
        return belongs_to(obj, self.cluster)

    def owned(self, desired: Object) -> Object:
        """Return ``desired`` with the cluster as its controller; a cluster-scoped object can only have its labels."""
        return super().owned(desired) if namespace_of(desired) else desired

    def report_taken(self, taken: NameTaken, consequence: str) -> None:
        """Record a taken name and its consequence; without one, raise ``taken``."""
        if not consequence:
            raise taken
        if taken.is_of_predecessor:
            _log.debug(
                "Waiting for garbage collection of a deleted RayCluster's object",
                object=name_of(taken.obj),
            )
            self.retry(PREDECESSOR_RETRY_SECONDS)
        else:
            self.record_conflict("NameTaken", f"{taken}: {consequence}")

    def report_failure(self, message: str, *, is_lasting: bool) -> None:
        """Record a Warning Event if someone has to act."""
        if is_lasting:
            self.record_warning("FailedToReconcile", message)

    def record_warning(self, reason: str, message: str) -> None:
        """Record a Warning Event on the cluster."""
        self._events.event(self.cluster, "Warning", reason, message)

    def record_normal(self, reason: str, message: str) -> None:
        """Record a Normal Event on the cluster."""
        self._events.event(self.cluster, "Normal", reason, message)

    def record_conflict(self, reason: str, message: str) -> None:
        """Record that an object is not written because of a conflict, and schedule a recheck."""
        self.record_warning(reason, message)
        self.retry(NAME_CONFLICT_RETRY_SECONDS)

    async def claim_and_apply(
        self, desired: Object, cached: Reader, consequence: str
    ) -> Object | None:
        """Apply ``desired``, unless an object of another owner has its name; ``cached`` reads the objects of its kind.

        Returns the stored object, or ``None`` when the API server rejected it or the name is taken; an Event reports
        this with ``consequence``.
        """
        write = self.apply(desired, cached.get(key_of(desired)))
        return await self.attempt(write, gvk_of(desired), name_of(desired), consequence=consequence)

    async def create_or_update(
        self,
        gvk: GVK,
        name: str,
        current: Object | None,
        desired: Callable[[Object | None], Awaitable[Object]],
        consequence: str,
        *,
        trust_labels: bool = True,
    ) -> Object | None:
        """Create or update an object that belongs to the cluster, unless an object of another owner has its name.

        ``current`` is the cached object; ``desired`` returns the desired object, given the existing one. Without
        ``trust_labels``, an object that has the cluster's labels, but no owner reference with its uid, is deleted and
        created again.

        Returns the stored object, or ``None`` when the API server rejected it or the name is taken; an Event reports
        this with ``consequence``. Without one, a taken name raises :class:`NameTaken`.
        """
        write = self._create_or_update(current, desired, trust_labels=trust_labels)
        return await self.attempt(write, gvk, name, consequence=consequence)

    async def _create_or_update(
        self,
        current: Object | None,
        desired: Callable[[Object | None], Awaitable[Object]],
        *,
        trust_labels: bool,
    ) -> Object:
        if current is None:
            current, is_new = await self.create(await desired(None))
            if is_new:
                return current
        self.checked(current)
        if not trust_labels and not is_owned_by(current, self.cluster):
            return await self._replace(current, await desired(None))
        wanted = await desired(current)
        if self.is_up_to_date(current, wanted):
            return current
        # `wanted` contains parts of `current` (keys, certificates), so it must not be applied to a later state.
        return await self.apply_to(wanted, uid_of(current), resource_version_of(current))

    def is_up_to_date(self, current: Object, desired: Object) -> bool:
        """Return whether ``current`` has everything in ``desired``, and the owner reference to the cluster.

        Extra metadata and extra Secret data are ignored.
        """
        desired = self.owned(desired)
        desired_metadata, metadata = desired["metadata"], current["metadata"]
        for part in ("labels", "annotations"):
            if not (desired_metadata.get(part) or {}).items() <= (metadata.get(part) or {}).items():
                return False
        references = owner_references_of(current)
        if any(reference not in references for reference in owner_references_of(desired)):
            return False
        if not (desired.get("data") or {}).items() <= (current.get("data") or {}).items():
            return False
        other_fields = set(desired) - {"apiVersion", "kind", "metadata", "data"}
        return all(current.get(field) == desired[field] for field in other_fields)

    async def _replace(self, current: Object, desired: Object) -> Object:
        """Delete ``current`` and create ``desired``; an update would keep other keys, and an immutable object as is."""
        await self.delete_owned(gvk_of(current), current)
        try:
            created = await self.client.create(self.owned(desired))
        except AlreadyExists:  # a finalizer keeps it
            raise NameTaken(current, self.cluster) from None
        obj = f"{gvk_of(current).kind} {name_of(current)}"
        self.record_warning(
            "UntrustedContentReplaced",
            f"{obj} had the labels of this RayCluster, but no owner reference with its uid: its content was replaced. "
            "Restart the pods that use it",
        )
        return created

    async def delete(
        self, gvk: GVK, current: Object | None, belongs: Callable[[Object], bool] | None = None
    ) -> None:
        """Delete the cached object if it belongs to the cluster (decided by ``belongs``, if given).

        A conflict is a failure: while an object may remain, the finalizer of the cluster must remain.
        """
        if current is not None:
            await self.attempt(
                self.delete_owned(gvk, current, owns=belongs), gvk, name_of(current), "deleted"
            )
