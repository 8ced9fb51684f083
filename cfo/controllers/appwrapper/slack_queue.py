"""Subtracts unschedulable capacity from the lending limits of the slack queue, so that other queues cannot borrow it.

The slack queue is a ClusterQueue with spare capacity that it lends to other queues. When nodes are cordoned, not ready
or marked, their capacity is still part of the queues' quotas; subtracting it from the slack queue's lending limit does
not affect other queues. Earlier AppWrapper releases had this feature (``slackQueueName``): the limits of the first
flavor of the first resource group are ``nominalQuota`` minus the unschedulable capacity, at least zero, and unset for
resources whose capacity is fully schedulable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import structlog

from cfo.api.appwrapper.names import FIELD_MANAGER
from cfo.api.quantity import format_quantity
from cfo.config.appwrapper import AppWrapperConfiguration, AutopilotConfiguration
from cfo.controllers.appwrapper.nodes import decode_node, marked_resources
from cfo.runtime import (
    GVK,
    Builder,
    EnqueueRequestsFromMapFunc,
    Entry,
    Manager,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    name_of,
    on_update,
)
from cfo.runtime.objects import NODE, copied, parse_quantity

_log = structlog.get_logger("cfo.controllers.appwrapper.slack_queue")

CLUSTER_QUEUES: Final = (
    GVK("kueue.x-k8s.io", "v1beta2", "ClusterQueue"),
    GVK("kueue.x-k8s.io", "v1beta1", "ClusterQueue"),
)
"""The supported versions of ClusterQueues, the preferred one first."""

_NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")
_NOT_READY: Final = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_INDEX: Final = "appwrapper-unschedulable"


def unschedulable_capacity(entry: Entry, config: AutopilotConfiguration) -> dict[str, Decimal]:
    """Return the unschedulable capacity of a node by resource.

    All of its capacity is unschedulable if it is cordoned or not ready, otherwise the capacity of the marked resources.
    """
    node = decode_node(entry)
    capacity = node.status.capacity
    is_unavailable = node.spec.unschedulable or any(
        taint.key in _NOT_READY for taint in node.spec.taints
    )
    names = (
        set(capacity) - {"pods"}
        if is_unavailable
        else marked_resources(entry, config, _NO_SCHEDULE) & set(capacity)
    )
    return {name: amount for name in names if (amount := parse_quantity(capacity[name])) > 0}


def lending_limits(
    queue: Mapping[str, Any], unschedulable: Mapping[str, Decimal]
) -> list[Object] | None:
    """Return the queue's resource groups with the correct limits, or ``None`` if its limits are correct already."""
    groups: list[Object] = copied((queue.get("spec") or {}).get("resourceGroups") or [])
    if not groups or not groups[0].get("flavors"):
        return None
    changed = False
    for resource in groups[0]["flavors"][0].get("resources") or ():
        amount = unschedulable.get(resource["name"])
        before = resource.get("lendingLimit")
        if amount is None:
            changed = resource.pop("lendingLimit", None) is not None or changed
            continue
        limit = max(parse_quantity(resource["nominalQuota"]) - amount, Decimal(0))
        if before is None or parse_quantity(before) != limit:
            resource["lendingLimit"] = format_quantity(limit)
            changed = True
    return groups if changed else None


class SlackQueueReconciler:
    """Maintains the lending limits of the slack queue, which ``queues`` selects."""

    name: Final = "slack-queue"

    rules: Final = (Rule("kueue.x-k8s.io", "clusterqueues", ("get", "list", "patch", "watch")),)

    def __init__(self, manager: Manager, config: AutopilotConfiguration, queues: Reader) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._events = manager.events(self.name)
        self._config = config
        self._queues = queues
        self._nodes = manager.cache.informer(NODE).add_index(_INDEX, self._index).reader

    def _index(self, entry: Entry) -> Iterable[str]:
        return ["yes"] if unschedulable_capacity(entry, self._config) else []

    async def reconcile(self, request: Request) -> Result:
        """Update the lending limits if they are out of date."""
        queue = self._queues.get(request)
        if queue is None:
            return Result()
        total: dict[str, Decimal] = {}
        for entry in self._nodes.entries(index=(_INDEX, "yes")):
            for name, amount in unschedulable_capacity(entry, self._config).items():
                total[name] = total.get(name, Decimal(0)) + amount
        groups = lending_limits(queue, total)
        if groups is not None:
            # A list is replaced as a whole, so a change of it by another client must not be lost.
            await self._client.patch_object(
                queue, {"spec": {"resourceGroups": groups}}, unchanged=True
            )
            amounts = [
                f"{name}: {format_quantity(amount)}" for name, amount in sorted(total.items())
            ]
            capacity = ", ".join(amounts) or "none"
            self._events.event(
                queue,
                "Normal",
                "LendingLimits",
                f"Updated the lending limits because of unschedulable capacity: {capacity}",
            )
            _log.info("Updated lending limits", queue=name_of(queue), unschedulable=capacity)
        return Result()


def setup(manager: Manager, config: AppWrapperConfiguration, gvk: GVK) -> None:
    """Add the controller of the slack queue, a ClusterQueue of version ``gvk``, to ``manager``."""
    autopilot = config.autopilot
    selector = f"metadata.name={config.slack_queue_name}"
    reconciler = SlackQueueReconciler(
        manager, autopilot, manager.cache.informer(gvk, field_selector=selector).reader
    )
    changed = on_update(
        lambda old, new: (
            unschedulable_capacity(old, autopilot) != unschedulable_capacity(new, autopilot)
        )
    )
    (
        Builder(manager, reconciler.name)
        .for_(gvk, field_selector=selector)
        .watches(
            NODE,
            EnqueueRequestsFromMapFunc(lambda _: (Request("", config.slack_queue_name),)),
            changed,
        )
        .complete(reconciler)
    )
