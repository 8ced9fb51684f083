"""Which controllers there are for AppWrappers, and what each hears of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import structlog

from cfo.api.appwrapper import APPWRAPPER
from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.component_informers import ComponentKinds
from cfo.controllers.appwrapper.kueue import RESOURCE_FLAVOR_KIND, KueueReconciler
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL, FIELD_MANAGER
from cfo.controllers.appwrapper.nodes import NodeHealth
from cfo.controllers.appwrapper.pods import pod_of
from cfo.controllers.appwrapper.reconciler import POD_INDEX, AppWrapperReconciler, pod_index
from cfo.controllers.appwrapper.slack_queue import CLUSTER_QUEUES, SlackQueueReconciler, unschedulable_on
from cfo.controllers.appwrapper.workload import WORKLOADS
from cfo.runtime.builder import Builder
from cfo.runtime.cache.entry import Entry
from cfo.runtime.handler import EnqueueRequestForOwner, EnqueueRequestsFromMapFunc
from cfo.runtime.kinds import NODE, POD
from cfo.runtime.manager import Manager
from cfo.runtime.objects import GVK
from cfo.runtime.predicate import ResourceVersionChanged, on_update
from cfo.runtime.reconcile import Request, Rule

__all__ = ["rules", "setup"]

_log = structlog.get_logger("cfo.controllers.appwrapper")

_NODE_INDEX = "appwrapper-node"


def rules() -> list[Rule]:
    """The rights that the AppWrapper controllers need. (Components of other kinds need rights of their own.)"""
    return [*AppWrapperReconciler.rules, *KueueReconciler.rules, *SlackQueueReconciler.rules]


def setup(manager: Manager, config: AppWrapperConfiguration) -> None:
    """Adds the controllers to ``manager``; each starts when the API server serves the kinds that it is about."""
    if config.kueue_integration:
        # without Workloads nothing is admitted, and so no AppWrapper is deployed
        _log.info("AppWrappers are looked after once Kueue's Workloads are served: appwrapper.kueueIntegration is set")
        _first_of(manager, WORKLOADS, lambda gvk: _when_served(manager, config, gvk))
    else:
        manager.when_available(APPWRAPPER, lambda manager: _add_controller(manager, config, None))
    if config.slack_queue_name:
        queues = [GVK("kueue.x-k8s.io", version, "ClusterQueue") for version in CLUSTER_QUEUES]
        _first_of(manager, queues, lambda gvk: _add_slack_queue(manager, config, gvk))


def _first_of(manager: Manager, gvks: Iterable[GVK], start: Callable[[GVK], None]) -> None:
    """Calls ``start`` with the first of ``gvks`` that is served, once."""
    started: list[GVK] = []

    def begin(gvk: GVK, _: Manager) -> None:
        if not started:
            started.append(gvk)
            start(gvk)

    for gvk in gvks:
        manager.when_available(gvk, partial(begin, gvk))


def _when_served(manager: Manager, config: AppWrapperConfiguration, workload: GVK) -> None:
    manager.when_available(APPWRAPPER, lambda manager: _add_controller(manager, config, workload))


def _add_controller(manager: Manager, config: AppWrapperConfiguration, workload: GVK | None) -> None:
    name = "appwrappers"
    client = manager.client.with_field_manager(FIELD_MANAGER)
    pods = manager.cache.informer(POD, label_selector=APPWRAPPER_LABEL)
    pods.add_index(POD_INDEX, _wrapper_of).add_index(_NODE_INDEX, _node_of)
    nodes = manager.cache.informer(NODE) if config.autopilot.monitor_nodes else None
    health = NodeHealth(config.autopilot, nodes)
    kinds = ComponentKinds(manager, client)
    queueing = _add_queueing(manager, workload, kinds) if workload is not None else None
    reconciler = AppWrapperReconciler(
        client,
        manager.events(name),
        manager.clock,
        config,
        kinds=kinds,
        pods=pods,
        nodes=health,
        metrics=PhaseMetrics(manager.metrics.registry, manager.cache.informer(APPWRAPPER).reader),
        **({"awaits_admission": queueing.awaits_admission} if queueing is not None else {}),
    )

    def of_pod(entry: Entry) -> Iterable[Request]:
        return (Request(entry.key.namespace, entry.meta.labels[APPWRAPPER_LABEL]),)

    def of_node(entry: Entry) -> Iterable[Request]:
        there = pods.reader.entries(index=(_NODE_INDEX, entry.key.name))
        return [request for pod in there for request in of_pod(pod)]

    builder = (
        Builder(manager, name)
        .for_(APPWRAPPER, ResourceVersionChanged())
        .watches(
            POD,
            EnqueueRequestsFromMapFunc(of_pod),
            on_update(lambda old, new: pod_of(old) != pod_of(new) or _wrapper_of(old) != _wrapper_of(new)),
            label_selector=APPWRAPPER_LABEL,
        )
    )
    if nodes is not None:
        builder.watches(NODE, EnqueueRequestsFromMapFunc(of_node), health.changed)
    if workload is not None:
        builder.watches(workload, EnqueueRequestForOwner(APPWRAPPER))
    kinds.attach(builder.complete(reconciler))


def _add_queueing(manager: Manager, workload: GVK, kinds: ComponentKinds) -> KueueReconciler:
    name = "appwrapper-kueue"
    flavor = GVK(workload.group, workload.version, RESOURCE_FLAVOR_KIND)
    flavors = manager.cache.informer(flavor)
    reconciler = KueueReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        manager.clock,
        kinds=kinds,
        workloads=manager.cache.informer(workload),
        flavors=flavors,
    )
    Builder(manager, name).for_(APPWRAPPER, ResourceVersionChanged()).owns(workload).reads(flavors).complete(reconciler)
    return reconciler


def _add_slack_queue(manager: Manager, config: AppWrapperConfiguration, gvk: GVK) -> None:
    name = "slack-queue"
    selector = f"metadata.name={config.slack_queue_name}"
    reconciler = SlackQueueReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config.autopilot,
        queues=manager.cache.informer(gvk, field_selector=selector),
        nodes=manager.cache.informer(NODE),
    )
    changed = on_update(
        lambda old, new: unschedulable_on(old, config.autopilot) != unschedulable_on(new, config.autopilot)
    )
    (
        Builder(manager, name)
        .for_(gvk, field_selector=selector)
        .watches(NODE, EnqueueRequestsFromMapFunc(lambda _: (Request("", config.slack_queue_name),)), changed)
        .complete(reconciler)
    )


def _wrapper_of(entry: Entry) -> list[str]:
    name = entry.meta.labels.get(APPWRAPPER_LABEL)
    return [pod_index(entry.key.namespace, name)] if name else []


def _node_of(entry: Entry) -> list[str]:
    node = pod_of(entry).node
    return [node] if node else []
