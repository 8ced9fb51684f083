"""Adds the InferenceStack controllers to a manager: one for each API group, once its CRD is served."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.config import InferenceStackConfiguration
from cfo.controllers.inferencestack.children import Children
from cfo.controllers.inferencestack.metrics import StackMetrics
from cfo.controllers.inferencestack.names import FIELD_MANAGER, version_selector
from cfo.controllers.inferencestack.pods import POD_SELECTOR, add_index, failure_of, stack_of
from cfo.controllers.inferencestack.reconciler import InferenceStackReconciler
from cfo.runtime import (
    GVK,
    POD,
    Builder,
    EnqueueRequestsFromMapFunc,
    Entry,
    Manager,
    Request,
    Rule,
    from_functions,
    on_update,
)

__all__ = ["rules", "setup"]


def rules() -> list[Rule]:
    """Return the RBAC rules of all InferenceStack controllers."""
    return list(InferenceStackReconciler.rules)


def setup(manager: Manager, config: InferenceStackConfiguration) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves its kind of stacks."""
    shared: list[tuple[Children, StackMetrics]] = []

    async def start(gvk: GVK, manager: Manager) -> None:
        if not shared:
            children = Children(manager)
            shared.append((children, StackMetrics(manager.metrics.registry)))
            await children.discover()
        _add_controller(manager, gvk, config.operator_version, *shared[0])

    for gvk in INFERENCE_STACKS:
        manager.when_available(gvk, partial(start, gvk))


def _add_controller(
    manager: Manager, gvk: GVK, operator_version: str, children: Children, metrics: StackMetrics
) -> None:
    name = f"inferencestack-{gvk.group.partition('.')[0]}"
    selector = version_selector(operator_version)
    stacks = manager.cache.informer(gvk, label_selector=selector)
    pods = manager.cache.informer(POD, label_selector=POD_SELECTOR)
    add_index(pods)
    metrics.readers.append(stacks.reader)

    def request_of(pod: Entry) -> Iterable[Request]:
        request = stack_of(pod)
        return (request,) if stacks.reader.contains(request) else ()

    has_failure = from_functions(
        create=lambda pod: failure_of(pod) is not None,
        update=lambda old, new: failure_of(old) != failure_of(new),
        delete=lambda pod: failure_of(pod) is not None,
    )
    builder = (
        Builder(manager, name)
        .for_(gvk, on_update(_has_changed), label_selector=selector)
        .watches(POD, EnqueueRequestsFromMapFunc(request_of), has_failure, label_selector=POD_SELECTOR)
    )
    children.watch(builder, gvk, stacks)
    builder.complete(
        InferenceStackReconciler(
            gvk,
            stacks.reader,
            pods.reader,
            children,
            manager.client.with_field_manager(FIELD_MANAGER),
            manager.events(name),
            manager.clock,
            operator_version,
        )
    )


def _has_changed(old: Entry, new: Entry) -> bool:
    """Return whether anything but the status changed."""
    one, other = old.meta, new.meta
    return (
        one.uid != other.uid
        or one.generation != other.generation
        or one.deletion_timestamp != other.deletion_timestamp
        or one.finalizers != other.finalizers
        or one.annotations != other.annotations
    )
