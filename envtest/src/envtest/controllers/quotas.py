"""The quota controller: writes the usage of a namespace to the status of its ResourceQuotas."""

from __future__ import annotations

from envtest.admission.quota import QUOTAS, used_status
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object
from envtest.controllers.controller import Controller
from envtest.storage import Change

__all__ = ["ResourceQuotas"]


class ResourceQuotas(Controller[NamespacedName]):
    """Reconciles ResourceQuotas."""

    account = "resourcequota-controller"

    def enqueue_all(self) -> None:
        """Enqueue all quotas."""
        for record in self.client.records(QUOTAS):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a quota that changed, and the quotas of a namespace whose content changed."""
        namespace = change.record.namespace
        if resource == QUOTAS:
            self.queue.add(NamespacedName(namespace, change.record.name))
        if namespace and self.core.store.count(QUOTAS):
            for record in self.client.records(QUOTAS, namespace):
                self.queue.add(NamespacedName(namespace, record.name))

    async def reconcile(self, key: NamespacedName) -> None:
        """Recompute the usage."""
        record = self.client.record(QUOTAS, key.namespace, key.name)
        if record is None:
            return

        def change(quota: Object) -> bool:
            # Of the moment of the write: admission adds to the status as soon as it lets an object pass.
            objects = [
                (resource, each.obj())
                for resource in self.core.store.resources()
                for each in self.client.records(resource, key.namespace)
            ]
            hard = (quota.get("spec") or {}).get("hard") or {}
            status = {"hard": dict(hard), "used": used_status(quota, objects)}
            if quota.get("status") == status:
                return False
            quota["status"] = status
            return True

        await self.client.modify(
            QUOTAS, key.namespace, key.name, change, uid=record.uid, subresource="status"
        )
