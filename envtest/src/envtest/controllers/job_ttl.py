"""The TTL controller: deletes finished Jobs ``ttlSecondsAfterFinished`` seconds after they finished."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName
from envtest.controllers.controller import Controller
from envtest.controllers.job_outcome import finished_condition
from envtest.storage import Change

__all__ = ["FinishedJobs"]

JOBS: Final = GroupResource("batch", "jobs")
_FIELD: Final = b'"ttlSecondsAfterFinished"'


class FinishedJobs(Controller[NamespacedName]):
    """Reconciles Jobs with a TTL."""

    account = "ttl-after-finished-controller"

    def enqueue_all(self) -> None:
        """Enqueue all Jobs with a TTL."""
        for record in self.client.records(JOBS):
            if _FIELD in record.data:
                self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a Job that changed and has a TTL."""
        if resource == JOBS and change.type != "DELETED" and _FIELD in change.record.data:
            self.queue.add(NamespacedName(change.record.namespace, change.record.name))

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Delete a Job whose TTL has expired; return the seconds until then."""
        job = await self.client.read(JOBS, key.namespace, key.name)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        condition = finished_condition(job)
        if seconds is None or condition is None:
            return None
        expiry = datetime.fromisoformat(condition["lastTransitionTime"]) + timedelta(
            seconds=int(seconds)
        )
        remaining = (expiry - self.core.clock.now()).total_seconds()
        if remaining > 0:
            return remaining
        await self.client.delete(
            JOBS, key.namespace, key.name, uid=job["metadata"]["uid"], propagation="Foreground"
        )
        return None
