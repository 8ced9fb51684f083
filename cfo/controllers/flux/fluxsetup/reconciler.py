"""Decides about the queues of FluxSetups, and reports their state.

The decision is made from the records of the :class:`~cfo.controllers.flux.queue.ledger.Ledger`; FluxJobs with a new
verdict are enqueued for their own controller, which writes their status.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from cfo.api.flux import ACTIVE, FLUX_JOB, FLUX_SETUP, MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.flux.names import FIELD_MANAGER
from cfo.controllers.flux.fluxsetup.metrics import DecisionMetrics
from cfo.controllers.flux.fluxsetup.status import desired_status, is_only_numbers
from cfo.controllers.flux.queue.ledger import Ledger
from cfo.runtime import (
    JOB,
    NAMESPACE,
    POD,
    READ,
    Builder,
    Channel,
    Client,
    Clock,
    Event,
    EventRecorder,
    Manager,
    Object,
    Request,
    RESTMapper,
    Result,
    Rule,
    find_condition,
    key_of,
    uid_of,
)
from cfo.runtime.client import apply_status
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import PRIORITY_CLASS

__all__ = ["START", "FluxSetupReconciler", "setup"]

_log = structlog.get_logger("cfo.controllers.flux")

START: Final = Request("", "")
"""The request that begins decisions. It is reconciled once all informers of the controller have synced."""

_STATUS_INTERVAL: Final = 1.0
"""The minimum number of seconds between two writes that change only the numbers in a status."""

_DECISION_SHARE: Final = 9.0
"""After a decision, the next one waits this multiple of its duration: decisions take a tenth of the CPU at most."""

_MAX_PAUSE: Final = 2.0


class FluxSetupReconciler:
    """Decides about the queue of each FluxSetup, and writes its status."""

    rules: Final = (
        Rule("flux-framework.org", "fluxsetups", ("create", "get", "list", "watch")),
        Rule("flux-framework.org", "fluxsetups/status", ("get", "patch")),
        Rule("flux-framework.org", ("fluxjobs", "miniclusters"), READ),
        Rule("batch", "jobs", READ),
        Rule("", ("pods", "namespaces"), READ),
        Rule("scheduling.k8s.io", "priorityclasses", READ),
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        clock: Clock,
        ledger: Ledger,
        channel: Channel,
        metrics: DecisionMetrics,
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._ledger = ledger
        self._channel = channel
        self._metrics = metrics
        self._next_decision: dict[Request, float] = {}
        self._next_status: dict[Request, float] = {}

    async def reconcile(self, request: Request) -> Result:
        """Decide about the queue of one setup."""
        if not self._ledger.is_started:
            self._channel.enqueue(self._ledger.start())
        if request == START:
            return Result()
        obj = await self._client.get(FLUX_SETUP, request)
        setup = self._ledger.setup(request)
        if obj is None or setup is None or setup.uid != uid_of(obj):
            self._forget(request)
            return Result()
        began = self._clock.monotonic()
        if (pause := self._next_decision.get(request, 0.0) - began) > 0:
            return Result(requeue_after=pause)
        totals = self._ledger.decide(request, self._clock.now().timestamp())
        ended = self._clock.monotonic()
        self._next_decision[request] = ended + min((ended - began) * _DECISION_SHARE, _MAX_PAUSE)
        self._metrics.observe(ended - began)
        status = desired_status(obj, setup, self._ledger.replacement_of(request), totals, self._clock.now())
        return await self._write_status(obj, status)

    async def _write_status(self, obj: Object, status: Object) -> Result:
        """Write the status if it changed; not too often if only numbers did."""
        key, before = key_of(obj), obj.get("status") or {}
        if status == before:
            return Result()
        now = self._clock.monotonic()
        if is_only_numbers(before, status) and (pause := self._next_status.get(key, 0.0) - now) > 0:
            return Result(requeue_after=pause)
        self._next_status[key] = now + _STATUS_INTERVAL
        await apply_status(self._client, obj, status)
        old, new = (find_condition(item.get("conditions"), ACTIVE) or {} for item in (before, status))
        if old.get("reason") != new["reason"]:
            self._events.event(obj, "Normal" if new["status"] == "True" else "Warning", new["reason"], new["message"])
        return Result()

    def _forget(self, request: Request) -> None:
        self._next_decision.pop(request, None)
        self._next_status.pop(request, None)


class _Record:
    """An event handler that passes each event to the ledger."""

    def __init__(self, record: Callable[[Event], list[Request]]) -> None:
        self._record = record

    async def prepare(self, mapper: RESTMapper) -> None:
        """Do nothing."""

    def requests(self, event: Event) -> Iterable[Request]:
        """Return the setups whose queues may have changed."""
        return dict.fromkeys(self._record(event))


def setup(manager: Manager, admin_namespaces: Collection[str], notifications: Channel) -> Ledger:
    """Add the controller of FluxSetups to ``manager``; return the ledger of its queues.

    ``admin_namespaces``: whose FluxSetups may select other namespaces. FluxJobs that have something to do are enqueued
    in ``notifications``.
    """
    name = "fluxsetup"
    ledger = Ledger(frozenset(admin_namespaces), notifications.enqueue)
    channel = Channel()
    channel.enqueue((START,))
    reconciler = FluxSetupReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        manager.clock,
        ledger,
        channel,
        DecisionMetrics(manager.metrics.registry),
    )
    labelled: SelectionKeywords = {"label_selector": MINICLUSTER_LABEL}
    (
        Builder(manager, name)
        .watches(FLUX_SETUP, _Record(ledger.on_setup))
        .watches(FLUX_JOB, _Record(ledger.on_job))
        .watches(MINICLUSTER, _Record(ledger.on_cluster))
        .watches(JOB, _Record(ledger.on_batch_job), **labelled)
        .watches(POD, _Record(ledger.on_pod), **labelled)
        .watches(PRIORITY_CLASS, _Record(ledger.on_priority_class), optional=True)
        # Optional, because an operator that is limited to some namespaces may not list namespaces.
        .watches(NAMESPACE, _Record(ledger.on_namespace), optional=True, metadata_only=True)
        .watches_source(channel)
        .complete(reconciler)
    )
    return ledger
