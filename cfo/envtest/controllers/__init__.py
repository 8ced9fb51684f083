"""The small controllers that come with the embedded control plane, chosen by name.

``gc``, ``namespace`` and ``serviceaccount`` are what every cluster has and most tests want. The others make a cluster
without nodes look more like one with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfo.envtest.controllers.accounts import DefaultAccounts, RootCertificates, TokenSecrets
from cfo.envtest.controllers.aggregation import RoleAggregation
from cfo.envtest.controllers.controller import Controller, Runner
from cfo.envtest.controllers.deployments import Deployments
from cfo.envtest.controllers.garbage import GarbageCollector
from cfo.envtest.controllers.jobs import Jobs
from cfo.envtest.controllers.namespaces import NamespaceController
from cfo.envtest.controllers.pods import PodRunner
from cfo.envtest.controllers.replicasets import ReplicaSets
from cfo.envtest.controllers.statefulsets import StatefulSets
from cfo.envtest.core import Core

__all__ = ["AVAILABLE", "DEFAULT", "Runner", "UnknownController", "make_runner"]

AVAILABLE: Final[dict[str, tuple[type[Controller[Any]], ...]]] = {
    "gc": (GarbageCollector,),
    "namespace": (NamespaceController,),
    "serviceaccount": (DefaultAccounts, TokenSecrets),
    "root-ca": (RootCertificates,),
    "clusterrole-aggregation": (RoleAggregation,),
    "pods": (PodRunner,),
    "deployment": (Deployments, ReplicaSets),
    "replicaset": (ReplicaSets,),
    "statefulset": (StatefulSets,),
    "job": (Jobs,),
}
"""The controllers that each name stands for."""

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
    kinds = dict.fromkeys(kind for name in names for kind in AVAILABLE[name])
    controllers = [kind(core) for kind in kinds]
    for controller in controllers:
        if isinstance(controller, TokenSecrets | RootCertificates):
            controller.authority = authority
    return Runner(core, controllers)
