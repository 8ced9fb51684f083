"""What to do about a pod that cannot be scheduled, by the causes in the message of kube-scheduler."""

from __future__ import annotations

import re
from typing import Final

_ADD_NODES: Final = "request less, or wait for (or add) nodes with enough free resources"

_CREATE_CLAIM: Final = (
    "create the PersistentVolumeClaim or other object that the message names, or correct its name in the pod template; "
    "the scheduler tries again by itself"
)
_DESCRIBE_CLAIMS: Final = (
    "see what the PersistentVolumeClaim of the pod waits for, such as a StorageClass that does not exist: "
    "kubectl describe persistentvolumeclaim -n NAMESPACE"
)
_MOVE_VOLUME: Final = (
    "let the pod run on the nodes that can use its volume, such as those of its zone, or use another "
    "PersistentVolumeClaim"
)
_CORRECT_SELECTOR: Final = (
    "correct nodeSelector or nodeAffinity in the pod template, or ask for nodes with these labels"
)
_TOLERATE: Final = (
    "add a toleration of the taint that the message names, if the pod may run on these nodes"
)
_CORRECT_AFFINITY: Final = (
    "correct podAffinity, podAntiAffinity or topologySpreadConstraints in the pod template, or wait for (or add) nodes "
    "that satisfy them"
)

_OF_THE_POD: Final = {
    '" not found': _CREATE_CLAIM,
    "unbound immediate PersistentVolumeClaims": _DESCRIBE_CLAIMS,
    'persistentvolumeclaim "': _DESCRIBE_CLAIMS,
    "didn't find available persistent volumes to bind": _DESCRIBE_CLAIMS,
    "pvc(s) bound to non-existent pv(s)": _DESCRIBE_CLAIMS,
}
"""Parts of the message, and what to do: causes that apply to all nodes, so that no waiting for one helps."""

_OF_NODES: Final = {
    "volume node affinity conflict": _MOVE_VOLUME,
    "node affinity/selector": _CORRECT_SELECTOR,
    "pod affinity rules": _CORRECT_AFFINITY,
    "pod anti-affinity rules": _CORRECT_AFFINITY,
    "pod topology spread constraints": _CORRECT_AFFINITY,
}
"""The same for causes that apply to some nodes."""

_TAINT: Final = re.compile(r"untolerated taint(?:\(s\)| \{([^:}]{0,317}))")

_TAINTS_OF_KUBERNETES: Final = ("node-role.kubernetes.io/", "node.kubernetes.io/")
"""Prefixes of the keys of taints that keep usual pods away: from control planes, and from nodes that do not work."""


def scheduling_remedy(message: str) -> str:
    """Return what to do about a pod with this message of kube-scheduler, which must be bounded.

    Of several causes, it is what repairs the first one that does not end by waiting. If other nodes only lack
    resources, they are an alternative.
    """
    for part, remedy in _OF_THE_POD.items():
        if part in message:
            return remedy
    change = _change_for_nodes(message)
    if not change:
        return _ADD_NODES
    if "Insufficient " in message:
        return f"{change}; or {_ADD_NODES}"
    return change


def _change_for_nodes(message: str) -> str:
    """Return what to change so that the pod fits nodes that it does not fit now; empty if they only lack resources."""
    for key in _TAINT.findall(message):
        if not key.startswith(_TAINTS_OF_KUBERNETES):
            return _TOLERATE
    for part, remedy in _OF_NODES.items():
        if part in message:
            return remedy
    return ""
