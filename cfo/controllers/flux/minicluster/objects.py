"""Creates the objects of a MiniCluster, and makes them follow its spec, in one reconcile.

The Job is created last, so its existence implies that of all other objects at that time.

Other objects may have the names of the Services: ``spec.network.headlessName`` names the headless Service, and
the container the Service of a sidecar, as in the Go operator. Two MiniClusters in a namespace may request
the same name. The second one then gets Services with names of its own; an Event says which.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cfo.api.flux.facts import queue_of
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.flux.minicluster.children import Children, belongs_to
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
from cfo.controllers.flux.minicluster.lead import CLUSTERS, lead_of
from cfo.controllers.flux.minicluster.plan import Plan, secret_name, service_pod_name
from cfo.controllers.flux.minicluster.pods import desired_service_pod
from cfo.controllers.flux.minicluster.resources import (
    desired_config_map,
    desired_job,
    desired_secret,
    desired_service,
    desired_sidecar_service,
)
from cfo.runtime import (
    JOB,
    POD,
    SERVICE,
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

_HEADLESS: Final = "None"


class ServiceWriter:
    """Writes the Services in one reconcile."""

    def __init__(self, children: Children, services: Reader) -> None:
        self._children = children
        self._services = services
        self._names: set[str] = set()

    async def apply_main(self, plan: Plan, *, fixed: bool) -> Plan:
        """Create or update the Service that gives the pods their DNS names; return the plan with its name.

        With ``fixed``, pods with this name in their specs may exist, so it cannot be another.
        """
        if not fixed and plan.service != plan.name:
            if self._is_own(plan, plan.name):
                plan = replace(plan, service=plan.name)
            elif not await self._apply(desired_service(plan), required=False):
                if self._children.problem is not None:
                    return plan
                self._children.record_name_conflict(
                    f"Service {plan.service}",
                    f"the pods of this MiniCluster have names below {plan.name} instead",
                )
                plan = replace(plan, service=plan.name)
            else:
                return plan
        await self._apply(desired_service(plan))
        return plan

    async def apply_sidecars(self, plan: Plan) -> None:
        """Create or update a Service for each container with ports that does not run Flux."""
        ambiguous = _ambiguous_names(plan)
        for container in plan.sidecars:
            if not container.get("ports"):
                continue
            name = str(container.get("name"))
            own_name = f"{plan.name}-{name}"
            if name in ambiguous or own_name in ambiguous:
                # Validation refuses such names. Two desired states of one Service would replace each other forever.
                self._children.add_problem(
                    "NameTaken", f"Several Services would have the name {name} or {own_name}."
                )
                continue
            if self._is_own(plan, own_name):
                await self._apply(desired_sidecar_service(plan, container, own_name))
                continue
            if await self._apply(desired_sidecar_service(plan, container, name), required=False):
                continue
            if self._children.problem is None and await self._apply(
                desired_sidecar_service(plan, container, own_name)
            ):
                self._children.record_name_conflict(
                    f"Service {name}",
                    f"the container {name} of this MiniCluster has the Service {own_name} instead",
                )

    async def prune(self, plan: Plan) -> None:
        """Delete Services of the MiniCluster that were not applied in this reconcile."""
        for service in CLUSTERS.entries(self._services, key_of(plan.cluster)):
            if service.key.name not in self._names:
                await self._children.delete(SERVICE, service)

    def _is_own(self, plan: Plan, name: str) -> bool:
        entry = self._services.entry(NamespacedName(plan.namespace, name))
        return belongs_to(entry, self._children.cluster)

    async def _apply(self, desired: Object, *, required: bool = True) -> bool:
        current = self._services.entry(key_of(desired))
        children = self._children
        can_replace = not children.keep_existing and belongs_to(current, children.cluster)
        if current is not None and can_replace and _changes_type(current, desired):
            # The API server refuses to give a headless Service an address, or to take one away.
            await self._children.delete(SERVICE, current)
            self._children.add_problem("Creating", f"Service {name_of(desired)} is being replaced.")
            return False
        applied = await self._children.ensure(desired, current, required=required)
        if applied:
            self._names.add(name_of(desired))
        return applied


def _ambiguous_names(plan: Plan) -> set[str]:
    """Return the names that more than one Service of the MiniCluster could have."""
    headless = (plan.spec.get("network") or {}).get("headlessName") or plan.name
    names = Counter({plan.name, plan.service, headless})
    for container in plan.sidecars:
        if container.get("ports"):
            names.update((str(container.get("name")), f"{plan.name}-{container.get('name')}"))
    return {name for name, count in names.items() if count > 1}


def _changes_type(current: Entry, desired: Object) -> bool:
    address = (current.object().get("spec") or {}).get("clusterIP")
    return bool(address) and (address == _HEADLESS) != (
        desired["spec"].get("clusterIP") == _HEADLESS
    )


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
            children.add_problem(
                "Creating", "The Job is being replaced, because the spec was changed."
            )
            return None
        # The objects of a Job that has started keep the spec with which it started.
        children.keep_existing = job is not None and is_outdated(job, cluster)
        services = ServiceWriter(children, self._informers.services)
        plan = await services.apply_main(self._plan(job), fixed=job is not None)
        if job is None or template_is_own(job):
            await self._ensure_scripts_and_certificate(plan, job)
        if not children.keep_existing:
            await services.apply_sidecars(plan)
        if job is None and children.problem is None:
            job = await children.ensure_exists(
                partial(desired_job, plan), self._informers.jobs.entry(key_of(cluster))
            )
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
        subdomain = (job or {}).get("spec", {}).get("template", {}).get("spec", {}).get(
            "subdomain"
        ) or ""
        return Plan.of(self._cluster, maximum=known_hosts(self._cluster, job), service=subdomain)

    async def _ensure_scripts_and_certificate(self, plan: Plan, job: Object | None) -> None:
        secret = self._informers.secrets.entry(
            NamespacedName(plan.namespace, secret_name(plan.name))
        )
        await self._children.ensure_exists(partial(desired_secret, plan), secret)
        config_map = desired_config_map(plan)
        if job is not None and sum(map(len, config_map["data"].values())) > MAX_CACHED_BYTES:
            return  # it is not cached, so each reconcile would send it; it was written before the Job
        await self._children.ensure(
            config_map, self._informers.config_maps.entry(key_of(config_map))
        )

    async def _follow_spec(self, job: Object, plan: Plan) -> Object:
        """Make the Job follow size, deadline, retries, labels and suspension."""
        pods = CLUSTERS.entries(self._informers.pods, key_of(self._cluster))
        lead = lead_of(pods, uid_of(job), plan.name)
        patch = job_patch(job, plan, lead.exit_code if lead is not None else None)
        updated = await self._children.patch(job, patch)
        before, size = job["spec"].get("parallelism"), updated["spec"].get("parallelism")
        if before != size:
            note = (
                " Kueue suspends and queues a resized Job again." if queue_of(self._cluster) else ""
            )
            self._children.record_normal(
                "Scaled", f"The Job was scaled from {before} to {size} pods.{note}"
            )
        return updated

    async def _ensure_service_pod(self, job: Object, plan: Plan) -> None:
        """Create the service pod while the Job may run. While the Job is suspended there are no pods at all."""
        if not plan.services or is_suspended(job):
            await self.delete_service_pod()
        else:
            await self._children.ensure_exists(
                partial(desired_service_pod, plan), self._service_pod()
            )

    def _service_pod(self) -> Entry | None:
        name = service_pod_name(name_of(self._cluster))
        return self._informers.pods.entry(NamespacedName(namespace_of(self._cluster), name))
