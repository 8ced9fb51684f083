"""Reconciles MiniClusters: creates the objects, follows changes, reports the state, and cleans up.

A reconcile puts the size within its limits, validates, creates what is missing, adapts the Job, labels its pods, and
writes the status at most once. A MiniCluster that is invalid or has ended gets no objects. Each write is idempotent, so
a reconcile that was interrupted anywhere is continued by the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog

from cfo.api.flux.facts import admitted_size, controlling_job, size_of
from cfo.api.flux.names import (
    FIELD_MANAGER,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    MINICLUSTER_LABEL,
    OBJECTS_READY,
    PODS_MISSING,
    PODS_READY,
    JobState,
)
from cfo.api.flux.validation import error_message
from cfo.api.flux.validation.minicluster import validate_minicluster
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.flux.deletions import is_kept
from cfo.controllers.flux.job_selection import JOBS
from cfo.controllers.flux.minicluster.job_changes import (
    active_count,
    end_condition,
    has_failed_pods,
    has_started,
    ignored_changes,
    is_limit_recorded,
    is_outdated,
    is_suspended,
    known_hosts,
    limited_size,
    maximum_size,
    missing_pods,
    must_record_first,
    seconds_until_all_pods,
    seconds_until_first_pods,
)
from cfo.controllers.flux.minicluster.lead import (
    CLUSTERS,
    active_pods,
    failure_in,
    lead_of,
    needs_reconcile,
    unlabelled_pods,
)
from cfo.controllers.flux.minicluster.objects import (
    ExistingObjects,
    belongs_to,
    followed_job,
    label_patch,
    main_service,
    new_job,
    no_service_pod,
    plan_of,
    possible_services,
    replaced_job,
    scripts_and_certificate,
    service_pod,
    sidecar_services,
    suspended_job,
    unwanted_services,
    with_main_service,
)
from cfo.controllers.flux.minicluster.plan import (
    INDEX_LABEL,
    Plan,
    secret_name,
    service_pod_name,
    wanted_suspend,
)
from cfo.controllers.flux.minicluster.status import (
    ADDED_STATUS,
    Observed,
    desired_status,
    is_finished,
    notices,
)
from cfo.controllers.flux.minicluster.writes import (
    NEXT_BATCH_SECONDS,
    MiniClusterWrites,
    end_job,
    end_pods,
)
from cfo.controllers.pod_refusals import refusal_of_pod
from cfo.controllers.pod_status import MAX_WHOLE_MESSAGE, PodFailure, shortened
from cfo.runtime import (
    CONFIG_MAP,
    JOB,
    POD,
    READ,
    SECRET,
    SERVICE,
    APIError,
    Builder,
    Client,
    Clock,
    Conflict,
    EnqueueRequestsFromMapFunc,
    Entry,
    EventRecorder,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Reader,
    Request,
    ResourceVersionChanged,
    Result,
    Rule,
    TransportError,
    UnknownKind,
    controller_of,
    find_condition,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from cfo.runtime.client import PatchType, apply_status
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import parse_time

_log = structlog.get_logger("cfo.controllers.flux")

_NOT_DECLARED: Final = "field not declared in schema"
"""The error of a server-side apply with a field that the CRD lacks."""

_ANSWER_SECONDS: Final = 60.0
"""For how long it is remembered that the API server does not refuse pods."""

_Question: TypeAlias = tuple[str, int | None, int]
"""Uid of a Job, and the numbers of its failed and missing pods (0 while pods are created)."""

_LABELLED_PODS: Final = 20
"""The maximum number of pods that one reconcile labels."""

_ENDED_PODS: Final = 20
"""The maximum number of pods that one reconcile deletes."""


@dataclass(frozen=True, slots=True)
class Informers:
    """What the controller reads: objects that have the label with the name of their MiniCluster."""

    jobs: Reader
    pods: Reader
    services: Reader
    config_maps: Reader
    secrets: Reader


@dataclass(frozen=True, eq=False)
class MiniClusterReconciler:
    """Brings the objects of a MiniCluster to the state that it describes."""

    rules = (
        Rule("flux-framework.org", "miniclusters", ("get", "list", "patch", "watch", "delete")),
        Rule("flux-framework.org", "miniclusters/status", ("get", "patch")),
        Rule("flux-framework.org", "miniclusters/finalizers", ("update",)),
        Rule("flux-framework.org", ("fluxjobs", "fluxsetups"), ("get",)),
        Rule("batch", "jobs", (*READ, "create", "delete", "patch")),
        Rule("", "configmaps", (*READ, "create", "patch")),
        Rule("", "services", (*READ, "create", "delete", "patch")),
        Rule("", "secrets", (*READ, "create")),
        Rule("", "pods", (*READ, "create", "delete", "patch")),
    )

    client: Client
    events: EventRecorder
    clock: Clock
    informers: Informers
    _undeclared: set[str] = field(default_factory=set, init=False)
    """Fields of the status that the CRD lacks, because it is that of the Go operator."""
    _not_refused: dict[NamespacedName, tuple[_Question, float]] = field(
        default_factory=dict, init=False
    )
    """By MiniCluster: what the API server was asked when it last refused no pod, and when (monotonic, in seconds)."""

    async def reconcile(self, request: Request) -> Result:
        """Bring one MiniCluster up to date."""
        cluster = await self.client.get(MINICLUSTER, request)
        if cluster is None:
            self._not_refused.pop(request, None)
            return Result()
        if is_deleting(cluster):
            unended_remain = is_kept(cluster) and await self._end(cluster)
            return Result(requeue_after=NEXT_BATCH_SECONDS if unended_remain else 0.0)
        known = await self._job_of(cluster)
        job = known
        admitted = await self._admitted_size(cluster, job)
        size = limited_size(cluster, job, admitted)
        if size != size_of(cluster.get("spec") or {}) and end_condition(job) is None:
            await self._put_size_back(cluster, size, maximum_size(cluster, job, admitted))
            return Result()  # the change of the MiniCluster is the next event
        hosts = known_hosts(cluster, job, admitted)
        errors = validate_minicluster(cluster)
        writes = MiniClusterWrites(self.client, self.events, cluster)
        if errors:
            writes.add_problem("Invalid", "The spec is invalid, so no objects are created.")
            if job is None:
                job = await self._job_to_stop(cluster)
            if job is not None and end_condition(job) is None:
                job = await writes.update_job(suspended_job(cluster, job), job)
        elif end_condition(job) is not None or (job is None and is_finished(cluster)):
            await writes.write([no_service_pod(cluster)])
        elif must_record_first(cluster, job, hosts):
            pass  # the event of the status continues
        else:
            job = await self._write_objects(cluster, job, admitted, writes)
        invalid = error_message(errors) if errors else ""
        if not await self._write_status(cluster, job, hosts, writes.problem, invalid):
            return Result()  # the MiniCluster was deleted in the meantime
        remain = job is not None and await self._label_pods(cluster, job)
        if known is not None and is_kept(known):
            remain = await self._end_pods(cluster, known)
        writes.raise_errors()
        requeue_after = await self._clean_up(cluster, job) or writes.retry_after
        if job is not None and missing_pods(job) and not requeue_after:
            requeue_after = _seconds_until_check(job, self.clock.now())
        return Result(requeue_after=NEXT_BATCH_SECONDS if remain else requeue_after)

    async def _admitted_size(self, cluster: Object, job: Object | None) -> int:
        """Return how many pods the FluxJob that controls the MiniCluster is admitted with.

        0 if none controls it, or if its pods have started, and the status limits them.
        """
        uid = controlling_job(cluster)
        if not uid or is_limit_recorded(cluster, job):
            return 0
        try:
            flux_job = await self.client.get(FLUX_JOB, key_of(cluster))
            if flux_job is None or uid_of(flux_job) != uid:
                return 0  # it was deleted, and so will be the MiniCluster
            setup = await self._setup_of(flux_job)
        except UnknownKind:
            return 0  # so there are no FluxJobs
        defaults = (setup.get("spec") or {}).get("mini-cluster") or {}
        return admitted_size(flux_job.get("spec") or {}, defaults.get("size") or 0)

    async def _setup_of(self, flux_job: Object) -> Object:
        """Return the FluxSetup that governs a FluxJob, with the defaults of the latter; empty if there is none."""
        namespace, _, name = str((flux_job.get("status") or {}).get("fluxSetup") or "").partition(
            "/"
        )
        if not name:
            return {}
        return await self.client.get(FLUX_SETUP, NamespacedName(namespace, name)) or {}

    async def _job_of(self, cluster: Object) -> Object | None:
        """Return the Job of the MiniCluster, if it exists; one that the cache leaves out is read."""
        key = key_of(cluster)
        entry = self.informers.jobs.entry(key)
        if entry is not None and belongs_to(entry, cluster):
            return entry.object()
        if entry is None and self.informers.jobs.may_exist(key):
            return await self._read_job(cluster)
        return await self._adopted_job(cluster)

    async def _adopted_job(self, cluster: Object) -> Object | None:
        """Return the Job that the Go operator created; its label adds it to the informer, so this happens once.

        Only a MiniCluster with a status of the Go operator can have one.
        """
        conditions = (cluster.get("status") or {}).get("conditions")
        if not conditions or find_condition(conditions, OBJECTS_READY) is not None:
            return None
        job = await self._read_job(cluster)
        if job is None:
            return None
        patch = label_patch(cluster, job)
        return await self.client.patch_object(job, patch) if patch else job

    async def _read_job(self, cluster: Object) -> Object | None:
        """Return the Job of the MiniCluster as the API server has it."""
        job = await self.client.get(JOB, key_of(cluster), live=True)
        return job if job is not None and is_controlled_by(job, cluster) else None

    async def _job_to_stop(self, cluster: Object) -> Object | None:
        """Return the Job of a MiniCluster that must be suspended, although the cache has none.

        Without the label, which users can remove, it is not in the cache, and a problem with another object keeps it
        from being written.
        """
        return await self._read_job(cluster) if wanted_suspend(cluster) else None

    async def _write_objects(
        self, cluster: Object, job: Object | None, admitted: int, writes: MiniClusterWrites
    ) -> Object | None:
        """Create and update the objects, the Job last; return the Job, if it exists then."""
        if job is not None and is_deleting(job):
            writes.add_problem("Deleting", f"Job {name_of(job)} is being deleted.")
            return None
        if job is not None and is_outdated(job, cluster) and not has_started(job):
            await writes.write_all(replaced_job(job))
            return None
        plan = plan_of(cluster, job, admitted)
        existing = self._observe(plan, job)
        results = await writes.write_all(main_service(plan, existing))
        plan = with_main_service(plan, results)
        await writes.write(scripts_and_certificate(plan, existing))
        if not existing.keep:
            await writes.write_all(sidecar_services(plan, existing))
        if job is None and writes.problem is None:
            job = await writes.create_job(new_job(plan))
        elif job is None:
            job = await self._job_to_stop(cluster)
        if job is None:
            return None
        job = await writes.update_job(followed_job(plan, existing, job), job)
        if not existing.keep:
            unwanted = unwanted_services(existing, cluster, writes.services)
            await writes.write([service_pod(plan, existing, job)], prune=unwanted)
        return job

    def _observe(self, plan: Plan, job: Object | None) -> ExistingObjects:
        """Return what the informers contain of the MiniCluster."""
        cluster = plan.cluster
        informers = self.informers
        namespace = plan.namespace
        services = {
            entry.key.name: entry for entry in CLUSTERS.entries(informers.services, key_of(cluster))
        }
        for name in possible_services(plan):
            entry = informers.services.entry(NamespacedName(namespace, name))
            if entry is not None:
                services[name] = entry
        lead = None
        if job is not None:
            pods = CLUSTERS.entries(informers.pods, key_of(cluster))
            lead = lead_of(pods, uid_of(job), plan.name)
        return ExistingObjects(
            job=job,
            lead=lead,
            services=services,
            secret=informers.secrets.entry(NamespacedName(namespace, secret_name(plan.name))),
            service_pod=informers.pods.entry(
                NamespacedName(namespace, service_pod_name(plan.name))
            ),
            # The objects of a Job that has started keep the spec with which it started.
            keep=job is not None and is_outdated(job, cluster),
        )

    async def _put_size_back(self, cluster: Object, size: int, maximum: int) -> None:
        asked = size_of(cluster["spec"])
        # Other changes of the MiniCluster must not prevent it.
        patch = [
            {"op": "test", "path": "/spec/size", "value": asked},
            {"op": "replace", "path": "/spec/size", "value": size},
        ]
        await self.client.patch(
            MINICLUSTER, key_of(cluster), patch, PatchType.JSON, uid=uid_of(cluster)
        )
        self.events.event(
            cluster,
            "Warning",
            "SizeOutOfRange",
            f"spec.size: {asked}: must be at least 1 and at most {maximum}, the maximum size of this MiniCluster. It "
            f"was set to {size}.",
        )

    async def _label_pods(self, cluster: Object, job: Object) -> bool:
        """Label the pods of the Job with their index, by which the minimal Service selects the lead broker.

        The lead broker's pod is the first. At most :data:`_LABELLED_PODS` requests are sent, so that a large
        MiniCluster does not occupy a worker; returns whether to continue with the other pods.
        """
        pods = unlabelled_pods(CLUSTERS.entries(self.informers.pods, key_of(cluster)), uid_of(job))
        has_effect = False
        for pod, index in pods[:_LABELLED_PODS]:
            try:
                patched = await self.client.patch_metadata(
                    POD, pod.key, {"labels": {INDEX_LABEL: index}}, uid=pod.meta.uid
                )
            except (NotFound, Conflict):
                continue  # the pod was deleted, or replaced by another
            # A webhook of another client may remove the label; then the next batch would be the same.
            has_effect |= labels_of(patched).get(INDEX_LABEL) == index
        return has_effect and len(pods) > _LABELLED_PODS

    async def _end(self, cluster: Object) -> bool:
        """End the Job and the service pod of a MiniCluster that is being deleted; return whether to continue.

        Otherwise a tenant's finalizer on the MiniCluster would keep its pods, which nothing could preempt.
        """
        key = NamespacedName(key_of(cluster).namespace, service_pod_name(name_of(cluster)))
        pod = self.informers.pods.entry(key)
        if pod is not None and belongs_to(pod, cluster):
            await end_pods(self.client, [pod])
        entry = self.informers.jobs.entry(key_of(cluster))
        if entry is not None and belongs_to(entry, cluster):
            job: Object | None = entry.object()
        else:
            job = await self._read_job(cluster)
        if job is None or end_condition(job) is not None:
            return False
        if is_kept(job):
            return await self._end_pods(cluster, job)
        if not is_deleting(job):
            await end_job(self.client, job)
        return False

    async def _end_pods(self, cluster: Object, job: Object) -> bool:
        """Delete pods of a Job that is being deleted; return whether to continue with the others."""
        pods = CLUSTERS.entries(self.informers.pods, key_of(cluster))
        remaining = active_pods(pods, uid_of(job))
        await end_pods(self.client, remaining[:_ENDED_PODS])
        return len(remaining) > _ENDED_PODS

    async def _write_status(
        self,
        cluster: Object,
        job: Object | None,
        hosts: int,
        problem: tuple[str, str] | None,
        invalid: str,
    ) -> bool:
        """Apply the status if it changed, and record what changed; return whether the MiniCluster still exists."""
        pods: list[Entry] = []
        failure: PodFailure | None = None
        if job is not None:
            pods = CLUSTERS.entries(self.informers.pods, key_of(cluster))
        if job is not None and end_condition(job) is None and not is_suspended(job):
            failure = failure_in(pods, (uid_of(job), uid_of(cluster)))
            failure = failure or await self._missing_pods(cluster, job, pods)
        observed = Observed(
            job=job,
            lead=lead_of(pods, uid_of(job), name_of(cluster)) if job is not None else None,
            maximum=hosts,
            error=invalid,
            problem=problem,
            outdated=ignored_changes(job, cluster) if job is not None and has_started(job) else "",
            failure=failure,
        )
        status = desired_status(cluster, observed, self.clock.now())
        status = {name: value for name, value in status.items() if name not in self._undeclared}
        if status == cluster.get("status"):
            return True
        try:
            await apply_status(self.client, cluster, status)
        except NotFound:
            return False
        except APIError as error:
            if self._undeclared or _NOT_DECLARED not in error.message:
                raise
            _log.warning("The CRD of MiniClusters is older than this operator", error=error.message)
            self._undeclared.update(ADDED_STATUS)
            return await self._write_status(cluster, job, hosts, problem, invalid)
        for kind, reason, message in notices(cluster, status):
            self.events.event(cluster, kind, reason, message)
        return True

    async def _missing_pods(
        self, cluster: Object, job: Object, pods: Iterable[Entry]
    ) -> PodFailure | None:
        """Return that pods of the Job could not be created, and why: its status does not say that.

        The API server is asked once for each number of missing and failed pods; then the condition has the answer, or
        it is remembered. It is asked for the Job, too: the cache does not have its pod template, to which webhooks may
        have added something. Pods that it does not refuse are created in batches; failed ones are replaced after a
        pause.
        """
        missing = missing_pods(job)
        if has_failed_pods(job):
            # While it waits to replace them, the status of a Job counts no active pods.
            uncounted = len(active_pods(pods, uid_of(job))) - active_count(job)
            missing -= max(uncounted, 0)
        now = self.clock.now()
        if missing <= 0 or seconds_until_first_pods(job, now) > 0:
            return None
        subject = f"{missing} of {job['spec']['parallelism']} pods cannot be created"
        known = find_condition((cluster.get("status") or {}).get("conditions"), PODS_READY) or {}
        message = str(known.get("message") or "")
        if known.get("status") == "False" and message.startswith(subject):
            return PodFailure(PODS_MISSING, message)
        are_created = seconds_until_all_pods(job, now) > 0
        # Otherwise it would be asked again for each batch of pods that is created.
        counted = 0 if are_created else missing
        question = (uid_of(job), (job.get("status") or {}).get("failed"), counted)
        known_question, asked_at = self._not_refused.get(key_of(cluster), (None, 0.0))
        asked_now = self.clock.monotonic()
        if known_question == question and asked_now - asked_at < _ANSWER_SECONDS:
            return None
        refusal = ""
        try:
            stored = await self.client.get(JOB, key_of(job), live=True)
            if stored is not None and uid_of(stored) == uid_of(job):
                refusal = await refusal_of_pod(self.client, stored, stored["spec"]["template"])
        except (APIError, TransportError) as error:
            _log.info("Cannot determine why pods are missing", error=str(error))
        why = f": {refusal}"
        if not refusal:
            if are_created or has_failed_pods(job):
                self._not_refused[key_of(cluster)] = question, asked_now
                return None
            why = f". The Events of the Job say why: kubectl describe job -n {key_of(job).namespace} {name_of(job)}"
        return PodFailure(PODS_MISSING, shortened(subject + why, MAX_WHOLE_MESSAGE))

    async def _clean_up(self, cluster: Object, job: Object | None) -> float:
        """Delete a MiniCluster that has ended, if its spec says so; return the seconds until then, or 0.

        One that belongs to a FluxJob is deleted by the FluxJob's controller, which copies its result first.
        """
        spec = cluster["spec"]
        end = end_condition(job)
        if job is None and is_finished(cluster):  # the Job was deleted after its end
            end = find_condition(cluster["status"].get("conditions"), JobState.FINISHED)
        ttl = spec.get("ttlSecondsAfterFinished")
        if end is None or (not spec.get("cleanup") and ttl is None):
            return 0.0
        if (controller_of(cluster) or {}).get("kind") == FLUX_JOB.kind:
            return 0.0
        ended = parse_time(end["lastTransitionTime"])
        remaining = (ended + timedelta(seconds=ttl or 0) - self.clock.now()).total_seconds()
        if ttl and remaining > 0:
            return remaining
        try:
            await self.client.delete(MINICLUSTER, key_of(cluster), uid=uid_of(cluster))
        except Conflict:
            return 0.0  # another MiniCluster has the name now
        _log.info("Deleted the MiniCluster because it has ended", object=str(key_of(cluster)))
        return 0.0


def _seconds_until_check(job: Object, now: datetime) -> float:
    """Return after how many seconds to check again why pods of a Job are missing, although no event says so; or 0."""
    first = seconds_until_first_pods(job, now)
    if first:
        return first
    remaining = seconds_until_all_pods(job, now)
    if not remaining and has_failed_pods(job):
        return _ANSWER_SECONDS  # they are replaced after a pause, or refused, and the status of the Job does not change
    return min(remaining, _ANSWER_SECONDS)


def setup(manager: Manager) -> None:
    """Add the controller of MiniClusters to ``manager``, which starts it once MiniClusters are served."""
    manager.when_available(MINICLUSTER, _start, hint="install the CRDs of the operator")


def _start(manager: Manager) -> None:
    name = "minicluster"
    labelled: SelectionKeywords = {"label_selector": MINICLUSTER_LABEL}
    small: SelectionKeywords = {**labelled, "max_bytes": MAX_CACHED_BYTES}
    metadata: SelectionKeywords = {**small, "metadata_only": True}
    cache = manager.cache
    informers = Informers(
        jobs=cache.informer(JOB, **JOBS).reader,
        pods=CLUSTERS.add_index(cache.informer(POD, **labelled)).reader,
        services=CLUSTERS.add_index(cache.informer(SERVICE, **small)).reader,
        config_maps=cache.informer(CONFIG_MAP, **small).reader,
        # Only metadata is requested, so the certificates are never in this process after their creation.
        secrets=cache.informer(SECRET, **metadata).reader,
    )
    client = manager.client.with_field_manager(FIELD_MANAGER)
    reconciler = MiniClusterReconciler(client, manager.events(name), manager.clock, informers)
    (
        Builder(manager, name)
        .for_(MINICLUSTER, ResourceVersionChanged())
        .owns(JOB, ResourceVersionChanged(), **JOBS)
        .owns(SERVICE, ResourceVersionChanged(), **small)
        .owns(CONFIG_MAP, ResourceVersionChanged(), **small)
        .owns(SECRET, ResourceVersionChanged(), **metadata)
        .watches(POD, EnqueueRequestsFromMapFunc(CLUSTERS.requests), needs_reconcile, **labelled)
        .complete(reconciler)
    )
