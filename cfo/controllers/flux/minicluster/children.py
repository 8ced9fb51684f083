"""Writes the objects of a MiniCluster without taking over objects of other owners.

An object belongs to the MiniCluster only if an owner reference names the MiniCluster's uid as its controller. If an
object of another owner has the name, or the API server rejects the object, an Event and the status say so.
"""

from __future__ import annotations

from collections.abc import Callable

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.runtime import (
    GVK,
    Client,
    Entry,
    EventRecorder,
    Object,
    Propagation,
    gvk_of,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from cfo.runtime.client import (
    NAME_CONFLICT_RETRY_SECONDS,
    PREDECESSOR_RETRY_SECONDS,
    NameTaken,
    OwnedWrites,
    patch_checked,
)

_BACKGROUND = Propagation.BACKGROUND
_CANNOT_START = "it is left unchanged, and the MiniCluster cannot start"


def belongs_to(entry: Entry | None, cluster: Object) -> bool:
    """Return whether ``cluster`` is the controller of the cached object."""
    controller = entry.meta.controller if entry is not None else None
    return controller is not None and controller.uid == uid_of(cluster)


class Children(OwnedWrites):
    """The writes of one reconcile of ``cluster``; a foreground deletion of the cluster waits for its objects.

    :attr:`problem` is the reason and message of the first object that could not be written, for the status. With
    :attr:`keep_existing`, :meth:`ensure` creates objects, but does not change them.
    """

    def __init__(self, client: Client, events: EventRecorder, cluster: Object) -> None:
        super().__init__(client, cluster, block_owner_deletion=True)
        self.keep_existing = False
        self._events = events
        self.cluster = cluster
        self.problem: tuple[str, str] | None = None

    async def adopt(self, current: Object) -> Object | None:
        """Return ``current`` unless it is being deleted, which is a problem."""
        if not is_deleting(current):
            return current
        self.add_problem("Deleting", f"{gvk_of(current).kind} {name_of(current)} is being deleted.")
        return None

    def report_taken(self, taken: NameTaken, consequence: str) -> None:
        """Record a taken name; without a consequence it is not a problem."""
        obj = f"{gvk_of(taken.obj).kind} {name_of(taken.obj)}"
        if taken.is_of_predecessor:
            self.add_problem(
                "Deleting", f"{obj} of a deleted MiniCluster with the same name still exists."
            )
            self.retry(PREDECESSOR_RETRY_SECONDS)
        elif consequence:
            self.record_name_conflict(obj, consequence)
            self.add_problem("NameTaken", f"{taken}.")
            self.retry(NAME_CONFLICT_RETRY_SECONDS)

    def report_failure(self, message: str, *, is_lasting: bool) -> None:
        """Record the failure for the status, and an Event if someone has to act."""
        self.add_problem("FailedToWrite", message)
        if is_lasting:
            self._events.event(self.cluster, "Warning", "FailedToReconcile", message)

    def report_terminating(self) -> None:
        """Record it for the status."""
        self.add_problem("NamespaceTerminating", "The namespace is being deleted.")

    async def ensure(
        self, desired: Object, current: Entry | None, *, required: bool = True
    ) -> bool:
        """Create the object, or update it if it belongs to the cluster; return whether it exists as desired.

        ``current`` is the cached object. If an object of another owner has the name, the result is false; this is a
        problem only if the object is ``required``.
        """
        if self.keep_existing and current is not None and belongs_to(current, self.cluster):
            write = self.adopt(current.object())
        else:
            write = self.apply(desired, current.object() if current is not None else None)
        consequence = _CANNOT_START if required else ""
        return (
            await self.attempt(write, gvk_of(desired), name_of(desired), consequence=consequence)
            is not None
        )

    async def ensure_exists(
        self, build: Callable[[], Object], current: Entry | None
    ) -> Object | None:
        """Create the object that ``build`` returns if it does not exist; ``current`` is the cached object.

        Returns the object if it was created, or if it belongs to the cluster but was not cached; otherwise ``None``.
        """
        desired = build() if current is None else current.object()
        write = self._create(desired) if current is None else self._check(desired)
        return await self.attempt(
            write, gvk_of(desired), name_of(desired), consequence=_CANNOT_START
        )

    async def _create(self, desired: Object) -> Object | None:
        stored, is_new = await self.create(desired)
        return await self.label(stored) if is_new or await self.adopt(stored) is not None else None

    async def _check(self, current: Object) -> None:
        await self.adopt(self.checked(current))

    async def label(self, obj: Object) -> Object:
        """Label an object of the cluster that the Go operator created, so that the informers contain it."""
        label = {MINICLUSTER_LABEL: name_of(self.cluster)}
        return await self.patch(
            obj, {} if label.items() <= labels_of(obj).items() else {"metadata": {"labels": label}}
        )

    async def patch(self, obj: Object, patch: Object) -> Object:
        """Apply a merge patch, if it is not empty, to an object of the cluster; return the object as stored."""
        if not patch:
            return obj
        return (
            await self.attempt(patch_checked(self.client, obj, patch), gvk_of(obj), name_of(obj))
            or obj
        )

    async def delete(self, gvk: GVK, current: Entry | None) -> None:
        """Delete the cached object if it belongs to the cluster."""
        if current is not None and belongs_to(current, self.cluster):
            # A conflict shows that another object has the name; its event continues.
            write = self.delete_owned(
                gvk, current.object(), propagation_policy=_BACKGROUND, ignore_conflict=True
            )
            await self.attempt(write, gvk, current.key.name)

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
