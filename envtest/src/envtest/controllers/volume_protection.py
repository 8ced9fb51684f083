"""Removes the finalizers that protect claims and volumes, once they are deleted and not in use."""

from __future__ import annotations

from typing import Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object, has_finalizer
from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS, is_finished
from envtest.controllers.volumes import CLAIMS, VOLUMES, claims_of
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["VolumeProtection"]

_CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
_VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"


class VolumeProtection(Controller[NamespacedName]):
    """Reconciles claims (keys with a namespace) and volumes (keys without) that are being deleted."""

    account = "pvc-protection-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._users: dict[NamespacedName, set[str]] = {}

    def enqueue_all(self) -> None:
        """Index the pods that use claims, and enqueue what is being deleted."""
        for record in self.client.records(PODS):
            self._observe_pod(record, deleted=False)
        for resource in (CLAIMS, VOLUMES):
            for record in self.client.records(resource):
                if record.deleting:
                    self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a claim or volume that is being deleted, and the claims of a pod that ended."""
        record = change.record
        if resource == PODS:
            self._observe_pod(record, deleted=change.type == "DELETED")
        elif resource in (CLAIMS, VOLUMES) and record.deleting and change.type != "DELETED":
            self.queue.add(NamespacedName(record.namespace, record.name))

    def _observe_pod(self, record: Record, *, deleted: bool) -> None:
        if b'"persistentVolumeClaim"' not in record.data and b'"ephemeral"' not in record.data:
            return
        pod = record.obj()
        ended = deleted or is_finished(pod)
        for name in claims_of(pod):
            key = NamespacedName(record.namespace, name)
            if not ended:
                self._users.setdefault(key, set()).add(record.uid)
                continue
            users = self._users.get(key, set())
            users.discard(record.uid)
            if not users:
                self._users.pop(key, None)
                self.queue.add(key)

    async def reconcile(self, key: NamespacedName) -> None:
        """Remove the finalizer if nothing uses the object."""
        resource = CLAIMS if key.namespace else VOLUMES
        finalizer = _CLAIM_FINALIZER if key.namespace else _VOLUME_FINALIZER
        if key in self._users:
            return

        def change(obj: Object) -> bool:
            if not obj["metadata"].get("deletionTimestamp") or not has_finalizer(obj, finalizer):
                return False
            if not key.namespace and (obj.get("status") or {}).get("phase") == "Bound":
                return False
            obj["metadata"]["finalizers"] = [
                each for each in obj["metadata"]["finalizers"] if each != finalizer
            ]
            return True

        await self.client.modify(resource, key.namespace, key.name, change)
