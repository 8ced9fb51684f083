"""Decides which objects a MiniCluster has, from its spec and from what exists.

The Job is created last, so its existence implies that of all other objects at that time.

Other objects may have the names of the Services: ``spec.network.headlessName`` names the headless Service, and
the container the Service of a sidecar, as in the Go operator. Two MiniClusters in a namespace may request
the same name. The second one then gets Services with names of its own; an Event says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.flux.minicluster.job_changes import (
    is_suspended,
    job_patch,
    keeps_scripts,
    known_hosts,
    suspension_patch,
    template_is_own,
)
from cfo.controllers.flux.minicluster.lead import LeadPod
from cfo.controllers.flux.minicluster.plan import Plan, service_pod_name
from cfo.controllers.flux.minicluster.pods import desired_service_pod
from cfo.controllers.flux.minicluster.resources import (
    desired_config_map,
    desired_job,
    desired_secret,
    desired_service,
    desired_sidecar_service,
)
from cfo.runtime import (
    GVK,
    JOB,
    POD,
    SERVICE,
    Entry,
    NamespacedName,
    Object,
    Propagation,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.client import (
    Child,
    ChildResult,
    ChildResults,
    NameTaken,
    ObjectID,
    Outcome,
    Update,
)

_HEADLESS: Final = "None"
_CANNOT_START: Final = "it is left unchanged, and the MiniCluster cannot start"


def belongs_to(entry: Entry | None, cluster: Object) -> bool:
    """Return whether ``cluster`` is the controller of the cached object."""
    controller = entry.meta.controller if entry is not None else None
    return controller is not None and controller.uid == uid_of(cluster)


@dataclass(frozen=True, kw_only=True)
class ExistingObjects:
    """What exists of a MiniCluster.

    ``services`` has the cached Services with the names that its Services can have, and its own others. ``keep``: the
    objects stay as they are, because they are those of the spec with which the Job has started.
    """

    job: Object | None = None
    lead: LeadPod | None = None
    services: Mapping[str, Entry] = field(default_factory=dict)
    secret: Entry | None = None
    service_pod: Entry | None = None
    keep: bool = False


@dataclass
class Objects:
    """The children of one step, and the problem that prevents the others; ``None``: there is none."""

    children: list[Child] = field(default_factory=list)
    problem: tuple[str, str] | None = None

    def add_problem(self, reason: str, message: str) -> None:
        """Record why not all objects exist; the first problem counts."""
        self.problem = self.problem or (reason, message)


# --- Services ---------------------------------------------------------------------------------------------------------


def plan_of(cluster: Object, job: Object | None, admitted: int = 0) -> Plan:
    """Return the plan of ``cluster``; pods of an existing Job keep their subdomain.

    ``admitted``: see :mod:`.job_changes`.
    """
    template = ((job or {}).get("spec") or {}).get("template") or {}
    subdomain = (template.get("spec") or {}).get("subdomain") or ""
    return Plan.of(cluster, maximum=known_hosts(cluster, job, admitted), service=subdomain)


def main_service(plan: Plan, existing: ExistingObjects) -> Objects:
    """Return the Service that gives the pods their DNS names.

    Once a Job exists, pods with this name in their specs may exist, so it cannot be another.
    """
    objects = Objects()
    own_name = plan.name
    is_fixed = existing.job is not None or plan.service == own_name
    own = replace(plan, service=own_name)
    if is_fixed:
        _add_service(objects, existing, plan, desired_service(plan))
    elif belongs_to(existing.services.get(own_name), plan.cluster):
        _add_service(objects, existing, plan, desired_service(own))
    else:
        alternative = _service(existing, plan, desired_service(own))
        _add_service(
            objects,
            existing,
            plan,
            desired_service(plan),
            consequence=f"the pods of this MiniCluster have names below {own_name} instead",
            fallback=alternative,
        )
    return objects


def with_main_service(plan: Plan, results: ChildResults) -> Plan:
    """Return the plan with the name that its Service has."""
    own = NamespacedName(plan.namespace, plan.name)
    return replace(plan, service=plan.name) if (SERVICE, own) in results else plan


def sidecar_services(plan: Plan, existing: ExistingObjects) -> Objects:
    """Return a Service for each container with ports that does not run Flux."""
    objects = Objects()
    ambiguous = _ambiguous_names(plan)
    for container in plan.sidecars:
        if not container.get("ports"):
            continue
        name = str(container.get("name"))
        own_name = f"{plan.name}-{name}"
        if name in ambiguous or own_name in ambiguous:
            # Validation refuses such names. Two desired states of one Service would replace each other forever.
            message = f"Several Services would have the name {name} or {own_name}."
            objects.add_problem("NameTaken", message)
            continue
        own = desired_sidecar_service(plan, container, own_name)
        if belongs_to(existing.services.get(own_name), plan.cluster):
            _add_service(objects, existing, plan, own)
            continue
        _add_service(
            objects,
            existing,
            plan,
            desired_sidecar_service(plan, container, name),
            consequence=f"the container {name} of this MiniCluster has the Service {own_name} instead",
            fallback=_service(existing, plan, own),
        )
    return objects


def possible_services(plan: Plan) -> set[str]:
    """Return the names that the Services of a MiniCluster can have."""
    return set(_service_names(plan))


def _service_names(plan: Plan) -> Counter[str]:
    headless = (plan.spec.get("network") or {}).get("headlessName") or plan.name
    names = Counter({plan.name, plan.service, headless})
    for container in plan.sidecars:
        if container.get("ports"):
            names.update((str(container.get("name")), f"{plan.name}-{container.get('name')}"))
    return names


def _ambiguous_names(plan: Plan) -> set[str]:
    """Return the names that more than one Service of the MiniCluster could have."""
    return {name for name, count in _service_names(plan).items() if count > 1}


def _add_service(
    objects: Objects,
    existing: ExistingObjects,
    plan: Plan,
    desired: Object,
    *,
    consequence: str = _CANNOT_START,
    fallback: Child | None = None,
) -> None:
    """Add a Service; one whose type changes is deleted first, and the event of its deletion continues."""
    name = name_of(desired)
    current = existing.services.get(name)
    is_own = belongs_to(current, plan.cluster)
    if current is not None and is_own and not existing.keep and _changes_type(current, desired):
        # The API server refuses to give a headless Service an address, or to take one away.
        objects.children.append(_absent(SERVICE, key_of(desired)))
        objects.add_problem("Creating", f"Service {name} is being replaced.")
        return
    objects.children.append(
        _service(existing, plan, desired, consequence=consequence, fallback=fallback)
    )


def _service(
    existing: ExistingObjects,
    plan: Plan,
    desired: Object,
    *,
    consequence: str = _CANNOT_START,
    fallback: Child | None = None,
) -> Child:
    is_own = belongs_to(existing.services.get(name_of(desired)), plan.cluster)
    update = Update.KEEP if existing.keep and is_own else Update.APPLY
    return Child.present(desired, update=update, consequence=consequence, fallback=fallback)


def _changes_type(current: Entry, desired: Object) -> bool:
    address = (current.object().get("spec") or {}).get("clusterIP")
    if not address:
        return False
    is_headless = address == _HEADLESS
    wants_headless = desired["spec"].get("clusterIP") == _HEADLESS
    return bool(is_headless != wants_headless)


# --- Scripts, certificate, Job and service pod ------------------------------------------------------------------------


def scripts_and_certificate(plan: Plan, existing: ExistingObjects) -> list[Child]:
    """Return the Secret with the certificate, and the ConfigMap with the scripts."""
    if existing.job is not None and not template_is_own(existing.job):
        return []
    children = [_kept(plan, existing.secret, partial(desired_secret, plan))]
    config_map = desired_config_map(plan)
    size = sum(map(len, config_map["data"].values()))
    if existing.job is not None and size > MAX_CACHED_BYTES:
        return children  # it is not cached, so each reconcile would send it; it was written before the Job
    keeps = existing.keep
    if existing.job is not None and not keeps:
        keeps = keeps_scripts(existing.job, plan)
    update = Update.KEEP if keeps else Update.APPLY
    children.append(Child.present(config_map, update=update, consequence=_CANNOT_START))
    return children


def new_job(plan: Plan) -> Child:
    """Return the Job; one that the Go operator created gets the label by which the informer selects it."""
    return Child.present(
        desired_job(plan), update=partial(label_patch, plan.cluster), consequence=_CANNOT_START
    )


def followed_job(plan: Plan, existing: ExistingObjects, job: Object) -> Child:
    """Return the Job, which follows size, deadline, retries, labels and suspension."""
    has_failed = existing.lead is not None and existing.lead.has_failed
    return Child.present(
        job,
        update=lambda current: job_patch(current, plan, command_failed=has_failed),
        current=job,
    )


def suspended_job(cluster: Object, job: Object) -> Child:
    """Return the Job, which follows only the suspension of an invalid MiniCluster."""
    return Child.present(
        job, update=lambda current: suspension_patch(current, cluster), current=job
    )


def replaced_job(job: Object) -> Objects:
    """Delete a Job without pods, because the spec was changed; the event of its deletion continues."""
    objects = Objects([_absent(JOB, key_of(job))])
    objects.add_problem("Creating", "The Job is being replaced, because the spec was changed.")
    return objects


def service_pod(plan: Plan, existing: ExistingObjects, job: Object) -> Child:
    """Return the service pod, which exists while the Job may run: a suspended Job has no pods at all."""
    if not plan.services or is_suspended(job):
        return no_service_pod(plan.cluster)
    return _kept(plan, existing.service_pod, partial(desired_service_pod, plan))


def no_service_pod(cluster: Object) -> Child:
    """Return the service pod, which does not exist."""
    key = NamespacedName(namespace_of(cluster), service_pod_name(name_of(cluster)))
    return _absent(POD, key)


def unwanted_services(
    existing: ExistingObjects, cluster: Object, wanted: Iterable[ObjectID]
) -> list[ObjectID]:
    """Return the cached Services of the MiniCluster that it does not need."""
    needed = set(wanted)
    return [
        (SERVICE, entry.key)
        for entry in existing.services.values()
        if belongs_to(entry, cluster) and (SERVICE, entry.key) not in needed
    ]


def label_patch(cluster: Object, obj: Object) -> Object:
    """Return the patch with the label of the MiniCluster; empty if ``obj`` has it."""
    label = {MINICLUSTER_LABEL: name_of(cluster)}
    if label.items() <= labels_of(obj).items():
        return {}
    return {"metadata": {"labels": label}}


def _kept(plan: Plan, current: Entry | None, build: Callable[[], Object]) -> Child:
    """Return a child that is only created; it is built only if it does not exist."""
    desired = current.object() if current is not None else build()
    return Child.present(
        desired, update=partial(label_patch, plan.cluster), consequence=_CANNOT_START
    )


def _absent(gvk: GVK, key: NamespacedName) -> Child:
    return Child.absent(gvk, key, propagation_policy=Propagation.BACKGROUND)


# --- Results ----------------------------------------------------------------------------------------------------------


def problem_of(results: ChildResults) -> tuple[str, str] | None:
    """Return the reason and message of the first object that could not be written, for the status."""
    for result in results:
        if result.uses_fallback:
            continue
        problem = _problem_of(result)
        if problem is not None:
            return problem
    return None


def _problem_of(result: ChildResult) -> tuple[str, str] | None:
    obj = result.obj or {}
    match result.outcome:
        case Outcome.TAKEN:
            return "NameTaken", f"{result.message}."
        case Outcome.WAITING if isinstance(result.error, NameTaken):
            title = f"{result.child.gvk.kind} {name_of(obj)}"
            message = f"{title} of a deleted MiniCluster with the same name still exists."
            return "Deleting", message
        case Outcome.WAITING:
            return "Deleting", f"{result.message}."
        case Outcome.TERMINATING:
            return "NamespaceTerminating", "The namespace is being deleted."
        case Outcome.REFUSED | Outcome.FAILED | Outcome.UNSERVED:
            return "FailedToWrite", result.message
    return None
