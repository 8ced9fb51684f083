"""Which controllers there are for AppWrappers, and what each hears of."""

from __future__ import annotations

from collections.abc import Iterable

from cfo.api.appwrapper import APPWRAPPER
from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.kinds import ComponentKinds
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL, FIELD_MANAGER
from cfo.controllers.appwrapper.nodes import NODE, NodeHealth
from cfo.controllers.appwrapper.pods import pod_of
from cfo.controllers.appwrapper.reconciler import POD_INDEX, AppWrapperReconciler, pod_index
from cfo.controllers.appwrapper.view import POD
from cfo.runtime.builder import Builder
from cfo.runtime.cache.entry import Entry
from cfo.runtime.handler import EnqueueRequestsFromMapFunc
from cfo.runtime.manager import Manager
from cfo.runtime.predicate import ResourceVersionChanged, on_update
from cfo.runtime.reconcile import Request, Rule

__all__ = ["rules", "setup"]

_NODE_INDEX = "appwrapper-node"


def rules() -> list[Rule]:
    """The rights that the AppWrapper controllers need. (Components of other kinds need rights of their own.)"""
    return list(AppWrapperReconciler.rules)


def setup(manager: Manager, config: AppWrapperConfiguration) -> None:
    """Adds the controllers to ``manager``; they start when the API server serves AppWrappers."""

    def start(manager: Manager) -> None:
        _add_controller(manager, config)

    manager.when_available(APPWRAPPER, start)


def _add_controller(manager: Manager, config: AppWrapperConfiguration) -> None:
    name = "appwrappers"
    client = manager.client.with_field_manager(FIELD_MANAGER)
    pods = manager.cache.informer(POD, label_selector=APPWRAPPER_LABEL)
    pods.add_index(POD_INDEX, _wrapper_of).add_index(_NODE_INDEX, _node_of)
    nodes = manager.cache.informer(NODE) if config.autopilot.monitor_nodes else None
    health = NodeHealth(config.autopilot, nodes)
    kinds = ComponentKinds(manager, client)
    reconciler = AppWrapperReconciler(
        client,
        manager.events(name),
        manager.clock,
        config,
        kinds=kinds,
        pods=pods,
        nodes=health,
        metrics=PhaseMetrics(manager.metrics.registry, manager.cache.informer(APPWRAPPER).reader),
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
    kinds.attach(builder.complete(reconciler))


def _wrapper_of(entry: Entry) -> list[str]:
    name = entry.meta.labels.get(APPWRAPPER_LABEL)
    return [pod_index(entry.key.namespace, name)] if name else []


def _node_of(entry: Entry) -> list[str]:
    node = pod_of(entry).node
    return [node] if node else []
