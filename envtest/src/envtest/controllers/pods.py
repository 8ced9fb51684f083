"""The pod runner: simulates scheduler and kubelet by updating the status of pods, without running containers.

A pod that is not blocked is bound to the node ``envtest`` (which the runner creates), starts, and becomes ready.
Annotations on the pod change this, and may be changed at any time:

=============================  ====================================================================================
``envtest.cfo/phase``          The last phase of the pod: ``Pending`` (it never starts), ``Running`` (the default),
                               ``Succeeded`` or ``Failed``.
``envtest.cfo/start-after``    Seconds until the pod starts.
``envtest.cfo/finish-after``   Seconds that the pod runs until it succeeds or fails.
``envtest.cfo/exit-code``      Exit code of the containers of a pod that fails (default 1).
``envtest.cfo/ready``          ``false``: the pod runs, but is not ready.
``envtest.cfo/stop-after``     Seconds that the pod takes to stop once it is deleted, at most its grace period.
=============================  ====================================================================================

A pod that cannot start stays ``Pending`` as in a cluster (:mod:`.pod_failures`), whatever its last phase: its image
cannot be pulled, the name of a Secret or ConfigMap in its volumes says that it does not exist, or it requests more CPU
or memory than the node has. Without ``envtest.cfo/phase``, it also ends if a shell command ends with ``exit N``.

Pods with scheduling gates wait until the gates are removed. Other requirements of a pod on its node, such as selectors
and volumes, are ignored, and so are the requests of other pods.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    find_condition,
    set_condition,
)
from envtest.controllers.controller import Controller
from envtest.controllers.pod_failures import (
    CAPACITY,
    ImageProblem,
    exit_code,
    image_problem,
    insufficient_resources,
    mount_problem,
)
from envtest.controllers.pod_state import PODS, address_number, is_finished, phase
from envtest.controllers.waiting_events import report_waiting
from envtest.simulation.ephemeral_containers import ended_ephemeral_statuses, ephemeral_statuses
from envtest.simulation.node_state import NODE_INFO
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["ANNOTATIONS", "NODE", "PodRunner"]

NODE: Final = "envtest"
ANNOTATIONS: Final = "envtest.cfo/"
NODES: Final = GroupResource("", "nodes")

_BACKOFF_AFTER: Final = 10.0
"""Seconds after which the reason of an image that cannot be pulled becomes ImagePullBackOff."""

_MAX_CODE_DIGITS: Final = 9
"""How long the annotation of an exit code, an int32, may be; others are ignored."""

_HOST_ADDRESS: Final = "10.0.0.254"


def _annotation(pod: Object, name: str) -> str:
    text: str = annotations_of(pod).get(ANNOTATIONS + name, "")
    return text


def _seconds(pod: Object, name: str) -> float:
    try:
        return max(0.0, float(_annotation(pod, name) or 0))
    except ValueError:
        return 0.0


def _age(timestamp: str | None, now: datetime) -> float:
    return (now - datetime.fromisoformat(timestamp)).total_seconds() if timestamp else 0.0


class PodRunner(Controller[NamespacedName]):
    """Reconciles pods as described in the module's docstring."""

    account = "envtest-kubelet"
    component = "kubelet"
    manager = "kubelet"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._addresses = 0

    def enqueue_all(self) -> None:
        """Enqueue all pods, and the node with an empty namespace as key."""
        self.queue.add(NamespacedName("", NODE))
        for record in self.client.records(PODS):
            self._addresses = max(self._addresses, address_number(record))
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue pods that changed."""
        if resource == PODS and change.type != "DELETED":
            self.queue.add(NamespacedName(change.record.namespace, change.record.name))

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Advance a pod by one step; return the seconds until the next."""
        if not key.namespace:
            await self._create_node()
            return None
        pod = await self.client.read(PODS, key.namespace, key.name)
        if pod is None:
            return None
        now = self.core.clock.now()
        if pod["metadata"].get("deletionTimestamp"):
            return await self._stop(pod, now)
        if is_finished(pod):
            return None
        if pod["spec"].get("schedulingGates"):
            await self._write_status(
                pod,
                _unscheduled_status(
                    "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
                ),
            )
            return None
        if not pod["spec"].get("nodeName"):
            refusal = insufficient_resources(pod)
            if refusal:
                await self._write_status(pod, _unscheduled_status("Unschedulable", refusal))
                return None
            await self._bind(pod)
            return 0.0
        if pod["spec"]["nodeName"] != NODE:
            return None
        return await self._run(pod, now)

    async def _create_node(self) -> None:
        now = self.client.now()
        node = {
            "metadata": {
                "name": NODE,
                "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"},
            },
            "spec": {},
        }
        await self.client.create(NODES, node)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "envtest runs pods without containers",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }

        def change(obj: Object) -> None:
            obj["status"] = {
                **(obj.get("status") or {}),
                "capacity": dict(CAPACITY),
                "allocatable": dict(CAPACITY),
                "conditions": [ready],
                "addresses": [
                    {"type": "InternalIP", "address": _HOST_ADDRESS},
                    {"type": "Hostname", "address": NODE},
                ],
                "nodeInfo": dict(NODE_INFO),
            }

        await self.client.modify(NODES, "", NODE, change, subresource="status")

        def untaint(obj: Object) -> bool:
            taints = obj["spec"].get("taints") or []
            remaining = [
                taint for taint in taints if taint.get("key") != "node.kubernetes.io/not-ready"
            ]
            if len(remaining) == len(taints):
                return False
            obj["spec"]["taints"] = remaining
            return True

        await self.client.modify(NODES, "", NODE, untaint)

    async def _bind(self, pod: Object) -> None:
        metadata = pod["metadata"]

        def change(obj: Object) -> bool:
            if obj["spec"].get("nodeName"):
                return False
            obj["spec"]["nodeName"] = NODE
            return True

        await self.client.modify(
            PODS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="binding",
        )

    async def _run(self, pod: Object, now: datetime) -> float | None:
        final_phase = _final_phase(pod)
        status = pod.get("status") or {}
        if final_phase == "Pending":
            await self._write_status(pod, _scheduled_status())
            return None
        if phase(pod) != "Running":
            remaining = _seconds(pod, "start-after") - _age(
                pod["metadata"]["creationTimestamp"], now
            )
            if remaining > 0:
                await self._write_status(pod, _scheduled_status())
                return remaining
            missing = mount_problem(pod)
            if missing:
                await self._fail_to_mount(pod, missing)
                return None
            problem = image_problem(pod)
            if problem is not None:
                return await self._fail_to_pull(pod, problem, -remaining)
            await self._write_status(pod, self._running_status(pod))
            return 0.0
        ephemeral = ephemeral_statuses(pod, self.client.now())
        if ephemeral != status.get("ephemeralContainerStatuses"):
            await self._write_status(pod, {"ephemeralContainerStatuses": ephemeral})
            return 0.0
        if final_phase in ("Succeeded", "Failed"):
            remaining = _seconds(pod, "finish-after") - _age(status.get("startTime"), now)
            if remaining > 0:
                return remaining
            await self._write_status(pod, _finished_status(pod, final_phase, self.client.now()))
            return None
        should_be_ready = _should_be_ready(pod) and not _has_ended_container(pod)
        if (
            (find_condition(status.get("conditions"), "Ready") or {}).get("status") == "True"
        ) != should_be_ready:
            await self._write_status(pod, self._running_status(pod))
        return None

    async def _fail_to_mount(self, pod: Object, message: str) -> None:
        """Write that no container can be created, and record why, which the status does not say."""
        status = pod.get("status") or {}
        if find_condition(status.get("conditions"), "PodReadyToStartContainers") is not None:
            return
        spec = pod["spec"]
        reason = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
        waiting = {"waiting": {"reason": reason}}
        changes = _scheduled_status()
        changes["conditions"].append({"type": "PodReadyToStartContainers", "status": "False"})
        for field, containers in (
            ("initContainerStatuses", spec.get("initContainers")),
            ("containerStatuses", spec.get("containers")),
        ):
            statuses = [_container_status(one, waiting, ready=False) for one in containers or ()]
            changes[field] = statuses or None
        changes["startTime"] = status.get("startTime") or self.client.now()
        await self._write_status(pod, changes)
        await self.events.warning(pod, "FailedMount", message)

    async def _fail_to_pull(
        self, pod: Object, problem: ImageProblem, elapsed: float
    ) -> float | None:
        """Write that an image cannot be pulled; return the seconds until the kubelet backs off."""
        reason = problem.reason
        message = problem.message
        remaining = None
        if reason == "ErrImagePull":
            remaining = _BACKOFF_AFTER - elapsed
            if remaining <= 0:
                reason = "ImagePullBackOff"
                message = f'Back-off pulling image "{problem.image}": ErrImagePull: {message}'
                remaining = None
        waiting = {"waiting": {"reason": reason, "message": message}}
        now, status = self.client.now(), pod.get("status") or {}
        known = {one["name"]: one for one in status.get("initContainerStatuses") or ()}
        inits = pod["spec"].get("initContainers") or ()
        fails_in_init = any(one["name"] == problem.container for one in inits)
        later = {"waiting": {"reason": "PodInitializing" if fails_in_init else "ContainerCreating"}}
        init_statuses = []
        has_failed = False
        for one in inits:
            if one["name"] == problem.container:
                has_failed = True
                init_statuses.append(_container_status(one, waiting, ready=False))
            elif has_failed:
                init_statuses.append(_container_status(one, later, ready=False))
            elif "terminated" in known.get(one["name"], {}).get("state", {}):
                init_statuses.append(known[one["name"]])  # another id would be another write
            else:
                completed = _terminated_state(0, now)
                init_statuses.append(_container_status(one, completed, ready=True))
        container_statuses = []
        for one in pod["spec"].get("containers") or ():
            state = waiting if one["name"] == problem.container else later
            container_statuses.append(_container_status(one, state, ready=False))
        statuses: dict[str, Any] = {
            "containerStatuses": container_statuses,
            "initContainerStatuses": init_statuses or None,
        }
        statuses["startTime"] = status.get("startTime") or now
        changes = {**_scheduled_status(), **statuses}
        await self._write_status(pod, changes)
        await report_waiting(self.events, pod, changes)
        return remaining

    async def _stop(self, pod: Object, now: datetime) -> float | None:
        """Finish the deletion of a pod that is on this node or unscheduled."""
        metadata = pod["metadata"]
        if (
            pod["spec"].get("nodeName") not in (NODE, "", None)
            or metadata.get("deletionGracePeriodSeconds") == 0
        ):
            return None
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        elapsed = grace + _age(metadata["deletionTimestamp"], now)
        remaining = min(_seconds(pod, "stop-after"), grace) - elapsed
        if remaining > 0:
            return remaining
        await self.client.delete(
            PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_period=0
        )
        return None

    def _next_address(self) -> str:
        self._addresses += 1
        return f"10.244.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"

    def _running_status(self, pod: Object) -> dict[str, Any]:
        now = self.client.now()
        status = pod.get("status") or {}
        ready = _should_be_ready(pod) and not _has_ended_container(pod)
        address = status.get("podIP") or self._next_address()
        changes = _scheduled_status()
        for kind in ("PodReadyToStartContainers", "Initialized"):
            changes["conditions"].append({"type": kind, "status": "True"})
        for kind in ("Ready", "ContainersReady"):
            condition = {"type": kind, "status": "True" if ready else "False"}
            if not ready:
                condition |= {
                    "reason": "ContainersNotReady",
                    "message": "containers with unready status",
                }
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
                _running_container(pod, one, now, ready=ready)
                for one in pod["spec"].get("containers") or ()
            ],
            "initContainerStatuses": [
                _container_status(one, _terminated_state(0, now), ready=True)
                for one in pod["spec"].get("initContainers") or ()
            ]
            or None,
        }

    async def _write_status(self, pod: Object, changes: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        now = self.client.now()

        def change(obj: Object) -> bool:
            before = obj.get("status") or {}
            status = {
                **before,
                **{name: value for name, value in changes.items() if name != "conditions"},
            }
            status = {name: value for name, value in status.items() if value is not None}
            conditions = [dict(one) for one in before.get("conditions") or ()]
            for condition in changes.get("conditions", ()):
                set_condition(conditions, dict(condition), now=now)
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


def _should_be_ready(pod: Object) -> bool:
    if _annotation(pod, "ready") == "false":
        return False
    conditions = (pod.get("status") or {}).get("conditions")
    gates = (gate.get("conditionType", "") for gate in pod["spec"].get("readinessGates") or ())
    return all((find_condition(conditions, gate) or {}).get("status") == "True" for gate in gates)


def _scheduled_status() -> dict[str, Any]:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def _unscheduled_status(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def _codes(pod: Object) -> list[int | None]:
    return [exit_code(container) for container in pod["spec"].get("containers") or ()]


def _final_phase(pod: Object) -> str:
    """Return the last phase of a pod: that of its annotation, or of its commands."""
    return _annotation(pod, "phase") or _phase_of_commands(pod)


def _restart_policy(pod: Object) -> str:
    policy: str = pod["spec"].get("restartPolicy") or "Always"
    return policy


def _phase_of_commands(pod: Object) -> str:
    """Return the final phase of a pod whose containers all end; ``Running`` if one runs or is restarted."""
    codes = _codes(pod)
    policy = _restart_policy(pod)
    if policy == "Always" or not codes or None in codes or (policy == "OnFailure" and any(codes)):
        return "Running"
    return "Failed" if any(codes) else "Succeeded"


def _has_ended_container(pod: Object) -> bool:
    """Return whether a container has ended, while the pod goes on."""
    if _annotation(pod, "phase") or _phase_of_commands(pod) != "Running":
        return False
    return any(code is not None for code in _codes(pod))


def _is_restarted(pod: Object, code: int) -> bool:
    """Return whether the kubelet restarts a container of the pod that ended with ``code``."""
    policy = _restart_policy(pod)
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _terminated_state(code: int, now: str) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}


def _running_container(pod: Object, container: Object, now: str, *, ready: bool) -> dict[str, Any]:
    """Return the status of a container of a running pod.

    It runs, unless its command has ended and those of other containers have not: then it has ended, or is restarted.
    All containers of a pod that ends run until the end of the pod.
    """
    code = exit_code(container) if _has_ended_container(pod) else None
    if code is None:
        return _container_status(container, {"running": {"startedAt": now}}, ready=ready)
    ended = _terminated_state(code, now)
    if not _is_restarted(pod, code):
        return _container_status(container, ended, ready=False)
    name = container["name"]
    message = f"back-off 10s restarting failed container={name}"
    status = _container_status(
        container, {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, ready=False
    )
    return {**status, "restartCount": 1, "lastState": ended}


def _container_status(container: Object, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    image = container.get("image") or ""
    has_started = "waiting" not in state
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"envtest://{image}" if has_started else "",
        **({"containerID": f"envtest://{secrets.token_hex(16)}"} if has_started else {}),
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _exit_codes(pod: Object, final_phase: str) -> dict[str, int]:
    """Return the exit code of each container of a pod that ends, by name."""
    containers = pod["spec"].get("containers") or ()
    if final_phase == "Succeeded":
        return {one["name"]: 0 for one in containers}
    text = _annotation(pod, "exit-code")
    if text.isdecimal() and len(text) <= _MAX_CODE_DIGITS and int(text):
        return {one["name"]: int(text) for one in containers}
    codes = {one["name"]: exit_code(one) or 0 for one in containers}
    if any(codes.values()):
        return codes
    return dict.fromkeys(codes, 1)  # only the annotation makes it fail


def _finished_status(pod: Object, final_phase: str, now: str) -> dict[str, Any]:
    codes = _exit_codes(pod, final_phase)
    conditions = []
    condition_reason = "PodFailed"
    if final_phase == "Succeeded":
        condition_reason = "PodCompleted"
        conditions.append({"type": "Initialized", "status": "True", "reason": condition_reason})
    conditions.extend(
        {"type": kind, "status": "False", "reason": condition_reason}
        for kind in ("Ready", "ContainersReady")
    )
    container_statuses = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        state = _terminated_state(codes.get(status["name"], 0), now)
        container_statuses.append({**status, "ready": False, "started": False, "state": state})
    return {
        "phase": final_phase,
        "conditions": conditions,
        "containerStatuses": container_statuses,
        "ephemeralContainerStatuses": ended_ephemeral_statuses(pod, now),
    }
