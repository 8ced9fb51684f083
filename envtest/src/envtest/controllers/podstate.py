"""What controllers ask of pods, and how they make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from envtest.errors import GroupResource
from envtest.objects import Object, find_condition

__all__ = [
    "PODS",
    "available_in",
    "is_active",
    "is_available",
    "is_finished",
    "is_ready",
    "pod_from_template",
    "to_delete_first",
]

PODS: Final = GroupResource("", "pods")


def pod_from_template(template: Mapping[str, Any], namespace: str, reference: Mapping[str, Any]) -> Object:
    """A pod as its template wants it, controlled by ``reference``; it still needs a name or a generateName."""
    copied: Object = orjson.loads(orjson.dumps(template))
    metadata = copied.get("metadata") or {}
    kept = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)}
    kept |= {"namespace": namespace, "ownerReferences": [dict(reference)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": copied.get("spec") or {}}


def phase(pod: Mapping[str, Any]) -> str:
    """The phase of a pod; ``Pending`` where nothing is said."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has run to its end, well or not."""
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether the pod counts as a replica: neither finished nor going."""
    return not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")


def _ready_condition(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return find_condition((pod.get("status") or {}).get("conditions"), "Ready") or {}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has the condition Ready."""
    return _ready_condition(pod).get("status") == "True"


def available_in(pod: Mapping[str, Any], min_ready: int, now: datetime) -> float | None:
    """The seconds until a ready pod has been ready for ``min_ready`` seconds (not more than 0: it has been).

    ``None`` if it is not ready.
    """
    if not is_ready(pod):
        return None
    since = _ready_condition(pod).get("lastTransitionTime")
    if not min_ready or not since:
        return 0.0
    return (datetime.fromisoformat(since) + timedelta(seconds=min_ready) - now).total_seconds()


def is_available(pod: Mapping[str, Any], min_ready: int, now: datetime) -> bool:
    """Whether the pod has been ready for ``min_ready`` seconds."""
    left = available_in(pod, min_ready, now)
    return left is not None and left <= 0


def to_delete_first(pods: Iterable[Object]) -> list[Object]:
    """Pods in the order in which a ReplicaSet parts with them: unassigned, pending, not ready, young ones first."""
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
        key=lambda pod: (bool(pod["spec"].get("nodeName")), order.get(phase(pod), 2), is_ready(pod), cost(pod)),
    )
