"""Writes the objects of a MiniCluster without taking over objects of other owners.

An object belongs to the MiniCluster only if an owner reference names the MiniCluster's uid as its controller. If an
object of another owner has the name, or the API server rejects the object, an Event and the status say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from cfo.api.flux import MINICLUSTER, MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.resources import owned
from cfo.runtime import (
    GVK,
    AlreadyExists,
    APIError,
    BadRequest,
    Client,
    Conflict,
    Entry,
    EventRecorder,
    Forbidden,
    Invalid,
    Object,
    controller_of,
    gvk_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from cfo.runtime.client import ABSENT_VERSION

__all__ = ["NAME_CONFLICT_RETRY_SECONDS", "Children", "belongs_to"]

_log = structlog.get_logger("cfo.controllers.flux")

NAME_CONFLICT_RETRY_SECONDS: Final = 300.0
"""How long to wait before rechecking a name conflict; objects of other owners are not watched."""

_PREDECESSOR_RETRY_SECONDS = 5.0
_EXPLAINED = (Invalid, Forbidden, BadRequest)


def belongs_to(entry: Entry | None, cluster: Object) -> bool:
    """Return whether ``cluster`` is the controller of the cached object."""
    controller = entry.meta.controller if entry is not None else None
    return controller is not None and controller.uid == uid_of(cluster)


class Children:
    """The writes of one reconcile of ``cluster``.

    :attr:`problem` is the reason and message of the first object that could not be written, for the status. With
    :attr:`keep_existing`, :meth:`apply` creates objects, but does not change them.
    """

    def __init__(self, client: Client, events: EventRecorder, cluster: Object) -> None:
        self.keep_existing = False
        self._client = client
        self._events = events
        self.cluster = cluster
        self.problem: tuple[str, str] | None = None
        self.retry_after = 0.0
        self._errors: list[APIError] = []

    async def apply(self, desired: Object, current: Entry | None, *, required: bool = True) -> bool:
        """Create the object, or update it if it belongs to the cluster; return whether it exists as desired.

        ``current`` is the cached object. If an object of another owner has the name, the result is false; this is a
        problem only if the object is ``required``.
        """
        desired = owned(self.cluster, desired)
        try:
            if current is None:
                try:
                    await self._client.apply(_with_metadata(desired, resourceVersion=ABSENT_VERSION))
                except Conflict:
                    existing = await self._client.get(gvk_of(desired), key_of(desired), live=True)
                    if existing is None:
                        raise
                    if not self._is_usable(existing, required=required):
                        return False
                    await self._client.apply(_with_metadata(desired, uid=uid_of(existing)))
                return True
            if not self._is_usable_entry(current, required=required):
                return False
            if self.keep_existing:
                return True
            await self._client.apply(_with_metadata(desired, uid=current.meta.uid))
        except APIError as error:
            self._record_failure(desired, error)
            return False
        return True

    async def create(self, build: Callable[[], Object], current: Entry | None) -> Object | None:
        """Create the object that ``build`` returns if it does not exist; ``current`` is the cached object.

        Returns the object if it was created, or if it belongs to the cluster but was not cached; otherwise ``None``.
        """
        if current is not None:
            self._is_usable_entry(current)
            return None
        desired = build()
        try:
            try:
                return await self._client.create(owned(self.cluster, desired))
            except AlreadyExists:
                existing = await self._client.get(gvk_of(desired), key_of(desired), live=True)
                if existing is None:
                    raise
                return await self.adopt(existing) if self._is_usable(existing) else None
        except APIError as error:
            self._record_failure(desired, error)
            return None

    async def adopt(self, obj: Object) -> Object:
        """Label an object of the cluster that the Go operator created, so that the informers contain it."""
        label = {MINICLUSTER_LABEL: name_of(self.cluster)}
        if label.items() <= labels_of(obj).items():
            return obj
        return await self.patch(gvk_of(obj), obj, {"metadata": {"labels": label}})

    async def patch(self, gvk: GVK, obj: Object, patch: Object) -> Object:
        """Apply a merge patch, if it is not empty, to an object of the cluster; return the object as stored."""
        if not patch:
            return obj
        body = {**patch, "metadata": {**(patch.get("metadata") or {}), "uid": uid_of(obj)}}
        try:
            return await self._client.patch(gvk, key_of(obj), body)
        except APIError as error:
            self._record_failure(obj, error)
            return obj

    async def delete(self, gvk: GVK, current: Entry | None) -> None:
        """Delete the cached object if it belongs to the cluster."""
        if current is None or not belongs_to(current, self.cluster) or current.meta.is_deleting:
            return
        try:
            await self._client.delete(gvk, current.key, uid=current.meta.uid, propagation_policy="Background")
        except Conflict:
            _log.debug("Object was replaced in the meantime", kind=gvk.kind, object=str(current.key))
        except APIError as error:
            obj = {
                "apiVersion": gvk.api_version,
                "kind": gvk.kind,
                "metadata": {"namespace": current.key.namespace, "name": current.key.name},
            }
            self._record_failure(obj, error)

    def add_problem(self, reason: str, message: str) -> None:
        """Record why not all objects exist; the first problem counts."""
        self.problem = self.problem or (reason, message)

    def record_name_conflict(self, obj: str, consequence: str) -> None:
        """Record a Warning Event about an object that does not belong to the cluster."""
        message = f"{obj} already exists and does not belong to this MiniCluster: {consequence}"
        self._events.event(self.cluster, "Warning", "NameTaken", message)

    def record_normal(self, reason: str, message: str) -> None:
        """Record a Normal Event on the cluster."""
        self._events.event(self.cluster, "Normal", reason, message)

    def raise_errors(self) -> None:
        """Raise the errors of failed writes, so that the reconcile is retried."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup("failed to write several objects", self._errors)

    def _is_usable_entry(self, current: Entry, *, required: bool = True) -> bool:
        if belongs_to(current, self.cluster) and not current.meta.is_deleting:
            return True
        return self._is_usable(current.object(), required=required)

    def _is_usable(self, existing: Object, *, required: bool = True) -> bool:
        """Return whether an existing object belongs to the cluster and is not being deleted."""
        obj = f"{gvk_of(existing).kind} {name_of(existing)}"
        if is_controlled_by(existing, self.cluster):
            if is_deleting(existing):
                self.add_problem("Deleting", f"{obj} is being deleted.")
            return not is_deleting(existing)
        reference = controller_of(existing) or {}
        if reference.get("kind") == MINICLUSTER.kind and reference.get("name") == name_of(self.cluster):
            self.add_problem("Deleting", f"{obj} of a deleted MiniCluster with the same name still exists.")
            self._retry(_PREDECESSOR_RETRY_SECONDS)
        elif required:
            self.record_name_conflict(obj, "it is left unchanged, and the MiniCluster cannot start")
            self.add_problem("NameTaken", f"{obj} already exists and does not belong to this MiniCluster.")
            self._retry(NAME_CONFLICT_RETRY_SECONDS)
        return False

    def _retry(self, seconds: float) -> None:
        self.retry_after = min(self.retry_after or seconds, seconds)

    def _record_failure(self, obj: Object, error: APIError) -> None:
        if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
            self.add_problem("NamespaceTerminating", "The namespace is being deleted.")
            return
        self._errors.append(error)
        message = f"{gvk_of(obj).kind} {name_of(obj)} could not be written: {error.message}"
        self.add_problem("FailedToWrite", message)
        if isinstance(error, _EXPLAINED):
            self._events.event(self.cluster, "Warning", "FailedToReconcile", message)


def _with_metadata(obj: Object, **fields: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **fields}}
