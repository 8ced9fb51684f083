"""Adds the InferenceStack controllers to a manager: for each API group, once its CRD is served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.names import FIELD_MANAGER
from cfo.config import InferenceStackConfiguration
from cfo.controllers.inferencestack.children import Children
from cfo.controllers.inferencestack.claims import ClaimMetrics, ClaimReconciler
from cfo.controllers.inferencestack.metrics import StackMetrics
from cfo.controllers.inferencestack.names import version_selector
from cfo.controllers.inferencestack.operator_leases import LEASE_LABELS, LEASE_SELECTOR, OperatorLeases, lease_name
from cfo.controllers.inferencestack.pod_informers import POD_SELECTOR, PodInformers
from cfo.controllers.inferencestack.pods import failure_has_changed, stack_of
from cfo.controllers.inferencestack.reconciler import InferenceStackReconciler
from cfo.runtime import (
    GVK,
    POD,
    Builder,
    Channel,
    EnqueueRequestsFromMapFunc,
    Entry,
    GenerationChanged,
    Informer,
    LabelChanged,
    LeaderElectionOptions,
    Manager,
    Request,
    Rule,
    on_update,
    or_,
)
from cfo.runtime.manager import ElectedControllers
from cfo.runtime.objects import LEASE

__all__ = ["election_rules", "rules", "setup"]

_MAJOR_VERSIONS = range(10)
"""The major versions whose Leases the manifests allow."""


def rules() -> list[Rule]:
    """Return the RBAC rules of all InferenceStack controllers."""
    return [*InferenceStackReconciler.rules, *ClaimReconciler.rules]


def election_rules(namespace: str) -> list[Rule]:
    """Return the RBAC rules for the Leases of major versions in ``namespace``."""
    names = [lease_name(f"v{major}") for major in _MAJOR_VERSIONS]
    return [
        Rule(LEASE.group, "leases", "create", namespace=namespace),
        Rule(LEASE.group, "leases", ("get", "update"), names, namespace=namespace),
    ]


def setup(manager: Manager, config: InferenceStackConfiguration, election: LeaderElectionOptions | None = None) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves its kind of stacks.

    ``election`` are the options of the manager's own election: with it, the controllers also wait for the Lease of
    their major version, and report stacks that no operator reconciles. Without, this is the only operator.
    """
    group = None
    if election is not None:
        name = lease_name(config.operator_version)
        group = manager.elect(replace(election, name=name, labels=LEASE_LABELS))
    shared: list[_Shared] = []

    def start(gvk: GVK, manager: Manager) -> None:
        if not shared:
            shared.append(_Shared(manager))
        _add_controller(manager, gvk, config.operator_version, shared[0], group)
        if group is not None and election is not None:
            _add_claims(manager, gvk, config.operator_version, election.namespace, shared[0], group)

    for gvk in INFERENCE_STACKS:
        manager.when_available(gvk, partial(start, gvk))


class _Shared:
    """What the controllers of both API groups share."""

    def __init__(self, manager: Manager) -> None:
        self.children = Children(manager)
        self.pods = PodInformers(manager)
        self.metrics = StackMetrics(manager.metrics.registry)
        self._manager = manager
        self._claims: tuple[OperatorLeases, ClaimMetrics] | None = None

    @property
    def lease_informer(self) -> Informer:
        """The informer for the Leases of all stack operators."""
        return self._manager.cache.informer(LEASE, label_selector=LEASE_SELECTOR)

    def claims(self, namespace: str) -> tuple[OperatorLeases, ClaimMetrics]:
        """Return the state of the reports of unclaimed stacks, created on the first call; ``namespace``: our own."""
        if self._claims is None:
            leases = OperatorLeases(self.lease_informer, self._manager.client, self._manager.clock, namespace)
            self._claims = (leases, ClaimMetrics(self._manager.metrics.registry))
        return self._claims


def _add_claims(
    manager: Manager, gvk: GVK, operator_version: str, namespace: str, shared: _Shared, group: ElectedControllers
) -> None:
    """Add the controller that reports unclaimed stacks."""
    name = f"inferencestack-claims-{gvk.group.partition('.')[0]}"
    stacks = manager.cache.informer(gvk, metadata_only=True)
    leases, metrics = shared.claims(namespace)
    channel = Channel()
    leases.on_change(lambda: channel.enqueue([entry.key for entry in stacks.reader.entries()]))
    (
        Builder(manager, name)
        .for_(gvk, or_(LabelChanged(), GenerationChanged()), metadata_only=True)
        .watches_source(channel)
        .reads(shared.lease_informer)
        .elected_by(group)
        .complete(
            ClaimReconciler(
                gvk,
                stacks.reader,
                leases,
                manager.client,
                manager.events(name),
                metrics,
                manager.clock,
                version=operator_version,
                namespace=namespace,
            )
        )
    )


def _add_controller(
    manager: Manager, gvk: GVK, operator_version: str, shared: _Shared, group: ElectedControllers | None
) -> None:
    name = f"inferencestack-{gvk.group.partition('.')[0]}"
    children = shared.children
    selector = version_selector(operator_version)
    stacks = manager.cache.informer(gvk, label_selector=selector)
    shared.metrics.readers.append(stacks.reader)

    def request_of(pod: Entry) -> Iterable[Request]:
        request = stack_of(pod)
        return (request,) if stacks.reader.contains(request) else ()

    builder = (
        Builder(manager, name)
        .for_(gvk, on_update(_has_changed), label_selector=selector)
        .watches(POD, EnqueueRequestsFromMapFunc(request_of), failure_has_changed, label_selector=POD_SELECTOR)
    )
    channel = Channel()
    children.watch(builder, gvk)
    controller = (
        builder.watches_source(channel)
        .elected_by(group)
        .complete(
            InferenceStackReconciler(
                gvk,
                stacks.reader,
                shared.pods,
                children,
                manager.client.with_field_manager(FIELD_MANAGER),
                manager.events(name),
                manager.clock,
                operator_version,
            )
        )
    )
    children.attach(controller, gvk, stacks, channel)
    shared.pods.attach(stacks, channel)


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
