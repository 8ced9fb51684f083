"""Controllers of the embedded control plane, selected by name; ``all`` selects all of them.

``gc``, ``namespace`` and ``serviceaccount`` run in every real cluster, and most tests need them. The others make a
cluster without nodes behave more like one with nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from envtest.configuration.controller_names import ALL, DEFAULT, checked_names
from envtest.controllers.controller import Controller, Runner
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.writes.server_core import Core

__all__ = ["AVAILABLE", "DEFAULT", "Runner", "UnknownController", "create_runner", "selected_names"]

AVAILABLE: Final[dict[str, tuple[str, ...]]] = {
    "gc": ("garbage_collector.GarbageCollector",),
    "namespace": ("namespaces.NamespaceController",),
    "serviceaccount": ("service_accounts.DefaultAccounts", "service_accounts.TokenSecrets"),
    "root-ca": ("service_accounts.RootCertificates",),
    "clusterrole-aggregation": ("aggregation.RoleAggregation",),
    "resourcequota": ("quotas.ResourceQuotas",),
    "pods": ("pods.PodRunner",),
    "deployment": ("deployments.Deployments", "replicasets.ReplicaSets"),
    "replicaset": ("replicasets.ReplicaSets",),
    "replicationcontroller": ("replicasets.ReplicationControllers",),
    "statefulset": ("statefulsets.StatefulSets",),
    "job": ("jobs.Jobs", "job_ttl.FinishedJobs"),
    "daemonset": ("daemonsets.DaemonSets",),
    "cronjob": ("cronjobs.CronJobs",),
    "horizontalpodautoscaling": ("autoscalers.Autoscalers",),
    "ttl-after-finished": ("job_ttl.FinishedJobs",),
    "endpoint": ("endpoints.Endpoints",),
    "endpointslice": ("endpoint_slices.EndpointSlices",),
    "endpointslice-mirroring": ("endpoint_mirroring.EndpointMirroring",),
    "validatingadmissionpolicy-status": ("policy_status.PolicyStatus",),
    "nodelifecycle": ("node_taints.NodeTaints",),
    "disruption": ("disruption.DisruptionBudgets",),
    "csrsigning": ("certificate_signing.CertificateSigning",),
    "persistentvolume": (
        "volumes.VolumeBinding",
        "volume_protection.VolumeProtection",
        "attributes_class_protection.AttributesClassProtection",
    ),
}
"""The controllers behind each name: module in this package, and class in that module."""

SCENARIO: Final = ("scheduler.Scheduler", "nodes.Nodes", "kubelet.Kubelets")
"""The controllers that replace ``pods`` and ``nodelifecycle`` if the control plane has a scenario."""


class UnknownController(ValueError):
    """Raised for a name for which there is no controller."""


def selected_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names``, or the names of all controllers if one of them is ``all``, or nothing for ``none``.

    Raises UnknownController, and ValueError for what is not a sequence of names.
    """
    checked = checked_names(names)
    for name in checked:
        if name not in AVAILABLE and name != ALL:
            raise UnknownController(
                f"controller {name!r}: must be one of {', '.join((*AVAILABLE, ALL))}"
            )
    return tuple(AVAILABLE) if ALL in checked else checked


def create_runner(
    core: Core,
    names: Sequence[str],
    *,
    ca: bytes = b"",
    authority: CertificateAuthority | None = None,
) -> Runner:
    """Return a runner of the controllers with these names.

    ``ca`` is the API server's CA certificate (PEM), ``authority`` the CA that signs certificates. Raises
    UnknownController.
    """
    selected = dict.fromkeys(path for name in selected_names(names) for path in AVAILABLE[name])
    if core.scenario is not None:
        replaced = (*AVAILABLE["pods"], *AVAILABLE["nodelifecycle"])
        selected = {path: None for path in (*selected, *SCENARIO) if path not in replaced}
    return Runner(core, [_create(path, core, ca, authority) for path in selected])


def _create(
    path: str, core: Core, ca: bytes, authority: CertificateAuthority | None
) -> Controller[Any]:
    module, _, name = path.partition(".")
    controller: Controller[Any] = getattr(import_module(f"envtest.controllers.{module}"), name)(
        core
    )
    controller.ca = ca
    controller.authority = authority
    return controller
