"""The names of controllers: those of envtest, and those of kube-controller-manager's flag ``--controllers``.

``gc`` here is ``garbage-collector-controller`` there. Uses only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = [
    "ALL",
    "DEFAULT",
    "KUBE_CONTROLLERS",
    "Selection",
    "checked_names",
    "kube_controllers",
    "missing_controllers",
    "select_controllers",
]

DEFAULT: Final = ("gc", "namespace", "serviceaccount")
"""The controllers that run by default: every cluster has them, and most tests need them."""

ALL: Final = "all"
"""Selects all controllers."""

_NONE: Final = "none"
"""Selects no controller, if it is the only name."""

KUBE_CONTROLLERS: Final[dict[str, tuple[str, ...]]] = {
    "gc": ("garbage-collector-controller",),
    "namespace": ("namespace-controller",),
    "serviceaccount": ("serviceaccount-controller", "serviceaccount-token-controller"),
    "root-ca": ("root-ca-certificate-publisher-controller",),
    "clusterrole-aggregation": ("clusterrole-aggregation-controller",),
    "resourcequota": ("resourcequota-controller",),
    "deployment": ("deployment-controller", "replicaset-controller"),
    "replicaset": ("replicaset-controller",),
    "replicationcontroller": ("replicationcontroller-controller",),
    "statefulset": ("statefulset-controller",),
    "job": ("job-controller",),
    "daemonset": ("daemonset-controller",),
    "cronjob": ("cronjob-controller",),
    "horizontalpodautoscaling": ("horizontal-pod-autoscaler-controller",),
    "ttl-after-finished": ("ttl-after-finished-controller",),
    "endpoint": ("endpoints-controller",),
    "endpointslice": ("endpointslice-controller",),
    "endpointslice-mirroring": ("endpointslice-mirroring-controller",),
    "validatingadmissionpolicy-status": ("validatingadmissionpolicy-status-controller",),
    "nodelifecycle": ("node-lifecycle-controller",),
    "disruption": ("disruption-controller",),
    "csrsigning": ("certificatesigningrequest-signing-controller",),
    "persistentvolume": (
        "persistentvolume-binder-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "volumeattributesclass-protection-controller",
    ),
}
"""The controllers in kube-controller-manager that do the work of each controller of envtest."""

_OLD_NAMES: Final = {
    "garbagecollector": "garbage-collector-controller",
    "serviceaccount": "serviceaccount-controller",
    "serviceaccount-token": "serviceaccount-token-controller",
    "endpoint": "endpoints-controller",
    "horizontalpodautoscaling": "horizontal-pod-autoscaler-controller",
    "csrsigning": "certificatesigningrequest-signing-controller",
    "nodelifecycle": "node-lifecycle-controller",
    "pv-protection": "persistentvolume-protection-controller",
    "pvc-protection": "persistentvolumeclaim-protection-controller",
    "root-ca-cert-publisher": "root-ca-certificate-publisher-controller",
    "bootstrapsigner": "bootstrap-signer-controller",
    "tokencleaner": "token-cleaner-controller",
}
"""Names before Kubernetes 1.27; most others only lack the suffix."""

_OPTIONAL: Final = frozenset(
    {"bootstrap-signer-controller", "token-cleaner-controller", "selinux-warning-controller"}
)
"""Controllers that ``*`` does not select."""


_PODS: Final = ("pods",)

_REQUIRED: Final[dict[tuple[str, str], tuple[tuple[str, ...], ...]]] = {
    ("", "Pod"): (_PODS,),
    ("", "PersistentVolumeClaim"): (("persistentvolume",),),
    ("", "ReplicationController"): (("replicationcontroller",), _PODS),
    ("", "ResourceQuota"): (("resourcequota",),),
    ("apps", "DaemonSet"): (("daemonset",), _PODS),
    ("apps", "Deployment"): (("deployment",), _PODS),
    ("apps", "ReplicaSet"): (("replicaset", "deployment"), _PODS),
    ("apps", "StatefulSet"): (("statefulset",), _PODS),
    ("autoscaling", "HorizontalPodAutoscaler"): (("horizontalpodautoscaling",),),
    ("batch", "CronJob"): (("cronjob",), ("job",), _PODS),
    ("batch", "Job"): (("job",), _PODS),
    ("certificates.k8s.io", "CertificateSigningRequest"): (("csrsigning",),),
    ("policy", "PodDisruptionBudget"): (("disruption",),),
}
"""What writes the status of a group and kind: one of each of these controllers."""


def missing_controllers(api_version: str, kind: str, running: Iterable[str]) -> list[str]:
    """Return the controllers that write the status of this kind, and do not run; ``running`` are those that do."""
    names = set(running)
    group = api_version.rpartition("/")[0]
    required = _REQUIRED.get((group, kind), ())
    return [alternatives[0] for alternatives in required if names.isdisjoint(alternatives)]


def checked_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return ``names``; nothing for ``none``.

    Raises ValueError for a string, whose characters would be the names, for anything else that is not a sequence of
    strings, and for ``none`` with other names.
    """
    allowed = f"a sequence of names, such as {DEFAULT}"
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise ValueError(f"controllers: {names!r}: must be {allowed}")  # noqa: TRY004 - as unknown names
    found = tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise ValueError(f"controllers: {name!r}: must be the name of a controller")  # noqa: TRY004
    if _NONE not in found:
        return found
    if set(found) != {_NONE}:
        raise ValueError(
            f"controllers: {', '.join(found)}: must be names of controllers, or only {_NONE}"
        )
    return ()


class Selection(NamedTuple):
    """What ``--controllers`` selects: controllers of envtest, and names that envtest does not implement."""

    controllers: tuple[str, ...]
    missing: tuple[str, ...]


def kube_controllers(names: Iterable[str]) -> list[str]:
    """Return the controllers of kube-controller-manager for those of envtest.

    Raises ValueError for a name that has no equivalent, such as ``pods``, which simulates nodes.
    """
    found: dict[str, None] = {}
    for name in names:
        if name not in KUBE_CONTROLLERS:
            raise ValueError(
                f"controller {name!r}: the real control plane has only {', '.join(KUBE_CONTROLLERS)}; "
                "remove it, or use the embedded control plane (with pytest: --control-plane=embedded)"
            )
        found |= dict.fromkeys(KUBE_CONTROLLERS[name])
    return list(found)


def select_controllers(items: Sequence[str]) -> Selection:
    """Return what the items of ``--controllers`` select: ``*`` is all, ``-NAME`` all but this one."""
    disabled = {_full_name(item[1:]) for item in items if item.startswith("-")}
    enabled = {_full_name(item) for item in items if not item.startswith("-") and item != "*"}
    everything = "*" in items

    def is_selected(name: str) -> bool:
        return name not in disabled and (everything or name in enabled)

    controllers = tuple(
        name for name, parts in KUBE_CONTROLLERS.items() if all(map(is_selected, parts))
    )
    implemented = {part for name in controllers for part in KUBE_CONTROLLERS[name]}
    return Selection(controllers, tuple(sorted(enabled - disabled - implemented - _OPTIONAL)))


def _full_name(name: str) -> str:
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    return name if name.endswith("-controller") else f"{name}-controller"
