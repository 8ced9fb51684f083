"""The small controllers that come with the embedded control plane, chosen by name.

``gc``, ``namespace`` and ``serviceaccount`` are what every cluster has and most tests want. The others make a cluster
without nodes look more like one with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from envtest.controllers.controller import Controller, Runner
from envtest.server_core import Core

__all__ = ["AVAILABLE", "DEFAULT", "Runner", "UnknownController", "make_runner"]

AVAILABLE: Final[dict[str, tuple[str, ...]]] = {
    "gc": ("garbage.GarbageCollector",),
    "namespace": ("namespaces.NamespaceController",),
    "serviceaccount": ("accounts.DefaultAccounts", "accounts.TokenSecrets"),
    "root-ca": ("accounts.RootCertificates",),
    "clusterrole-aggregation": ("aggregation.RoleAggregation",),
    "resourcequota": ("quotas.ResourceQuotas",),
    "pods": ("pods.PodRunner",),
    "deployment": ("deployments.Deployments", "replicasets.ReplicaSets"),
    "replicaset": ("replicasets.ReplicaSets",),
    "statefulset": ("statefulsets.StatefulSets",),
    "job": ("jobs.Jobs",),
}
"""The controllers that each name stands for: the module of this package, and the class in it."""

DEFAULT: Final = ("gc", "namespace", "serviceaccount")


class UnknownController(ValueError):
    """A name that stands for no controller."""


def make_runner(core: Core, names: Sequence[str], *, authority: bytes = b"") -> Runner:
    """What runs the controllers of these names; ``authority`` is the API server's certificate authority (PEM).

    Raises UnknownController.
    """
    unknown = [name for name in names if name not in AVAILABLE]
    if unknown:
        raise UnknownController(f"unknown controller {unknown[0]!r}: known are {', '.join(AVAILABLE)}")
    chosen = dict.fromkeys(path for name in names for path in AVAILABLE[name])
    return Runner(core, [_make(path, core, authority) for path in chosen])


def _make(path: str, core: Core, authority: bytes) -> Controller[Any]:
    module, _, name = path.partition(".")
    controller: Controller[Any] = getattr(import_module(f"envtest.controllers.{module}"), name)(core)
    controller.authority = authority
    return controller
