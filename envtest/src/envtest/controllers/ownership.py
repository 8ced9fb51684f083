"""The base class of controllers whose objects control others, such as ReplicaSets and their pods.

:class:`OwnerController` keeps an index of controlled objects by controller. Like the controllers of Kubernetes, it
adopts objects that have no controller and match the selector, and releases controlled objects that no longer match it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.label_selectors import matches_label_selector
from envtest.apimachinery.objects import (
    NamespacedName,
    Object,
    controller_of,
    has_finalizer,
    labels_of,
    owner_reference,
)
from envtest.controllers.controller import Controller
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["OwnerController", "controller_reference"]


_IN_A_ROW: Final = 32
"""How many objects are read in a row before requests are let through."""


class _Reference(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct):
    ownerReferences: list[_Reference] | None = None  # noqa: N815 - name of the JSON field


class _Object(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


class _Child(NamedTuple):
    resource: GroupResource
    namespace: str
    name: str


def controller_reference(record: Record | None) -> _Reference | None:
    """Return the owner reference of an object's controller, or ``None``."""
    if record is None or b'"controller":true' not in record.data:
        return None
    references = _decoder.decode(record.data).metadata.ownerReferences or ()
    return next((reference for reference in references if reference.controller), None)


class OwnerController(Controller[NamespacedName]):
    """Base of controllers of ``resource`` (kind ``kind`` in ``api_version``), whose objects control ``children``."""

    resource: ClassVar[GroupResource]
    kind: ClassVar[str]
    api_version: ClassVar[str]
    children: ClassVar[tuple[GroupResource, ...]]
    unwatched: ClassVar[tuple[GroupResource, ...]] = ()
    """The children whose changes are not reasons to reconcile."""

    child_finalizer: ClassVar[str] = ""
    """The finalizer that children have while they are controlled."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._controlled: dict[str, set[_Child]] = {}
        self._orphans: dict[tuple[GroupResource, str], set[str]] = {}

    def enqueue_all(self) -> None:
        """Build the index, and enqueue all objects."""
        for resource in self.children:
            for record in self.client.records(resource):
                self._index(resource, record, None, controller_reference(record))
        for record in self.client.records(self.resource):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue objects that changed, and the present, former and possible controllers of a changed child."""
        if resource == self.resource:
            self.queue.add(NamespacedName(change.record.namespace, change.record.name))
        if resource in self.children:
            before = controller_reference(change.previous)
            after = None if change.type == "DELETED" else controller_reference(change.record)
            self._index(resource, change.record, before, after, deleted=change.type == "DELETED")

    def _index(
        self,
        resource: GroupResource,
        record: Record,
        before: _Reference | None,
        after: _Reference | None,
        *,
        deleted: bool = False,
    ) -> None:
        child = _Child(resource, record.namespace, record.name)
        for reference in (before, after):
            if (
                reference is not None
                and reference.kind == self.kind
                and resource not in self.unwatched
            ):
                self.queue.add(NamespacedName(record.namespace, reference.name))
        if before is not None and (after is None or after.uid != before.uid):
            self._controlled.get(before.uid, set()).discard(child)
        if after is not None:
            self._controlled.setdefault(after.uid, set()).add(child)
        orphans = self._orphans.setdefault((resource, record.namespace), set())
        if deleted or after is not None:
            orphans.discard(record.name)
        elif record.name not in orphans:
            orphans.add(record.name)
            self._enqueue_possible_owners(record)

    def _enqueue_possible_owners(self, record: Record) -> None:
        """Enqueue the objects that may adopt an object without a controller."""
        for candidate in self.client.records(self.resource, record.namespace):
            self.queue.add(NamespacedName(candidate.namespace, candidate.name))

    async def owner(self, key: NamespacedName) -> Object | None:
        """Return the object of a key, or ``None`` if it does not exist."""
        return await self.client.read(self.resource, key.namespace, key.name)

    def reference(self, owner: Object) -> dict[str, Any]:
        """Return the owner reference of children."""
        return owner_reference(
            {"apiVersion": self.api_version, "kind": self.kind, "metadata": owner["metadata"]}
        )

    async def controlled(
        self, owner: Object, resource: GroupResource, selector: Mapping[str, Any] | None = None
    ) -> list[Object]:
        """Return the objects that ``owner`` controls, oldest first.

        With a selector, orphans that match it are adopted and controlled objects that do not match it are released.
        """
        metadata = owner["metadata"]
        if selector is not None and not metadata.get("deletionTimestamp"):
            await self._adopt(owner, resource, selector)
        found = []
        for number, child in enumerate(list(self._controlled.get(metadata["uid"], ()))):
            if number % _IN_A_ROW == _IN_A_ROW - 1:
                await asyncio.sleep(0)  # requests must not wait until thousands are read
            if child.resource != resource:
                continue
            obj = await self.client.read(resource, child.namespace, child.name)
            if obj is None or (controller_of(obj) or {}).get("uid") != metadata["uid"]:
                continue
            if selector is not None and not matches_label_selector(selector, labels_of(obj)):
                await self._release(owner, resource, obj)
                continue
            found.append(obj)
        found.sort(key=lambda obj: (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]))
        return found

    async def _adopt(
        self, owner: Object, resource: GroupResource, selector: Mapping[str, Any]
    ) -> None:
        namespace = owner["metadata"]["namespace"]
        own_reference = self.reference(owner)

        def change(obj: Object) -> bool:
            if controller_of(obj) is not None or obj["metadata"].get("deletionTimestamp"):
                return False
            obj["metadata"].setdefault("ownerReferences", []).append(own_reference)
            if self.child_finalizer and not has_finalizer(obj, self.child_finalizer):
                obj["metadata"].setdefault("finalizers", []).append(self.child_finalizer)
            return True

        for name in sorted(self._orphans.get((resource, namespace), ())):
            record = self.client.record(resource, namespace, name)
            if record is not None and matches_label_selector(selector, record.labels or {}):
                await self.client.modify(resource, namespace, name, change, uid=record.uid)

    async def _release(self, owner: Object, resource: GroupResource, obj: Object) -> None:
        uid = owner["metadata"]["uid"]

        def change(new: Object) -> bool:
            references = new["metadata"].get("ownerReferences") or []
            remaining = [reference for reference in references if reference.get("uid") != uid]
            if len(remaining) == len(references):
                return False
            new["metadata"]["ownerReferences"] = remaining
            if self.child_finalizer:
                finalizers = new["metadata"].get("finalizers") or ()
                new["metadata"]["finalizers"] = [
                    name for name in finalizers if name != self.child_finalizer
                ]
            return True

        metadata = obj["metadata"]
        await self.client.modify(
            resource, metadata["namespace"], metadata["name"], change, uid=metadata["uid"]
        )

    async def delete_all(self, resource: GroupResource, objects: Iterable[Object]) -> None:
        """Request the deletion of objects that are not being deleted yet."""
        for obj in objects:
            metadata = obj["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self.client.delete(
                    resource, metadata["namespace"], metadata["name"], uid=metadata["uid"]
                )

    async def set_status(self, owner: Object, status: Mapping[str, Any]) -> Object | None:
        """Set the fields of ``status`` (``None`` removes one), and write only if one differs."""
        metadata = owner["metadata"]

        def change(obj: Object) -> bool:
            current = dict(obj.get("status") or {})
            desired = {**current, **status}
            desired = {name: value for name, value in desired.items() if value is not None}
            if desired == current:
                return False
            obj["status"] = desired
            return True

        return await self.client.modify(
            self.resource,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )
