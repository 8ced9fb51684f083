"""Queues AppWrappers for a Kueue installation without AppWrapper integration, using Workloads.

The operator creates the Workload of each AppWrapper and follows its status.

This behaves like Kueue's own integration. An AppWrapper with a queue starts suspended, and its Workload is created.
Once the Workload is admitted, the AppWrapper gets the pod template changes that the admission requires, and is resumed.
When the Workload is evicted (or deactivated), the AppWrapper is suspended, and the quota is released once its resources
are deleted. When the AppWrapper finishes, the Workload is marked as finished. Enabled with
``appwrapper.kueueIntegration``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import structlog

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    FIELD_MANAGER,
    PODS_READY,
    QUOTA_RESERVED,
    is_managed_here,
)
from cfo.api.appwrapper.podsets import PodSetError
from cfo.controllers.appwrapper.admission import is_held
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.workload import (
    PRIORITY_CLASS_LABEL,
    Priority,
    completion,
    desired_workload,
    eviction,
    is_admitted,
    pod_set_infos,
    queue_of,
    reclaimable_pods,
    workload_name,
)
from cfo.runtime import (
    CRUD,
    GVK,
    JOB,
    READ,
    AlreadyExists,
    Builder,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Request,
    ResourceVersionChanged,
    Result,
    Rule,
    find_condition,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.objects import PRIORITY_CLASS, Conditions
from cfo.runtime.process import micro_time

_log = structlog.get_logger("cfo.controllers.appwrapper.kueue")

_GROUP: Final = "kueue.x-k8s.io"
_RETRY_SECONDS: Final = 5.0
_REQUEUED_REASONS: Final = (
    "Preempted",
    "AdmissionCheck",
    "NodeFailures",
    "LocalQueueStopped",
    "ClusterQueueStopped",
)
"""The reasons of evictions after which Kueue can admit the Workload again immediately."""

_INADMISSIBLE: Final = "Inadmissible"
"""The reason with which Kueue reports that a queue does not exist or is stopped, or that no quota can be enough."""

_READY: Final = ("Started", "All pods reached readiness and the workload is running")
_NOT_READY: Final = ("WaitForStart", "Not all pods are ready or succeeded")


class KueueReconciler:
    """Reconciles AppWrappers that have a queue with their Workloads, of version ``workload``."""

    name: Final = "appwrapper-kueue"

    rules: Final = (
        Rule(_GROUP, "workloads", CRUD),
        Rule(_GROUP, "workloads/status", ("get", "patch", "update")),
        Rule(_GROUP, "workloads/finalizers", ("update",)),
        Rule(_GROUP, "resourceflavors", READ),
        Rule(_GROUP, "workloadpriorityclasses", ("get",)),
        Rule(PRIORITY_CLASS.group, "priorityclasses", ("get",)),
    )

    def __init__(self, manager: Manager, workload: GVK, components: ComponentInformers) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._clock = manager.clock
        self._components = components
        self._workloads = manager.cache.informer(workload).reader
        self._reported: dict[Request, tuple[str, str]] = {}
        """The uid of each AppWrapper that Kueue cannot admit at all, and why, as the last Event says."""
        self.flavors = manager.cache.informer(
            GVK(workload.group, workload.version, "ResourceFlavor")
        )
        self.workload = workload

    def awaits_admission(self, wrapper: Mapping[str, Any]) -> bool:
        """Return whether the AppWrapper must not be deployed yet, even if ``spec.suspend`` is not set."""
        if not queue_of(wrapper):
            return False
        workload = self._workload_of(wrapper)
        return workload is None or not is_admitted(workload)

    async def reconcile(self, request: Request) -> Result:
        """Synchronize an AppWrapper with its Workload."""
        wrapper = await self._client.get(APPWRAPPER, request)
        if wrapper is None:
            self._reported.pop(request, None)
        if (
            wrapper is None
            or is_deleting(wrapper)
            or not is_managed_here(wrapper)
            or not queue_of(wrapper)
        ):
            return Result()
        if is_held(wrapper):
            return Result()
        suspended = bool(wrapper["spec"].get("suspend"))
        workload = self._workload_of(wrapper)
        if ended := completion(wrapper):
            return await self._finish(workload, *ended)
        if workload is None:
            if not suspended:
                await self._stop(
                    wrapper, "Suspended until a matching Workload exists and is admitted"
                )
                return Result()  # the update triggers another reconcile
            return await self._create(wrapper)
        if evicted := eviction(workload):
            if not suspended:
                await self._stop(wrapper, evicted[1])
            elif not is_true((wrapper.get("status") or {}).get("conditions"), QUOTA_RESERVED):
                await self._release(workload, *evicted)
            return Result()
        if is_admitted(workload):
            return (
                await self._start(wrapper, workload)
                if suspended
                else await self._report(wrapper, workload)
            )
        self._report_inadmissible(request, wrapper, workload)
        if not suspended:
            await self._stop(wrapper, "Not admitted by cluster queue")
        elif workload["spec"].get("queueName") != queue_of(wrapper):
            patch = {"spec": {"queueName": queue_of(wrapper)}}
            await self._client.patch_object(workload, patch, unchanged=True)
        return Result()

    def _report_inadmissible(self, request: Request, wrapper: Object, workload: Object) -> None:
        """Record an Event, once, if Kueue cannot admit the Workload at all, such as without its LocalQueue."""
        conditions = (workload.get("status") or {}).get("conditions")
        reserved = find_condition(conditions, "QuotaReserved") or {}
        if reserved.get("status") != "False" or reserved.get("reason") != _INADMISSIBLE:
            self._reported.pop(request, None)
            return
        report = (uid_of(wrapper), str(reserved.get("message") or ""))
        if self._reported.get(request) != report:
            self._reported[request] = report
            self._events.event(wrapper, "Warning", _INADMISSIBLE, report[1])

    def _workload_of(self, wrapper: Mapping[str, Any]) -> Object | None:
        workload = self._workloads.get(
            NamespacedName(namespace_of(wrapper), workload_name(wrapper))
        )
        return workload if workload is not None and is_controlled_by(workload, wrapper) else None

    async def _create(self, wrapper: Object) -> Result:
        try:
            desired = desired_workload(wrapper, self.workload, await self._priority(wrapper))
            created = await self._client.create(desired)
        except PodSetError as error:
            self._events.event(wrapper, "Warning", "InvalidPodSets", str(error))
            return Result()
        except AlreadyExists:
            message = f"Workload {workload_name(wrapper)} already exists and does not belong to this AppWrapper"
            self._events.event(wrapper, "Warning", "WorkloadNameTaken", message)
            return Result(requeue_after=_RETRY_SECONDS)
        self._events.event(
            wrapper, "Normal", "CreatedWorkload", f"Created Workload: {key_of(created)}"
        )
        return Result()

    async def _priority(self, wrapper: Object) -> Priority:
        """Return the priority of the class in the AppWrapper's label, else of the pods' class, else no priority."""
        name = labels_of(wrapper).get(PRIORITY_CLASS_LABEL, "")
        if name:
            kind = GVK(_GROUP, self.workload.version, "WorkloadPriorityClass")
            found = await self._client.get(kind, NamespacedName("", name))
            if found is not None:
                return kind.group, kind.kind, name, int(found.get("value") or 0)
            self._events.event(
                wrapper,
                "Warning",
                "PriorityClassMissing",
                f"WorkloadPriorityClass {name} does not exist",
            )
        for pod_set in desired_workload(wrapper, self.workload, ("", "", "", 0))["spec"]["podSets"]:
            name = pod_set["template"]["spec"].get("priorityClassName") or ""
            found = (
                await self._client.get(PRIORITY_CLASS, NamespacedName("", name)) if name else None
            )
            if found is not None:
                return PRIORITY_CLASS.group, PRIORITY_CLASS.kind, name, int(found.get("value") or 0)
        return "", "", "", 0

    async def _start(self, wrapper: Object, workload: Object) -> Result:
        try:
            infos = pod_set_infos(wrapper, workload, self._flavor)
        except LookupError as error:
            self._events.event(wrapper, "Warning", "InvalidAdmission", str(error).strip("'"))
            return Result(requeue_after=_RETRY_SECONDS)
        await self._write_spec(wrapper, infos, suspend=False)
        queue = workload["status"]["admission"]["clusterQueue"]
        self._events.event(wrapper, "Normal", "Started", f"Admitted by clusterQueue {queue}")
        return Result()

    def _flavor(self, name: str) -> Mapping[str, Any] | None:
        flavor = self.flavors.reader.get(NamespacedName("", name))
        return flavor.get("spec") or {} if flavor is not None else None

    async def _stop(self, wrapper: Object, message: str) -> None:
        await self._write_spec(wrapper, None, suspend=True)
        self._events.event(wrapper, "Normal", "Stopped", message)

    async def _write_spec(
        self, wrapper: Object, infos: list[list[Object]] | None, *, suspend: bool
    ) -> None:
        """Suspend or resume the AppWrapper; set ``podSetInfos`` of its components to ``infos``, or remove them."""
        components = copy.deepcopy(wrapper["spec"]["components"])
        for index, component in enumerate(components):
            component.pop("podSetInfos", None)
            if infos is not None and infos[index]:
                component["podSetInfos"] = infos[index]
        spec: Object = {"suspend": suspend}
        if components != wrapper["spec"]["components"]:
            spec["components"] = components
        await self._client.patch_object(wrapper, {"spec": spec}, unchanged=True)

    async def _report(self, wrapper: Object, workload: Object) -> Result:
        """Update in the Workload whether the pods are ready, and how many of them no longer need quota."""
        ready = is_true((wrapper.get("status") or {}).get("conditions"), PODS_READY)
        before = workload["status"].get("conditions")
        status: Object = {}
        if ready != is_true(before, PODS_READY):
            reason, message = _READY if ready else _NOT_READY
            status["conditions"] = self._conditions(workload, (PODS_READY, ready, reason, message))
        reclaimable = reclaimable_pods(wrapper, await self._succeeded(wrapper))
        if _reclaims_more(workload["status"].get("reclaimablePods") or [], reclaimable):
            status["reclaimablePods"] = reclaimable
        if status:
            await self._patch_status(workload, status)
        return Result()

    async def _succeeded(self, wrapper: Object) -> list[int]:
        """Return how many pods of each component succeeded, from its Job's status."""
        counts: list[int] = []
        for component in (wrapper.get("status") or {}).get("componentStatus") or ():
            job = None
            gvk = GVK.parse(component.get("apiVersion") or "", component.get("kind") or "")
            if (
                gvk == JOB
                and component.get("name")
                and (jobs := await self._components.synced(JOB)) is not None
            ):
                job = jobs.reader.get(NamespacedName(namespace_of(wrapper), component["name"]))
            counts.append(int(((job or {}).get("status") or {}).get("succeeded") or 0))
        return counts + [0] * (len(wrapper["spec"]["components"]) - len(counts))

    async def _release(self, workload: Object, reason: str, message: str) -> None:
        """Release the quota, because no resources use it any longer."""
        if not is_true((workload.get("status") or {}).get("conditions"), "QuotaReserved"):
            return
        conditions = self._conditions(
            workload,
            ("Requeued", reason in _REQUEUED_REASONS, reason, message),
            ("QuotaReserved", False, "Pending", message),
            ("Admitted", False, "NoReservation", "The workload has no reservation"),
        )
        await self._patch_status(workload, {"admission": None, "conditions": conditions})

    async def _finish(self, workload: Object | None, reason: str, message: str) -> Result:
        if workload is not None and not is_true(
            (workload.get("status") or {}).get("conditions"), "Finished"
        ):
            conditions = self._conditions(workload, ("Finished", True, reason, message))
            await self._patch_status(workload, {"conditions": conditions})
        return Result()

    def _conditions(self, workload: Object, *changes: tuple[str, bool, str, str]) -> list[Object]:
        conditions = Conditions(workload, now=self._clock.now(), time_format=micro_time)
        for kind, value, reason, message in changes:
            conditions.set(kind, value, reason, message)
        return conditions.as_list()

    async def _patch_status(self, workload: Object, status: Mapping[str, Any]) -> None:
        """Patch a Workload's status with its resourceVersion as a precondition, because Kueue also writes it."""
        try:
            await self._client.patch_object(
                workload, {"status": status}, unchanged=True, subresource="status"
            )
        except NotFound:
            _log.debug("Workload was deleted", workload=str(key_of(workload)))


def _reclaims_more(before: list[Object], after: list[Object]) -> bool:
    """Return whether more can be reclaimed than before; Kueue does not accept less."""
    counts = {item["name"]: item["count"] for item in before}
    return any(item["count"] > counts.get(item["name"], 0) for item in after)


def setup(manager: Manager, workload: GVK, components: ComponentInformers) -> KueueReconciler:
    """Add the controller of Workloads, of version ``workload``, to ``manager``; return its reconciler."""
    reconciler = KueueReconciler(manager, workload, components)
    builder = (
        Builder(manager, reconciler.name).for_(APPWRAPPER, ResourceVersionChanged()).owns(workload)
    )
    builder.reads(reconciler.flavors).complete(reconciler)
    return reconciler
