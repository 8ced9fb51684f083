"""For how long an AppWrapper keeps the quota of its queue without pods that request it: pure functions.

Its user chooses grace periods, the number of retries, and what keeps pods from being created, such as a ResourceQuota.
All of these together must not keep quota that no pod requests, so the total of that time has a limit, which only
administrators set. It counts while the Workload holds quota, whatever the phase is: users can suspend an AppWrapper at
any time, and its Workload stays admitted. It begins again when the pods have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Any

import msgspec

from cfo.api.appwrapper.names import PODS_READY, RESOURCES_DEPLOYED, Phase, has_quota
from cfo.api.appwrapper.pod_use import LeastUse
from cfo.api.pod_requests import requested_of, requests_of_pod
from cfo.controllers.appwrapper.component_deletion import (
    has_unknown_owners,
    may_be_own,
    own_pods_from,
)
from cfo.controllers.appwrapper.components import Component
from cfo.controllers.appwrapper.decision import WrapperObservation
from cfo.controllers.appwrapper.pod_knowledge import UNKNOWN_LIMIT, PodKnowledge
from cfo.controllers.appwrapper.pod_use import is_of_one, uses_of
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.workload import holds_quota


class QuotaUse(Enum):
    """Whether the own pods of an AppWrapper request what was admitted."""

    NONE = auto()
    """It has no quota, or no pods need it."""
    SUSPENDED = auto()
    """It is suspended, and its Workload is not known: Kueue may keep its quota, and resume it."""
    RUNNING = auto()
    """Its pods are ready, so they requested all that was admitted, and one of them runs; others may have succeeded."""
    REQUESTED = auto()
    """Its pods request some of each resource, also if they wait for a node or an image."""
    UNUSED = auto()
    """No pod that is known to run or wait requests some of a resource."""
    NOT_KNOWN_YET = auto()
    """The cache leaves out its pods, or their owners are not read yet: for a while, what was known last applies."""
    UNKNOWN = auto()
    """Pods that may be its own have owners that were deleted: for some minutes of a deletion."""


class UnusedQuota(msgspec.Struct, frozen=True):
    """For how long the AppWrapper ``wrapper_uid`` has kept quota that its pods do not request.

    ``since``: when that began, in seconds of a clock that is not stepped, if its pods did not request it when they were
    known last. ``before``: the total of earlier times, since its admission or since its pods were ready and one ran.
    """

    wrapper_uid: str
    since: float | None = None
    before: timedelta = timedelta(0)

    def after(self, use: QuotaUse, now: float) -> UnusedQuota:
        """Return what follows at the time ``now``, in seconds of the same clock."""
        match use:
            case QuotaUse.NONE | QuotaUse.RUNNING:
                return UnusedQuota(self.wrapper_uid)
            case QuotaUse.REQUESTED | QuotaUse.SUSPENDED if self.since is not None:
                total = self.before + timedelta(seconds=now - self.since)
                return UnusedQuota(self.wrapper_uid, None, total)
            case QuotaUse.UNUSED if self.since is None:
                return UnusedQuota(self.wrapper_uid, now, self.before)
        return self

    def ends_at(self, limit: timedelta) -> float | None:
        """Return when the limit is reached, in seconds; ``None`` while the pods request the quota."""
        if self.since is None:
            return None
        return self.since + max(limit - self.before, timedelta(0)).total_seconds()


def use_of_quota(observation: WrapperObservation) -> QuotaUse:
    """Return whether the pods of an AppWrapper of a queue request what was admitted for its unfinished components.

    What is not proved is not requested: users can create pods faster than they are read.
    """
    if not _has_quota(observation):
        return _use_without_quota(observation)
    components = _components_with_quota(observation)
    if not components:
        return QuotaUse.NONE
    pods = _own_pods(observation, components)
    if pods is None:
        return QuotaUse.UNKNOWN
    conditions = _stored_status(observation).get("conditions")
    # Without components, it has no pods.
    if observation.knowledge is PodKnowledge.LEFT_OUT and is_true(conditions, RESOURCES_DEPLOYED):
        return QuotaUse.NOT_KNOWN_YET
    pods = [pod for pod in pods if pod.is_read]
    uses = uses_of(observation, components)
    is_ready = is_true(conditions, PODS_READY)
    if is_ready and any(pod.runs and _is_of_one(uses, pod) for pod in pods):
        return QuotaUse.RUNNING
    if pods and _request_each_resource(uses, pods):
        return QuotaUse.REQUESTED
    return QuotaUse.NOT_KNOWN_YET if _are_owners_known_soon(observation) else QuotaUse.UNUSED


def _are_owners_known_soon(observation: WrapperObservation) -> bool:
    """Return whether pods have owners that are not known, but were a short time ago."""
    if observation.knowledge is not PodKnowledge.OWNERS_UNKNOWN:
        return False
    since = observation.owners_unknown_since or observation.now
    return observation.now < since + UNKNOWN_LIMIT


def _use_without_quota(observation: WrapperObservation) -> QuotaUse:
    is_suspended = _stored_status(observation).get("phase") == Phase.SUSPENDED
    is_unknown = is_suspended and observation.workload is None
    return QuotaUse.SUSPENDED if is_unknown else QuotaUse.NONE


def _stored_status(observation: WrapperObservation) -> Mapping[str, Any]:
    return observation.wrapper.get("status") or {}


def _components_with_quota(observation: WrapperObservation) -> Sequence[Component]:
    """Return the components whose pods must request what was admitted for them.

    If all have completed, and the quota is kept for pods that remain, these are all.
    """
    components = [component for component in observation.components if component.expected_pods]
    unfinished = []
    for component in components:
        obj = observation.objects[component.index]
        if obj is None or not obj.completed:
            unfinished.append(component)
    return unfinished or components


def _own_pods(
    observation: WrapperObservation, components: Sequence[Component]
) -> Sequence[WrapperPod] | None:
    """Return the pods of the AppWrapper that run or wait; ``None`` while that is not known."""
    pods = [pod for pod in observation.pods if _can_run(pod)]
    if has_unknown_owners(components):
        return pods
    if any(map(may_be_own, pods)) and not _are_owners_known(observation):
        return None
    return [pod for pod in pods if pod.ancestor]


def _request_each_resource(uses: Iterable[LeastUse], pods: Iterable[WrapperPod]) -> bool:
    """Return whether ``pods`` together request some of each resource of ``uses``."""
    unrequested: set[str] = set()
    for use in uses:
        unrequested.update(use.requests)
    for pod in pods:
        if not unrequested:
            break
        requests = requests_of_pod(pod.shape)
        unrequested = {name for name in unrequested if not requested_of(requests, name)}
    return not unrequested


def _has_quota(observation: WrapperObservation) -> bool:
    """Return whether an AppWrapper has been admitted, and its quota was not given back since."""
    if not observation.is_queued:
        return False
    workload = observation.workload
    if workload is None:
        return has_quota(observation.wrapper)
    if not holds_quota(workload):
        return False
    # Before the admission, Kueue's admission checks may take any time, such as to provide nodes.
    conditions = workload["status"].get("conditions")
    return has_quota(observation.wrapper) or is_true(conditions, "Admitted")


def _can_run(pod: WrapperPod) -> bool:
    """Return whether a pod runs or waits: one that is being deleted, and has no node, never gets one."""
    return pod.holds_resources and (pod.has_node or not pod.deleting)


def _is_of_one(uses: Sequence[LeastUse], pod: WrapperPod) -> bool:
    """Return whether a pod requests what one of the templates does, if any of them requests something."""
    return not uses or is_of_one(uses, pod)


def _are_owners_known(observation: WrapperObservation) -> bool:
    """Return whether pods with the label and without known owners are those of others.

    In a deletion they can be own ones, whose owners were deleted before this process started.
    """
    own_from = own_pods_from(observation, observation.status())
    return own_from is None or observation.now >= own_from
