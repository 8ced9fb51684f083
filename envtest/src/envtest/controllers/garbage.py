"""The garbage collector: what has owners goes when the last of them is gone.

It follows `the real one`_: an owner reference whose object does not exist (by uid) is dangling; an object none of whose
owners exists is deleted; dangling references of others are removed. An owner that is deleted with the policy Foreground
waits for those dependents that block its deletion; one that is deleted with Orphan goes after its dependents have lost
their references to it.

.. _the real one: https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from envtest.controllers.controller import Controller
from envtest.errors import GroupResource
from envtest.objects import Object
from envtest.registry import ResourceInfo
from envtest.server_core import Core
from envtest.storage import Change, Record

__all__ = ["GarbageCollector"]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


class _Reference(msgspec.Struct):
    uid: str = ""
    apiVersion: str = ""  # noqa: N815 - the name on the wire
    kind: str = ""
    name: str = ""
    blockOwnerDeletion: bool | None = None  # noqa: N815 - the name on the wire


class _Metadata(msgspec.Struct):
    uid: str = ""
    ownerReferences: list[_Reference] | None = None  # noqa: N815 - the name on the wire
    finalizers: list[str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815 - the name on the wire

    @property
    def owners(self) -> list[_Reference]:
        return self.ownerReferences or []

    def is_going(self, finalizer: str) -> bool:
        """Whether the object is being deleted and held by this finalizer."""
        return self.deletionTimestamp is not None and finalizer in (self.finalizers or ())


class _Object(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


def _metadata(record: Record) -> _Metadata:
    return _decoder.decode(record.data).metadata


class _Item(NamedTuple):
    """An object in the graph."""

    resource: GroupResource
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: GroupResource, record: Record) -> _Item:
        return cls(resource, record.namespace, record.name, record.uid)


class _Unresolved(Exception):
    """An owner of a kind that is not served (yet), or that can be no owner: nobody knows whether it exists."""


class GarbageCollector(Controller[_Item]):
    """See the module. Owners of kinds that are not served keep what they own until their kind is there."""

    account = "generic-garbage-collector"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._owned: dict[_Item, list[_Reference]] = {}
        self._dependents: dict[str, set[_Item]] = {}
        self._waiting: dict[str, _Item] = {}
        self._unresolved: set[_Item] = set()
        core.registry.on_change.append(self._resources_changed)

    def _resources_changed(self) -> None:
        unresolved, self._unresolved = self._unresolved, set()
        for item in unresolved:
            self.queue.add(item)

    def begin(self) -> None:
        """Builds the graph."""
        for resource in self.core.store.resources():
            for record in self.core.store.list(resource):
                self._seen(resource, record)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Keeps the graph."""
        if change.type != "DELETED":
            self._seen(resource, change.record)
            return
        item = _Item.of(resource, change.record)
        self._set_owners(item, [])
        self._waiting.pop(item.uid, None)
        self._unresolved.discard(item)
        for dependent in self._dependents.get(item.uid, ()):
            self.queue.add(dependent)

    def _seen(self, resource: GroupResource, record: Record) -> None:
        if not record.deleting and b'"ownerReferences":[' not in record.data:
            if self._owned:
                self._set_owners(_Item.of(resource, record), [])
            return
        item, metadata = _Item.of(resource, record), _metadata(record)
        if self._set_owners(item, metadata.owners):
            self.queue.add(item)
        if metadata.is_going(FOREGROUND):
            if item.uid not in self._waiting:
                self._waiting[item.uid] = item
                self._look_at_dependents(item)
            self.queue.add(item)
        elif metadata.is_going(ORPHAN):
            self.queue.add(item)
        else:
            self._waiting.pop(item.uid, None)

    def _look_at_dependents(self, item: _Item) -> None:
        for dependent in self._dependents.get(item.uid, ()):
            self.queue.add(dependent)

    def _set_owners(self, item: _Item, owners: list[_Reference]) -> bool:
        """Notes the owners of an item; returns whether it has owners that it did not have before."""
        before = self._owned.get(item, [])
        if before == owners:
            return False
        if owners:
            self._owned[item] = owners
        else:
            self._owned.pop(item, None)
        old, new = {owner.uid for owner in before}, {owner.uid for owner in owners}
        for uid in old - new:
            left = self._dependents.get(uid, set())
            left.discard(item)
            if not left:
                self._dependents.pop(uid, None)
        for uid in new - old:
            self._dependents.setdefault(uid, set()).add(item)
        for uid in old | new:
            if uid in self._waiting:
                self.queue.add(self._waiting[uid])
        return bool(new)

    async def work(self, key: _Item) -> None:
        """Deletes an item whose owners are gone, or lets one go whose dependents are."""
        record = self.actor.record(key.resource, key.namespace, key.name)
        info = self.actor.info(key.resource)
        if record is None or record.uid != key.uid or info is None:
            return
        metadata = _metadata(record)
        if metadata.is_going(ORPHAN):
            await self._orphan(key)
        elif metadata.is_going(FOREGROUND):
            await self._release_if_alone(key)
        if metadata.owners and (metadata.deletionTimestamp is None or metadata.is_going(FOREGROUND)):
            await self._judge(key, info, metadata)

    async def _judge(self, key: _Item, info: ResourceInfo, metadata: _Metadata) -> None:
        """Deletes the item, or its references, as its owners demand."""
        solid, dangling, waiting = [], [], []
        try:
            for owner in metadata.owners:
                found = self._owner(key, info, owner)
                if found is None:
                    dangling.append(owner)
                elif found.is_going(FOREGROUND):
                    waiting.append(owner)
                else:
                    solid.append(owner)
        except _Unresolved:
            self._unresolved.add(key)
            return
        if solid:
            await self._drop_references(key, {owner.uid for owner in (*dangling, *waiting)})
            return
        if metadata.deletionTimestamp is not None:
            return
        held = metadata.finalizers or []
        if waiting and self._dependents.get(key.uid):
            if any(dependent.uid in self._waiting for dependent in self._dependents[key.uid]):
                await self._unblock_owners(key)
            policy = "Foreground"
        else:
            policy = "Orphan" if ORPHAN in held else "Foreground" if FOREGROUND in held else "Background"
        await self.actor.delete(key.resource, key.namespace, key.name, uid=key.uid, propagation=policy)

    def _owner(self, key: _Item, info: ResourceInfo, owner: _Reference) -> _Metadata | None:
        """The owner as it is now, ``None`` if there is none. Raises _Unresolved."""
        group, _, version = owner.apiVersion.rpartition("/")
        kind = self.core.registry.by_kind(group, version, owner.kind)
        if kind is None or (kind.namespaced and not info.namespaced):
            raise _Unresolved
        record = self.actor.record(kind.storage, key.namespace if kind.namespaced else "", owner.name)
        return None if record is None or record.uid != owner.uid else _metadata(record)

    async def _drop_references(self, key: _Item, uids: set[str]) -> None:
        if not uids:
            return

        def change(obj: Object) -> bool:
            owners = obj["metadata"].get("ownerReferences") or []
            kept = [owner for owner in owners if owner.get("uid") not in uids]
            if len(kept) == len(owners):
                return False
            if kept:
                obj["metadata"]["ownerReferences"] = kept
            else:
                del obj["metadata"]["ownerReferences"]
            return True

        await self.actor.modify(key.resource, key.namespace, key.name, change, uid=key.uid)

    async def _unblock_owners(self, key: _Item) -> None:
        """Breaks a circle of objects that wait for each other."""

        def change(obj: Object) -> bool:
            blocking = [one for one in obj["metadata"].get("ownerReferences") or () if one.get("blockOwnerDeletion")]
            for owner in blocking:
                owner["blockOwnerDeletion"] = False
            return bool(blocking)

        await self.actor.modify(key.resource, key.namespace, key.name, change, uid=key.uid)

    async def _orphan(self, key: _Item) -> None:
        """Takes the references to the item from its dependents, then lets it go."""
        for dependent in list(self._dependents.get(key.uid, ())):
            await self._drop_references(dependent, {key.uid})
        await self._remove_finalizer(key, ORPHAN)

    async def _release_if_alone(self, key: _Item) -> None:
        """Lets an item go that waited for dependents, unless some of them still block it."""
        blocking = [
            dependent
            for dependent in self._dependents.get(key.uid, ())
            if any(owner.uid == key.uid and owner.blockOwnerDeletion for owner in self._owned[dependent])
        ]
        if not blocking:
            await self._remove_finalizer(key, FOREGROUND)
            return
        for dependent in blocking:
            if dependent.uid not in self._waiting:
                self.queue.add(dependent)

    async def _remove_finalizer(self, key: _Item, finalizer: str) -> None:
        def change(obj: Object) -> bool:
            held = obj["metadata"].get("finalizers") or []
            if finalizer not in held:
                return False
            held.remove(finalizer)
            if not held:
                del obj["metadata"]["finalizers"]
            return True

        await self.actor.modify(key.resource, key.namespace, key.name, change, uid=key.uid)
