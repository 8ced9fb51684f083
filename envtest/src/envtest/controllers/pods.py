"""A pod runner: what scheduler and kubelet make of a pod, without any container.

A pod that nothing holds back is put on the node ``envtest`` (which the runner makes), runs, and is ready. Annotations
on the pod say otherwise, at any time:

=============================  ====================================================================================
``envtest.cfo/phase``          Where the pod ends: ``Pending`` (it never starts), ``Running`` (the default),
                               ``Succeeded`` or ``Failed``.
``envtest.cfo/start-after``    Seconds that it takes the pod to start.
``envtest.cfo/finish-after``   Seconds that it runs before it ends, where it ends.
``envtest.cfo/exit-code``      The exit code of its containers where it fails (1 if unsaid).
``envtest.cfo/ready``          ``false``: it runs, but is not ready.
``envtest.cfo/stop-after``     Seconds that it takes to stop once it is deleted, at most its grace period.
=============================  ====================================================================================

Pods with scheduling gates wait for them. What a pod needs of a node (selectors, volumes, resources) is not looked at.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final

from envtest.controllers.controller import Controller
from envtest.controllers.podstate import PODS, is_finished, phase
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object, annotations_of, find_condition, set_condition
from envtest.server_core import Core
from envtest.storage import Change

__all__ = ["ANNOTATIONS", "NODE", "PodRunner"]

NODE: Final = "envtest"
ANNOTATIONS: Final = "envtest.cfo/"
NODES: Final = GroupResource("", "nodes")

_HOST_ADDRESS: Final = "10.0.0.254"


def _setting(pod: Object, name: str) -> str:
    text: str = annotations_of(pod).get(ANNOTATIONS + name, "")
    return text


def _seconds(pod: Object, name: str) -> float:
    try:
        return max(0.0, float(_setting(pod, name) or 0))
    except ValueError:
        return 0.0


def _age(timestamp: str | None, now: datetime) -> float:
    return (now - datetime.fromisoformat(timestamp)).total_seconds() if timestamp else 0.0


class PodRunner(Controller[NamespacedName]):
    """See the module. Keys are pods."""

    account = "envtest-kubelet"
    manager = "kubelet"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._addresses = 0

    def begin(self) -> None:
        """Looks at all pods."""
        self.queue.add(NamespacedName("", NODE))
        for record in self.actor.records(PODS):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Follows pods."""
        if resource == PODS and change.type != "DELETED":
            self.queue.add(NamespacedName(change.record.namespace, change.record.name))

    async def work(self, key: NamespacedName) -> float | None:
        """Takes a pod one step further; returns the seconds until the next."""
        if not key.namespace:
            await self._make_node()
            return None
        pod = await self.actor.read(PODS, key.namespace, key.name)
        if pod is None:
            return None
        now = datetime.now(UTC)
        if pod["metadata"].get("deletionTimestamp"):
            return await self._stop(pod, now)
        if is_finished(pod):
            return None
        if pod["spec"].get("schedulingGates"):
            await self._write_status(pod, _gated())
            return None
        if not pod["spec"].get("nodeName"):
            await self._bind(pod)
            return 0.0
        if pod["spec"]["nodeName"] != NODE:
            return None
        return await self._run(pod, now)

    async def _make_node(self) -> None:
        now = self.actor.now()
        node = {
            "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}},
            "spec": {},
        }
        await self.actor.create(NODES, node)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "pods run without containers here",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}

        def change(obj: Object) -> None:
            obj["status"] = {
                **(obj.get("status") or {}),
                "capacity": dict(capacity),
                "allocatable": dict(capacity),
                "conditions": [ready],
                "addresses": [{"type": "InternalIP", "address": _HOST_ADDRESS}, {"type": "Hostname", "address": NODE}],
            }

        await self.actor.modify(NODES, "", NODE, change, subresource="status")

    async def _bind(self, pod: Object) -> None:
        metadata = pod["metadata"]

        def change(obj: Object) -> bool:
            if obj["spec"].get("nodeName"):
                return False
            obj["spec"]["nodeName"] = NODE
            return True

        await self.actor.modify(
            PODS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"], subresource="binding"
        )

    async def _run(self, pod: Object, now: datetime) -> float | None:
        end = _setting(pod, "phase") or "Running"
        status = pod.get("status") or {}
        if end == "Pending":
            await self._write_status(pod, _scheduled())
            return None
        if phase(pod) != "Running":
            left = _seconds(pod, "start-after") - _age(pod["metadata"]["creationTimestamp"], now)
            if left > 0:
                await self._write_status(pod, _scheduled())
                return left
            await self._write_status(pod, self._running(pod))
            return 0.0
        if end in ("Succeeded", "Failed"):
            left = _seconds(pod, "finish-after") - _age(status.get("startTime"), now)
            if left > 0:
                return left
            await self._write_status(pod, _finished(pod, end, self.actor.now()))
            return None
        wanted = _is_wanted_ready(pod)
        if ((find_condition(status.get("conditions"), "Ready") or {}).get("status") == "True") != wanted:
            await self._write_status(pod, self._running(pod))
        return None

    async def _stop(self, pod: Object, now: datetime) -> float | None:
        """Lets a pod go that is being deleted and is ours, or nobody's."""
        metadata = pod["metadata"]
        if pod["spec"].get("nodeName") not in (NODE, "", None) or metadata.get("deletionGracePeriodSeconds") == 0:
            return None
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        going_for = grace + _age(metadata["deletionTimestamp"], now)
        left = min(_seconds(pod, "stop-after"), grace) - going_for
        if left > 0:
            return left
        await self.actor.delete(PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_period=0)
        return None

    def _address(self) -> str:
        self._addresses += 1
        return f"10.244.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"

    def _running(self, pod: Object) -> dict[str, Any]:
        now, status = self.actor.now(), pod.get("status") or {}
        ready = _is_wanted_ready(pod)
        address = status.get("podIP") or self._address()
        changes = _scheduled()
        for kind in ("PodReadyToStartContainers", "Initialized"):
            changes["conditions"].append({"type": kind, "status": "True"})
        for kind in ("Ready", "ContainersReady"):
            condition = {"type": kind, "status": "True" if ready else "False"}
            if not ready:
                condition |= {"reason": "ContainersNotReady", "message": "containers with unready status"}
            changes["conditions"].append(condition)
        return {
            **changes,
            "phase": "Running",
            "hostIP": _HOST_ADDRESS,
            "hostIPs": [{"ip": _HOST_ADDRESS}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": status.get("startTime") or now,
            "containerStatuses": [
                _container(one, {"running": {"startedAt": now}}, ready=ready)
                for one in pod["spec"].get("containers") or ()
            ],
            "initContainerStatuses": [
                _container(one, _ended("Completed", 0, now), ready=True)
                for one in pod["spec"].get("initContainers") or ()
            ]
            or None,
        }

    async def _write_status(self, pod: Object, changes: dict[str, Any]) -> None:
        metadata, now = pod["metadata"], self.actor.now()

        def change(obj: Object) -> bool:
            before = obj.get("status") or {}
            status = {**before, **{name: value for name, value in changes.items() if name != "conditions"}}
            status = {name: value for name, value in status.items() if value is not None}
            conditions = [dict(one) for one in before.get("conditions") or ()]
            for condition in changes.get("conditions", ()):
                set_condition(conditions, dict(condition), now=now)
            status["conditions"] = conditions
            if status == before:
                return False
            obj["status"] = status
            return True

        await self.actor.modify(
            PODS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"], subresource="status"
        )


def _is_wanted_ready(pod: Object) -> bool:
    if _setting(pod, "ready") == "false":
        return False
    conditions = (pod.get("status") or {}).get("conditions")
    gates = (gate.get("conditionType", "") for gate in pod["spec"].get("readinessGates") or ())
    return all((find_condition(conditions, gate) or {}).get("status") == "True" for gate in gates)


def _scheduled() -> dict[str, Any]:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def _gated() -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return {"phase": "Pending", "conditions": [condition]}


def _ended(reason: str, code: int, now: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}


def _container(container: Object, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    image = container.get("image") or ""
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"envtest://{image}",
        "containerID": f"envtest://{secrets.token_hex(16)}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _finished(pod: Object, end: str, now: str) -> dict[str, Any]:
    code = 0
    if end == "Failed":
        text = _setting(pod, "exit-code")
        code = int(text) if text.isdigit() and int(text) else 1
    reason = "Completed" if end == "Succeeded" else "Error"
    conditions = [{"type": "Initialized", "status": "True", "reason": "PodCompleted"}] if not code else []
    why = "PodFailed" if code else "PodCompleted"
    conditions += [{"type": kind, "status": "False", "reason": why} for kind in ("Ready", "ContainersReady")]
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state = _ended(reason, code, now)
    return {
        "phase": end,
        "conditions": conditions,
        "containerStatuses": [{**one, "ready": False, "started": False, "state": state} for one in statuses],
    }
