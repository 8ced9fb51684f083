"""The kubelets of a scenario: write the status of the pods on each node as time passes, and stop deleted pods.

The status is a function of the pod, its behavior in the scenario and the time (``envtest.simulation.pod_status``), so
it is the same after missed changes. The kubelet of a node that is not ready does nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import (
    NamespacedName,
    Object,
    find_condition,
    format_time,
    set_condition,
)
from envtest.controllers.controller import Controller
from envtest.controllers.node_index import NodeIndex
from envtest.controllers.pod_failures import obvious_behavior
from envtest.controllers.pod_state import PODS, address_number, is_finished
from envtest.controllers.waiting_events import report_waiting
from envtest.simulation.ephemeral_containers import ended_ephemeral_statuses, ephemeral_statuses
from envtest.simulation.fit import NO_FREE_PORTS, Usage, conflicts, demand_of
from envtest.simulation.node_state import internal_address
from envtest.simulation.pod_status import killed_statuses, pod_state
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["STOP_SECONDS", "Kubelets"]

NODES: Final = GroupResource("", "nodes")
STOP_SECONDS: Final = 2.0
"""Seconds that the containers of a pod take to stop after SIGTERM, if no rule of the scenario says how long.

Deletion times are whole seconds, so that the pod remains for one to two seconds, as with a kubelet.
"""


_DEADLINE: Final = {
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}


def _after_deadline(pod: Object, now: str) -> dict[str, Any]:
    """Return how the status changes when the kubelet ends a pod because of its deadline."""
    status = pod.get("status") or {}
    changes: dict[str, Any] = {"phase": "Failed", **_DEADLINE}
    changes["conditions"] = _ended_conditions(pod)
    changes["ephemeralContainerStatuses"] = ended_ephemeral_statuses(pod, now)
    for kind in ("initContainerStatuses", "containerStatuses"):
        changes[kind] = killed_statuses(status.get(kind) or (), now) or None
    return changes


def _ended_conditions(pod: Object) -> list[dict[str, Any]]:
    """Return the conditions of a pod, none of which is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    unready = {"status": "False", "reason": "PodFailed"}
    return [
        {**each, **(unready if each["type"] in ("Ready", "ContainersReady") else {})}
        for each in conditions
    ]


class Kubelets(Controller[NamespacedName]):
    """Reconciles pods that have a node."""

    account = "envtest-kubelet"
    component = "kubelet"
    manager = "kubelet"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._index = NodeIndex()
        self._ready: dict[str, bool] = {}
        self._host: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._addresses = 0

    def enqueue_all(self) -> None:
        """Index nodes and pods, and enqueue all pods that have a node."""
        for record in self.client.records(NODES):
            self._observe_node(record, deleted=False)
        for record in self.client.records(PODS):
            self._addresses = max(self._addresses, address_number(record))
            if self._index.update(record, deleted=False):
                self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a pod that changed, and the pods of a node whose readiness changed."""
        record = change.record
        deleted = change.type == "DELETED"
        if resource == NODES:
            self._observe_node(record, deleted=deleted)
        elif resource == PODS:
            node = self._index.update(record, deleted=deleted)
            if deleted:
                self._begun.pop(record.uid, None)
                if self.core.scenario is not None:
                    self.core.scenario.forget(record.namespace, record.name, record.uid)
            elif node or record.deleting:
                self.queue.add(NamespacedName(record.namespace, record.name))

    def _observe_node(self, record: Record, *, deleted: bool) -> None:
        node = {} if deleted else record.obj()
        conditions = (node.get("status") or {}).get("conditions")
        ready = (find_condition(conditions, "Ready") or {}).get("status") == "True"
        self._host[record.name] = internal_address(node)
        if self._ready.get(record.name, False) != ready:
            self._ready[record.name] = ready
            if ready:
                for key in self._index.pods(record.name):
                    self.queue.add(key)
        if deleted:
            self._ready.pop(record.name, None)
            self._host.pop(record.name, None)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Write the status of a pod; return the seconds until it changes."""
        pod = await self.client.read(PODS, key.namespace, key.name)
        scenario = self.core.scenario
        if pod is None or scenario is None:
            return None
        metadata = pod["metadata"]
        node = pod["spec"].get("nodeName")
        if not node:
            if metadata.get("deletionTimestamp"):
                await self._remove(pod)
            return None
        if not self._ready.get(node, False):
            return None
        now = self.core.clock.time()
        if metadata.get("deletionTimestamp"):
            return await self._stop(pod, now)
        if is_finished(pod):
            return None
        scenario.start(pod)
        start_time = (pod.get("status") or {}).get("startTime")
        begun = self._begun.get(metadata["uid"])
        if begun is None and not start_time and await self._lacks_ports(pod, node):
            await self._reject(pod, "NodePorts", f"Predicate NodePorts failed: {NO_FREE_PORTS}")
            return None
        if begun is None:
            begun = datetime.fromisoformat(start_time).timestamp() if start_time else now
            self._begun[metadata["uid"]] = begun
        begin = datetime.fromtimestamp(begun, UTC)
        behavior = scenario.behavior_of(pod).completed_by(obvious_behavior(pod))
        deadline = pod["spec"].get("activeDeadlineSeconds")
        remaining = None if deadline is None else begun + float(deadline) - now
        if remaining is not None and remaining <= 0:
            await self._write(pod, _after_deadline(pod, self.client.now()))
            return None
        state = pod_state(pod, behavior, elapsed=max(0.0, now - begun), begin=begin)
        changes = {
            **state.status,
            "startTime": start_time or format_time(begin),
            "observedGeneration": metadata.get("generation"),
        }
        if now - begun >= (behavior.start_after or 0.0):
            changes |= self._addresses_of(pod, node)
        if state.status["phase"] == "Running":
            changes["ephemeralContainerStatuses"] = ephemeral_statuses(pod, self.client.now())
        elif state.status["phase"] in ("Succeeded", "Failed"):
            changes["ephemeralContainerStatuses"] = ended_ephemeral_statuses(pod, self.client.now())
        await self._write(pod, changes)
        await report_waiting(self.events, pod, changes)
        if changes.get("reason") == "Evicted":
            await self.events.warning(pod, "Evicted", changes["message"])
        scenario.touch(key.namespace, key.name)
        return min(
            (each for each in (state.next_change, remaining) if each is not None), default=None
        )

    async def _lacks_ports(self, pod: Object, node: str) -> bool:
        """Return whether another pod of the node uses a host port: only pods that set their node have this problem."""
        demand = demand_of(pod)
        if not demand.ports:
            return False
        usage = Usage()
        for key in self._index.pods(node):
            other = await self.client.read(PODS, key.namespace, key.name)
            if (
                other is not None
                and (other.get("status") or {}).get("startTime")
                and not is_finished(other)
            ):
                usage.change(demand_of(other), 1)
        return conflicts(demand, usage)

    async def _reject(self, pod: Object, reason: str, message: str) -> None:
        text = f"Pod was rejected: {message}"
        await self._write(
            pod, {"phase": "Failed", "reason": reason, "message": text, "conditions": []}
        )
        await self.events.warning(pod, reason, message)

    def _addresses_of(self, pod: Object, node: str) -> dict[str, Any]:
        host = self._host.get(node, "")
        found = {"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}
        address = (pod.get("status") or {}).get("podIP")
        if not address and pod["spec"].get("hostNetwork"):
            address = host
        if not address:
            self._addresses += 1
            address = f"10.244.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"
        return {**found, "podIP": address, "podIPs": [{"ip": address}]}

    async def _stop(self, pod: Object, now: float) -> float | None:
        """Finish the deletion of a pod after the seconds that it takes to stop, at most its grace period."""
        metadata = pod["metadata"]
        scenario = self.core.scenario
        assert scenario is not None
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        deadline = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
        seconds = scenario.behavior_of(pod).stop_after
        if seconds is None:
            seconds = STOP_SECONDS if _runs(pod) else 0.0
        seconds = min(seconds, grace)
        remaining = deadline - grace + seconds - now
        if remaining > 0 and not is_finished(pod):
            return remaining
        await self._remove(pod)
        return None

    async def _remove(self, pod: Object) -> None:
        metadata = pod["metadata"]
        await self.client.delete(
            PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_period=0
        )

    async def _write(self, pod: Object, changes: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        now = self.client.now()

        def change(obj: Object) -> bool:
            before = obj.get("status") or {}
            if obj["metadata"].get("deletionTimestamp") or is_finished(obj):
                return False
            status = {
                **before,
                **{name: value for name, value in changes.items() if name != "conditions"},
            }
            status = {name: value for name, value in status.items() if value is not None}
            conditions = [dict(one) for one in before.get("conditions") or ()]
            for condition in changes["conditions"]:
                _replace_condition(conditions, condition, now)
            status["conditions"] = conditions
            if status == before:
                return False
            obj["status"] = status
            return True

        await self.client.modify(
            PODS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )


def _runs(pod: Object) -> bool:
    """Return whether a container of the pod runs, by its status."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in (each.get("state") or {}) for each in statuses)


def _replace_condition(
    conditions: list[dict[str, Any]], condition: dict[str, Any], now: str
) -> None:
    """Set a condition; an older reason and message do not remain."""
    existing = find_condition(conditions, condition["type"]) or {}
    for name in ("reason", "message"):
        if isinstance(existing, dict) and name not in condition:
            existing.pop(name, None)
    set_condition(conditions, dict(condition), now=now)
