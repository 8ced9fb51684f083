"""Whether the pods of an AppWrapper use the quota that its queue has given to it: pure functions.

A ResourceQuota, Pod Security or an image that does not exist can keep the pods of a component from running, while pods
that its user creates with the same owner run, or have ended. These must not keep the quota of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from cfo.api.appwrapper.pod_use import LeastUse, least_use
from cfo.api.pod_requests import format_amount, has_requests, requested_of, requests_of_pod
from cfo.controllers.appwrapper.components import Component
from cfo.controllers.appwrapper.decision import WrapperObservation
from cfo.controllers.appwrapper.pods import WrapperPod, last_end
from cfo.runtime.process import printable

IDLE_LIMIT: Final = timedelta(minutes=30)
"""For how long an AppWrapper keeps its quota if enough pods have succeeded, and none runs.

The next pods of a Job may wait as long for nodes, or for its controller, which replaces a failed pod after 10 minutes.
"""

_MAX_SHOWN: Final = 3
_MAX_NAME_LENGTH: Final = 64


def uses_of(observation: WrapperObservation, components: Iterable[Component]) -> list[LeastUse]:
    """Return what the pods of ``components`` must request; nothing without a queue, because there is no quota then."""
    if not observation.is_queued:
        return []
    found: list[LeastUse] = []
    for component in components:
        template = observation.wrapper["spec"]["components"][component.index]["template"]
        found += least_use(template, component.pod_sets)
    return found


def has_started(pod: WrapperPod) -> bool:
    """Return whether a pod runs or has succeeded."""
    return pod.runs or pod.phase == "Succeeded"


def describe_shortage(uses: Iterable[LeastUse], pods: Iterable[WrapperPod]) -> str:
    """Return of which resources ``pods``, those that have started, request too little; empty if they use the quota."""
    least: dict[str, int] = {}
    for use in uses:
        for name, amount in use.requests.items():
            least[name] = least.get(name, 0) + use.pods * amount
    if not least:
        return ""
    requested = dict.fromkeys(least, 0)
    for pod in pods:
        requests = requests_of_pod(pod.shape)
        for name in least:
            requested[name] += requested_of(requests, name)
    short = [name for name, amount in least.items() if requested[name] < amount]
    if not short:
        return ""
    shown = [
        f"{format_amount(requested[name])} of at least {format_amount(least[name])} {printable(name, _MAX_NAME_LENGTH)}"
        for name in short[:_MAX_SHOWN]
    ]
    return (
        f"those that run or have succeeded request too little to use the quota: {', '.join(shown)}"
    )


def idle_since(
    observation: WrapperObservation, uses: Sequence[LeastUse], ready_since: datetime
) -> datetime | None:
    """Return since when no pod runs that uses the quota, although enough have succeeded; ``None`` if one does.

    ``None`` also if that is not known: for pods of which only the metadata is known, or not even that, and for pods
    without known owners.
    """
    if not uses or observation.knowledge.lacks_pods:
        return None
    for pod in observation.pods:
        if not pod.ancestor or not pod.is_read:
            return None
        if pod.runs and is_of_one(uses, pod):
            return None
    ended_at = last_end(observation.pods)
    return ready_since if ended_at is None else max(ready_since, ended_at)


def is_of_one(uses: Iterable[LeastUse], pod: WrapperPod) -> bool:
    """Return whether a pod requests what each of the pods with one of ``uses`` must request."""
    requests = requests_of_pod(pod.shape)
    return any(has_requests(requests, use.requests) for use in uses)
