"""Executes the steps of :mod:`.transition`: observes a FluxJob, decides, and writes its status and its MiniCluster.

This is the only writer of the status of FluxJobs. The queue's verdicts are carried out here, so admission is one status
write with the job's resourceVersion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import structlog

from cfo.api.flux.facts import is_true
from cfo.api.flux.names import (
    FIELD_MANAGER,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    QUOTA_RESERVED,
    SUSPEND_ANNOTATION,
)
from cfo.api.flux.validation import error_message
from cfo.api.flux.validation.queue import validate_flux_job
from cfo.controllers.flux.deletions import is_kept
from cfo.controllers.flux.fluxjob.kept_failures import (
    KEEP_FAILED_SECONDS,
    KeptFailures,
    exceeds_quota,
)
from cfo.controllers.flux.fluxjob.rendering import (
    desired_minicluster,
    keep_seconds,
    keeps_failure,
)
from cfo.controllers.flux.fluxjob.step import (
    JobObservation,
    JobStatus,
    JobStep,
    MiniClusterAction,
)
from cfo.controllers.flux.fluxjob.transition import decide_step, failed_step, refused_step
from cfo.controllers.flux.queue.governance import kueue_queue_of
from cfo.controllers.flux.queue.ledger import Ledger
from cfo.controllers.flux.queue.model import ADMITTED
from cfo.runtime import (
    AlreadyExists,
    APIError,
    BadRequest,
    Builder,
    Channel,
    Client,
    Clock,
    Conflict,
    EventRecorder,
    Forbidden,
    Invalid,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Propagation,
    Reader,
    Request,
    ResourceVersionChanged,
    Result,
    Rule,
    TransportError,
    is_controlled_by,
    is_deleting,
    key_of,
    uid_of,
)
from cfo.runtime.client import replace_status
from cfo.runtime.objects import parse_time

_log = structlog.get_logger("cfo.controllers.flux")

_NO_SETUP: Final[Object] = {}


@dataclass(frozen=True, eq=False)
class FluxJobReconciler:
    """Drives FluxJobs through their states."""

    rules = (
        Rule("flux-framework.org", "fluxjobs", ("delete", "get", "list", "watch")),
        Rule("flux-framework.org", "fluxjobs/status", ("get", "patch")),
        Rule("flux-framework.org", "fluxjobs/finalizers", ("update",)),
        Rule(
            "flux-framework.org",
            "miniclusters",
            ("create", "delete", "get", "list", "patch", "watch"),
        ),
    )

    client: Client
    events: EventRecorder
    clock: Clock
    ledger: Ledger
    setups: Reader
    notifications: Channel
    """Enqueues other FluxJobs."""
    warmup_grace: timedelta
    """How long the pods of an admitted job may take to start."""
    _failures: KeptFailures = field(default_factory=KeptFailures, init=False)

    async def reconcile(self, request: Request) -> Result:
        """Take one step."""
        queued = self.ledger.uid_of(request)
        job = await self.client.get(FLUX_JOB, request)
        if job is None:
            self.ledger.forget(request, queued)
            self._failures.forget(request)
            return Result()
        cluster = await self.client.get(MINICLUSTER, request)
        if is_deleting(job):
            await self._end(job, cluster)
            return Result()
        seen = self._observe(job, cluster)
        step = decide_step(seen)
        is_admitted = seen.verdict is not None and seen.verdict.reason == ADMITTED
        if is_admitted and not step.status.is_true(QUOTA_RESERVED):
            self.ledger.withdraw(request)
        try:
            job = await self._write_status(job, step)
        except (APIError, TransportError):
            self.ledger.postpone(request)
            raise
        self._record(job, step)
        await self._act(job, cluster, step)
        self._count_failure(request, step)
        if step.exceeds_quota:
            self._release_failures(request.namespace)
        return Result(requeue_after=step.requeue_after)

    def _count_failure(self, key: NamespacedName, step: JobStep) -> None:
        """Record whether the MiniCluster of a failed job is kept, and let older ones go."""
        if not step.keeps_failure:
            self._failures.forget(key)
            return
        ended = parse_time(step.status["completionTime"])
        displaced = self._failures.keep(key, ended)
        self.notifications.enqueue(displaced, reason="newer jobs have failed")

    def _release_failures(self, namespace: str) -> None:
        """Let no failed job of a namespace keep its objects: they may have used up its ResourceQuota."""
        released = self._failures.release(namespace)
        self.notifications.enqueue(released, reason="the ResourceQuota has no room for another job")

    async def _end(self, job: Object, cluster: Object | None) -> None:
        """Delete the MiniCluster of a job that is being deleted, and that a finalizer keeps."""
        if cluster is None or is_deleting(cluster) or not is_controlled_by(cluster, job):
            return
        if is_kept(job):
            step = JobStep(JobStatus(job, self.clock.now()), MiniClusterAction.DELETE)
            await self._act(job, cluster, step)

    def _record(self, job: Object, step: JobStep) -> None:
        for kind, reason, message in step.events:
            self.events.event(job, kind, reason, message)

    def _observe(self, job: Object, cluster: Object | None) -> JobObservation:
        key = key_of(job)
        setup = self._setup_of(job)
        template = (job.get("spec") or {}).get("template") or {}
        defaults = (setup.get("spec") or {}).get("mini-cluster") or {}
        cleanup = template.get("cleanup")
        if cleanup is None:
            has_ttl = template.get("ttlSecondsAfterFinished") is not None
            cleanup = has_ttl or defaults.get("cleanup") is not False
        ended = (job.get("status") or {}).get("completionTime")
        is_kept_failure = keeps_failure(job, setup) and (
            not ended or self._failures.may_keep(key, parse_time(ended))
        )
        errors = validate_flux_job(job)
        generation = int(job["metadata"].get("generation") or 0)
        is_drained = self.ledger.is_drained(key)
        if not is_drained:
            self.ledger.count_again(key)
        return JobObservation(
            job=job,
            now=self.clock.now(),
            validation_error=error_message(errors) if errors else "",
            named_cluster=cluster,
            verdict=self.ledger.verdict(key, uid_of(job), generation),
            pods=self.ledger.pods_of(key),
            is_drained=is_drained,
            creates_pods=self.ledger.creates_pods(key),
            deletes_cluster=cleanup,
            kueue_queue=kueue_queue_of(setup.get("spec") or {}),
            keep_seconds=keep_seconds(job, setup),
            keep_failed_seconds=KEEP_FAILED_SECONDS if is_kept_failure else 0,
            warmup_grace=self.warmup_grace,
            default_size=defaults.get("size") or 0,
        )

    def _setup_of(self, job: Object) -> Object:
        """Return the FluxSetup in the job's status; empty if there is none (any more)."""
        namespace, _, name = str((job.get("status") or {}).get("fluxSetup") or "").partition("/")
        return self.setups.get(NamespacedName(namespace, name)) or _NO_SETUP

    async def _write_status(self, job: Object, step: JobStep) -> Object:
        """Write the status if it changed; return the job as stored.

        The job must not have changed, unless it has quota, and the step starts no pods: users who want to keep the
        quota can change the job all the time.
        """
        before = job.get("status") or {}
        after = step.status.as_object()
        if after == before:
            return job
        removed: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
        patch = {"status": {**after, **removed}}
        try:
            return await self.client.patch_object(job, patch, unchanged=True, subresource="status")
        except Conflict:
            if step.starts_pods or not is_true(job, QUOTA_RESERVED):
                raise
        return await replace_status(self.client, job, after)

    async def _act(self, job: Object, cluster: Object | None, step: JobStep) -> None:
        key = key_of(job)
        if step.action is MiniClusterAction.CREATE:
            await self._create(job, step)
        elif cluster is not None:
            try:
                await self._change(key, cluster, step)
            except (Conflict, NotFound):
                # its event continues
                _log.debug("MiniCluster was deleted or replaced", object=str(key))
        if step.delete_job:
            await self.client.delete(
                FLUX_JOB, key, uid=uid_of(job), propagation_policy=Propagation.BACKGROUND
            )

    async def _create(self, job: Object, step: JobStep) -> None:
        desired = desired_minicluster(job, self._setup_of(job), step.kueue_queue)
        try:
            await self.client.create(desired)
        except AlreadyExists:
            await self._report_taken_name(job)
        except Invalid as error:
            failure = failed_step(job, self.clock.now(), "InvalidMiniCluster", error.message)
            stored = await self._write_status(job, failure)
            self._record(stored, failure)
        except (BadRequest, Forbidden) as error:
            # by a ResourceQuota, a policy or a webhook, which may change
            refusal = refused_step(job, self.clock.now(), error.message)
            stored = await self._write_status(job, refusal)
            self._record(stored, refusal)
            if exceeds_quota(error.message):
                self._release_failures(key_of(job).namespace)

    async def _report_taken_name(self, job: Object) -> None:
        """Give the quota back if another client has just created a MiniCluster with the name: no event says so."""
        existing = await self.client.get(MINICLUSTER, key_of(job), live=True)
        if existing is None or is_controlled_by(existing, job):
            _log.debug("MiniCluster exists already", object=str(key_of(job)))
            return  # its event continues
        step = decide_step(self._observe(job, existing))
        stored = await self._write_status(job, step)
        self._record(stored, step)

    async def _change(self, key: NamespacedName, cluster: Object, step: JobStep) -> None:
        if step.action is MiniClusterAction.DELETE:
            await self.client.delete(
                MINICLUSTER, key, uid=uid_of(cluster), propagation_policy=Propagation.FOREGROUND
            )
            return
        patch: dict[str, Any] = {}
        if step.action in (MiniClusterAction.LAUNCH, MiniClusterAction.SUSPEND):
            suspend = step.action is MiniClusterAction.SUSPEND
            annotations = {SUSPEND_ANNOTATION: str(suspend).lower()}
            patch = {"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}}
            if step.size:
                patch["spec"]["size"] = step.size
        elif step.action is MiniClusterAction.PATCH and step.patch is not None:
            patch = step.patch
        if patch:
            await self.client.patch_object(cluster, patch)


def setup(
    manager: Manager, ledger: Ledger, notifications: Channel, warmup_grace: timedelta
) -> None:
    """Add the controller of FluxJobs to ``manager``; the queue enqueues jobs through ``notifications``.

    ``warmup_grace``: how long the pods of an admitted job may take to start.
    """
    name = "fluxjob"
    setups = manager.cache.informer(FLUX_SETUP)
    reconciler = FluxJobReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        manager.clock,
        ledger,
        setups.reader,
        notifications,
        warmup_grace,
    )
    (
        Builder(manager, name)
        .for_(FLUX_JOB, ResourceVersionChanged())
        .owns(MINICLUSTER, ResourceVersionChanged())
        .reads(setups)
        .watches_source(notifications)
        .complete(reconciler)
    )
