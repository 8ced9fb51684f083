"""The scheduler of a scenario: binds pods to nodes on which they fit, and reports those that fit on none.

It handles the pods of ``default-scheduler``, those of higher priority first. Pods that are unschedulable are retried
when a node changes or resources become free. Pods with the same requirements are tried once for all of them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS, is_finished
from envtest.errors import GroupResource, StatusError
from envtest.objects import NamespacedName, Object, find_condition, set_condition
from envtest.scenarios.fit import Demand, NodeInfo, Refusal, Usage, demand_of, node_info, refusal_of, score
from envtest.scenarios.fit import unschedulable_message as message_of
from envtest.server_core import Core
from envtest.storage import Change, Record

__all__ = ["Scheduler"]

NODES: Final = GroupResource("", "nodes")
SCHEDULER: Final = "default-scheduler"

_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_PASS: Final = ""


class _Pending(NamedTuple):
    """A pod that has no node; sorted in the order of scheduling."""

    priority: int
    created: str
    key: NamespacedName
    uid: str
    demand: Demand


class _Placed(NamedTuple):
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
            if self._pending and self._nodes.get(name) != before:
                self.queue.add(_PASS)

    def _index(self, record: Record, *, deleted: bool) -> bool:
        """Update the index of pods; return whether a pod waits newly or has released its resources."""
        key = NamespacedName(record.namespace, record.name)
        placed, waiting = self._placed.pop(key, None), self._pending.pop(key, None)
        if placed is not None:
            self._usage[placed.node].change(placed.demand, -1)
        pod = record.obj()
        if deleted or is_finished(pod):
            return placed is not None
        node = pod["spec"].get("nodeName")
        if node:
            demand = placed.demand if placed is not None else demand_of(pod)
            self._usage.setdefault(node, Usage()).change(demand, 1)
            self._placed[key] = _Placed(node, demand)
            return False
        if record.deleting or pod["spec"].get("schedulingGates") or pod["spec"].get("schedulerName") != SCHEDULER:
            return False
        demand = demand_of(pod)
        priority = -(pod["spec"].get("priority") or 0)
        self._pending[key] = _Pending(priority, pod["metadata"]["creationTimestamp"], key, record.uid, demand)
        return waiting is None or waiting.demand.signature != demand.signature

    async def reconcile(self, key: str) -> None:
        """Schedule the pods that wait."""
        failed: dict[bytes, str] = {}
        for pending in sorted(self._pending.values(), key=lambda each: each[:3]):
            if self._pending.get(pending.key) != pending:
                continue
            signature = pending.demand.signature
            if signature not in failed:
                choice = self._choose(pending.demand)
                if isinstance(choice, NodeInfo):
                    await self._bind(pending, choice)
                    continue
                failed[signature] = message_of(choice, preempts=pending.demand.preempts)
            await self._report(pending, failed[signature])

    def _choose(self, demand: Demand) -> NodeInfo | list[Refusal]:
        """Return the best node, or why each node was refused."""
        refusals, best = [], None
        for node in self._nodes.values():
            usage = self._usage.get(node.name) or Usage()
            refusal = refusal_of(demand, node, usage)
            if refusal is not None:
                refusals.append(refusal)
                continue
            rank = score(demand, node, usage)
            if best is None or rank < best[0]:
                best = (rank, node)
        return refusals if best is None else best[1]

    async def _bind(self, pending: _Pending, node: NodeInfo) -> None:
        topology = {name: node.labels[name] for name in _TOPOLOGY if name in node.labels}

        def change(pod: Object) -> bool:
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                return False
            pod["spec"]["nodeName"] = node.name
            if topology:
                pod["metadata"]["labels"] = {**topology, **(pod["metadata"].get("labels") or {})}
            conditions = [each for each in pod["status"].get("conditions") or () if each.get("type") != "PodScheduled"]
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            set_condition(conditions, scheduled, now=self.client.now())
            pod["status"]["conditions"] = conditions
            return True

        try:
            await self.client.modify(PODS, *pending.key, change, uid=pending.uid, subresource="binding")
        except StatusError as error:
            await self._report(pending, f"binding rejected: {error.message}", reason="SchedulerError")
            return
        name = f"{pending.key.namespace}/{pending.key.name}"
        await self.events.normal(_subject(pending), "Scheduled", f"Successfully assigned {name} to {node.name}")

    async def _report(self, pending: _Pending, message: str, *, reason: str = "Unschedulable") -> None:
        """Set the condition PodScheduled of a pod to false."""
        desired: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}

        is_new = False

        def change(pod: Object) -> bool:
            nonlocal is_new
            conditions = pod["status"].setdefault("conditions", [])
            current = find_condition(conditions, "PodScheduled") or {}
            if pod["spec"].get("nodeName") or all(current.get(name) == value for name, value in desired.items()):
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
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name, "uid": pending.uid}}
