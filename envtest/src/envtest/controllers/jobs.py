"""The Job controller: creates pods until enough have succeeded or too many have failed.

The finalizer ``batch.kubernetes.io/job-tracking`` ensures that each finished pod is counted once: the controller lists
the pod in the status, removes the finalizer, and then counts the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, has_finalizer
from envtest.controllers.job_failures import (
    INDEX,
    Backoff,
    failure_count_annotations,
    finish_time,
    replaces_only_failed,
    seconds_until_retry,
    total_index_failures,
)
from envtest.controllers.job_indexes import format_intervals, total
from envtest.controllers.job_outcome import (
    COMPLETE,
    FAILED,
    REACHED,
    TRACKING,
    Outcome,
    finished_condition,
    is_indexed,
    is_suspended,
    seconds_to_deadline,
    with_condition,
)
from envtest.controllers.job_sync import (
    JobSync,
    add_index_variable,
    examine,
    list_uncounted,
    pending_indexes,
    surplus,
)
from envtest.controllers.ownership import OwnerController, controller_reference
from envtest.controllers.pod_control import (
    MAX_BATCH,
    PodControl,
    create_in_batches,
)
from envtest.controllers.pod_state import (
    PODS,
    is_ready,
    pod_from_template,
)
from envtest.writes.server_core import Core

__all__ = ["Jobs"]

JOBS: Final = GroupResource("batch", "jobs")
CONTROLLER: Final = "kubernetes.io/job-controller"

_MAX_UNCOUNTED: Final = 500


class Jobs(OwnerController):
    """Reconciles Jobs."""

    account = "job-controller"
    resource: ClassVar[GroupResource] = JOBS
    kind: ClassVar[str] = "Job"
    api_version: ClassVar[str] = "batch/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS,)
    child_finalizer: ClassVar[str] = TRACKING

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._pods = PodControl(self.client, self.events)
        self._backoffs: dict[NamespacedName, Backoff] = {}

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Count finished pods, create missing ones, and finish the Job when it is complete or has failed.

        Raises StatusError, after the status was written, if a pod was rejected.
        """
        job = await self.owner(key)
        if job is None:
            self._backoffs.pop(key, None)
            await self._release_orphans(key)
            return None
        if job["spec"].get("managedBy") not in (None, CONTROLLER):
            return None
        if finished_condition(job):
            self._backoffs.pop(key, None)
            for pod in await self.controlled(job, PODS):
                await self._untrack(pod)
            return None
        pods = await self.controlled(job, PODS, job["spec"].get("selector") or {})
        sync = examine(job, pods, self._backoffs.get(key, Backoff()), self.core.clock.now())
        if sync.outcome is not None:
            await self._end_active(sync)
        else:
            await self._manage(sync)
        sync.status.update(
            active=sync.count or None, ready=sync.ready, terminating=sync.terminating
        )
        await self._count(key, sync)
        if sync.error is not None:
            raise sync.error
        delays = (sync.delay, seconds_to_deadline(sync.job, self.core.clock.now()))
        return min((delay for delay in delays if delay is not None), default=None)

    async def _end_active(self, sync: JobSync) -> None:
        """Delete the active pods of a Job that has an outcome; they keep their finalizers until they are counted."""
        for pod in sync.active:
            try:
                await self._pods.delete(sync.job, pod)
            except StatusError as error:
                sync.error = sync.error or error
                continue
            sync.count -= 1
            sync.terminating += 1
            sync.ready -= is_ready(pod)
        if sync.error is not None:
            sync.outcome = None

    async def _manage(self, sync: JobSync) -> None:
        """Create missing pods or delete surplus ones, and decide whether the Job is complete or suspended."""
        job = sync.job
        done = total(sync.succeeded)
        completions = job["spec"].get("completions")
        if job["metadata"].get("deletionTimestamp"):
            return
        await self._scale(sync, done)
        if (sync.count == 0 and done >= max(1, int(completions or 0))) or completions == 0:
            sync.outcome = REACHED
            return
        suspended = is_suspended(job)
        if suspended:
            reason = "JobSuspended"
            message = "Job suspended"
        else:
            reason = "JobResumed"
            message = "Job resumed"
        before = sync.status.get("conditions") or []
        status = "True" if suspended else "False"
        conditions = with_condition(before, "Suspended", status, reason, message, self.client.now())
        if conditions != before:
            sync.status["conditions"] = conditions
            event_reason = "Suspended" if suspended else "Resumed"
            await self.events.normal(job, event_reason, message)
            # a deadline applies to the time since the Job was last resumed
            sync.status["startTime"] = None if suspended else self.client.now()

    async def _scale(self, sync: JobSync, done: int) -> None:
        job = sync.job
        spec = job["spec"]
        parallelism = int(spec.get("parallelism", 1))
        completions = spec.get("completions")
        if is_suspended(job):
            await self._remove(sync, sync.active)
            return
        if completions is None:
            wanted = sync.count if done else parallelism
        else:
            wanted = max(0, min(parallelism, int(completions) - done))
        unwanted = surplus(job, sync.active, max(0, sync.count - wanted))
        if unwanted:
            await self._remove(sync, unwanted)
            return
        missing = wanted - sync.count - (sync.terminating if replaces_only_failed(job) else 0)
        if missing > 0:
            await self._create_missing(sync, min(missing, MAX_BATCH))

    async def _remove(self, sync: JobSync, pods: Sequence[Object]) -> None:
        """Delete pods that shall not count as failures: they lose their finalizers first."""
        for pod in pods[:MAX_BATCH]:
            try:
                await self._untrack(pod)
                await self._pods.delete(sync.job, pod)
            except StatusError as error:
                sync.error = sync.error or error
                continue
            sync.count -= 1
            sync.terminating += 1
            sync.ready -= is_ready(pod)

    async def _create_missing(self, sync: JobSync, missing: int) -> None:
        """Create pods, unless the back-off after a failure is not over."""
        now = self.core.clock.now()
        indexes = None
        if sync.failed is None:
            delay = seconds_until_retry(sync.backoff.failures, sync.backoff.last, now)
            if delay > 0:
                # kube-controller-manager reports no active pods meanwhile, too
                sync.count = 0
                sync.delay = delay
                return
        if is_indexed(sync.job):
            indexes = pending_indexes(sync, missing)
            if sync.failed is not None:
                delays = {}
                for index in indexes:
                    pod = sync.replaced.get(index)
                    if pod is not None:
                        failures = total_index_failures(pod) + 1
                        delays[index] = seconds_until_retry(failures, finish_time(pod), now)
                ready = [index for index in indexes if not delays.get(index)]
                waiting = [delay for delay in delays.values() if delay]
                if waiting:
                    sync.delay = min(waiting)
                if not ready and indexes:
                    sync.count = 0
                    return
                indexes = ready
            missing = len(indexes)

        async def create(number: int) -> None:
            index = None if indexes is None else indexes[number]
            await self._create_pod(sync, index)

        created, error = await create_in_batches(missing, create)
        sync.count += created
        sync.error = error

    async def _create_pod(self, sync: JobSync, index: int | None) -> None:
        job = sync.job
        metadata = job["metadata"]
        pod = pod_from_template(
            job["spec"].get("template") or {}, metadata["namespace"], self.reference(job)
        )
        finalizers = pod["metadata"].setdefault("finalizers", [])
        if TRACKING not in finalizers:
            finalizers.append(TRACKING)
        pod["metadata"]["generateName"] = f"{metadata['name']}-"
        if index is not None:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[INDEX] = str(index)
            if sync.failed is not None:
                annotations.update(failure_count_annotations(job, sync.replaced.get(index)))
            pod["metadata"]["generateName"] = f"{metadata['name']}-{index}-"
            pod["metadata"].setdefault("labels", {})[INDEX] = str(index)
            pod["spec"]["hostname"] = f"{metadata['name']}-{index}"
            add_index_variable(pod["spec"])
        await self._pods.create(job, pod)

    async def _count(self, key: NamespacedName, sync: JobSync) -> None:
        """List ended pods in the status, release them, count them, and set the final condition."""
        status = sync.status
        released, complete = list_uncounted(sync)
        now = self.client.now()
        if is_indexed(sync.job):
            status["succeeded"] = total(sync.succeeded) or None
            status["completedIndexes"] = format_intervals(sync.succeeded) or None
            status["failedIndexes"] = None if sync.failed is None else format_intervals(sync.failed)
        final = sync.outcome
        if final is not None:
            conditions = with_condition(
                status.get("conditions") or [],
                final.interim,
                "True",
                final.reason,
                final.message,
                now,
            )
            status["conditions"] = conditions
        if released:
            await self.set_status(sync.job, status)
            for pod in released:
                await self._untrack(pod)
            self._backoffs[key] = sync.backoff
        uncounted = status["uncountedTerminatedPods"]
        status["uncountedTerminatedPods"] = {}
        for name in ("succeeded", "failed"):
            status[name] = int(status.get(name) or 0) + len(uncounted.get(name, ())) or None
        finishes = final is not None and complete and not sync.terminating
        if final is not None and finishes:
            status["conditions"] = with_condition(
                status["conditions"], final.kind, "True", final.reason, final.message, now
            )
            if final.kind == COMPLETE:
                status["completionTime"] = now
        await self.set_status(sync.job, status)
        if final is not None and finishes:
            await self._report(sync.job, status, final)

    async def _report(self, job: Object, status: dict[str, Any], final: Outcome) -> None:
        if final.kind == FAILED:
            await self.events.warning(job, final.reason, final.message)
            return
        completions = job["spec"].get("completions")
        if completions is not None and int(status.get("succeeded") or 0) > int(completions):
            text = "Too many succeeded pods running after completion count reached"
            await self.events.warning(job, "TooManySucceededPods", text)
        await self.events.normal(job, "Completed", "Job completed")

    async def _untrack(self, pod: Object) -> None:
        def change(obj: Object) -> bool:
            finalizers = obj["metadata"].get("finalizers") or []
            if TRACKING not in finalizers:
                return False
            obj["metadata"]["finalizers"] = [one for one in finalizers if one != TRACKING]
            return True

        metadata = pod["metadata"]
        if has_finalizer(pod, TRACKING):
            await self.client.modify(
                PODS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"]
            )

    async def _release_orphans(self, key: NamespacedName) -> None:
        """Remove the finalizer from the pods of a deleted Job, which are no longer counted."""
        for record in self.client.records(PODS, key.namespace):
            controller = controller_reference(record)
            if controller is not None and (controller.kind, controller.name) == (
                self.kind,
                key.name,
            ):
                pod = await self.client.read(PODS, key.namespace, record.name)
                if pod is not None:
                    await self._untrack(pod)
