"""The controller of FluxSetups: decides about their queues, and reports their state.

The decision is made from the records of the :class:`~cfo.controllers.flux.queue.ledger.Ledger`; FluxJobs with a new
verdict are enqueued for their own controller, which writes their status. If the cluster has no FluxSetup at start, one
can be created, so that FluxJobs run before an administrator creates one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import Histogram

from cfo.api.flux.names import (
    ACTIVE,
    FIELD_MANAGER,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    MINICLUSTER_LABEL,
)
from cfo.config.model import DefaultSetupConfiguration
from cfo.controllers.flux import lost_pods
from cfo.controllers.flux.job_selection import JOBS
from cfo.controllers.flux.metrics import decision_seconds
from cfo.controllers.flux.queue.governance import READY, REPLACED, Setup
from cfo.controllers.flux.queue.ledger import Ledger, Totals
from cfo.runtime import (
    JOB,
    NAMESPACE,
    POD,
    READ,
    AlreadyExists,
    APIError,
    Builder,
    Channel,
    Client,
    Clock,
    Event,
    EventRecorder,
    EventType,
    Informer,
    LabelSelector,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Request,
    Result,
    Rule,
    TransportError,
    find_condition,
    key_of,
    uid_of,
)
from cfo.runtime.client import Backoff, apply_status
from cfo.runtime.controller import EventHandler
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import PRIORITY_CLASS, Conditions, new_object
from cfo.runtime.process import micro_time

_log = structlog.get_logger("cfo.controllers.flux")

START: Final = Request("", "")
"""The request that begins decisions. It is reconciled once all informers of the controller have synced."""

_STATUS_INTERVAL: Final = 1.0
"""The minimum number of seconds between two writes that change only the numbers in a status."""

_DECISION_SHARE: Final = 9.0
"""After a decision, the next one waits this multiple of its duration: decisions take a tenth of the CPU at most."""

_MAX_PAUSE: Final = 2.0


def desired_status(
    obj: Object, setup: Setup, replacement: NamespacedName | None, totals: Totals, now: datetime
) -> Object:
    """Return the status of the FluxSetup ``obj``; ``replacement`` is the newer setup that governs instead."""
    conditions = Conditions(obj, now=now, time_format=micro_time)
    if setup.problem is not None:
        reason, message = setup.problem
        conditions.set(ACTIVE, False, reason, message)
    elif replacement is not None:
        message = f"FluxSetup {replacement} is newer, or in the same namespace as the jobs"
        conditions.set(ACTIVE, False, REPLACED, message)
    else:
        conditions.set(ACTIVE, True, READY, "The FluxSetup governs FluxJobs")
    status: Object = {
        "conditions": conditions.as_list(),
        "observedGeneration": setup.generation,
        "usedResources": totals.pods,
        "admittedWorkloads": totals.admitted,
        "pendingWorkloads": totals.pending,
    }
    if totals.without_job:
        status["usedWithoutJob"] = totals.without_job
    return status


def _is_only_numbers(before: Object, after: Object) -> bool:
    """Return whether two statuses differ in nothing but their numbers, so that the change can be written later."""
    if before.get("observedGeneration") != after.get("observedGeneration"):
        return False
    old = find_condition(before.get("conditions"), ACTIVE)
    return old == find_condition(after.get("conditions"), ACTIVE)


def default_setup(
    config: DefaultSetupConfiguration, namespace: str, selector: LabelSelector | None = None
) -> Object:
    """Return the FluxSetup ``default`` in the operator's ``namespace``, for all namespaces.

    It has labels that ``selector`` selects, so that an operator with this selector sees it.
    """
    requirements = selector.requirements if selector is not None else ()
    labels = {
        each.key: next(iter(each.values), "")
        for each in requirements
        if each.operator in ("In", "Exists")
    }
    spec = {
        "max-size": config.max_size,
        "mini-cluster": {"size": config.mini_cluster_size},
        "namespaceSelector": {},
        "queueingStrategy": config.queueing_strategy,
    }
    return new_object(FLUX_SETUP, "default", namespace, labels=labels, spec=spec)


@dataclass(frozen=True, eq=False)
class DefaultSetup:
    """Creates the FluxSetup once, on the leader, after the informer of FluxSetups has synced."""

    name = "flux-default-setup"
    needs_leader = True

    client: Client
    setups: Informer
    desired: Object
    clock: Clock

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Create the FluxSetup if there is none; retry with growing pauses, as the webhook may not respond yet."""
        task_status.started()
        await self.setups.wait_for_sync()
        backoff = Backoff(self.clock)
        while not len(self.setups.reader):
            try:
                await self.client.create(self.desired)
            except AlreadyExists:
                return
            except (APIError, TransportError) as error:
                _log.error("Failed to create the default FluxSetup, will retry", error=str(error))
            else:
                namespace = self.desired["metadata"]["namespace"]
                _log.info("Created the default FluxSetup", namespace=namespace)
                return
            backoff.record_failure()
            await self.clock.sleep(backoff.delay())


def create_default(manager: Manager, config: DefaultSetupConfiguration, namespace: str) -> None:
    """Let ``manager`` create the default FluxSetup in the operator's ``namespace``."""
    client = manager.client.with_field_manager(FIELD_MANAGER)
    setups = manager.cache.informer(FLUX_SETUP)
    desired = default_setup(config, namespace, setups.selection.label_selector)
    manager.add(DefaultSetup(client, setups, desired, manager.clock))


@dataclass(frozen=True, eq=False)
class FluxSetupReconciler:
    """Decides about the queue of each FluxSetup, and writes its status."""

    rules = (
        Rule("flux-framework.org", "fluxsetups", ("create", "get", "list", "watch")),
        Rule("flux-framework.org", "fluxsetups/status", ("get", "patch")),
        Rule("flux-framework.org", ("fluxjobs", "miniclusters"), READ),
        Rule("batch", "jobs", READ),
        Rule("", ("pods", "namespaces"), READ),
        Rule("scheduling.k8s.io", "priorityclasses", READ),
    )

    client: Client
    events: EventRecorder
    clock: Clock
    ledger: Ledger
    channel: Channel
    decision_seconds: Histogram
    _next_decision: dict[Request, float] = field(default_factory=dict, init=False)
    _next_status: dict[Request, float] = field(default_factory=dict, init=False)

    async def reconcile(self, request: Request) -> Result:
        """Decide about the queue of one setup."""
        if not self.ledger.is_started:
            await self.ledger.prepare()
        if not self.ledger.is_started:  # another worker may have started it meanwhile
            self.channel.enqueue(self.ledger.start())
        if request == START:
            return Result()
        obj = await self.client.get(FLUX_SETUP, request)
        setup = self.ledger.setup(request)
        if obj is None or setup is None or setup.uid != uid_of(obj):
            self._forget(request)
            return Result()
        began = self.clock.monotonic()
        remaining = self._next_decision.get(request, 0.0) - began
        if remaining > 0:
            return Result(requeue_after=remaining)
        now = self.clock.now().timestamp()
        totals = self.ledger.decide(request, now)
        ended = self.clock.monotonic()
        duration = ended - began
        self._next_decision[request] = ended + min(duration * _DECISION_SHARE, _MAX_PAUSE)
        self.decision_seconds.observe(duration)
        replacement = self.ledger.replacement_of(request)
        status = desired_status(obj, setup, replacement, totals, self.clock.now())
        result = await self._write_status(obj, status)
        next_decision = self.ledger.next_decision(request)
        if next_decision is None:
            return result
        remaining = max(next_decision - now, 0.0)
        return Result(requeue_after=min(result.requeue_after or remaining, remaining))

    async def _write_status(self, obj: Object, status: Object) -> Result:
        """Write the status if it changed; not too often if only numbers did."""
        before = obj.get("status") or {}
        if status == before:
            return Result()
        key = key_of(obj)
        now = self.clock.monotonic()
        remaining = self._next_status.get(key, 0.0) - now
        if remaining > 0 and _is_only_numbers(before, status):
            return Result(requeue_after=remaining)
        self._next_status[key] = now + _STATUS_INTERVAL
        try:
            await apply_status(self.client, obj, status)
        except NotFound:
            return Result()  # it was deleted in the meantime, such as with its namespace
        self._report_change(obj, status)
        return Result()

    def _report_change(self, obj: Object, status: Object) -> None:
        """Record an Event if the reason of the condition Active is another one than before."""
        before = (obj.get("status") or {}).get("conditions")
        old = find_condition(before, ACTIVE) or {}
        new = find_condition(status["conditions"], ACTIVE) or {}
        if old.get("reason") == new["reason"]:
            return
        kind: EventType = "Normal" if new["status"] == "True" else "Warning"
        self.events.event(obj, kind, new["reason"], new["message"])

    def _forget(self, request: Request) -> None:
        self._next_decision.pop(request, None)
        self._next_status.pop(request, None)


class _Record(EventHandler):
    """An event handler that passes each event to the ledger."""

    def __init__(self, record: Callable[[Event], list[Request]]) -> None:
        self._record = record

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the setups whose queues may have changed."""
        return dict.fromkeys(self._record(event))


def setup(manager: Manager, admin_namespaces: Collection[str], notifications: Channel) -> Ledger:
    """Add the controller of FluxSetups to ``manager``; return the ledger of its queues.

    ``admin_namespaces``: whose FluxSetups may select other namespaces. FluxJobs that have something to do are enqueued
    in ``notifications``.
    """
    name = "fluxsetup"
    channel = Channel()
    lost = Channel()
    ledger = Ledger(
        frozenset(admin_namespaces),
        notifications.enqueue,
        lost.enqueue,
        channel.enqueue,
        now=lambda: manager.clock.now().timestamp(),
    )
    lost_pods.setup(manager, ledger, lost, channel)
    channel.enqueue((START,))
    reconciler = FluxSetupReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        manager.clock,
        ledger,
        channel,
        decision_seconds(manager.metrics.registry),
    )
    labelled: SelectionKeywords = {"label_selector": MINICLUSTER_LABEL}
    (
        Builder(manager, name)
        .watches(FLUX_SETUP, _Record(ledger.on_setup))
        .watches(FLUX_JOB, _Record(ledger.on_job))
        .watches(MINICLUSTER, _Record(ledger.on_cluster))
        .watches(JOB, _Record(ledger.on_batch_job), **JOBS)
        .watches(POD, _Record(ledger.on_pod), **labelled)
        .watches(PRIORITY_CLASS, _Record(ledger.on_priority_class), optional=True)
        # Optional, because an operator that is limited to some namespaces may not list namespaces.
        .watches(NAMESPACE, _Record(ledger.on_namespace), optional=True, metadata_only=True)
        .watches_source(channel)
        .complete(reconciler)
    )
    return ledger
