"""Adds the InferenceStack controllers to a manager: for each API group, once its CRD is served."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

from cfo.api.inferencestack.kinds import INFERENCE_STACKS, OPERATOR_VERSION_LABEL
from cfo.api.inferencestack.leases import (
    LEASE_LABELS,
    LEASE_SELECTOR,
    MAX_LEASE_BYTES,
    VERSIONS,
    lease_name,
)
from cfo.api.inferencestack.names import FIELD_MANAGER
from cfo.api.kueue import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, WAITING
from cfo.config.model import InferenceStackConfiguration
from cfo.controllers import local_queues
from cfo.controllers.cached_fields import conditions_of
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.claims import ClaimReconciler
from cfo.controllers.inferencestack.metrics import ClaimMetrics, StackMetrics
from cfo.controllers.inferencestack.operator_leases import OperatorLeases
from cfo.controllers.inferencestack.pods import (
    POD_SELECTION,
    PodInformers,
    report_has_changed,
    stacks_of,
)
from cfo.controllers.inferencestack.reconciler import InferenceStackReconciler
from cfo.controllers.left_out import enqueue_all
from cfo.runtime import (
    GVK,
    POD,
    Builder,
    Channel,
    EnqueueRequestsFromMapFunc,
    Entry,
    GenerationChanged,
    LabelChanged,
    LeaderElectionOptions,
    Manager,
    Rule,
    on_update,
    or_,
)
from cfo.runtime.manager import ElectedControllers
from cfo.runtime.objects import LEASE

RULES: Final = (*InferenceStackReconciler.rules, *ClaimReconciler.rules)
"""The RBAC rules of all InferenceStack controllers."""


def election_rules(namespace: str) -> list[Rule]:
    """Return the RBAC rules for the Leases of major versions in ``namespace``."""
    return [
        Rule(LEASE.group, "leases", "create", namespace=namespace),
        Rule(LEASE.group, "leases", ("get", "update"), list(VERSIONS), namespace=namespace),
    ]


def setup(
    manager: Manager,
    config: InferenceStackConfiguration,
    election: LeaderElectionOptions | None = None,
    namespace: str = "default",
) -> None:
    """Add the controllers to ``manager``; each starts once the API server serves its kind of stacks.

    ``election`` are the options of the manager's own election: with it, the controllers also wait for the Lease of
    their major version. Stacks that no operator reconciles are reported in either case; without it, this operator is in
    ``namespace``, and the only one of its major version.
    """
    group = None
    if election is not None:
        name = lease_name(config.operator_version)
        group = manager.elect(replace(election, name=name, labels=LEASE_LABELS))
    shared = cache(partial(_Controllers, manager, config, group))

    lease_namespace = namespace if election is None else election.namespace

    def start(gvk: GVK, _: Manager) -> None:
        shared().add_reconciler(gvk)
        shared().add_claims(gvk, lease_namespace)

    for gvk in INFERENCE_STACKS:
        manager.when_available(gvk, partial(start, gvk))
        local_queues.setup(
            manager,
            f"inferencestack-queue-{_product_of(gvk)}",
            gvk,
            _waiting_queue,
            group=group,
            label_selector=_selector_of(config),
        )


class _Controllers:
    """Adds the controllers of each API group, which share their informers and metrics."""

    def __init__(
        self,
        manager: Manager,
        config: InferenceStackConfiguration,
        group: ElectedControllers | None,
    ) -> None:
        self._manager = manager
        self._config = config
        self._group = group
        self._children = StackInformers(manager)
        self._pods = PodInformers(manager)
        self._metrics = StackMetrics(manager.metrics.registry)
        self._claims: tuple[OperatorLeases, ClaimMetrics] | None = None

    def add_claims(self, gvk: GVK, namespace: str) -> None:
        """Add the controller that reports unclaimed stacks; ``namespace`` is that of this operator."""
        manager = self._manager
        name = f"inferencestack-claims-{_product_of(gvk)}"
        stacks = manager.cache.informer(gvk, metadata_only=True)
        lease_informer = manager.cache.informer(
            LEASE, label_selector=LEASE_SELECTOR, max_bytes=MAX_LEASE_BYTES
        )
        if self._claims is None:
            own_version = self._config.operator_version if self._group is None else ""
            found = OperatorLeases(
                lease_informer, manager.client, manager.clock, namespace, own_version
            )
            self._claims = (found, ClaimMetrics(manager.metrics.registry))
        leases, metrics = self._claims
        channel = Channel()

        def enqueue_one() -> None:
            stored = stacks.reader.entries()
            if stored:
                channel.enqueue([stored[0].key])
            else:
                stacks.report_left_out()

        leases.on_unverified(enqueue_one)
        leases.on_change(partial(enqueue_all, stacks, channel))
        reconciler = ClaimReconciler(
            gvk,
            stacks,
            leases,
            manager.client,
            manager.events(name),
            metrics,
            manager.clock,
            self._config.operator_version,
            namespace,
            self._group is not None,
        )
        (
            Builder(manager, name)
            .for_(gvk, or_(LabelChanged(), GenerationChanged()), metadata_only=True)
            .watches_source(channel)
            .reads(lease_informer)
            .elected_by(self._group)
            .complete(reconciler)
        )

    def add_reconciler(self, gvk: GVK) -> None:
        """Add the controller that reconciles stacks."""
        manager = self._manager
        name = f"inferencestack-{_product_of(gvk)}"
        selector = _selector_of(self._config)
        stacks = manager.cache.informer(gvk, label_selector=selector)
        self._metrics.readers.append(stacks.reader)

        stacks_of_pods = EnqueueRequestsFromMapFunc(lambda pod: stacks_of(pod, stacks.reader))
        builder = (
            Builder(manager, name)
            .for_(gvk, on_update(_has_changed), label_selector=selector)
            .watches(POD, stacks_of_pods, report_has_changed, **POD_SELECTION)
        )
        channel = Channel()
        self._children.watch(builder, gvk)
        reconciler = InferenceStackReconciler(
            gvk,
            stacks,
            self._pods,
            self._children,
            manager.client.with_field_manager(FIELD_MANAGER),
            manager.events(name),
            manager.clock,
            self._config.operator_version,
            self._config.allow_cluster_trigger_authentication,
        )
        controller = builder.watches_source(channel).elected_by(self._group).complete(reconciler)
        self._children.attach(controller, stacks, channel)
        self._pods.attach(stacks, channel)


def _selector_of(config: InferenceStackConfiguration) -> str:
    """Return the selector of the stacks that this operator reconciles."""
    return f"{OPERATOR_VERSION_LABEL}={config.operator_version}"


def _waiting_queue(stack: Entry) -> str:
    """Return the LocalQueue that pods of a stack wait for; empty if they wait for none."""
    queue = stack.meta.labels.get(QUEUE_NAME_LABEL, "")
    if not queue:
        return ""
    waits = any(
        condition.type == "QuotaReserved" and condition.reason == WAITING
        for condition in conditions_of(stack)
    )
    return queue if waits else ""


def _product_of(gvk: GVK) -> str:
    """Return the first part of the API group, by which the controllers of several groups differ."""
    return gvk.group.partition(".")[0]


_PASSED_ON: Final = (QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL)
"""The labels of stacks on which their objects depend."""


def _has_changed(old: Entry, new: Entry) -> bool:
    """Return whether anything but the status, and labels without effect, changed."""
    one = old.meta
    other = new.meta
    return (
        one.uid != other.uid
        or one.generation != other.generation
        or one.deletion_timestamp != other.deletion_timestamp
        or one.finalizers != other.finalizers
        or one.annotations != other.annotations
        or any(one.labels.get(label) != other.labels.get(label) for label in _PASSED_ON)
    )
