"""Controllers of AppWrappers: resources that are queued, created, monitored, retried and cleaned up as one unit.

:mod:`.transition` is the state machine: a pure function that maps an AppWrapper and the observed state of its
components, pods and nodes (:mod:`.decision`) to actions and a new status. Its parts are :mod:`.creation`,
:mod:`.readiness`, :mod:`.completion`, :mod:`.excess`, :mod:`.retries` and :mod:`.component_deletion`. It builds on
:mod:`cfo.config.appwrapper_settings` (periods, limits, exit codes), :mod:`.status` (conditions and their times),
:mod:`.pods` and :mod:`.components`. :mod:`.admission` decides whether the webhook has checked an AppWrapper.
:mod:`.reconciler` executes decisions and observes with :mod:`.observer`. :mod:`.component_informers` and :mod:`.nodes`
read from informers and the API server. :mod:`.namespace_pods` lists the pods that the cache lacks, and
:mod:`.pod_knowledge` says what is known of an AppWrapper's pods. :mod:`.kueue` creates Kueue's Workloads,
:mod:`.reservations` keeps them while pods use their quota, and :mod:`.slack_queue` adjusts a ClusterQueue to the health
of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL, FIELD_MANAGER
from cfo.api.kueue import WORKLOADS
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.controllers import local_queues
from cfo.controllers.appwrapper import kueue, reconciler, reservations, slack_queue
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.namespace_pods import NamespacePods
from cfo.controllers.appwrapper.owners import OwnerReads
from cfo.controllers.appwrapper.pods import add_indexes
from cfo.controllers.availability import when_first_available
from cfo.runtime import GVK, POD, Manager

__all__ = ["KUEUE_RULES", "RULES", "setup"]

_log = structlog.get_logger("cfo.controllers.appwrapper")

RULES: Final = reconciler.AppWrapperReconciler.rules
"""The RBAC rules of the AppWrapper controller; components of other kinds need additional rules."""

KUEUE_RULES: Final = (*kueue.KueueReconciler.rules, *slack_queue.SlackQueueReconciler.rules)
"""The additional RBAC rules for ``kueueIntegration`` and ``slackQueueName``."""


def setup(
    manager: Manager,
    config: AppWrapperConfiguration,
    own_kinds: Iterable[GVK] = (APPWRAPPER,),
) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves the kinds that it needs.

    ``own_kinds`` are those that this operator reconciles: pods of components can descend from their objects.
    """
    if config.kueue_integration:
        # Without the Workload API nothing can be admitted, so AppWrappers could not be deployed.
        _log.info(
            "Waiting for the Kueue Workload API before reconciling AppWrappers",
            reason="appwrapper.kueueIntegration is set",
            remedy="install Kueue, or unset it",
        )
        when_first_available(
            manager,
            WORKLOADS,
            lambda workload: _when_appwrappers(manager, config, own_kinds, workload),
        )
    else:
        _when_appwrappers(manager, config, own_kinds, None)
        # With kueueIntegration, the AppWrapper reports what Kueue says in the Workload.
        local_queues.setup(manager, "appwrapper-queue", APPWRAPPER, local_queues.queue_of_suspended)
    if config.slack_queue_name:
        when_first_available(
            manager,
            slack_queue.CLUSTER_QUEUES,
            lambda queue: slack_queue.setup(manager, config, queue),
        )


def _when_appwrappers(
    manager: Manager,
    config: AppWrapperConfiguration,
    own_kinds: Iterable[GVK],
    workload: GVK | None,
) -> None:
    """Add the AppWrapper controller once AppWrappers are served, and with ``workload`` the Kueue controller."""

    def start(manager: Manager) -> None:
        client = manager.client.with_field_manager(FIELD_MANAGER)
        components = ComponentInformers(manager, client)
        pods = manager.cache.informer(POD, label_selector=APPWRAPPER_LABEL)
        add_indexes(pods)
        owners = OwnerReads(client, manager.clock, own_kinds)
        namespaces = NamespacePods(client, manager.clock, pods.reader, owners)
        queueing = None
        kept = None
        if workload is not None:
            queueing = kueue.setup(manager, workload)
            kept = reservations.setup(manager, client, workload, config.fault_tolerance, namespaces)
        reconciler.setup(manager, config, components, pods, namespaces, owners, queueing, kept)

    manager.when_available(APPWRAPPER, start, hint="install the CRDs of the operator")
