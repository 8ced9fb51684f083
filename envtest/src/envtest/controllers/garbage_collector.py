"""The garbage collector: deletes objects when their last owner has been deleted.

It follows the `Kubernetes garbage collector`_. An owner reference is dangling if no object with its uid exists. An
object is deleted if it has owner references and all of them are dangling; dangling references of other objects are
removed. An owner that is deleted with the policy Foreground waits for the dependents that block its deletion; an owner
that is deleted with Orphan is removed after the references to it have been removed from its dependents.

.. _Kubernetes garbage collector: https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.registry.resource import ResourceInfo
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["GarbageCollector"]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


class _Reference(msgspec.Struct):
    uid: str = ""
    apiVersion: str = ""  # noqa: N815 - name of the JSON field
    kind: str = ""
    name: str = ""
    blockOwnerDeletion: bool | None = None  # noqa: N815 - name of the JSON field


class _Metadata(msgspec.Struct):
    uid: str = ""
    ownerReferences: list[_Reference] | None = None  # noqa: N815 - name of the JSON field
    finalizers: list[str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815 - name of the JSON field

    @property
    def owners(self) -> list[_Reference]:
        return self.ownerReferences or []

    def waits_for_finalizer(self, finalizer: str) -> bool:
        """Return whether the object is being deleted and waits for this finalizer."""
        return self.deletionTimestamp is not None and finalizer in (self.finalizers or ())


class _Object(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


def _metadata(record: Record) -> _Metadata:
    return _decoder.decode(record.data).metadata


class _Item(NamedTuple):
    """A node of the ownership graph."""

    resource: GroupResource
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: GroupResource, record: Record) -> _Item:
        return cls(resource, record.namespace, record.name, record.uid)


class _UnresolvedOwner(Exception):
    """Raised if the existence of an owner is unknown: its kind is not served (yet), or cannot own the object."""


class GarbageCollector(Controller[_Item]):
    """Reconciles the nodes of the ownership graph.

    An object whose owner has a kind that is not served is kept until that kind is served.
    """

    account = "generic-garbage-collector"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._owned: dict[_Item, list[_Reference]] = {}
        self._dependents: dict[str, set[_Item]] = {}
        self._foreground_owners: dict[str, _Item] = {}
        self._unresolved: set[_Item] = set()
        core.registry.on_change.append(self._resources_changed)

    def _resources_changed(self) -> None:
        unresolved = self._unresolved
        self._unresolved = set()
        for item in unresolved:
            self.queue.add(item)

    def enqueue_all(self) -> None:
        """Build the graph."""
        for resource in self.core.store.resources():
            for record in self.core.store.list(resource):
                self._track(resource, record)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Update the graph."""
        if change.type != "DELETED":
            self._track(resource, change.record)
            return
        item = _Item.of(resource, change.record)
        self._set_owners(item, [])
        self._foreground_owners.pop(item.uid, None)
        self._unresolved.discard(item)
        for dependent in self._dependents.get(item.uid, ()):
            self.queue.add(dependent)

    def _track(self, resource: GroupResource, record: Record) -> None:
        if not record.deleting and b'"ownerReferences":[' not in record.data:
            if self._owned:
                self._set_owners(_Item.of(resource, record), [])
            return
        item = _Item.of(resource, record)
        metadata = _metadata(record)
        if self._set_owners(item, metadata.owners):
            self.queue.add(item)
        if metadata.waits_for_finalizer(FOREGROUND):
            if item.uid not in self._foreground_owners:
                self._foreground_owners[item.uid] = item
                self._enqueue_dependents(item)
            self.queue.add(item)
        elif metadata.waits_for_finalizer(ORPHAN):
            self.queue.add(item)
        else:
            self._foreground_owners.pop(item.uid, None)

    def _enqueue_dependents(self, item: _Item) -> None:
        for dependent in self._dependents.get(item.uid, ()):
            self.queue.add(dependent)

    def _set_owners(self, item: _Item, owners: list[_Reference]) -> bool:
        """Record the owners of an item; return whether they changed and are not empty."""
        before = self._owned.get(item, [])
        if before == owners:
            return False
        if owners:
            self._owned[item] = owners
        else:
            self._owned.pop(item, None)
        old = {owner.uid for owner in before}
        new = {owner.uid for owner in owners}
        for uid in old - new:
            dependents = self._dependents.get(uid, set())
            dependents.discard(item)
            if not dependents:
                self._dependents.pop(uid, None)
        for uid in new - old:
            self._dependents.setdefault(uid, set()).add(item)
        for uid in old | new:
            if uid in self._foreground_owners:
                self.queue.add(self._foreground_owners[uid])
        return bool(new)

    async def reconcile(self, key: _Item) -> None:
        """Delete an item whose owners were deleted, or finish the deletion of an item that waits for its dependents."""
        record = self.client.record(key.resource, key.namespace, key.name)
        info = self.client.info(key.resource)
        if record is None or record.uid != key.uid or info is None:
            return
        metadata = _metadata(record)
        if metadata.waits_for_finalizer(ORPHAN):
            await self._orphan_dependents(key)
        elif metadata.waits_for_finalizer(FOREGROUND):
            await self._finish_foreground_deletion(key)
        if metadata.owners and (
            metadata.deletionTimestamp is None or metadata.waits_for_finalizer(FOREGROUND)
        ):
            await self._attempt_delete(key, info, metadata)

    async def _attempt_delete(self, key: _Item, info: ResourceInfo, metadata: _Metadata) -> None:
        """Delete the item, or remove references from it, depending on the owners that exist."""
        solid = []
        dangling = []
        waiting = []
        try:
            for owner in metadata.owners:
                found = self._owner(key, info, owner)
                if found is None:
                    dangling.append(owner)
                elif found.waits_for_finalizer(FOREGROUND):
                    waiting.append(owner)
                else:
                    solid.append(owner)
        except _UnresolvedOwner:
            self._unresolved.add(key)
            return
        if solid:
            await self._drop_references(key, {owner.uid for owner in (*dangling, *waiting)})
            return
        if metadata.deletionTimestamp is not None:
            return
        finalizers = metadata.finalizers or []
        if waiting and self._dependents.get(key.uid):
            if any(
                dependent.uid in self._foreground_owners for dependent in self._dependents[key.uid]
            ):
                await self._unblock_owners(key)
            policy = "Foreground"
        else:
            policy = "Background"
            if ORPHAN in finalizers:
                policy = "Orphan"
            elif FOREGROUND in finalizers:
                policy = "Foreground"
        await self.client.delete(
            key.resource, key.namespace, key.name, uid=key.uid, propagation=policy
        )

    def _owner(self, key: _Item, info: ResourceInfo, owner: _Reference) -> _Metadata | None:
        """Return the metadata of the owner, or ``None`` if it does not exist. Raises _UnresolvedOwner."""
        group, _, version = owner.apiVersion.rpartition("/")
        kind = self.core.registry.by_kind(group, version, owner.kind)
        if kind is None or (kind.namespaced and not info.namespaced):
            raise _UnresolvedOwner
        namespace = key.namespace if kind.namespaced else ""
        record = self.client.record(kind.storage, namespace, owner.name)
        return None if record is None or record.uid != owner.uid else _metadata(record)

    async def _drop_references(self, key: _Item, uids: set[str]) -> None:
        if not uids:
            return

        def change(obj: Object) -> bool:
            owners = obj["metadata"].get("ownerReferences") or []
            remaining = [owner for owner in owners if owner.get("uid") not in uids]
            if len(remaining) == len(owners):
                return False
            if remaining:
                obj["metadata"]["ownerReferences"] = remaining
            else:
                del obj["metadata"]["ownerReferences"]
            return True

        await self.client.modify(key.resource, key.namespace, key.name, change, uid=key.uid)

    async def _unblock_owners(self, key: _Item) -> None:
        """Break a cycle of objects that wait for each other."""

        def change(obj: Object) -> bool:
            blocking = [
                one
                for one in obj["metadata"].get("ownerReferences") or ()
                if one.get("blockOwnerDeletion")
            ]
            for owner in blocking:
                owner["blockOwnerDeletion"] = False
            return bool(blocking)

        await self.client.modify(key.resource, key.namespace, key.name, change, uid=key.uid)

    async def _orphan_dependents(self, key: _Item) -> None:
        """Remove the references to the item from its dependents, then the finalizer from the item."""
        for dependent in list(self._dependents.get(key.uid, ())):
            await self._drop_references(dependent, {key.uid})
        await self._remove_finalizer(key, ORPHAN)

    async def _finish_foreground_deletion(self, key: _Item) -> None:
        """Finish a foreground deletion, unless dependents still block it."""
        blocking = [
            dependent
            for dependent in self._dependents.get(key.uid, ())
            if any(
                owner.uid == key.uid and owner.blockOwnerDeletion
                for owner in self._owned[dependent]
            )
        ]
        if not blocking:
            await self._remove_finalizer(key, FOREGROUND)
            return
        for dependent in blocking:
            if dependent.uid not in self._foreground_owners:
                self.queue.add(dependent)

    async def _remove_finalizer(self, key: _Item, finalizer: str) -> None:
        def change(obj: Object) -> bool:
            finalizers = obj["metadata"].get("finalizers") or []
            if finalizer not in finalizers:
                return False
            finalizers.remove(finalizer)
            if not finalizers:
                del obj["metadata"]["finalizers"]
            return True

        await self.client.modify(key.resource, key.namespace, key.name, change, uid=key.uid)
