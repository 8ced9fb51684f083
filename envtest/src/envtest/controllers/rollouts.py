"""The sizes of a Deployment's ReplicaSets while a new one replaces the old ones, as the Deployment controller decides.

All functions are pure. A ReplicaSet is given as an object; sizes are numbers of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any, Final

from envtest.apimachinery.objects import Object, annotations_of

__all__ = [
    "DESIRED_REPLICAS",
    "MAX_REPLICAS",
    "available_of",
    "creation_order",
    "desired_replicas",
    "is_recreate",
    "is_scaling_event",
    "new_size",
    "old_sizes",
    "replicas_of",
    "resolve_int_or_percent",
    "scaled_sizes",
    "size_annotations",
    "surge_and_unavailable",
]

DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"


def resolve_int_or_percent(value: Any, total: int, *, up: bool) -> int:
    """Resolve an integer, or a percentage of ``total`` rounded up or down."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total
        return -(-share // 100) if up else share // 100
    return int(value or 0)


def is_recreate(spec: Mapping[str, Any]) -> bool:
    """Return whether the Deployment stops all old pods before it starts new ones."""
    return bool((spec.get("strategy") or {}).get("type") == "Recreate")


def desired_replicas(spec: Mapping[str, Any]) -> int:
    """Return the desired number of pods of a Deployment or ReplicaSet."""
    return int(spec.get("replicas", 1))


def surge_and_unavailable(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return the allowed surge above the desired number of pods, and the allowed number of unavailable pods."""
    desired = desired_replicas(spec)
    if is_recreate(spec) or not desired:
        return 0, 0
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = resolve_int_or_percent(rolling.get("maxSurge", "25%"), desired, up=True)
    unavailable = resolve_int_or_percent(rolling.get("maxUnavailable", "25%"), desired, up=False)
    # a rollout with neither could not proceed (ResolveFenceposts of kube-controller-manager)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(desired, unavailable)


def replicas_of(replica_set: Object) -> int:
    """Return the desired number of pods of a ReplicaSet."""
    return desired_replicas(replica_set["spec"])


def available_of(replica_set: Object) -> int:
    """Return the number of available pods of a ReplicaSet."""
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)


def creation_order(replica_set: Object) -> tuple[str, str]:
    """Return a key that sorts ReplicaSets from old to new."""
    return replica_set["metadata"]["creationTimestamp"], replica_set["metadata"]["name"]


def size_annotations(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations by which a ReplicaSet shows for which size of the Deployment it was scaled."""
    desired = desired_replicas(spec)
    return {
        DESIRED_REPLICAS: str(desired),
        MAX_REPLICAS: str(desired + surge_and_unavailable(spec)[0]),
    }


def _annotated(replica_set: Object, name: str) -> int | None:
    text = annotations_of(replica_set).get(name, "")
    return int(text) if text.isdecimal() else None


def is_scaling_event(spec: Mapping[str, Any], replica_sets: Sequence[Object]) -> bool:
    """Return whether the size of the Deployment changed since its active ReplicaSets were scaled."""
    sizes = (_annotated(each, DESIRED_REPLICAS) for each in replica_sets if replicas_of(each))
    return any(size is not None and size != desired_replicas(spec) for size in sizes)


def new_size(spec: Mapping[str, Any], current: int, others: int) -> int:
    """Return the size of the new ReplicaSet, whose size is ``current``; the old ones have ``others`` in total."""
    desired = desired_replicas(spec)
    if is_recreate(spec) or current > desired:
        return desired
    room = desired + surge_and_unavailable(spec)[0] - current - others
    return current + max(0, min(room, desired - current))


def old_sizes(spec: Mapping[str, Any], new: Object, old: Sequence[Object]) -> dict[str, int]:
    """Return the sizes of the previous ReplicaSets, by name, in a rolling update.

    Pods that are not available are removed first, then available ones as far as ``maxUnavailable`` allows.
    """
    old = sorted((each for each in old if replicas_of(each)), key=creation_order)
    sizes = {each["metadata"]["name"]: replicas_of(each) for each in old}
    min_available = desired_replicas(spec) - surge_and_unavailable(spec)[1]
    removable = sum(sizes.values()) + available_of(new) - min_available
    if removable <= 0:
        return sizes
    for each in old:
        name = each["metadata"]["name"]
        removed = min(max(0, sizes[name] - available_of(each)), removable)
        sizes[name] -= removed
        removable -= removed
    surplus = available_of(new) + sum(map(available_of, old)) - min_available
    for name, size in sizes.items():
        removed = min(size, max(0, surplus))
        sizes[name] -= removed
        surplus -= removed
    return sizes


def scaled_sizes(
    spec: Mapping[str, Any], status: Mapping[str, Any], replica_sets: Sequence[Object]
) -> dict[str, int]:
    """Return the sizes of active ReplicaSets, by name, after the Deployment was scaled during a rollout.

    Pods are added and removed in proportion to the sizes; what remains goes to the largest ReplicaSet.
    """
    desired = desired_replicas(spec)
    surge, _ = surge_and_unavailable(spec)
    allowed = desired + surge if desired else 0
    change = allowed - sum(map(replicas_of, replica_sets))
    by_age = sorted(replica_sets, key=creation_order, reverse=change > 0)
    ordered = sorted(by_age, key=replicas_of, reverse=True)
    sizes = {each["metadata"]["name"]: replicas_of(each) for each in ordered}
    if not change:
        return sizes
    added = 0
    for each in ordered:
        share = _share(each, desired, allowed, int(status.get("replicas") or 0))
        share = min(share, change - added) if change > 0 else max(share, change - added)
        sizes[each["metadata"]["name"]] += share
        added += share
    if ordered:
        largest = ordered[0]["metadata"]["name"]
        sizes[largest] = max(0, sizes[largest] + change - added)
    return sizes


def _share(replica_set: Object, desired: int, allowed: int, actual: int) -> int:
    """Return by how many pods a ReplicaSet grows in proportion to its size."""
    size = replicas_of(replica_set)
    if not size:
        return 0
    if not desired:
        return -size
    before = _annotated(replica_set, MAX_REPLICAS) or actual
    return floor(size * allowed / before + 0.5) - size if before else 0
