"""For how long an AppWrapper keeps the quota of its queue without pods that request it: pure functions.

Its user chooses grace periods, the number of retries, and what keeps pods from being created, such as a ResourceQuota.
All of these together must not keep quota that no pod requests, so the total of that time has a limit, which only
administrators set. It begins again when the pods have run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from cfo.api.appwrapper.names import DELETING_RESOURCES, PODS_READY, Phase, has_quota
from cfo.api.appwrapper.pod_use import LeastUse
from cfo.api.pod_requests import requested_of, requests_of_pod
from cfo.controllers.appwrapper.decision import (
    COUNTED_PHASES,
    WrapperObservation,
    has_unknown_owners,
    own_pods_from,
)
from cfo.controllers.appwrapper.pod_use import is_of_one, uses_of
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.status import is_true


class QuotaUse(Enum):
    """Whether the own pods of an AppWrapper request what was admitted."""

    NONE = auto()
    """It has no quota, or no pods need it."""
    RUNNING = auto()
    """Its pods are ready, so they requested all that was admitted, and one of them runs; others may have succeeded."""
    REQUESTED = auto()
    """Its pods request some of each resource, also if they wait for a node or an image."""
    UNUSED = auto()
    """There is a resource of which no pod that runs or waits requests anything."""
    UNKNOWN = auto()
    """Its pods are not all known."""


class UnusedQuota(msgspec.Struct, frozen=True):
    """For how long the AppWrapper ``wrapper_uid`` has kept quota that its pods do not request.

    ``since``: when that began, if its pods did not request it when they were known last. ``before``: the total of
    earlier times, since its admission or since its pods were ready and one ran.
    """

    wrapper_uid: str
    since: datetime | None = None
    before: timedelta = timedelta(0)

    def after(self, use: QuotaUse, now: datetime) -> UnusedQuota:
        """Return what follows at the time ``now``."""
        match use:
            case QuotaUse.NONE | QuotaUse.RUNNING:
                return UnusedQuota(self.wrapper_uid)
            case QuotaUse.REQUESTED if self.since is not None:
                total = self.before + max(now - self.since, timedelta(0))
                return UnusedQuota(self.wrapper_uid, None, total)
            case QuotaUse.UNUSED if self.since is None:
                return UnusedQuota(self.wrapper_uid, now, self.before)
        return self

    def ends_at(self, limit: timedelta) -> datetime | None:
        """Return when the limit is reached; ``None`` while the pods request the quota."""
        if self.since is None:
            return None
        return self.since + max(limit - self.before, timedelta(0))


def use_of_quota(observation: WrapperObservation) -> QuotaUse:
    """Return whether the pods of an AppWrapper of a queue request what was admitted for its unfinished components."""
    if not observation.is_queued or not has_quota(observation.wrapper):
        return QuotaUse.NONE
    unfinished = [
        component
        for component, obj in zip(observation.components, observation.objects, strict=True)
        if obj is None or not obj.completed
    ]
    if not any(component.expected_pods for component in unfinished):
        return QuotaUse.NONE
    if observation.knowledge.lacks_pods:
        return QuotaUse.UNKNOWN
    pods = [pod for pod in observation.pods if pod.holds_resources]
    if pods and not _are_owners_known(observation):
        return QuotaUse.UNKNOWN
    if not has_unknown_owners(unfinished):
        pods = [pod for pod in pods if pod.ancestor]
    uses = uses_of(observation, unfinished)
    is_ready = is_true(observation.wrapper["status"]["conditions"], PODS_READY)
    if is_ready and any(pod.runs and pod.is_read and _is_of_one(uses, pod) for pod in pods):
        return QuotaUse.RUNNING
    if not pods:
        return QuotaUse.UNUSED
    unrequested = {name for use in uses for name in use.requests}
    for pod in pods:
        if not pod.is_read:
            return QuotaUse.UNKNOWN
        if not unrequested:
            break
        requests = requests_of_pod(pod.shape)
        unrequested = {name for name in unrequested if not requested_of(requests, name)}
    return QuotaUse.UNUSED if unrequested else QuotaUse.REQUESTED


def _is_of_one(uses: Sequence[LeastUse], pod: WrapperPod) -> bool:
    """Return whether a pod requests what one of the templates does, if any of them requests something."""
    return not uses or is_of_one(uses, pod)


def _are_owners_known(observation: WrapperObservation) -> bool:
    """Return whether the owners of the pods with the label were read (:mod:`.observer`)."""
    status = observation.wrapper["status"]
    if is_true(status["conditions"], DELETING_RESOURCES):
        own_from = own_pods_from(observation, observation.status())
        return own_from is not None and observation.now >= own_from
    return Phase(status["phase"]) in COUNTED_PHASES
