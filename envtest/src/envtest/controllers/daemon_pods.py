"""The pods of a DaemonSet: on which nodes they run, what they tolerate, and which of them are replaced.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object, annotations_of, labels_of
from envtest.controllers.pod_state import is_available, is_finished, is_ready, pod_from_template
from envtest.controllers.rollouts import resolve_int_or_percent
from envtest.simulation.fit import matches_node_affinity, tolerates

__all__ = ["HASH", "daemon_pod", "daemon_status", "node_of", "outdated_pods", "should_run"]

HASH: Final = "controller-revision-hash"

_GENERATION: Final = "deprecated.daemonset.template.generation"
_BLOCKING: Final = ("NoSchedule", "NoExecute")
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _pod_spec(daemon_set: Object) -> Mapping[str, Any]:
    return (daemon_set["spec"].get("template") or {}).get("spec") or {}


def _tolerations(spec: Mapping[str, Any]) -> list[Object]:
    """Return the tolerations of the pods: those of the template, and of problems that daemons have to survive."""
    taints = (*_TOLERATED, _NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added: list[Object] = [
        {"key": key, "operator": "Exists", "effect": effect} for key, effect in taints
    ]
    own: list[Object] = list(spec.get("tolerations") or ())
    return own + [each for each in added if each not in own]


def should_run(daemon_set: Object, node: Object) -> tuple[bool, bool]:
    """Return whether the DaemonSet should have a pod on a node, and whether an existing pod may stay."""
    spec = _pod_spec(daemon_set)
    taints = (node.get("spec") or {}).get("taints") or ()
    if spec.get("nodeName") not in (None, "", node["metadata"]["name"]) or not matches_node(
        spec, node
    ):
        return False, False
    tolerations = _tolerations(spec)
    return tolerates_taints(tolerations, taints, _BLOCKING), tolerates_taints(
        tolerations, taints, ("NoExecute",)
    )


def daemon_pod(
    daemon_set: Object, reference: Mapping[str, Any], node: str, revision_hash: str
) -> Object:
    """Return the pod of the DaemonSet for ``node``; its node affinity names the node for the scheduler."""
    metadata = daemon_set["metadata"]
    pod = pod_from_template(
        daemon_set["spec"].get("template") or {}, metadata["namespace"], reference
    )
    pod["metadata"]["generateName"] = f"{metadata['name']}-"
    labels = pod["metadata"].setdefault("labels", {})
    labels[HASH] = revision_hash
    generation = annotations_of(daemon_set).get(_GENERATION)
    if generation:
        labels["pod-template-generation"] = generation
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity[_REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return pod


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a pod runs on or is meant for; an empty string if it is meant for none."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""


def outdated_pods(
    daemon_set: Object,
    by_node: Mapping[str, Sequence[Object]],
    desired: int,
    revision_hash: str,
    now: datetime,
) -> list[Object]:
    """Return the pods of an old template to delete now, as far as ``maxUnavailable`` allows.

    ``by_node`` has the pods of each node that should have one.
    """
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    rolling = strategy.get("rollingUpdate") or {}
    min_ready = int(daemon_set["spec"].get("minReadySeconds") or 0)
    limit = max(1, resolve_int_or_percent(rolling.get("maxUnavailable", 1), desired, up=True))
    replaced: list[Object] = []
    candidates: list[Object] = []
    unavailable = 0
    for pods in by_node.values():
        running = [
            pod
            for pod in pods
            if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        available = len(running) == 1 and is_available(running[0], min_ready, now)
        unavailable += not available
        if len(running) == 1 and labels_of(running[0]).get(HASH) != revision_hash:
            (candidates if available else replaced).append(running[0])
    return replaced + candidates[: max(0, limit - unavailable)]


def daemon_status(
    daemon_set: Object,
    by_node: Mapping[str, Sequence[Object]],
    wanted: Mapping[str, bool],
    revision_hash: str,
    now: datetime,
) -> dict[str, Any]:
    """Return the status; ``wanted`` says for each node whether it should have a pod."""
    min_ready = int(daemon_set["spec"].get("minReadySeconds") or 0)
    nodes = [node for node, wants in wanted.items() if wants]
    oldest = [by_node[node][0] for node in nodes if by_node.get(node)]
    available = sum(is_available(pod, min_ready, now) for pod in oldest)
    return {
        "currentNumberScheduled": len(oldest),
        "numberMisscheduled": sum(
            bool(by_node.get(node)) for node, wants in wanted.items() if not wants
        ),
        "desiredNumberScheduled": len(nodes),
        "numberReady": sum(map(is_ready, oldest)),
        "observedGeneration": daemon_set["metadata"].get("generation"),
        "updatedNumberScheduled": sum(labels_of(pod).get(HASH) == revision_hash for pod in oldest)
        or None,
        "numberAvailable": available or None,
        "numberUnavailable": len(nodes) - available or None,
    }


def matches_node(spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether the node has the labels of ``nodeSelector`` and satisfies the required node affinity."""
    labels = labels_of(node)
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches_node_affinity(
        required.get("nodeSelectorTerms") or (), node["metadata"]["name"], labels
    )


def tolerates_taints(
    tolerations: Iterable[Mapping[str, Any]],
    taints: Iterable[Mapping[str, Any]],
    effects: Iterable[str],
) -> bool:
    """Return whether each taint with one of the effects is tolerated."""
    tolerations = list(tolerations)
    effects = set(effects)
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.get("effect") in effects
    )
