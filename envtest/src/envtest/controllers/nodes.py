"""The nodes of a scenario: creates them, makes them ready or lets them fail, taints them, and removes their pods.

The condition Ready of a node decides: if a scenario, a test or kubectl changes it, taints, readiness of pods and their
eviction follow, as from the node lifecycle controller. Pods of a node that was deleted are removed after 40 seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object, find_condition, set_condition
from envtest.controllers.controller import Controller
from envtest.controllers.node_index import NodeIndex
from envtest.controllers.node_taints import NODES, taint_node
from envtest.controllers.pod_state import PODS, is_finished
from envtest.simulation.model import NodeTemplate
from envtest.simulation.node_state import (
    eviction_time,
    failure_at,
    initial_status,
    node_object,
    ready_condition,
)
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["Nodes"]

ORPHAN_SECONDS: Final = 40
"""Seconds after which the pods of a deleted node are removed."""

_BY_TAINT: Final = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
_BY_GC: Final = ("DeletionByPodGC", "PodGC: node no longer exists")


def _identity(taint: Mapping[str, Any]) -> tuple[str, str]:
    return taint.get("key") or "", taint.get("value") or ""


class Nodes(Controller[NamespacedName]):
    """Reconciles nodes (keys without a namespace) and the pods on nodes that fail or are tainted."""

    account = "node-controller"
    component = "taint-eviction-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._index = NodeIndex()
        self._templates: dict[str, NodeTemplate] = {}
        self._missing: set[str] = set()
        self._failed: dict[str, str] = {}
        self._tainted: dict[str, Any] = {}
        self._since: dict[str, dict[tuple[str, str], str]] = {}
        """When each node was first seen with a taint that has no time itself, because a user added it."""
        self._deleted: dict[str, Any] = {}
        self._addresses: dict[str, str] = {}
        self._started = 0.0

    def enqueue_all(self) -> None:
        """Enqueue the nodes of the scenario and those that exist, and index the pods."""
        self._started = self.core.clock.time()
        nodes = self.core.scenario.nodes if self.core.scenario is not None else ()
        self._templates = {each.name: each for each in nodes}
        existing = {record.name for record in self.client.records(NODES)}
        self._missing = self._templates.keys() - existing
        for record in self.client.records(PODS):
            node = self._index.update(record, deleted=False)
            if node and node not in existing and node not in self._missing:
                self._orphan(node)
        for name in sorted(existing | self._missing):
            self.queue.add(NamespacedName("", name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a node that changed, and a pod that is on a tainted or missing node."""
        record = change.record
        deleted = change.type == "DELETED"
        if resource == NODES:
            self.queue.add(NamespacedName("", record.name))
            if deleted:
                self._since.pop(record.name, None)
                self._orphan(record.name)
            else:
                self._deleted.pop(record.name, None)
        elif resource == PODS:
            node = self._index.update(record, deleted=deleted)
            if deleted or not node:
                return
            if node in self._tainted or node in self._deleted:
                self.queue.add(NamespacedName(record.namespace, record.name))

    def _orphan(self, node: str) -> None:
        self._deleted.setdefault(node, self.core.clock.now())
        self._tainted.pop(node, None)
        for key in self._index.pods(node):
            self.queue.add_after(key, ORPHAN_SECONDS)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Reconcile a node or a pod; return the seconds until it changes."""
        return (
            await self._reconcile_pod(key)
            if key.namespace
            else await self._reconcile_node(key.name)
        )

    def _address(self, name: str) -> str:
        number = len(self._addresses) + 1
        return self._addresses.setdefault(name, f"10.1.{number // 250 % 250}.{number % 250 + 1}")

    async def _reconcile_node(self, name: str) -> float | None:
        if name in self._missing:
            self._missing.discard(name)
            await self.client.create(NODES, node_object(self._templates[name]))
        node = await self.client.read(NODES, "", name)
        if node is None:
            return None
        template = self._templates.get(name)
        failures = template.failures if template else ()
        failure = failure_at(failures, self.core.clock.time() - self._started)
        is_turn = self._failed.get(name, "True") != failure.ready
        self._failed[name] = failure.ready
        new_ready = failure.ready if is_turn else ""
        await self._write_status(node, new_ready)
        node = await self._write_taints(name)
        if node is None:
            return failure.next_change
        taints = [
            each for each in node["spec"].get("taints") or () if each.get("effect") == "NoExecute"
        ]
        ready = (find_condition((node.get("status") or {}).get("conditions"), "Ready") or {}).get(
            "status"
        ) == "True"
        before = self._since.get(name, {})
        now = self.core.clock.now().isoformat()
        self._since[name] = {_identity(each): before.get(_identity(each), now) for each in taints}
        state = (ready, taints)
        if self._tainted.get(name) != (None if ready and not taints else state):
            if ready and not taints:
                self._tainted.pop(name, None)
            else:
                self._tainted[name] = state
            for key in self._index.pods(name):
                self.queue.add(key)
        return failure.next_change

    async def _write_status(self, node: Object, ready: str) -> None:
        """Complete the status of a new node; if ``ready`` is not empty, change the condition Ready."""
        name = node["metadata"]["name"]
        now = self.client.now()

        def change(obj: Object) -> bool:
            before = obj.get("status") or {}
            status = initial_status(obj, self._address(name), now)
            if ready:
                status["conditions"] = [dict(each) for each in status["conditions"]]
                set_condition(status["conditions"], ready_condition(ready, now), now=now)
            if status == before:
                return False
            obj["status"] = status
            return True

        await self.client.modify(
            NODES, "", name, change, uid=node["metadata"]["uid"], subresource="status"
        )

    async def _write_taints(self, name: str) -> Object | None:
        now = self.client.now()
        return await self.client.modify(
            NODES, "", name, lambda node: taint_node(node, now, evict=True)
        )

    async def _reconcile_pod(self, key: NamespacedName) -> float | None:
        pod = await self.client.read(PODS, key.namespace, key.name)
        if pod is None:
            return None
        name = pod["spec"].get("nodeName") or ""
        node = await self.client.read(NODES, "", name)
        now = self.core.clock.now()
        if node is None:
            remaining = (
                self._deleted.get(name, now) + timedelta(seconds=ORPHAN_SECONDS) - now
            ).total_seconds()
            if remaining > 0:
                return float(remaining)
            if not is_finished(pod):
                await self._set_condition(pod, *_BY_GC, phase="Failed")
            await self._delete(pod, grace_period=0)
            return None
        if (
            name not in self._tainted
            or is_finished(pod)
            or pod["metadata"].get("deletionTimestamp")
        ):
            return None
        ready = (find_condition((node.get("status") or {}).get("conditions"), "Ready") or {}).get(
            "status"
        )
        if ready != "True":
            await self._mark_unready(pod)
        since = self._since.get(name, {})
        taints = [
            {
                "timeAdded": max(
                    since.get(_identity(each), ""), pod["metadata"]["creationTimestamp"]
                ),
                **each,
            }
            for each in node["spec"].get("taints") or ()
        ]
        due = eviction_time(taints, pod["spec"].get("tolerations") or (), now)
        if due is None:
            return None
        if due > now:
            return (due - now).total_seconds()
        await self._set_condition(pod, *_BY_TAINT)
        await self.events.normal(pod, "TaintManagerEviction", f"Marking for deletion Pod {key}")
        await self._delete(pod)
        return None

    async def _mark_unready(self, pod: Object) -> None:
        """Set the condition Ready of a pod to false, because its node is not ready."""

        def change(obj: Object) -> bool:
            conditions = (obj.get("status") or {}).get("conditions") or []
            if (find_condition(conditions, "Ready") or {}).get("status") != "True":
                return False
            return set_condition(
                conditions, {"type": "Ready", "status": "False"}, now=self.client.now()
            )

        await self._modify(pod, change)

    async def _set_condition(
        self, pod: Object, reason: str, message: str, *, phase: str = ""
    ) -> None:
        def change(obj: Object) -> None:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": reason,
                "message": message,
            }
            set_condition(
                obj["status"].setdefault("conditions", []), condition, now=self.client.now()
            )
            if phase:
                obj["status"]["phase"] = phase

        await self._modify(pod, change)

    async def _modify(self, pod: Object, change: Any) -> None:
        metadata = pod["metadata"]
        await self.client.modify(
            PODS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )

    async def _delete(self, pod: Object, *, grace_period: int | None = None) -> None:
        metadata = pod["metadata"]
        await self.client.delete(
            PODS,
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
            grace_period=grace_period,
        )
