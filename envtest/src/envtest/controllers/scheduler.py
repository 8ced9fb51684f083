"""The scheduler of a scenario: binds pods to nodes on which they fit, and reports those that fit on none.

It handles the pods of ``default-scheduler``, those of higher priority first. Pods that are unschedulable are retried
when a node changes or resources become free. Pods with the same requirements are tried once for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, find_condition, set_condition
from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS, is_finished
from envtest.simulation.fit import (
    Demand,
    NodeInfo,
    Refusal,
    Usage,
    demand_of,
    node_info,
    refusal_of,
    score,
)
from envtest.simulation.fit import unschedulable_message as message_of
from envtest.simulation.preemption import Candidate, plan_preemption
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["Ranking", "Scheduler"]

NODES: Final = GroupResource("", "nodes")
SCHEDULER: Final = "default-scheduler"

_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_PASS: Final = ""
_UNSCHEDULABLE: Final = "Unschedulable"
_MAX_RANKINGS: Final = 16
_NO_PRIORITY: Final = 2**31
_Rank = tuple[tuple[int, float, int, str], int, NodeInfo]


class _Pending(NamedTuple):
    """A pod that has no node; sorted in the order of scheduling."""

    priority: int
    created: str
    key: NamespacedName
    uid: str
    demand: Demand


class _Placed(NamedTuple):
    node: str
    uid: str
    demand: Demand
    priority: int
    is_leaving: bool


class _Reservation(NamedTuple):
    """The space on a node that a pod waits for."""

    node: str
    demand: Demand


class Scheduler(Controller[str]):
    """Schedules all pods that have no node in one pass; there is one key."""

    account = "envtest-scheduler"
    component = "default-scheduler"
    manager = "kube-scheduler"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._nodes: dict[str, NodeInfo] = {}
        self._usage: dict[str, Usage] = {}
        self._placed: dict[NamespacedName, _Placed] = {}
        self._pending: dict[NamespacedName, _Pending] = {}
        self._due: set[NamespacedName] | None = None
        self._rankings: dict[bytes, Ranking] = {}
        self._reported: dict[NamespacedName, str] = {}
        self._nominated: dict[NamespacedName, str] = {}
        """The nodes on which pods are deleted for others, by these others."""

        self._reserved: dict[NamespacedName, _Reservation] = {}
        """The space of these others that the usage of nodes includes during a pass."""

    def enqueue_all(self) -> None:
        """Index nodes and pods, and start a pass."""
        for record in self.client.records(NODES):
            self._nodes[record.name] = node_info(record.obj())
        for record in self.client.records(PODS):
            self._index(record, deleted=False)
        self.queue.add(_PASS)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Update the index, and start a pass if a pod that waits may now be scheduled."""
        deleted = change.type == "DELETED"
        if resource == PODS:
            if self._index(change.record, deleted=deleted) and self._pending:
                self.queue.add(_PASS)
        elif resource == NODES:
            name = change.record.name
            before = self._nodes.pop(name, None)
            if not deleted:
                self._nodes[name] = node_info(change.record.obj())
            if self._nodes.get(name) != before:
                self._retry_all()
                if self._pending:
                    self.queue.add(_PASS)

    def _retry_all(self) -> None:
        """Let the next pass try all pods that wait: nodes have changed, or resources have become free."""
        self._due = None
        self._rankings.clear()

    def _index(self, record: Record, *, deleted: bool) -> bool:
        """Update the index of pods; return whether a pod waits newly or has released its resources."""
        key = NamespacedName(record.namespace, record.name)
        pod = record.obj()
        placed = self._placed.get(key)
        node = pod["spec"].get("nodeName")
        runs = bool(node) and not deleted and not is_finished(pod)
        if runs and placed is not None and placed.node == node and placed.uid == record.uid:
            if record.deleting and not placed.is_leaving:
                self._placed[key] = placed._replace(is_leaving=True)
            return False
        waiting = self._pending.pop(key, None)
        self._reported.pop(key, None)
        if placed is not None:
            del self._placed[key]
            self._usage[placed.node].change(placed.demand, -1)
            self._retry_all()
        if deleted or node:
            self._nominated.pop(key, None)
        if runs:
            demand = demand_of(pod)
            self._usage.setdefault(node, Usage()).change(demand, 1)
            priority = pod["spec"].get("priority") or 0
            self._placed[key] = _Placed(node, record.uid, demand, priority, bool(record.deleting))
            return placed is not None
        if deleted or node or is_finished(pod):
            return placed is not None
        if (
            record.deleting
            or pod["spec"].get("schedulingGates")
            or pod["spec"].get("schedulerName") != SCHEDULER
        ):
            return placed is not None
        demand = demand_of(pod)
        priority = -(pod["spec"].get("priority") or 0)
        self._pending[key] = _Pending(
            priority, pod["metadata"]["creationTimestamp"], key, record.uid, demand
        )
        condition = find_condition(pod["status"].get("conditions"), "PodScheduled") or {}
        if condition.get("reason") == _UNSCHEDULABLE:
            self._reported[key] = condition.get("message") or ""
        is_new = (
            waiting is None
            or waiting.uid != record.uid
            or waiting.demand.signature != demand.signature
        )
        if is_new and self._due is not None:
            self._due.add(key)
        return is_new

    async def reconcile(self, key: str) -> None:
        """Schedule the pods that wait: all, or only those that are new since the last pass."""
        due = self._due
        self._due = set()
        waiting = (
            self._pending.values()
            if due is None
            else [self._pending[each] for each in due & self._pending.keys()]
        )
        try:
            await self._schedule(sorted(waiting, key=lambda each: each[:3]))
        except BaseException:
            self._retry_all()
            raise
        finally:
            self._reserve({})

    async def _schedule(self, waiting: list[_Pending]) -> None:
        failed: dict[bytes, str] = {}
        lowest: int | None = None
        is_preempting = (
            False  # one preemption in each pass: the deletion of its victims begins the next
        )
        hopeless: set[tuple[bytes, int]] = set()
        for pending in waiting:
            if pending.demand.signature not in failed:
                await asyncio.sleep(0)  # lets requests through: a pass can have thousands of pods
            if self._pending.get(pending.key) != pending:
                continue
            self._reserve_for_others(pending)
            signature = pending.demand.signature
            # Space that is reserved for a pod is free only for this pod.
            if signature not in failed or pending.key in self._nominated:
                node = self._ranking(pending.demand).best()
                if node is not None:
                    await self._bind(pending, node)
                    continue
                failed[signature] = message_of(
                    self._refusals(pending.demand), preempts=pending.demand.preempts
                )
            if self._reported.get(pending.key) != failed[signature]:
                await self._report(pending, failed[signature])
            if pending.demand.preempts and not is_preempting:
                if lowest is None:
                    lowest = min(
                        (each.priority for each in self._placed.values()), default=_NO_PRIORITY
                    )
                tried = (signature, pending.priority)
                if lowest < -pending.priority and tried not in hopeless:
                    is_preempting = await self._preempt(pending)
                    hopeless.add(tried)

    def _nominated_besides(self, pending: _Pending) -> dict[NamespacedName, _Reservation]:
        """Return the space for which others of at least the same priority have deleted pods, by these others."""
        found = {}
        for key, node in self._nominated.items():
            other = self._pending.get(key)
            if other is not None and key != pending.key and other.priority <= pending.priority:
                found[key] = _Reservation(node, other.demand)
        return found

    def _reserve_for_others(self, pending: _Pending) -> None:
        """Count the pods for which others were deleted as if they ran, so that ``pending`` cannot take their space."""
        if self._nominated or self._reserved:
            self._reserve(self._nominated_besides(pending))

    def _reserve(self, reservations: dict[NamespacedName, _Reservation]) -> None:
        """Replace the reservations in the usage of nodes."""
        if reservations == self._reserved:
            return
        for reservation in self._reserved.values():
            self._usage[reservation.node].change(reservation.demand, -1)
        for reservation in reservations.values():
            self._usage.setdefault(reservation.node, Usage()).change(reservation.demand, 1)
        self._reserved = reservations
        self._rankings.clear()

    def _ranking(self, demand: Demand) -> Ranking:
        ranking = self._rankings.get(demand.signature)
        if ranking is None:
            if len(self._rankings) >= _MAX_RANKINGS:
                self._rankings.clear()
            ranking = Ranking(demand, self._nodes, self._usage)
            self._rankings[demand.signature] = ranking
        return ranking

    def _refusals(self, demand: Demand) -> list[Refusal]:
        """Return why each node refuses a pod."""
        found = (
            refusal_of(demand, node, self._usage.get(node.name) or Usage())
            for node in self._nodes.values()
        )
        return [refusal for refusal in found if refusal is not None]

    async def _bind(self, pending: _Pending, node: NodeInfo) -> None:
        topology = {name: node.labels[name] for name in _TOPOLOGY if name in node.labels}

        def change(pod: Object) -> bool:
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                return False
            pod["spec"]["nodeName"] = node.name
            if topology:
                pod["metadata"]["labels"] = {**topology, **(pod["metadata"].get("labels") or {})}
            conditions = [
                each
                for each in pod["status"].get("conditions") or ()
                if each.get("type") != "PodScheduled"
            ]
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            set_condition(conditions, scheduled, now=self.client.now())
            pod["status"]["conditions"] = conditions
            return True

        try:
            await self.client.modify(
                PODS, *pending.key, change, uid=pending.uid, subresource="binding"
            )
        except StatusError as error:
            self._retry_all()
            await self._report(
                pending, f"binding rejected: {error.message}", reason="SchedulerError"
            )
            return
        name = f"{pending.key.namespace}/{pending.key.name}"
        await self.events.normal(
            _subject(pending), "Scheduled", f"Successfully assigned {name} to {node.name}"
        )

    async def _preempt(self, pending: _Pending) -> bool:
        """Delete pods of lower priority so that a pod fits; return whether it waits for their deletion."""
        nominated = self._nominated.get(pending.key)
        lower: dict[str, list[Candidate]] = {}
        staying: dict[str, list[Demand]] = {}
        for key, placed in self._placed.items():
            if placed.priority >= -pending.priority:
                staying.setdefault(placed.node, []).append(placed.demand)
            elif placed.is_leaving and placed.node == nominated:
                return True
            else:
                lower.setdefault(placed.node, []).append(
                    Candidate(placed.priority, key, placed.demand)
                )
        for reservation in self._nominated_besides(pending).values():
            staying.setdefault(reservation.node, []).append(reservation.demand)
        nodes = [(node, staying.get(node.name, ())) for node in self._nodes.values()]
        plan = plan_preemption(pending.demand, nodes, lower)
        if plan is None:
            self._nominated.pop(pending.key, None)
            return False
        self._nominated[pending.key] = plan.node
        await self.client.modify(
            PODS,
            *pending.key,
            lambda pod: pod["status"].update(nominatedNodeName=plan.node),
            uid=pending.uid,
            subresource="status",
        )
        for key in plan.victims:
            await self._evict(key, pending, plan.node)
        return True

    async def _evict(self, key: NamespacedName, pending: _Pending, node: str) -> None:
        uid = self._placed[key].uid
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{SCHEDULER}: preempting to accommodate a higher priority pod",
        }

        def change(pod: Object) -> None:
            set_condition(
                pod["status"].setdefault("conditions", []), dict(condition), now=self.client.now()
            )

        await self.client.modify(PODS, *key, change, uid=uid, subresource="status")
        victim = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid},
        }
        await self.events.normal(
            victim, "Preempted", f"Preempted by pod {pending.uid} on node {node}"
        )
        await self.client.delete(PODS, *key, uid=uid)

    async def _report(
        self, pending: _Pending, message: str, *, reason: str = _UNSCHEDULABLE
    ) -> None:
        """Set the condition PodScheduled of a pod to false."""
        desired: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
        }

        is_new = False

        def change(pod: Object) -> bool:
            nonlocal is_new
            conditions = pod["status"].setdefault("conditions", [])
            current = find_condition(conditions, "PodScheduled") or {}
            if pod["spec"].get("nodeName") or all(
                current.get(name) == value for name, value in desired.items()
            ):
                return False
            set_condition(conditions, {"lastProbeTime": None, **desired}, now=self.client.now())
            is_new = True
            return True

        await self.client.modify(PODS, *pending.key, change, uid=pending.uid, subresource="status")
        if is_new:
            await self.events.warning(_subject(pending), "FailedScheduling", message)


def _subject(pending: _Pending) -> Object:
    """Return the pod as Events name it."""
    namespace, name = pending.key
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": pending.uid},
    }


class Ranking:
    """Ranks ``nodes`` for ``demand``. It is valid while the nodes stay the same and their usage only grows.

    The rank of a node only becomes worse as its usage grows, so that only the best one needs to be checked again.
    """

    def __init__(
        self, demand: Demand, nodes: Mapping[str, NodeInfo], usage: Mapping[str, Usage]
    ) -> None:
        self._demand = demand
        self._usage = usage
        ranks = (self._rank(node) for node in nodes.values())
        self._heap = [rank for rank in ranks if rank is not None]
        heapify(self._heap)

    def _rank(self, node: NodeInfo) -> _Rank | None:
        usage = self._usage.get(node.name) or Usage()
        if refusal_of(self._demand, node, usage) is not None:
            return None
        return score(self._demand, node, usage), usage.version, node

    def best(self) -> NodeInfo | None:
        """Return the best node; ``None`` if a pod fits on none."""
        while self._heap:
            _, version, node = self._heap[0]
            usage = self._usage.get(node.name)
            if version == (usage.version if usage is not None else 0):
                return node
            rank = self._rank(node)
            if rank is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, rank)
        return None
