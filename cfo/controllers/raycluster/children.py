"""Writes what belongs to a RayCluster, so that nothing is taken from anybody and one failure stops nothing else.

A child that cannot be written is reported where its user looks: as a Warning Event on the RayCluster, which names
the object and the reason. The others are written all the same; at the end the reconcile fails, and is retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from cfo.api.raycluster.cluster import has_cluster_labels, is_owned_by
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists, APIError, BadRequest, Conflict, Forbidden, Invalid
from cfo.runtime.events import EventRecorder
from cfo.runtime.objects import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    gvk_of,
    key_of,
    name_of,
    owner_reference,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.reconcile import Result

__all__ = ["REFUSED_RETRY_SECONDS", "Children", "Taken", "belongs_to"]

_log = structlog.get_logger("cfo.controllers.raycluster")

REFUSED_RETRY_SECONDS = 300.0
"""When to look again at a name that somebody else holds: most of what may hold it, no watch tells of."""

_PREDECESSOR_RETRY_SECONDS = 5.0
_EXPLAINED = (Invalid, Forbidden, BadRequest)


def belongs_to(obj: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether ``obj`` is the cluster's, by an owner reference with its uid or by its labels.

    What somebody else controls is not, whatever its labels say.
    """
    if is_owned_by(obj, cluster):
        return True
    return controller_of(obj) is None and has_cluster_labels(obj, cluster)


class Taken(Exception):
    """The name of an object is somebody else's; ``obj`` is his."""

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        super().__init__(f"{gvk_of(obj).kind} {key_of(obj)} belongs to somebody else")


class Children:
    """The writes of one reconcile of one cluster. Ask for :meth:`result` at the end."""

    def __init__(self, client: Client, events: EventRecorder, cluster: Object) -> None:
        self._client = client
        self._events = events
        self.cluster = cluster
        self._errors: list[APIError] = []
        self._retry_after = 0.0

    @property
    def failed(self) -> bool:
        """Whether anything has gone wrong so far."""
        return bool(self._errors)

    def warn(self, reason: str, message: str) -> None:
        """Tells the cluster's user of something that is not as it should be."""
        self._events.event(self.cluster, "Warning", reason, message)

    def tell(self, reason: str, message: str) -> None:
        """Tells the cluster's user of something worth knowing."""
        self._events.event(self.cluster, "Normal", reason, message)

    def refuse(self, reason: str, message: str) -> None:
        """Tells that something is not made because of somebody else; it is looked at again later."""
        self.warn(reason, message)
        self.retry_after(REFUSED_RETRY_SECONDS)

    def retry_after(self, seconds: float) -> None:
        """Asks for another reconcile in ``seconds`` at the latest."""
        self._retry_after = min(self._retry_after or seconds, seconds)

    async def apply(self, desired: Object) -> Object | None:
        """Applies ``desired``, owned by the cluster; returns it as stored, or ``None`` when it was refused."""
        try:
            return await self._client.apply(desired, owner=self.cluster)
        except APIError as error:
            self._failed(desired, error)
            return None

    async def claim(
        self,
        key: NamespacedName,
        gvk: GVK,
        current: Object | None,
        desired: Callable[[Object | None], Awaitable[Object]],
    ) -> Object | None:
        """Creates an object, or brings it up to date, if it is the cluster's: it is never taken from others.

        ``current`` is what the cache knows; ``desired`` says what is to be, from what there is. The first write is
        a create; what exists already is read and looked at, and changed only in the very state that was looked at.
        Returns the object as stored, or ``None`` when the API server refused it. Raises :class:`Taken` when somebody
        else has the name.
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
                raise Taken(current)
            wanted = self._owned(await desired(current))
            if _is_as_desired(current, wanted):
                return current
            wanted["metadata"] |= {"uid": uid_of(current), "resourceVersion": resource_version_of(current)}
            return await self._client.apply(wanted)
        except APIError as error:
            self._failed({"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": key.name}}, error)
            return None

    def taken(self, error: Taken, consequence: str) -> None:
        """Tells that a name is somebody else's, unless it is a predecessor's who is about to be collected."""
        reference = controller_of(error.obj) or {}
        obj = f"{gvk_of(error.obj).kind} {name_of(error.obj)}"
        if reference.get("kind") == RAY_CLUSTER.kind and reference.get("name") == name_of(self.cluster):
            _log.debug("waiting for what a deleted cluster of this name left", object=obj)
            self.retry_after(_PREDECESSOR_RETRY_SECONDS)
        else:
            self.refuse("NameTaken", f"{obj} exists and is not this cluster's: {consequence}")

    async def delete(self, gvk: GVK, current: Object | None, belongs: Callable[[Object], bool] | None = None) -> None:
        """Deletes ``current`` if it is there and is the cluster's (or ``belongs`` says so)."""
        if current is None or current["metadata"].get("deletionTimestamp"):
            return
        mine = belongs(current) if belongs else belongs_to(current, self.cluster)
        if not mine:
            return
        try:
            await self._client.delete(gvk, key_of(current), uid=uid_of(current))
        except APIError as error:
            self._failed({"apiVersion": gvk.api_version, "kind": gvk.kind, **current}, error, verb="deleted")

    def result(self, *, requeue_after: float = 0.0) -> Result:
        """What comes next; raises what went wrong with any of the objects."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup("several objects failed", self._errors)
        if requeue_after:
            self.retry_after(requeue_after)
        return Result(requeue_after=self._retry_after)

    def _owned(self, desired: Object) -> Object:
        if desired["metadata"].get("namespace"):
            desired["metadata"]["ownerReferences"] = [owner_reference(self.cluster)]
        return desired

    def _failed(self, obj: Object, error: APIError, *, verb: str = "written") -> None:
        if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
            _log.debug("the namespace is going away", kind=gvk_of(obj).kind, object=str(key_of(obj)))
            return
        self._errors.append(error)
        lasting = isinstance(error, _EXPLAINED) or (isinstance(error, Conflict) and bool(error.causes))
        if lasting:
            self.warn("FailedToReconcile", f"{gvk_of(obj).kind} {name_of(obj)} cannot be {verb}: {error.message}")


def _is_as_desired(current: Object, desired: Object) -> bool:
    """Whether what the cluster asks for is there: metadata may hold more, so may a Secret's data."""
    wanted = desired["metadata"]
    have = current["metadata"]
    for part in ("labels", "annotations"):
        if not (wanted.get(part) or {}).items() <= (have.get(part) or {}).items():
            return False
    if any(reference not in owner_references_of(current) for reference in wanted.get("ownerReferences", ())):
        return False
    if not (desired.get("data") or {}).items() <= (current.get("data") or {}).items():
        return False
    rest = set(desired) - {"apiVersion", "kind", "metadata", "data"}
    return all(current.get(part) == desired[part] for part in rest)
