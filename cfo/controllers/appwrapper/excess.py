"""What follows if pods run that no queue has admitted: more than admitted, or after the quota was returned.

Pure functions of what is observed now, not of what a condition says: other failures replace that, and pods can be
created in each phase, also while components are being deleted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cfo.api.appwrapper.names import UNHEALTHY, has_quota
from cfo.controllers.appwrapper.decision import (
    EXCESS,
    EXCESS_GRACE,
    MAX_SHOWN_COMPONENTS,
    WrapperDecision,
    WrapperObservation,
)
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.retries import limited_by_readiness, reset_or_fail
from cfo.controllers.appwrapper.workload import is_finished

EXCESS_RETRIES: Final = 3
"""How many retries are allowed at most if a component has more pods than were admitted."""


def unadmitted_pods_message(observation: WrapperObservation) -> str:
    """Return which pods run without quota, such as more than were admitted; empty if none does.

    A finished Workload holds no quota: Kueue finishes one that another job takes over after a user has orphaned it.
    """
    if not observation.is_queued:
        return ""
    workload = observation.workload
    is_returned = workload is not None and is_finished(workload)
    if has_quota(observation.wrapper) and not is_returned:
        return excess_message(observation)
    pods = len(own_pods_with_resources(observation))
    return f"{pods} pods run after the quota was returned" if pods else ""


def own_pods_with_resources(observation: WrapperObservation) -> list[WrapperPod]:
    """Return the pods that descend from the AppWrapper and may use resources of a node."""
    return [pod for pod in observation.pods if pod.ancestor and pod.holds_resources]


def counted_pods(active: int, ending: int, admitted: int) -> int:
    """Return how many pods need quota of those that are ``active``, and those whose deletion has begun.

    As many as ``admitted`` may be ending in addition, because their controllers replace them at once. More of them
    count: users choose how long their pods take to end.
    """
    return active + max(0, ending - admitted)


def excess_message(observation: WrapperObservation) -> str:
    """Return which components have more pods than their queue admitted; empty if none has.

    Other pods that descend from the AppWrapper count as well (:func:`counted_pods`); they can be those of components
    whose creation is not recorded yet.
    """
    if not observation.is_queued:
        return ""
    holding = own_pods_with_resources(observation)
    active = Counter(pod.ancestor for pod in holding if not pod.deleting)
    ending = Counter(pod.ancestor for pod in holding if pod.deleting)
    found: list[str] = []
    recorded: set[str] = set()
    unrecorded = 0
    for component, obj in zip(observation.components, observation.objects, strict=True):
        uid = component.uid or (obj.uid if obj is not None else "")
        admitted = component.admitted_pods
        if not uid:
            unrecorded += admitted
            continue
        recorded.add(uid)
        pods = counted_pods(active[uid], ending[uid], admitted)
        if pods > admitted:
            found.append(
                f"{component.display_name} has {pods} pods, but its queue admitted {admitted}"
            )
    # Those that are being deleted by force may remain from an earlier attempt.
    others = [pod for pod in holding if pod.ancestor not in recorded and not pod.forced]
    if len(others) > unrecorded:
        message = f"{len(others)} pods are of no component, but its queue admitted {unrecorded}"
        found.insert(0, message)
    return "; ".join(found[:MAX_SHOWN_COMPONENTS])


def tolerate_excess(
    observation: WrapperObservation, decision: WrapperDecision, message: str
) -> None:
    """Report more pods than were admitted, and reset or fail the AppWrapper if they remain for too long."""
    status = decision.status
    is_reported = status.is_true(UNHEALTHY) and status.reason(UNHEALTHY) == EXCESS
    status.set(UNHEALTHY, True, EXCESS, message, restart=True)
    grace = min(observation.settings.failure_grace, EXCESS_GRACE)
    deadline = limited_by_readiness(observation, status, status.last_transition(UNHEALTHY) + grace)
    if observation.now < deadline:
        if not is_reported:
            decision.record_warning(
                EXCESS,
                f"{message}; unless it is scaled back, all pods are deleted at {deadline:%H:%M:%S} UTC",
            )
        decision.requeue_at(deadline)
        return
    decision.record_warning(UNHEALTHY, f"{EXCESS}: {message}")
    reset_or_fail(observation, decision, max_retries=EXCESS_RETRIES)
