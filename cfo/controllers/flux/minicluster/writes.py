"""The writes of one reconcile of a MiniCluster, in several steps, and the problem that they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cfo.api.flux.facts import queue_of
from cfo.controllers.flux.minicluster.job_changes import is_suspended
from cfo.controllers.flux.minicluster.objects import Objects, problem_of
from cfo.controllers.flux.minicluster.plan import wanted_suspend
from cfo.controllers.full_objects import delete_full_object
from cfo.runtime import (
    JOB,
    POD,
    SERVICE,
    APIError,
    Client,
    Conflict,
    Entry,
    EventRecorder,
    Object,
    Propagation,
    key_of,
    uid_of,
)
from cfo.runtime.client import Child, ChildResults, ObjectID, is_too_large, reconcile_children
from cfo.runtime.objects import raise_together

_MAX_DELETED: Final = 50
"""The maximum number of objects that one write deletes: users can add objects that the MiniCluster controls."""

NEXT_BATCH_SECONDS: Final = 0.1
"""How long to wait before the next objects of a batch are written; the cache then contains most of the last one."""


class MiniClusterWrites:
    """The writes of one reconcile of ``cluster``; a foreground deletion of the cluster waits for its objects.

    ``problem`` is the reason and message of the first object that could not be written, for the status. ``services``
    are the Services that were written.
    """

    def __init__(self, client: Client, events: EventRecorder, cluster: Object) -> None:
        self.problem: tuple[str, str] | None = None
        self.services: list[ObjectID] = []
        self.retry_after = 0.0
        self._client = client
        self._events = events
        self._cluster = cluster
        self._errors: list[Exception] = []

    def add_problem(self, reason: str, message: str) -> None:
        """Record why not all objects exist; the first problem counts."""
        self.problem = self.problem or (reason, message)

    async def write_all(self, objects: Objects) -> ChildResults:
        """Write the children of one step, and record its problem."""
        results = await self.write(objects.children)
        if objects.problem is not None:
            self.add_problem(*objects.problem)
        return results

    async def write(
        self, children: Sequence[Child], *, prune: Iterable[ObjectID] = ()
    ) -> ChildResults:
        """Write children, and record the first problem, the errors and the time of the next reconcile."""
        results = await reconcile_children(
            self._client,
            self._cluster,
            children,
            prune=prune,
            events=self._events,
            block_owner_deletion=True,
            max_deleted=_MAX_DELETED,
        )
        problem = problem_of(results)
        if problem is not None:
            self.add_problem(*problem)
        for result in results:
            if result.child.gvk == SERVICE and result.is_done and not result.child.is_absent:
                self.services.append(result.child.id)
        self._errors += results.errors
        if results.is_limited:
            results.retry(NEXT_BATCH_SECONDS)
        if results.retry_after:
            self.retry_after = min(self.retry_after or results.retry_after, results.retry_after)
        return results

    async def create_job(self, child: Child) -> Object | None:
        """Create the Job; return it, if it exists then."""
        results = await self.write([child])
        return results.stored(JOB, child.key)

    async def update_job(self, child: Child, job: Object) -> Object:
        """Update the Job, and record that its size changed; return it as stored."""
        results = await self.write([child])
        updated = results.stored(JOB, key_of(job)) or job
        must_stop = wanted_suspend(self._cluster) and not is_suspended(updated)
        if must_stop and any(map(is_too_large, results.errors)):
            # The next reconcile creates a suspended one.
            await delete_full_object(
                self._client, JOB, key_of(job), uid_of(job), grace_period_seconds=None
            )
        before = job["spec"].get("parallelism")
        size = updated["spec"].get("parallelism")
        if before != size:
            note = ""
            if queue_of(self._cluster):
                note = " Kueue suspends and queues a resized Job again."
            message = f"The Job was scaled from {before} to {size} pods.{note}"
            self._events.event(self._cluster, "Normal", "Scaled", message)
        return updated

    def raise_errors(self) -> None:
        """Raise the errors of failed requests, so that the reconcile is retried."""
        raise_together(self._errors, "failed to write several objects")


async def end_job(client: Client, job: Object) -> None:
    """Delete a Job in the foreground, so that its pods are deleted also if a finalizer keeps it."""
    try:
        await client.delete(
            JOB, key_of(job), uid=uid_of(job), propagation_policy=Propagation.FOREGROUND
        )
    except Conflict:
        return  # it was replaced by another
    except APIError as error:
        if not is_too_large(error):
            raise
        await delete_full_object(client, JOB, key_of(job), uid_of(job), grace_period_seconds=None)


async def end_pods(client: Client, pods: Iterable[Entry]) -> None:
    """Delete pods that are not being deleted."""
    for pod in pods:
        if pod.meta.is_deleting:
            continue
        try:
            await client.delete(POD, pod.key, uid=pod.meta.uid)
        except Conflict:
            continue  # it was replaced by another
