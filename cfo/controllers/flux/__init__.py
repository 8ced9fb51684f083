"""Controllers of MiniClusters, FluxJobs and FluxSetups.

:mod:`.minicluster` creates the objects of a MiniCluster and reports its state. :mod:`.queue` decides, as a pure
function, which FluxJobs get quota of a FluxSetup. :mod:`.metrics` exports the quotas and what is used of them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.config.model import FluxConfiguration
from cfo.controllers.flux import fluxsetup
from cfo.controllers.flux.fluxjob import reconciler as fluxjob
from cfo.controllers.flux.metrics import FluxSetupMetrics
from cfo.controllers.flux.minicluster import reconciler as minicluster
from cfo.runtime import GVK, Channel, Manager

RULES: Final = (
    *minicluster.MiniClusterReconciler.rules,
    *fluxjob.FluxJobReconciler.rules,
    *fluxsetup.FluxSetupReconciler.rules,
)
"""The RBAC rules of all Flux controllers."""


def setup(manager: Manager, config: FluxConfiguration, namespace: str) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves the kinds that it needs.

    ``namespace`` is the operator's namespace, in which FluxSetups may select other namespaces.
    """
    minicluster.setup(manager)

    missing = {FLUX_SETUP, FLUX_JOB, MINICLUSTER}

    def found(gvk: GVK, manager: Manager) -> None:
        missing.discard(gvk)
        if not missing:
            _start_queue(manager, config, namespace)

    # each at once, not one within the other: what is served at the start is set up before the first controller starts
    for gvk in (FLUX_SETUP, FLUX_JOB, MINICLUSTER):
        manager.when_available(gvk, partial(found, gvk))


def _start_queue(manager: Manager, config: FluxConfiguration, namespace: str) -> None:
    FluxSetupMetrics(manager.metrics.registry, manager.cache.informer(FLUX_SETUP).reader)
    notifications = Channel()
    ledger = fluxsetup.setup(manager, (namespace, *config.admin_namespaces), notifications)
    fluxjob.setup(manager, ledger, notifications)
    if config.default_setup.enabled:
        fluxsetup.create_default(manager, config.default_setup, namespace)
