"""Reading the state of pods, and creating pods from templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, find_condition
from envtest.storage import Record

__all__ = [
    "PODS",
    "address_number",
    "deletion_order",
    "is_active",
    "is_available",
    "is_finished",
    "is_ready",
    "is_terminating",
    "pod_from_template",
    "seconds_until_available",
    "seconds_until_next_available",
]

PODS: Final = GroupResource("", "pods")


def pod_from_template(
    template: Mapping[str, Any], namespace: str, reference: Mapping[str, Any]
) -> Object:
    """Return a pod as specified by its template, controlled by ``reference``, without a name or generateName."""
    copied: Object = orjson.loads(orjson.dumps(template))
    metadata = copied.get("metadata") or {}
    pod_metadata = {
        name: metadata[name]
        for name in ("labels", "annotations", "finalizers")
        if metadata.get(name)
    }
    pod_metadata |= {"namespace": namespace, "ownerReferences": [dict(reference)]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata,
        "spec": copied.get("spec") or {},
    }


def phase(pod: Mapping[str, Any]) -> str:
    """Return the phase of a pod; ``Pending`` if its status has none."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod succeeded or failed."""
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod counts as a replica: it is neither finished nor being deleted."""
    return not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is being deleted and has neither succeeded nor failed yet."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_finished(pod)


def _ready_condition(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return find_condition((pod.get("status") or {}).get("conditions"), "Ready") or {}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the condition Ready of the pod is true."""
    return _ready_condition(pod).get("status") == "True"


def seconds_until_available(pod: Mapping[str, Any], min_ready: int, now: datetime) -> float | None:
    """Return the seconds until a ready pod has been ready for ``min_ready`` seconds (at most 0 if it has been).

    Returns ``None`` if the pod is not ready.
    """
    if not is_ready(pod):
        return None
    since = _ready_condition(pod).get("lastTransitionTime")
    if not min_ready or not since:
        return 0.0
    return (datetime.fromisoformat(since) + timedelta(seconds=min_ready) - now).total_seconds()


def seconds_until_next_available(
    pods: Iterable[Mapping[str, Any]], min_ready: int, now: datetime
) -> float | None:
    """Return the seconds until the next of the pods becomes available; ``None`` if no ready pod waits for that."""
    delays = (seconds_until_available(pod, min_ready, now) for pod in pods)
    return min((seconds for seconds in delays if seconds is not None and seconds > 0), default=None)


def is_available(pod: Mapping[str, Any], min_ready: int, now: datetime) -> bool:
    """Return whether the pod has been ready for ``min_ready`` seconds."""
    seconds = seconds_until_available(pod, min_ready, now)
    return seconds is not None and seconds <= 0


def deletion_order(pods: Iterable[Object]) -> list[Object]:
    """Sort pods in the order in which a ReplicaSet deletes them.

    Unscheduled, pending, unready, low-cost and newer pods are first; the cost is the annotation ``pod-deletion-cost``.
    """
    order = {"Pending": 0, "Unknown": 1, "Running": 2}

    def cost(pod: Object) -> int:
        annotations = pod["metadata"].get("annotations") or {}
        try:
            return int(annotations.get("controller.kubernetes.io/pod-deletion-cost", "0"))
        except ValueError:
            return 0

    youngest = sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True)
    return sorted(
        youngest,
        key=lambda pod: (
            bool(pod["spec"].get("nodeName")),
            order.get(phase(pod), 2),
            is_ready(pod),
            cost(pod),
        ),
    )


def address_number(record: Record) -> int:
    """Return the number of the address that an earlier process gave to a pod; 0 if it gave none."""
    if b'"podIP":"10.244.' not in record.data:
        return 0
    _, _, third, fourth = record.obj()["status"]["podIP"].split(".")
    return int(third) * 250 + int(fourth) - 1
