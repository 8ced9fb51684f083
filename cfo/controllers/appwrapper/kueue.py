"""Queues AppWrappers for a Kueue installation without AppWrapper integration, using Workloads.

The operator creates the Workload of each AppWrapper and follows its status; :mod:`.workload_decision` decides.

This behaves like Kueue's own integration. An AppWrapper with a queue starts suspended, and its Workload is created.
Once the Workload is admitted, the AppWrapper gets the pod template changes that the admission requires, and is resumed.
When the Workload is evicted (or deactivated), the AppWrapper is suspended, and the quota is released once its resources
are deleted. When the AppWrapper finishes, the Workload is marked as finished. A Workload is followed as long as it
exists: it can hold quota, whatever users did to the labels of its AppWrapper. That of an AppWrapper that has left its
queue is deleted once nothing runs. Enabled with ``appwrapper.kueueIntegration``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from cfo.api.appwrapper.names import APPWRAPPER, FIELD_MANAGER, is_managed_here, workload_name
from cfo.api.appwrapper.podsets import PodSetError
from cfo.api.kueue import INADMISSIBLE, PRIORITY_CLASS_LABEL, inadmissible_message
from cfo.controllers.appwrapper.components import components_of, specified_infos
from cfo.controllers.appwrapper.workload import (
    WorkloadPriority,
    desired_workload,
    has_left,
    has_prebuilt_workload,
    has_queue,
    is_admitted,
    is_of_another_part,
    pod_set_infos,
    protection_patch,
    queue_of,
)
from cfo.controllers.appwrapper.workload_decision import (
    QueueAction,
    QueueDecision,
    QueueState,
    decide_action,
    finished_status,
    is_queued,
    is_synchronized_here,
    must_delete_left,
    queue_state,
    released_status,
    reported_status,
    spec_changes,
)
from cfo.controllers.left_out import stored_or_live
from cfo.runtime import (
    CRUD,
    GVK,
    READ,
    AlreadyExists,
    Builder,
    Entry,
    Invalid,
    LabelSelector,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    PatchType,
    Request,
    ResourceVersionChanged,
    Result,
    Rule,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    on_update,
    uid_of,
)
from cfo.runtime.objects import PRIORITY_CLASS
from cfo.runtime.process import printable

_log = structlog.get_logger("cfo.controllers.appwrapper.kueue")

_GROUP: Final = "kueue.x-k8s.io"
_RETRY_SECONDS: Final = 5.0
_INVALID_RETRY_SECONDS: Final = 300.0
_MAX_MESSAGE: Final = 800
_WRAPPER_INDEX: Final = "workload-appwrapper"


class KueueReconciler:
    """Reconciles AppWrappers that have a queue, or still a Workload, with their Workloads, of version ``workload``."""

    name: Final = "appwrapper-kueue"

    rules: Final = (
        Rule(_GROUP, "workloads", CRUD),
        Rule(_GROUP, "workloads/status", ("get", "patch", "update")),
        Rule(_GROUP, "workloads/finalizers", ("update",)),
        Rule(_GROUP, "resourceflavors", READ),
        Rule(_GROUP, "workloadpriorityclasses", ("get",)),
        Rule(PRIORITY_CLASS.group, "priorityclasses", ("get",)),
    )

    def __init__(self, manager: Manager, workload: GVK) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._clock = manager.clock
        self._workloads = manager.cache.informer(workload)
        self._wrappers = manager.cache.informer(APPWRAPPER).reader
        self._reported: dict[Request, tuple[str, str]] = {}
        """The uid of each AppWrapper without a Workload that Kueue can admit, and why, as the last Event says."""
        self._selector = str(LabelSelector.of(manager.options.selectors.get(APPWRAPPER)))
        self._is_divided = bool(self._selector)
        """Whether AppWrappers exist that the cache does not select."""
        if self._is_divided:
            self._workloads.add_index(_WRAPPER_INDEX, _index_wrapper)
        self.flavors = manager.cache.informer(
            GVK(workload.group, workload.version, "ResourceFlavor")
        )
        self.workload = workload

    def may_follow(self, workload: Entry) -> bool:
        """Return whether the cache has the AppWrapper of a Workload; those of other operators are not in it."""
        controller = workload.meta.controller
        if controller is None:
            return True
        return self._wrappers.may_exist(NamespacedName(workload.namespace, controller.name))

    async def read_state(self, wrapper: Mapping[str, Any]) -> QueueState:
        """Read the AppWrapper's Workload, and return what applies because of it. Raises the errors of API requests."""
        return queue_state(wrapper, await self._workload_of(wrapper))

    def required_infos(
        self, wrapper: Object, workload: Object | None
    ) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the changes to pod templates that the admission requires, by component and pod set.

        Users can write those of the spec: the webhook allows it together with ``spec.suspend``. Raises
        :class:`LookupError` if the Workload is not admitted, or if a flavor of it does not exist.
        """
        if not is_queued(wrapper, workload):
            return specified_infos(wrapper)
        if workload is None or not is_admitted(workload):
            raise LookupError("the Workload is not admitted")
        return pod_set_infos(wrapper, workload, self._flavor)

    async def reconcile(self, request: Request) -> Result:
        """Synchronize an AppWrapper with its Workload."""
        wrapper = await self._client.get(APPWRAPPER, request)
        if wrapper is None:
            self._reported.pop(request, None)
            if self._is_divided:
                await self._delete_left(request)
            return Result()
        workload = await self._workload_of(wrapper)
        if not is_synchronized_here(wrapper, workload):
            return Result()
        if workload is not None:
            protection = protection_patch(wrapper, workload, self._selector)
            if protection:
                workload = await self._client.patch_object(workload, protection, unchanged=True)
        decision = decide_action(wrapper, workload)
        if decision.action is QueueAction.CREATE:
            return await self._create(wrapper)
        if workload is not None and decision.is_pending:
            self._report_inadmissible(request, wrapper, workload)
        if decision.action is QueueAction.STOP:
            await self._stop(wrapper, decision.message)  # the update triggers another reconcile
        elif workload is not None:
            return await self._synchronize(wrapper, workload, decision)
        return Result()

    async def _synchronize(
        self, wrapper: Object, workload: Object, decision: QueueDecision
    ) -> Result:
        """Carry out a decision about an AppWrapper and its existing Workload."""
        now = self._clock.now()
        reason = decision.reason
        message = decision.message
        match decision.action:
            case QueueAction.START:
                return await self._start(wrapper, workload)
            case QueueAction.REPORT:
                status = reported_status(wrapper, workload, now)
                await self._patch_status(workload, status)
            case QueueAction.RELEASE:
                await self._patch_status(workload, released_status(workload, reason, message, now))
            case QueueAction.FINISH:
                await self._patch_status(workload, finished_status(workload, reason, message, now))
            case QueueAction.MOVE:
                patch = {"spec": {"queueName": queue_of(wrapper)}}
                await self._client.patch_object(workload, patch, unchanged=True)
            case QueueAction.DELETE:
                await self._delete(wrapper, workload)
        return Result()

    async def _delete_left(self, request: Request) -> None:
        """Delete the Workload of an AppWrapper that has left the part of this operator.

        The webhook allows that while nothing runs. No other operator may follow the Workload. The AppWrapper is read
        once for each, when the AppWrapper leaves, or the Workload is created, or the operator starts. While the cache
        leaves out Workloads of the namespace, it is read after each event, because its Workload can be one of them.
        """
        workloads = self._workloads.reader
        found = workloads.entries(index=(_WRAPPER_INDEX, str(request)))
        is_complete = workloads.is_complete(request.namespace)
        if is_complete and all(entry.meta.is_deleting for entry in found):
            return
        wrapper = await self._client.get(APPWRAPPER, request, live=True)
        workload = await self._workload_of(wrapper) if wrapper is not None else None
        if wrapper is None or workload is None:
            return
        if is_of_another_part(wrapper, workload, self._wrappers):
            return
        if must_delete_left(wrapper, workload):
            await self._delete(wrapper, workload)

    async def _delete(self, wrapper: Object, workload: Object) -> None:
        """Delete the Workload; :mod:`.reservations` keeps it while its quota is in use."""
        key = key_of(workload)
        if not await self._client.delete(self.workload, key, uid=uid_of(workload)):
            return
        if is_deleting(wrapper):
            cause = "is being deleted"
        elif has_left(wrapper, workload):
            cause = "has left the operator"
        elif not is_managed_here(wrapper):
            cause = "has another managedBy"
        elif has_queue(wrapper):
            cause = "was changed without validation"
        else:
            cause = "has left its queue"
        message = f"Deleted Workload: {key}, because the AppWrapper {cause}"
        self._events.event(wrapper, "Normal", "DeletedWorkload", message)

    def _report_inadmissible(self, request: Request, wrapper: Object, workload: Object) -> None:
        """Record an Event, once, if Kueue cannot admit the Workload at all, such as without its LocalQueue."""
        message = inadmissible_message(workload)
        if message is None:
            self._reported.pop(request, None)
        else:
            self._report_once(request, wrapper, INADMISSIBLE, message)

    def _report_once(self, request: Request, wrapper: Object, reason: str, message: str) -> None:
        """Record a Warning Event, unless it is the same as the last one of the AppWrapper."""
        report = (uid_of(wrapper), message)
        if self._reported.get(request) != report:
            self._reported[request] = report
            self._events.event(wrapper, "Warning", reason, message)

    async def _workload_of(self, wrapper: Mapping[str, Any]) -> Object | None:
        """Return the Workload of an AppWrapper, if it has one; it is read live if the cache may leave it out."""
        key = NamespacedName(namespace_of(wrapper), workload_name(wrapper))
        entry = await stored_or_live(self._client, self._workloads, key)
        workload = entry.object() if entry is not None else None
        return workload if workload is not None and is_controlled_by(workload, wrapper) else None

    async def _create(self, wrapper: Object) -> Result:
        if has_prebuilt_workload(wrapper):
            # A second Workload would ask for its quota twice.
            message = "Only Kueue's own integration of AppWrappers uses a Workload that exists, such as MultiKueue's"
            self._events.event(wrapper, "Warning", "PrebuiltWorkload", message)
            return Result()
        try:
            # What can be read now can be read as long as there is a quota to release: components cannot change.
            components_of(wrapper)
            priority = await self._priority(wrapper)
            desired = desired_workload(wrapper, self.workload, priority, self._selector)
            created = await self._client.create(desired)
        except PodSetError as error:
            self._events.event(wrapper, "Warning", "InvalidPodSets", str(error))
            return Result()
        except AlreadyExists:
            message = f"Workload {workload_name(wrapper)} already exists and does not belong to this AppWrapper"
            self._events.event(wrapper, "Warning", "WorkloadNameTaken", message)
            return Result(requeue_after=_RETRY_SECONDS)
        except Invalid as error:
            # The components cannot change, but policies, webhooks and Kueue's CRD can.
            message = printable(error.message, _MAX_MESSAGE)
            self._events.event(wrapper, "Warning", "InvalidWorkload", message)
            return Result(requeue_after=_INVALID_RETRY_SECONDS)
        self._events.event(
            wrapper, "Normal", "CreatedWorkload", f"Created Workload: {key_of(created)}"
        )
        return Result()

    async def _priority(self, wrapper: Object) -> WorkloadPriority:
        """Return the priority of the class in the AppWrapper's label, else of the pods' class, else no priority."""
        name = labels_of(wrapper).get(PRIORITY_CLASS_LABEL, "")
        if name:
            kind = GVK(_GROUP, self.workload.version, "WorkloadPriorityClass")
            found = await self._client.get(kind, NamespacedName("", name))
            if found is not None:
                return _priority_of_class(kind, name, found)
            self._events.event(
                wrapper,
                "Warning",
                "PriorityClassMissing",
                f"WorkloadPriorityClass {name} does not exist",
            )
        without_priority = desired_workload(wrapper, self.workload, WorkloadPriority())
        for pod_set in without_priority["spec"]["podSets"]:
            name = pod_set["template"]["spec"].get("priorityClassName") or ""
            if not name:
                continue
            found = await self._client.get(PRIORITY_CLASS, NamespacedName("", name))
            if found is not None:
                return _priority_of_class(PRIORITY_CLASS, name, found)
        return WorkloadPriority()

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
        try:
            await self._write_spec(wrapper, None, suspend=True)
        except Invalid:
            # Only without validation can users remove components. It must end nevertheless.
            await self._client.patch_object(wrapper, {"spec": {"suspend": True}})
        self._events.event(wrapper, "Normal", "Stopped", message)

    async def _write_spec(
        self, wrapper: Object, infos: list[list[Object]] | None, *, suspend: bool
    ) -> None:
        """Suspend or resume the AppWrapper; set ``podSetInfos`` of its components to ``infos``, or remove them.

        Its resourceVersion is no precondition: a user who changes an annotation again and again could keep the quota
        that an eviction must release.
        """
        changes = spec_changes(wrapper, infos, suspend=suspend)
        await self._client.patch(
            APPWRAPPER, key_of(wrapper), changes, PatchType.JSON, uid=uid_of(wrapper)
        )

    async def _patch_status(self, workload: Object, status: Mapping[str, Any]) -> None:
        """Patch a Workload's status with its resourceVersion as a precondition, because Kueue also writes it.

        An empty ``status`` changes nothing.
        """
        if not status:
            return
        try:
            await self._client.patch_object(
                workload, {"status": status}, unchanged=True, subresource="status"
            )
        except NotFound:
            _log.debug("Workload was deleted", workload=str(key_of(workload)))


def setup(manager: Manager, workload: GVK) -> KueueReconciler:
    """Add the controller of Workloads, of version ``workload``, to ``manager``; return its reconciler."""
    reconciler = KueueReconciler(manager, workload)
    builder = Builder(manager, reconciler.name).for_(APPWRAPPER, ResourceVersionChanged())
    builder.owns(workload, on_update(lambda _, changed: reconciler.may_follow(changed)))
    builder.reads(reconciler.flavors).complete(reconciler)
    return reconciler


def _index_wrapper(workload: Entry) -> list[str]:
    """Return the namespace and name of the AppWrapper that controls a Workload."""
    controller = workload.meta.controller
    if controller is None or controller.kind != APPWRAPPER.kind:
        return []
    return [str(NamespacedName(workload.namespace, controller.name))]


def _priority_of_class(kind: GVK, name: str, priority_class: Object) -> WorkloadPriority:
    return WorkloadPriority(kind.group, kind.kind, name, int(priority_class.get("value") or 0))
