"""Whether a pod may run on a node: node selector, required node affinity and tolerations. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envtest.objects import Object, labels_of
from envtest.scenarios.fit import matches_node_affinity, tolerates

__all__ = ["matches_node", "tolerates_taints"]


def matches_node(spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether the node has the labels of ``nodeSelector`` and satisfies the required node affinity."""
    labels = labels_of(node)
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches_node_affinity(required.get("nodeSelectorTerms") or (), node["metadata"]["name"], labels)


def tolerates_taints(
    tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]], effects: Iterable[str]
) -> bool:
    """Return whether each taint with one of the effects is tolerated."""
    tolerations, effects = list(tolerations), set(effects)
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.get("effect") in effects
    )
