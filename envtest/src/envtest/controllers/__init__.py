"""Controllers of the embedded control plane, selected by name.

``gc``, ``namespace`` and ``serviceaccount`` run in every real cluster, and most tests need them. The others make a
cluster without nodes behave more like one with nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from envtest.controller_names import DEFAULT
from envtest.controllers.controller import Controller, Runner
from envtest.server_core import Core

__all__ = ["AVAILABLE", "DEFAULT", "Runner", "UnknownController", "create_runner"]

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
    "statefulset": ("statefulsets.StatefulSets",),
    "job": ("jobs.Jobs",),
}
"""The controllers behind each name: module in this package, and class in that module."""


class UnknownController(ValueError):
    """Raised for a name for which there is no controller."""


def create_runner(core: Core, names: Sequence[str], *, ca: bytes = b"") -> Runner:
    """Return a runner of the controllers with these names; ``ca`` is the API server's CA certificate (PEM).

    Raises UnknownController.
    """
    unknown = [name for name in names if name not in AVAILABLE]
    if unknown:
        raise UnknownController(f"controller {unknown[0]!r}: must be one of {', '.join(AVAILABLE)}")
    selected = dict.fromkeys(path for name in names for path in AVAILABLE[name])
    return Runner(core, [_create(path, core, ca) for path in selected])


def _create(path: str, core: Core, ca: bytes) -> Controller[Any]:
    module, _, name = path.partition(".")
    controller: Controller[Any] = getattr(import_module(f"envtest.controllers.{module}"), name)(core)
    controller.ca = ca
    return controller
