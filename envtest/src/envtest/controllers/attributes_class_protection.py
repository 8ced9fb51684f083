"""Removes the finalizer of VolumeAttributesClasses, once they are deleted and not in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, has_finalizer
from envtest.controllers.controller import Controller
from envtest.controllers.volumes import CLAIMS, VOLUMES
from envtest.storage import Change

__all__ = ["AttributesClassProtection"]

_CLASSES: Final = GroupResource("storage.k8s.io", "volumeattributesclasses")
_FINALIZER: Final = "kubernetes.io/vac-protection"


class AttributesClassProtection(Controller[str]):
    """Reconciles VolumeAttributesClasses (their names) that are being deleted."""

    account = "volumeattributesclass-protection-controller"

    def enqueue_all(self) -> None:
        """Enqueue what is being deleted."""
        for record in self.client.records(_CLASSES):
            if record.deleting:
                self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a class that is being deleted, and all of them when a claim or volume may have stopped using one."""
        if resource in (CLAIMS, VOLUMES):
            self.enqueue_all()
        elif resource == _CLASSES and change.record.deleting and change.type != "DELETED":
            self.queue.add(change.record.name)

    async def reconcile(self, key: str) -> None:
        """Remove the finalizer if no claim or volume uses the class."""
        for resource in (CLAIMS, VOLUMES):
            for record in self.client.records(resource):
                if key in _used_classes(record.obj()):
                    return

        def change(obj: Object) -> bool:
            if not obj["metadata"].get("deletionTimestamp") or not has_finalizer(obj, _FINALIZER):
                return False
            obj["metadata"]["finalizers"] = [
                each for each in obj["metadata"]["finalizers"] if each != _FINALIZER
            ]
            return True

        await self.client.modify(_CLASSES, "", key, change)


def _used_classes(obj: Object) -> Iterator[str | None]:
    """Yield the classes that a claim or volume has, requests, or is being changed to."""
    status = obj.get("status") or {}
    yield obj["spec"].get("volumeAttributesClassName")
    yield status.get("currentVolumeAttributesClassName")
    yield (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
