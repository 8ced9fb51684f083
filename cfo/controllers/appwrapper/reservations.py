"""Keeps the Workload of an AppWrapper until the pods that use its quota have ended.

Users can delete an AppWrapper so that the garbage collector deletes its Workload at once, such as in the foreground, or
after they removed its finalizer. So the Workload, which users cannot write, has a finalizer of its own. It is removed
at once if the Workload holds no quota. Otherwise it is removed, while the AppWrapper exists, when that has released its
quota (:mod:`.reconciler`), and later when no active pod descends, or may descend, from the AppWrapper
(:mod:`.active_pods`).

The finalizer keeps the Workload, but not its owner: users can orphan it, and Kueue finishes a Workload that another job
takes over. So while its quota may be in use, the AppWrapper is made its controller again, also if it no longer exists.

A reservation without its AppWrapper ends no later than with it. Its grace period begins when the Workload is deleted,
or earlier, when Kueue evicts it; both times are in the Workload, as is the AppWrapper's annotation. After it, pods that
descend from the AppWrapper by uids are deleted by force, as of an existing one, and only they keep the quota, for a
limited time: users can choose uids of owners as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    APPWRAPPER_UID_LABEL,
    PODS_READY,
    QUOTA_FINALIZER,
    QUOTA_RESERVED,
    has_quota,
    workload_name,
)
from cfo.config.appwrapper import FaultToleranceConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.active_pods import ActivePods
from cfo.controllers.appwrapper.component_deletion import (
    LAST_CREATION,
    LEAST_GRACE,
    forced_deletions,
    forced_event,
    holds_after_grace,
    limited_grace,
)
from cfo.controllers.appwrapper.deletions import DELETIONS_PER_STEP, delete_objects
from cfo.controllers.appwrapper.excess import counted_pods
from cfo.controllers.appwrapper.namespace_pods import NamespacePods, listed_pod
from cfo.controllers.appwrapper.pods import time_or_none
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.workload import (
    controller_patch,
    evicted_at,
    holds_quota,
    is_of_another_part,
)
from cfo.controllers.left_out import stored_or_live
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime import (
    GVK,
    Builder,
    Client,
    EnqueueRequestsFromMapFunc,
    Entry,
    Event,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Request,
    Result,
    annotations_of,
    controller_of,
    find_condition,
    gvk_of,
    has_finalizer,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    set_finalizer,
    uid_of,
)
from cfo.runtime.cache import controller_key
from cfo.runtime.objects import parse_time

_log = structlog.get_logger("cfo.controllers.appwrapper.reservations")

_MAX_RELEASED: Final = 4096
"""How many AppWrappers are remembered that have released their quota, until their Workloads are deleted."""


class Reservations:
    """The Workloads of AppWrappers, and what is known of AppWrappers that are deleted before them.

    All that is known is forgotten when the Workload is deleted. Workloads that ``workloads`` leaves out are read with
    ``client``.
    """

    def __init__(self, client: Client, workloads: Informer) -> None:
        self._client = client
        self.workloads = workloads
        self._released: dict[NamespacedName, None] = {}
        self._pods: dict[NamespacedName, Collection[str]] = {}

    async def release(self, wrapper: Object) -> None:
        """Remember that no pod of an AppWrapper uses quota, as was proved before its finalizer is removed.

        Raises the errors of API requests.
        """
        workload = await self._workload_of(key_of(wrapper), uid_of(wrapper))
        if workload is not None:
            self.release_workload(workload.key)

    async def delete_workload(self, wrapper: Object) -> None:
        """Delete the Workload of an AppWrapper of which no pod uses quota. Raises the errors of API requests."""
        workload = await self._workload_of(key_of(wrapper), uid_of(wrapper))
        if workload is None:
            return
        self.release_workload(workload.key)
        if not workload.meta.is_deleting:
            await self._client.delete(self.workloads.gvk, workload.key, uid=workload.meta.uid)

    def release_workload(self, workload: NamespacedName) -> None:
        """Remember that no pod uses the quota of a Workload."""
        self._released[workload] = None
        while len(self._released) > _MAX_RELEASED:
            self._released.pop(next(iter(self._released)))

    async def keep_pods(
        self, wrapper: NamespacedName, wrapper_uid: str, known: Collection[str]
    ) -> None:
        """Keep what is known of the pods of an AppWrapper that no longer exists. Raises the errors of API requests.

        ``known`` has the uids of pods, and of their owners, that descend from it.
        """
        workload = await self._workload_of(wrapper, wrapper_uid)
        if workload is not None:
            self._pods[workload.key] = known

    def is_released(self, workload: NamespacedName) -> bool:
        """Return whether the AppWrapper of a Workload has released its quota."""
        return workload in self._released

    def known_uids(self, workload: NamespacedName) -> Collection[str]:
        """Return the uids of pods, and of their owners, that are known to descend from the AppWrapper."""
        return self._pods.get(workload, ())

    def forget(self, workload: NamespacedName) -> None:
        """Forget a Workload that was deleted."""
        self._released.pop(workload, None)
        self._pods.pop(workload, None)

    async def read(self, workload: NamespacedName) -> Object | None:
        """Return a Workload, if it exists. Raises the errors of API requests."""
        entry = await stored_or_live(self._client, self.workloads, workload)
        return entry.object() if entry is not None else None

    async def _workload_of(self, wrapper: NamespacedName, wrapper_uid: str) -> Entry | None:
        """Return the Workload of an AppWrapper, if it exists; users can have removed its owner."""
        identity = {"metadata": {"name": wrapper.name, "uid": wrapper_uid}}
        key = NamespacedName(wrapper.namespace, workload_name(identity))
        entry = await stored_or_live(self._client, self.workloads, key)
        if entry is None or QUOTA_FINALIZER not in entry.meta.finalizers:
            return None
        return entry if entry.meta.labels.get(APPWRAPPER_UID_LABEL) == wrapper_uid else None


class _Waiting(msgspec.Struct):
    """A Workload that waits for the AppWrapper ``uid``, or for its pods in a list that it asked for at ``asked_at``.

    ``forced_since`` has, by uid of a pod, when it was deleted by force, or when that was seen first, in seconds of the
    monotonic clock.
    """

    uid: str
    asked_at: int
    forced_since: dict[str, float] = {}
    is_reported: bool = False


class ReservationReconciler:
    """Removes the finalizer of Workloads that are being deleted, and deletes those that have lost their owner.

    While the quota may be in use, neither happens, and the owner is restored.
    """

    name: Final = "appwrapper-reservation"

    def __init__(
        self,
        manager: Manager,
        client: Client,
        reservations: Reservations,
        fault_tolerance: FaultToleranceConfiguration,
        namespaces: NamespacePods,
    ) -> None:
        self._client = client
        self._fault_tolerance = fault_tolerance
        self._clock = manager.clock
        self._events = manager.events(self.name)
        self._reservations = reservations
        self._namespaces = namespaces
        self._wrappers = manager.cache.informer(APPWRAPPER).reader
        self._is_divided = bool(manager.options.selectors.get(APPWRAPPER))
        """Whether AppWrappers exist that the cache does not select."""
        self._waiting: dict[Request, _Waiting] = {}
        self._awaited: dict[str, dict[Request, None]] = {}
        """The Workloads that wait, by namespace and uid of the AppWrapper: several can have the label with its uid."""

    def waiting(self, wrapper: Entry) -> Iterable[Request]:
        """Return the Workloads that wait for the AppWrapper ``wrapper``."""
        return tuple(self._awaited.get(controller_key(wrapper.namespace, wrapper.meta.uid), ()))

    async def reconcile(self, request: Request) -> Result:
        """Remove the finalizer once no pod uses the quota. Raises the errors of API requests."""
        workload = await self._reservations.read(request)
        if workload is None:
            self._reservations.forget(request)
        if workload is None or not _is_left(workload):
            self._stop_waiting(request)
            return Result()
        if self._is_divided and await self._is_of_another_operator(workload):
            return Result()
        if not self._reservations.is_released(request):
            waiting = self._wait(request, labels_of(workload).get(APPWRAPPER_UID_LABEL, ""))
            wrapper = await self._wrapper_of(workload, waiting.uid)
            if wrapper is not None and has_quota(wrapper):
                await self._restore_controller(workload)
                return Result()  # the next event of the AppWrapper triggers another reconcile
            if wrapper is None and holds_quota(workload):
                await self._restore_controller(workload)
                if not is_deleting(workload):
                    # Its grace period begins, and the finalizer keeps it. Its next event triggers another reconcile.
                    await self._delete(workload)
                    return Result()
                namespace = request.namespace
                pods = await self._namespaces.read(namespace, waiting.asked_at)
                if pods is None or await self._is_in_use(request, workload, pods):
                    return Result(
                        requeue_after=self._namespaces.retry_after(namespace, waiting.asked_at)
                    )
        await self._release(workload)
        self._stop_waiting(request)
        return Result()

    async def _is_in_use(self, request: Request, workload: Object, pods: ActivePods) -> bool:
        """Return whether one of the active pods keeps the quota.

        Records an Event, once. After the grace period, deletes by force the pods that descend from the AppWrapper.
        """
        waiting = self._waiting[request]
        ancestors = dict.fromkeys(
            (waiting.uid, *self._reservations.known_uids(request)), waiting.uid
        )
        own = [each.pod for each in pods.own_pods(ancestors) if each.pod.uid not in pods.succeeded]
        settings = Settings.of(workload, self._fault_tolerance)
        excess = _excess_message(workload, own)
        grace = limited_grace(_grace_of(workload, settings), excess)
        ends_at = _release_began_at(workload) + grace
        if self._clock.now() >= ends_at:
            return await self._force_deletion(workload, waiting, own, grace, excess)
        waiting.asked_at = self._namespaces.ask(request.namespace)
        if own:
            end = f"until they end, such as {own[0].name}"
        else:
            ends_at = _release_began_at(workload) + min(grace, settings.unused_quota_limit)
            if self._clock.now() >= ends_at:
                return False
            earliest = time_or_none(workload["metadata"].get("creationTimestamp") or "")
            latest = _deleted_at(workload) + LAST_CREATION
            user = pods.candidate(_wrapper_name(workload), earliest, latest)
            if not user:
                return False
            end = f"until {ends_at:%Y-%m-%d %H:%M:%S} UTC, because {user} may be one of them"
        if not waiting.is_reported:
            waiting.is_reported = True
            message = f"The AppWrapper was deleted before its pods; keeping the quota {end}"
            self._events.event(workload, "Normal", "QuotaInUse", message)
        return True

    async def _force_deletion(
        self,
        workload: Object,
        waiting: _Waiting,
        own: Iterable[PodMeta],
        grace: timedelta,
        excess: str,
    ) -> bool:
        """Delete by force the first of the pods ``own`` that are not being deleted by force yet.

        ``excess``: which pods shorten the grace period ``grace``, if any do. Returns whether one of ``own`` keeps the
        quota.
        """
        now = self._clock.now()
        seconds = self._clock.monotonic()
        latest = _deleted_at(workload) + LAST_CREATION
        pods = [listed_pod(namespace_of(workload), pod, waiting.uid) for pod in own]
        forced_since: dict[str, float] = {}
        for pod in pods:
            if pod.forced or pod.uid in waiting.forced_since:
                forced_since[pod.uid] = waiting.forced_since.get(pod.uid, seconds)
        waiting.forced_since = forced_since
        deletions = forced_deletions(pod for pod in pods if pod.uid not in forced_since)
        step = deletions[:DELETIONS_PER_STEP]
        if step:
            notice = forced_event(step, grace, excess)
            self._events.event(workload, notice.type, notice.reason, notice.message)
            await delete_objects(self._client, step)
            forced_since.update({deletion.uid: seconds for deletion in step})
        if step == deletions:
            # Then the next list shows what remains.
            waiting.asked_at = self._namespaces.ask(namespace_of(workload))
        for pod in pods:
            since = forced_since.get(pod.uid)
            forced_at = now - timedelta(seconds=seconds - since) if since is not None else None
            if holds_after_grace(replace(pod, forced_since=forced_at), latest, now):
                return True
        return False

    async def _restore_controller(self, workload: Object) -> None:
        """Make the AppWrapper the controller of a Workload again, unless it is."""
        patch = controller_patch(workload)
        if patch:
            other = controller_of(workload) or {}
            _log.warning(
                "Workload has lost its controller, restoring it",
                workload=str(key_of(workload)),
                other_kind=other.get("kind", ""),
                other_name=other.get("name", ""),
            )
            await self._client.patch_object(workload, patch)

    async def _release(self, workload: Object) -> None:
        if is_deleting(workload):
            await set_finalizer(self._client, workload, QUOTA_FINALIZER, present=False)
            return
        # It has lost its owner, so the garbage collector does not delete it.
        self._reservations.release_workload(key_of(workload))
        await self._delete(workload)

    async def _delete(self, workload: Object) -> None:
        await self._client.delete(gvk_of(workload), key_of(workload), uid=uid_of(workload))

    async def _is_of_another_operator(self, workload: Object) -> bool:
        """Return whether another operator follows the AppWrapper of a Workload, so that it exists."""
        uid = labels_of(workload).get(APPWRAPPER_UID_LABEL, "")
        wrapper = await self._wrapper_of(workload, uid, live=True)
        return wrapper is not None and is_of_another_part(wrapper, workload, self._wrappers)

    async def _wrapper_of(self, workload: Object, uid: str, *, live: bool = False) -> Object | None:
        """Return the AppWrapper of a Workload, if it exists; unless ``live``, only if this operator reconciles it."""
        key = NamespacedName(namespace_of(workload), _wrapper_name(workload))
        wrapper = await self._client.get(APPWRAPPER, key, live=live)
        if wrapper is None or uid_of(wrapper) != uid:
            return None
        return wrapper

    def _wait(self, request: Request, uid: str) -> _Waiting:
        waiting = self._waiting.get(request)
        if waiting is None or waiting.uid != uid:
            self._stop_waiting(request)
            waiting = _Waiting(uid, self._namespaces.ask(request.namespace))
            self._waiting[request] = waiting
            self._awaited.setdefault(controller_key(request.namespace, uid), {})[request] = None
            self._namespaces.add_workload(request.namespace)
        return waiting

    def _stop_waiting(self, request: Request) -> None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            key = controller_key(request.namespace, waiting.uid)
            awaiting = self._awaited[key]
            del awaiting[request]
            if not awaiting:
                del self._awaited[key]
            self._namespaces.remove_workload(request.namespace)


def _is_left(workload: Object) -> bool:
    """Return whether a Workload with the finalizer is being deleted, or has lost its owner, also to another one."""
    if not has_finalizer(workload, QUOTA_FINALIZER):
        return False
    if is_deleting(workload) or controller_of(workload) is None:
        return True
    return bool(controller_patch(workload))


def _concerns(event: Event) -> bool:
    """Return whether an event is about a Workload with the finalizer that was deleted, or may be left."""
    if event.final_state_unknown:
        return True  # of one that was left out, only the name may be known
    current = event.current
    if current is None:
        return event.old is not None and QUOTA_FINALIZER in event.old.meta.finalizers
    meta = current.meta
    if QUOTA_FINALIZER not in meta.finalizers:
        return False
    if meta.is_deleting or meta.controller is None:
        return True
    return meta.controller.uid != meta.labels.get(APPWRAPPER_UID_LABEL)


def _wrapper_name(workload: Mapping[str, Any]) -> str:
    return annotations_of(workload).get(APPWRAPPER_LABEL, "")


def _deleted_at(workload: Mapping[str, Any]) -> datetime:
    """Return when the deletion of a Workload that is being deleted began."""
    return parse_time(workload["metadata"]["deletionTimestamp"])


def _grace_of(workload: Mapping[str, Any], settings: Settings) -> timedelta:
    """Return how long pods may take to end, as for an AppWrapper that is deleted before its Workload.

    If they are not ready, this ends with the time for which quota is kept without ready pods.
    """
    grace = settings.forceful_deletion_grace
    conditions = (workload.get("status") or {}).get("conditions")
    if is_true(conditions, PODS_READY):
        return grace
    known = [find_condition(conditions, kind) or {} for kind in (QUOTA_RESERVED, PODS_READY)]
    times = [time_or_none(condition.get("lastTransitionTime") or "") for condition in known]
    since = max((time for time in times if time is not None), default=None)
    if since is None:
        return grace
    rest = since + settings.grace_period_ceiling - _release_began_at(workload)
    return min(grace, max(rest, LEAST_GRACE))


def _excess_message(workload: Mapping[str, Any], own: Collection[PodMeta]) -> str:
    """Return that more pods than were admitted run or are ending; empty if not."""
    pod_sets = (workload.get("spec") or {}).get("podSets") or ()
    admitted = sum(pod_set.get("count", 1) for pod_set in pod_sets)
    ending = sum(pod.deletion_timestamp is not None for pod in own)
    pods = counted_pods(len(own) - ending, ending, admitted)
    return f"{pods} pods, but its queue admitted {admitted}" if pods > admitted else ""


def _release_began_at(workload: Mapping[str, Any]) -> datetime:
    """Return since when a Workload that is being deleted must give back its quota: its deletion or eviction."""
    deleted_at = _deleted_at(workload)
    evicted = evicted_at(workload)
    if evicted is None:
        return deleted_at
    return min(deleted_at, evicted)


def setup(
    manager: Manager,
    client: Client,
    workload: GVK,
    fault_tolerance: FaultToleranceConfiguration,
    namespaces: NamespacePods,
) -> Reservations:
    """Add the controller that removes the finalizer of Workloads, of version ``workload``, to ``manager``.

    ``fault_tolerance`` has the grace period of those without the annotation of their AppWrapper, and its maximum.
    ``namespaces`` lists pods. Returns what the controller of AppWrappers reports to it.
    """
    reservations = Reservations(client, manager.cache.informer(workload))
    reconciler = ReservationReconciler(manager, client, reservations, fault_tolerance, namespaces)
    builder = Builder(manager, reconciler.name).for_(workload, _concerns)
    builder.watches(APPWRAPPER, EnqueueRequestsFromMapFunc(reconciler.waiting)).complete(reconciler)
    return reservations
