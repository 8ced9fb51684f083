"""Creates the objects of a MiniCluster, and makes them follow its spec, in one reconcile.

The Job is created last, so its existence implies that of all other objects at that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cfo.controllers.flux.minicluster.children import Children
from cfo.controllers.flux.minicluster.job_changes import (
    end_condition,
    has_started,
    is_outdated,
    is_suspended,
    job_patch,
    known_hosts,
    suspension_patch,
    template_is_own,
)
from cfo.controllers.flux.minicluster.lead import lead_of, pods_of_cluster
from cfo.controllers.flux.minicluster.names import secret_name, service_pod_name
from cfo.controllers.flux.minicluster.plan import Plan, is_queued_by_kueue
from cfo.controllers.flux.minicluster.pods import desired_service_pod
from cfo.controllers.flux.minicluster.resources import desired_config_map, desired_job, desired_secret
from cfo.controllers.flux.minicluster.services import ServiceWriter
from cfo.runtime import (
    JOB,
    POD,
    Entry,
    NamespacedName,
    Object,
    Reader,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)

__all__ = ["Informers", "ObjectWriter"]


@dataclass(frozen=True, slots=True)
class Informers:
    """What the controller reads: objects that have the label with the name of their MiniCluster."""

    jobs: Reader
    pods: Reader
    services: Reader
    config_maps: Reader
    secrets: Reader


class ObjectWriter:
    """Writes the objects of the MiniCluster of ``children``."""

    def __init__(self, children: Children, informers: Informers) -> None:
        self._children = children
        self._informers = informers
        self._cluster = children.cluster

    async def ensure(self, job: Object | None) -> Object | None:
        """Create and update the objects; ``job`` is the existing Job. Returns the Job, if it exists then."""
        cluster, children = self._cluster, self._children
        if job is not None and is_deleting(job):
            children.add_problem("Deleting", f"Job {name_of(job)} is being deleted.")
            return None
        if job is not None and is_outdated(job, cluster) and not has_started(job):
            # Only a Job without pods is replaced. The event of its deletion continues here.
            await children.delete(JOB, self._informers.jobs.entry(key_of(job)))
            children.add_problem("Creating", "The Job is being replaced, because the spec was changed.")
            return None
        # The objects of a Job that has started keep the spec with which it started.
        children.keep_existing = job is not None and is_outdated(job, cluster)
        services = ServiceWriter(children, self._informers.services)
        plan = await services.apply_main(self._plan(job), fixed=job is not None)
        if job is None or template_is_own(job):
            await self._ensure_scripts_and_certificate(plan)
        if not children.keep_existing:
            await services.apply_sidecars(plan)
        if job is None and children.problem is None:
            job = await children.ensure_exists(partial(desired_job, plan), self._informers.jobs.entry(key_of(cluster)))
        if job is None:
            return None
        job = await self._follow_spec(job, plan)
        if not children.keep_existing:
            await services.prune(plan)
            await self._ensure_service_pod(job, plan)
        return job

    async def follow_suspension(self, job: Object | None) -> Object | None:
        """Suspend or resume the Job, if it exists, without reading anything else from the spec."""
        if job is None or end_condition(job) is not None:
            return job
        return await self._children.patch(job, suspension_patch(job, self._cluster))

    async def delete_service_pod(self) -> None:
        """Delete the service pod, if it exists."""
        await self._children.delete(POD, self._service_pod())

    def _plan(self, job: Object | None) -> Plan:
        subdomain = (job or {}).get("spec", {}).get("template", {}).get("spec", {}).get("subdomain") or ""
        return Plan.of(self._cluster, maximum=known_hosts(self._cluster, job), service=subdomain)

    async def _ensure_scripts_and_certificate(self, plan: Plan) -> None:
        secret = self._informers.secrets.entry(NamespacedName(plan.namespace, secret_name(plan.name)))
        await self._children.ensure_exists(partial(desired_secret, plan), secret)
        config_map = desired_config_map(plan)
        await self._children.ensure(config_map, self._informers.config_maps.entry(key_of(config_map)))

    async def _follow_spec(self, job: Object, plan: Plan) -> Object:
        """Make the Job follow size, deadline, retries, labels and suspension."""
        pods = pods_of_cluster(self._informers.pods, key_of(self._cluster))
        lead = lead_of(pods, uid_of(job), plan.name)
        patch = job_patch(job, plan, lead.exit_code if lead is not None else None)
        updated = await self._children.patch(job, patch)
        before, size = job["spec"].get("parallelism"), updated["spec"].get("parallelism")
        if before != size:
            note = " Kueue suspends and queues a resized Job again." if is_queued_by_kueue(self._cluster) else ""
            self._children.record_normal("Scaled", f"The Job was scaled from {before} to {size} pods.{note}")
        return updated

    async def _ensure_service_pod(self, job: Object, plan: Plan) -> None:
        """Create the service pod while the Job may run. While the Job is suspended there are no pods at all."""
        if not plan.services or is_suspended(job):
            await self.delete_service_pod()
        else:
            await self._children.ensure_exists(partial(desired_service_pod, plan), self._service_pod())

    def _service_pod(self) -> Entry | None:
        name = service_pod_name(name_of(self._cluster))
        return self._informers.pods.entry(NamespacedName(namespace_of(self._cluster), name))
