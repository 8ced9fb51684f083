"""Kueue as pods of Deployments see it: its webhook for Deployments, and a queue with a quota of pods.

Facts: ``pkg/controller/jobs/deployment`` and ``pkg/controller/jobs/pod`` of Kueue 0.19.
"""

from __future__ import annotations

from typing import Any, Final

from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import (
    Object,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from cfo.runtime.webhook.admission import AdmissionRequest, Defaulter
from test.support.kueue_queue import WORKLOAD, admission_of, workload_condition
from test.support.raycluster_environment import Environment

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
GATE: Final = "kueue.x-k8s.io/admission"
_STOPPING: Final = "test.example/stopping"


class DeploymentDefaulter(Defaulter[Object]):
    """Changes the pod template of a Deployment that has a queue, as Kueue's webhook does."""

    async def default(self, obj: Object, request: AdmissionRequest) -> None:
        """Mark the pods as managed by Kueue through their Deployment."""
        labels = labels_of(obj)
        if QUEUE not in labels:
            return
        metadata = obj["spec"]["template"].setdefault("metadata", {})
        annotations = metadata.setdefault("annotations", {})
        annotations["kueue.x-k8s.io/pod-suspending-parent"] = "deployment"
        own = metadata.setdefault("labels", {})
        own["kueue.x-k8s.io/managed"] = "true"
        own[QUEUE] = labels[QUEUE]
        if PRIORITY in labels:
            own[PRIORITY] = labels[PRIORITY]


class PodsInQueue:
    """A LocalQueue of the namespace ``ns`` whose quota is a number of pods; each pod is a Workload.

    ``has_workloads``: the Workloads exist as objects, for control planes with Kueue's CRDs.
    """

    def __init__(self, env: Environment, name: str, quota: int, *, has_workloads: bool) -> None:
        self._env = env
        self._name = name
        self._has_workloads = has_workloads
        self.quota = quota

    async def pods(self) -> list[Object]:
        """Return the pods in the queue that are not being deleted, ordered by name."""
        selector = f"{QUEUE}={self._name}"
        found = await self._env.client.list(POD, namespace="ns", label_selector=selector)
        living = [pod for pod in found if not is_deleting(pod)]
        return sorted(living, key=name_of)

    async def admitted(self) -> list[Object]:
        """Return the pods that hold quota."""
        return [pod for pod in await self.pods() if not is_gated(pod)]

    async def schedule(self) -> list[str]:
        """Admit the waiting pods that fit; return the names of all that hold quota."""
        admitted = await self.admitted()
        for pod in await self.pods():
            if len(admitted) >= self.quota or not is_gated(pod):
                continue
            if self._has_workloads:
                await self._create_workload(pod)
            gates = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != GATE]
            patch = {"spec": {"schedulingGates": gates or None}}
            await self._env.client.patch(POD, key_of(pod), patch)
            admitted.append(pod)
        return [name_of(pod) for pod in admitted]

    async def preempt(self, pod: Object) -> None:
        """Take the quota from a pod: Kueue reports the cause in its status, and deletes it.

        The pod terminates until :meth:`terminate`.
        """
        await self._env.client.patch(POD, key_of(pod), {"metadata": {"finalizers": [_STOPPING]}})
        cause = {
            "type": "TerminationTarget",
            "status": "True",
            "reason": "WorkloadEvictedDueToPreempted",
            "message": "Preempted to accommodate a workload with a higher priority",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        conditions = [*pod["status"].get("conditions", ()), cause]
        await self._env.client.patch(
            POD, key_of(pod), {"status": {"conditions": conditions}}, subresource="status"
        )
        await self._env.client.delete(POD, key_of(pod), uid=uid_of(pod))

    async def terminate(self, pod: Object) -> None:
        """End a pod that was preempted."""
        await self._env.client.patch(POD, key_of(pod), {"metadata": {"finalizers": None}})

    async def workloads(self) -> list[Object]:
        """Return the Workloads of the pods that exist."""
        pods = await self.pods()
        found = await self._env.client.list(WORKLOAD, namespace="ns")
        return [each for each in found if any(is_controlled_by(each, pod) for pod in pods)]

    async def _create_workload(self, pod: Object) -> None:
        """Create the admitted Workload of a pod, with the template that Kueue derives from it."""
        spec: dict[str, Any] = {**pod["spec"]}
        del spec["schedulingGates"]
        pod_set = {"name": "main", "count": 1, "template": {"spec": spec}}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name_of(pod),
            "uid": uid_of(pod),
            "controller": True,
        }
        workload = {
            "apiVersion": WORKLOAD.api_version,
            "kind": WORKLOAD.kind,
            "metadata": {
                "name": f"pod-{name_of(pod)}",
                "namespace": "ns",
                "ownerReferences": [owner],
            },
            "spec": {"queueName": self._name, "podSets": [pod_set]},
        }
        created = await self._env.create(workload)
        conditions = [workload_condition("QuotaReserved"), workload_condition("Admitted")]
        status = {"conditions": conditions, "admission": admission_of(created)}
        await self._env.patch(created, {"status": status}, subresource="status")


def is_gated(pod: Object) -> bool:
    """Return whether a pod waits for its admission."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())
