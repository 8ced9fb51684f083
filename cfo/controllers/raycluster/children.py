"""Writes the objects that belong to a RayCluster, without taking over objects of other owners.

When an object cannot be written, a Warning Event on the RayCluster names the object and the reason. The other objects
are still written; the reconcile then fails at its end and is retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from cfo.api.raycluster.cluster import has_cluster_labels, is_owned_by
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime import (
    GVK,
    AlreadyExists,
    APIError,
    BadRequest,
    Client,
    Conflict,
    EventRecorder,
    Forbidden,
    Invalid,
    NamespacedName,
    Object,
    Result,
    controller_of,
    gvk_of,
    key_of,
    name_of,
    owner_reference,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.client import ABSENT_VERSION

__all__ = ["MAX_CACHED_BYTES", "NAME_CONFLICT_RETRY_SECONDS", "Children", "NameConflict", "belongs_to"]

_log = structlog.get_logger("cfo.controllers.raycluster")

MAX_CACHED_BYTES = 64 << 10
"""The maximum size of a cached object of the kinds that users can create as well: children have a few kilobytes.

A larger object looks like one that does not exist. That is safe, because the first write of a child can only create.
"""

NAME_CONFLICT_RETRY_SECONDS = 300.0
"""How long to wait before rechecking a name conflict; most possible owners are not watched."""

_PREDECESSOR_RETRY_SECONDS = 5.0
_EXPLAINED = (Invalid, Forbidden, BadRequest)


def belongs_to(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` belongs to ``cluster``: by an owner reference with its uid, or by its labels.

    An object that another controller owns never belongs to it, regardless of its labels.
    """
    if is_owned_by(obj, cluster):
        return True
    return controller_of(obj) is None and has_cluster_labels(obj, cluster)


class NameConflict(Exception):
    """Raised when an object (``obj``) that does not belong to the cluster has the required name."""

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        super().__init__(f"{gvk_of(obj).kind} {key_of(obj)} already exists and does not belong to this RayCluster")


class Children:
    """The writes of one reconcile of ``cluster``; the reconcile returns :meth:`result` at its end."""

    def __init__(self, client: Client, events: EventRecorder, cluster: Object) -> None:
        self._client = client
        self._events = events
        self.cluster = cluster
        self.facts = RayClusterFacts(cluster)
        self._errors: list[APIError] = []
        self._retry_after = 0.0

    @property
    def failed(self) -> bool:
        """Whether any write has failed so far."""
        return bool(self._errors)

    def record_warning(self, reason: str, message: str) -> None:
        """Record a Warning Event on the cluster."""
        self._events.event(self.cluster, "Warning", reason, message)

    def record_normal(self, reason: str, message: str) -> None:
        """Record a Normal Event on the cluster."""
        self._events.event(self.cluster, "Normal", reason, message)

    def record_conflict(self, reason: str, message: str) -> None:
        """Record that an object is not written because of a conflict, and schedule a recheck."""
        self.record_warning(reason, message)
        self.retry_after(NAME_CONFLICT_RETRY_SECONDS)

    def retry_after(self, seconds: float) -> None:
        """Request another reconcile after at most ``seconds``."""
        self._retry_after = min(self._retry_after or seconds, seconds)

    async def apply(self, desired: Object, uid: str) -> Object | None:
        """Apply ``desired``, owned by the cluster, to the object with this uid; an empty ``uid`` creates it.

        Any other object of this name is left unchanged. Returns the stored object, or ``None`` when it was rejected.
        """
        try:
            return await self._apply(desired, uid)
        except APIError as error:
            self._record_failure(desired, error)
            return None

    async def claim_and_apply(self, desired: Object, current: Object | None, consequence: str) -> Object | None:
        """Apply ``desired``, owned by the cluster, unless an object of another owner has its name.

        ``current`` is the cached object. If there is none, the apply can only create. If it fails because the object
        exists, that object is read and checked. An update carries the uid that was checked. Returns the stored object,
        or ``None`` when the API server rejected it or the name is taken; an Event reports this with ``consequence``.
        """
        try:
            if current is None:
                try:
                    return await self._apply(desired, uid="")
                except Conflict:
                    current = await self._client.get(gvk_of(desired), key_of(desired), live=True)
                    if current is None:
                        raise
            if belongs_to(current, self.cluster):
                return await self._apply(desired, uid_of(current))
        except APIError as error:
            self._record_failure(desired, error)
            return None
        self.report_name_conflict(NameConflict(current), consequence)
        return None

    async def _apply(self, desired: Object, uid: str) -> Object:
        precondition = {"uid": uid} if uid else {"resourceVersion": ABSENT_VERSION}
        claimed = {**desired, "metadata": {**desired["metadata"], **precondition}}
        return await self._client.apply(claimed, owner=self.cluster)

    async def create_or_update(
        self,
        key: NamespacedName,
        gvk: GVK,
        current: Object | None,
        desired: Callable[[Object | None], Awaitable[Object]],
        *,
        trust_labels: bool = True,
    ) -> Object | None:
        """Create or update an object that belongs to the cluster; never take over one of another owner.

        ``current`` is the cached object; ``desired`` returns the desired object, given the existing one. The first
        write is a create. An object that already exists is read and checked, and an update carries the uid and
        resourceVersion that were checked. Without ``trust_labels``, an object that has the cluster's labels, but no
        owner reference with its uid, is deleted and created again.

        Returns the stored object, or ``None`` when the API server rejected it.
        Raises :class:`NameConflict` when an object of another owner has the name.
        """
        try:
            if current is None:
                try:
                    return await self._client.create(self._owned(await desired(None)))
                except AlreadyExists:
                    current = await self._client.get(gvk, key, live=True)
                    if current is None:
                        raise
            if not belongs_to(current, self.cluster):
                raise NameConflict(current)
            if not trust_labels and not is_owned_by(current, self.cluster):
                return await self._replace(gvk, current, await desired(None))
            wanted = self._owned(await desired(current))
            if _is_up_to_date(current, wanted):
                return current
            wanted["metadata"] |= {"uid": uid_of(current), "resourceVersion": resource_version_of(current)}
            return await self._client.apply(wanted)
        except APIError as error:
            self._record_failure(
                {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": key.name}}, error
            )
            return None

    def is_up_to_date(self, current: Object, desired: Object) -> bool:
        """Return whether ``current`` has everything in ``desired``, and the owner reference to the cluster."""
        return _is_up_to_date(current, self._owned(desired))

    async def _replace(self, gvk: GVK, current: Object, desired: Object) -> Object:
        """Delete ``current`` and create ``desired``; an update would keep other keys, and an immutable object as is."""
        if not current["metadata"].get("deletionTimestamp"):
            await self._client.delete(gvk, key_of(current), uid=uid_of(current))
        try:
            created = await self._client.create(self._owned(desired))
        except AlreadyExists:  # a finalizer keeps it
            raise NameConflict(current) from None
        obj = f"{gvk.kind} {name_of(current)}"
        self.record_warning(
            "UntrustedContentReplaced",
            f"{obj} had the labels of this RayCluster, but no owner reference with its uid: its content was replaced. "
            "Restart the pods that use it",
        )
        return created

    def report_name_conflict(self, error: NameConflict, consequence: str) -> None:
        """Record a name conflict and its consequence.

        An object of a deleted cluster with the same name will be garbage-collected, so the reconcile just waits for it.
        """
        reference = controller_of(error.obj) or {}
        obj = f"{gvk_of(error.obj).kind} {name_of(error.obj)}"
        if reference.get("kind") == RAY_CLUSTER.kind and reference.get("name") == name_of(self.cluster):
            _log.debug("Waiting for garbage collection of a deleted RayCluster's object", object=obj)
            self.retry_after(_PREDECESSOR_RETRY_SECONDS)
        else:
            self.record_conflict(
                "NameTaken", f"{obj} already exists and does not belong to this RayCluster: {consequence}"
            )

    async def delete(self, gvk: GVK, current: Object | None, belongs: Callable[[Object], bool] | None = None) -> None:
        """Delete ``current`` if it exists and belongs to the cluster (decided by ``belongs``, if given)."""
        if current is None or current["metadata"].get("deletionTimestamp"):
            return
        is_own = belongs(current) if belongs else belongs_to(current, self.cluster)
        if not is_own:
            return
        try:
            await self._client.delete(gvk, key_of(current), uid=uid_of(current))
        except APIError as error:
            self._record_failure({"apiVersion": gvk.api_version, "kind": gvk.kind, **current}, error, verb="deleted")

    def result(self, *, requeue_after: float = 0.0) -> Result:
        """Return the result of the reconcile; raise the errors of failed writes.

        ``requeue_after``: seconds, at most, until the next reconcile (0: no limit).
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup("failed to write several objects", self._errors)
        if requeue_after:
            self.retry_after(requeue_after)
        return Result(requeue_after=self._retry_after)

    def _owned(self, desired: Object) -> Object:
        if desired["metadata"].get("namespace"):
            desired["metadata"]["ownerReferences"] = [owner_reference(self.cluster)]
        return desired

    def _record_failure(self, obj: Object, error: APIError, *, verb: str = "written") -> None:
        if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
            _log.debug("Namespace is being deleted", kind=gvk_of(obj).kind, object=str(key_of(obj)))
            return
        self._errors.append(error)
        is_lasting = isinstance(error, _EXPLAINED) or (isinstance(error, Conflict) and bool(error.causes))
        if is_lasting:
            self.record_warning(
                "FailedToReconcile", f"{gvk_of(obj).kind} {name_of(obj)} could not be {verb}: {error.message}"
            )


def _is_up_to_date(current: Object, desired: Object) -> bool:
    """Return whether ``current`` has everything in ``desired``; extra metadata and extra Secret data are ignored."""
    desired_metadata = desired["metadata"]
    metadata = current["metadata"]
    for part in ("labels", "annotations"):
        if not (desired_metadata.get(part) or {}).items() <= (metadata.get(part) or {}).items():
            return False
    if any(reference not in owner_references_of(current) for reference in desired_metadata.get("ownerReferences", ())):
        return False
    if not (desired.get("data") or {}).items() <= (current.get("data") or {}).items():
        return False
    other_fields = set(desired) - {"apiVersion", "kind", "metadata", "data"}
    return all(current.get(field) == desired[field] for field in other_fields)
