"""Controllers of MiniClusters, FluxJobs and FluxSetups.

:mod:`.minicluster` creates the objects of a MiniCluster and reports its state. :mod:`.queue` decides, as a pure
function, which FluxJobs get quota of a FluxSetup. :mod:`.metrics` exports the quotas and what is used of them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, JobState
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.config.model import FluxConfiguration
from cfo.controllers import local_queues
from cfo.controllers.cached_fields import conditions_of, field_reader
from cfo.controllers.flux import fluxsetup, lost_pods
from cfo.controllers.flux.fluxjob import reconciler as fluxjob
from cfo.controllers.flux.metrics import FluxSetupMetrics
from cfo.controllers.flux.minicluster import reconciler as minicluster
from cfo.runtime import GVK, Channel, Entry, Manager

RULES: Final = (
    *minicluster.MiniClusterReconciler.rules,
    *fluxjob.FluxJobReconciler.rules,
    *fluxsetup.FluxSetupReconciler.rules,
    *lost_pods.LostPodsReconciler.rules,
)
"""The RBAC rules of all Flux controllers."""


_MAX_LABEL: Final = 63
"""The maximum length of the value of a label; with a longer one, the API server refuses the Job."""

_job_labels = field_reader("spec", "jobLabels", kind=dict[str, str], default={})


def _waiting_queue(cluster: Entry) -> str:
    """Return the LocalQueue of Kueue that a MiniCluster waits for; empty if it waits for none."""
    queue = _job_labels(cluster).get(QUEUE_NAME_LABEL, "")
    if not queue or len(queue) > _MAX_LABEL:
        return ""
    waits = any(
        condition.type == JobState.WAITING and condition.status == "True"
        for condition in conditions_of(cluster)
    )
    return queue if waits else ""


def setup(manager: Manager, config: FluxConfiguration, namespace: str) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves the kinds that it needs.

    ``namespace`` is the operator's namespace, in which FluxSetups may select other namespaces.
    """
    minicluster.setup(manager)
    local_queues.setup(manager, "minicluster-queue", MINICLUSTER, _waiting_queue, owner=FLUX_JOB)

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
    fluxjob.setup(manager, ledger, notifications, config.warmup_grace_period)
    if config.default_setup.enabled:
        fluxsetup.create_default(manager, config.default_setup, namespace)
