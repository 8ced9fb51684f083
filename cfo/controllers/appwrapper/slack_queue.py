"""The lending limits of the slack queue: what cannot be scheduled, nobody may borrow.

A cluster keeps some capacity in a ClusterQueue that lends it to others. When nodes are cordoned, not ready or marked,
their capacity is still in the queues' quotas; taken out of what the slack queue lends, it is missing nowhere else.
Earlier AppWrapper releases had this (``slackQueueName``): the limits of the first flavor of the first resource group
are ``nominalQuota`` less what cannot be scheduled, but not below zero, and none where all can be.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import structlog

from cfo.config import AutopilotConfiguration
from cfo.controllers.appwrapper.nodes import marked_resources
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.client.client import Client
from cfo.runtime.events import EventRecorder
from cfo.runtime.objects import Object, key_of, name_of, resource_version_of
from cfo.runtime.reconcile import Request, Result, Rule

__all__ = [
    "CLUSTER_QUEUES",
    "SlackQueueReconciler",
    "lending_limits",
    "unschedulable_on",
]

_log = structlog.get_logger("cfo.controllers.appwrapper.slack_queue")

CLUSTER_QUEUES: Final = ("v1beta2", "v1beta1")
"""The versions of ClusterQueues that are known, the best first."""

_NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")
_NOT_READY: Final = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_INDEX: Final = "appwrapper-unschedulable"
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(n|u|m|k|[KMGTPE]i|[MGTPE]|[eE][+-]?\d+)?")
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


class _Taint(msgspec.Struct, gc=False):
    key: str = ""


class _Spec(msgspec.Struct, gc=False):
    unschedulable: bool = False
    taints: tuple[_Taint, ...] | None = None


class _Status(msgspec.Struct, gc=False):
    capacity: dict[str, str | int | float] | None = None


class _Node(msgspec.Struct, gc=False):
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Node)


def quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity as a number. Raises :class:`ValueError`."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = found.groups()
    if suffix and suffix[0] in "eE" and len(suffix) > 1:
        return Decimal(number + suffix)
    return Decimal(number) * _SUFFIXES.get(suffix or "", Decimal(1))


def written(value: Decimal) -> str:
    """A number as a quantity in canonical form: whole, or in thousandths."""
    if value == value.to_integral_value():
        return str(int(value))
    return f"{int((value * 1000).to_integral_value())}m"


def unschedulable_on(entry: Entry, config: AutopilotConfiguration) -> dict[str, Decimal]:
    """What cannot be scheduled on the node: all of it, when it is cordoned or not ready, else the resources marked."""
    node = _decoder.decode(entry.raw)
    spec, capacity = node.spec or _Spec(), (node.status.capacity if node.status is not None else None) or {}
    lost = spec.unschedulable or any(taint.key in _NOT_READY for taint in spec.taints or ())
    names = set(capacity) - {"pods"} if lost else marked_resources(entry, config, _NO_SCHEDULE) & set(capacity)
    return {name: amount for name in names if (amount := quantity(capacity[name])) > 0}


def lending_limits(queue: Mapping[str, Any], unschedulable: Mapping[str, Decimal]) -> list[Object] | None:
    """The queue's resource groups with the right limits, or ``None`` when they have them already."""
    groups: list[Object] = copy.deepcopy((queue.get("spec") or {}).get("resourceGroups") or [])
    if not groups or not groups[0].get("flavors"):
        return None
    changed = False
    for resource in groups[0]["flavors"][0].get("resources") or ():
        lost = unschedulable.get(resource["name"])
        before = resource.get("lendingLimit")
        if lost is None:
            changed = resource.pop("lendingLimit", None) is not None or changed
            continue
        limit = max(quantity(resource["nominalQuota"]) - lost, Decimal(0))
        if before is None or quantity(before) != limit:
            resource["lendingLimit"] = written(limit)
            changed = True
    return groups if changed else None


class SlackQueueReconciler:
    """Keeps the limits of the one ClusterQueue that it is asked for. ``nodes`` are all nodes."""

    rules: Final = (Rule("kueue.x-k8s.io", "clusterqueues", ("get", "list", "patch", "watch")),)

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        config: AutopilotConfiguration,
        *,
        queues: Informer,
        nodes: Informer,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._gvk = queues.gvk
        self._queues = queues.reader
        self._nodes: Reader = nodes.add_index(_INDEX, self._index).reader

    def _index(self, entry: Entry) -> Iterable[str]:
        return ["yes"] if unschedulable_on(entry, self._config) else []

    async def reconcile(self, request: Request) -> Result:
        """Writes the limits, if they are not what they should be."""
        queue = self._queues.get(request)
        if queue is None:
            return Result()
        total: dict[str, Decimal] = {}
        for entry in self._nodes.entries(index=(_INDEX, "yes")):
            for name, amount in unschedulable_on(entry, self._config).items():
                total[name] = total.get(name, Decimal(0)) + amount
        groups = lending_limits(queue, total)
        if groups is not None:
            patch = {
                "metadata": {"resourceVersion": resource_version_of(queue)},
                "spec": {"resourceGroups": groups},
            }
            await self._client.patch(self._gvk, key_of(queue), patch)
            said = ", ".join(f"{name}: {written(amount)}" for name, amount in sorted(total.items())) or "nothing"
            self._events.event(queue, "Normal", "LendingLimits", f"cannot be scheduled, and is not lent: {said}")
            _log.info("wrote lending limits", queue=name_of(queue), unschedulable=said)
        return Result()
