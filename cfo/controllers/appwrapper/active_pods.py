"""The active pods of a namespace, by the AppWrapper from which they descend, or may descend.

For Workloads whose AppWrapper no longer exists. Uids prove from which AppWrapper a pod descends: that of the
AppWrapper, if its owners lead there, or those that were known before. The garbage collector may have deleted owners as
well. So there are hints: an owner that no longer exists, and the AppWrapper's label. Any user can create pods with all
of these, so each keeps quota only for a limited time (:mod:`.reservations`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from enum import Enum, auto
from typing import Final

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.controllers.appwrapper.owners import MAX_DEPTH, read_owner
from cfo.controllers.appwrapper.pods import time_or_none
from cfo.controllers.pod_lists import PodMeta, list_pods_that_can_run
from cfo.runtime import (
    GVK,
    Client,
    Clock,
    Forbidden,
    NamespacedName,
    UnknownKind,
    controller_of,
)
from cfo.runtime.cache import OwnerReference

_INTERVAL: Final = 10.0
"""The least seconds between two lists of a namespace, for all Workloads that wait there."""

_RUNNING_SECONDS: Final = 0.1
"""How long to wait at least for a list that another reconcile has begun."""

_MAX_RESOLVED: Final = 200
"""How many controllers of pods are resolved for one list; the others after the next list."""


class _End(Enum):
    """Where the owners of a pod end."""

    WRAPPER = auto()
    """With an AppWrapper that exists."""
    LOST_WRAPPER = auto()
    """With an AppWrapper that no longer exists."""
    LOST = auto()
    """With an owner that no longer exists."""
    OTHER = auto()
    """With another object, or with one of a kind that the operator cannot read."""


class _Lineage(msgspec.Struct, frozen=True):
    """The end of the owners of a pod; ``wrapper_uid`` is that of the AppWrapper, if it ends with one."""

    end: _End
    wrapper_uid: str = ""


_NO_OWNER: Final = _Lineage(_End.OTHER)


class _LostPod(msgspec.Struct, frozen=True):
    """A pod that has an owner which no longer exists."""

    created_at: datetime
    name: str


class ActivePods(msgspec.Struct):
    """The active pods of a namespace that run, or can run.

    Two fields prove owners: ``by_wrapper_uid`` has the pods whose owners lead to an AppWrapper, and ``by_uid`` has all
    by their uid and by their controller's. The others are hints: ``by_label`` has the name of a pod without such owners
    by its label, ``lost`` the pods with an owner that no longer exists, ordered by creation, and ``unresolved`` the
    name of a pod whose owners are not known yet.
    """

    by_wrapper_uid: dict[str, list[PodMeta]] = {}
    by_uid: dict[str, list[PodMeta]] = {}
    by_label: dict[str, str] = {}
    lost: list[_LostPod] = []
    unresolved: str = ""

    def descendants(self, wrapper_uid: str, known_uids: Iterable[str]) -> list[PodMeta]:
        """Return the pods that descend from an AppWrapper; ``known_uids`` are those of its pods and of their owners."""
        found = {pod.uid: pod for pod in self.by_wrapper_uid.get(wrapper_uid, ())}
        for uid in known_uids:
            for pod in self.by_uid.get(uid, ()):
                found[pod.uid] = pod
        return list(found.values())

    def candidate(self, wrapper_name: str, earliest: datetime | None, latest: datetime) -> str:
        """Return the name of a pod that may descend from an AppWrapper; empty if none does.

        All pods of the AppWrapper were created between ``earliest``, if that is known, and ``latest``.
        """
        labelled = self.by_label.get(wrapper_name)
        if labelled:
            return labelled
        first = 0
        if earliest is not None:
            first = bisect_left(self.lost, earliest, key=lambda pod: pod.created_at)
        if first < len(self.lost) and self.lost[first].created_at <= latest:
            return self.lost[first].name
        return self.unresolved

    def add(self, pod: PodMeta, lineage: _Lineage) -> None:
        """Add an active pod whose owners end with ``lineage``."""
        if lineage.wrapper_uid:
            self.by_wrapper_uid.setdefault(lineage.wrapper_uid, []).append(pod)
        if lineage.end in (_End.LOST, _End.LOST_WRAPPER):
            created_at = time_or_none(pod.creation_timestamp)
            if created_at is None:
                self.unresolved = pod.name
            else:
                self.lost.append(_LostPod(created_at, pod.name))
        if lineage.end is not _End.WRAPPER and pod.labels is not None and pod.labels.wrapper:
            self.by_label[pod.labels.wrapper] = pod.name


class _Namespace(msgspec.Struct):
    """A namespace in which ``waiting`` Workloads wait; ``pods`` is what the list found that began at ``listed_at``."""

    waiting: int = 0
    is_running: bool = False
    listed_at: float | None = None
    pods: ActivePods = msgspec.field(default_factory=ActivePods)
    lineages: dict[str, _Lineage] = {}


class NamespacePods:
    """Lists the active pods of namespaces in which Workloads wait, each at most every 10 s."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._namespaces: dict[str, _Namespace] = {}

    def add_waiting(self, namespace: str) -> None:
        """Count one more Workload that waits in ``namespace``."""
        self._namespaces.setdefault(namespace, _Namespace()).waiting += 1

    def remove_waiting(self, namespace: str) -> None:
        """Count one Workload less; a namespace without any is forgotten."""
        state = self._namespaces[namespace]
        state.waiting -= 1
        if state.waiting == 0:
            del self._namespaces[namespace]

    async def read(self, namespace: str, since: float) -> ActivePods | None:
        """Return the pods of a list that began at or after the time ``since``; ``None``: ask again later.

        Raises the errors of API requests.
        """
        state = self._namespaces[namespace]
        if state.listed_at is not None and state.listed_at >= since and not state.is_running:
            return state.pods
        if state.is_running or self._pause(state) > 0.0:
            return None
        state.is_running = True
        state.listed_at = self._clock.monotonic()
        try:
            state.pods = await self._list(namespace, state)
        except BaseException:
            state.listed_at = None
            raise
        finally:
            state.is_running = False
        return state.pods

    def retry_after(self, namespace: str, since: float) -> float:
        """Return the seconds after which to ask again for a list that began at or after the time ``since``."""
        state = self._namespaces[namespace]
        if state.listed_at is not None and state.listed_at >= since:
            return _RUNNING_SECONDS
        return max(self._pause(state), _RUNNING_SECONDS)

    def _pause(self, state: _Namespace) -> float:
        """Return the seconds until the namespace may be listed again."""
        if state.listed_at is None:
            return 0.0
        return state.listed_at + _INTERVAL - self._clock.monotonic()

    async def _list(self, namespace: str, state: _Namespace) -> ActivePods:
        pods = ActivePods()
        resolved: dict[str, _Lineage] = {}
        reads = 0
        for pod in await list_pods_that_can_run(self._client, namespace):
            pods.by_uid.setdefault(pod.uid, []).append(pod)
            controller = pod.controller
            if controller is None:
                pods.add(pod, _NO_OWNER)
                continue
            pods.by_uid.setdefault(controller.uid, []).append(pod)
            lineage = resolved.get(controller.uid) or state.lineages.get(controller.uid)
            if lineage is None:
                if reads == _MAX_RESOLVED:
                    pods.unresolved = pod.name
                    continue
                reads += 1
                lineage = await self._lineage_of(controller, namespace)
            resolved[controller.uid] = lineage
            pods.add(pod, lineage)
        pods.lost.sort(key=lambda pod: pod.created_at)
        state.lineages = resolved
        return pods

    async def _lineage_of(self, controller: OwnerReference, namespace: str) -> _Lineage:
        """Return the end of the owners of a pod with this controller. Raises the errors of API requests."""
        gvk = GVK.parse(controller.api_version, controller.kind)
        name = controller.name
        uid = controller.uid
        for _ in range(MAX_DEPTH):
            is_wrapper = (gvk.group, gvk.kind) == (APPWRAPPER.group, APPWRAPPER.kind)
            try:
                obj = await read_owner(self._client, gvk, NamespacedName(namespace, name), uid)
            except (UnknownKind, Forbidden, ValueError):
                return _Lineage(_End.OTHER)
            if is_wrapper:
                end = _End.LOST_WRAPPER if obj is None else _End.WRAPPER
                return _Lineage(end, uid)
            if obj is None:
                return _Lineage(_End.LOST)
            owner = controller_of(obj)
            if owner is None:
                return _Lineage(_End.OTHER)
            gvk = GVK.parse(owner.get("apiVersion") or "", owner.get("kind") or "")
            name = owner.get("name") or ""
            uid = owner.get("uid") or ""
        return _Lineage(_End.OTHER)
