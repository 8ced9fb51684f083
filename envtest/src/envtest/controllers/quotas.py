"""The quota controller: what the objects of a namespace come to, in the status of its ResourceQuotas."""

from __future__ import annotations

from envtest.admission.quota import QUOTAS, counted
from envtest.controllers.controller import Controller
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object
from envtest.storage import Change

__all__ = ["ResourceQuotas"]


class ResourceQuotas(Controller[NamespacedName]):
    """Keys are ResourceQuotas."""

    account = "resourcequota-controller"

    def begin(self) -> None:
        """Looks at all quotas."""
        for record in self.actor.records(QUOTAS):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """A quota may have changed, or anything that the quotas of its namespace count."""
        namespace = change.record.namespace
        if resource == QUOTAS:
            self.queue.add(NamespacedName(namespace, change.record.name))
        if namespace and self.core.store.count(QUOTAS):
            for record in self.actor.records(QUOTAS, namespace):
                self.queue.add(NamespacedName(namespace, record.name))

    async def work(self, key: NamespacedName) -> None:
        """Counts anew."""
        record = self.actor.record(QUOTAS, key.namespace, key.name)
        if record is None:
            return
        objects = [
            (resource, each.obj())
            for resource in self.core.store.resources()
            for each in self.actor.records(resource, key.namespace)
        ]

        def change(quota: Object) -> bool:
            hard = (quota.get("spec") or {}).get("hard") or {}
            status = {"hard": dict(hard), "used": counted(quota, objects)}
            if quota.get("status") == status:
                return False
            quota["status"] = status
            return True

        await self.actor.modify(QUOTAS, key.namespace, key.name, change, uid=record.uid, subresource="status")
