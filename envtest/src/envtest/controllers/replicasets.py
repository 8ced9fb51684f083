"""The ReplicaSet and ReplicationController controllers: keep the desired number of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, find_condition, labels_of
from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_control import MAX_BATCH, PodControl, create_in_batches
from envtest.controllers.pod_state import (
    PODS,
    deletion_order,
    is_active,
    is_available,
    is_ready,
    is_terminating,
    pod_from_template,
    seconds_until_next_available,
)
from envtest.writes.server_core import Core

__all__ = ["REPLICA_FAILURE", "ReplicaSets", "ReplicationControllers"]

REPLICA_SETS: Final = GroupResource("apps", "replicasets")
REPLICA_FAILURE: Final = "ReplicaFailure"
"""The condition of a ReplicaSet whose pods the API server rejects."""


class ReplicaSets(OwnerController):
    """Reconciles ReplicaSets."""

    account = "replicaset-controller"
    resource: ClassVar[GroupResource] = REPLICA_SETS
    kind: ClassVar[str] = "ReplicaSet"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS,)
    counts_terminating: ClassVar[bool] = True
    """Whether the status has the number of pods that are being deleted."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._pods = PodControl(self.client, self.events)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Create or delete pods until the desired number is reached, and update the status.

        Raises StatusError, after the update, if a pod was rejected.
        """
        owner = await self.owner(key)
        if owner is None:
            return None
        spec = owner["spec"]
        pods = await self.controlled(owner, PODS, self._selector(spec))
        active = [pod for pod in pods if is_active(pod)]
        error = None
        if not owner["metadata"].get("deletionTimestamp"):
            error = await self._scale(owner, active, int(spec.get("replicas", 1)))
        delay = await self._update_status(owner, active, sum(map(is_terminating, pods)), error)
        if error is not None:
            raise error
        return delay

    def _selector(self, spec: Object) -> Mapping[str, Any]:
        return spec.get("selector") or {}

    async def _scale(self, owner: Object, active: list[Object], desired: int) -> StatusError | None:
        if len(active) > desired:
            return await self._pods.delete_all(
                owner, deletion_order(active)[: len(active) - desired]
            )

        async def create(_: int) -> None:
            metadata = owner["metadata"]
            template = owner["spec"].get("template") or {}
            pod = pod_from_template(template, metadata["namespace"], self.reference(owner))
            pod["metadata"]["generateName"] = f"{metadata['name']}-"
            await self._pods.create(owner, pod)

        missing = desired - len(active)
        _, error = await create_in_batches(min(missing, MAX_BATCH), create)
        if missing > MAX_BATCH:
            self.queue.add(
                NamespacedName(owner["metadata"]["namespace"], owner["metadata"]["name"])
            )
        return error

    async def _update_status(
        self, owner: Object, active: list[Object], terminating: int, error: StatusError | None
    ) -> float | None:
        spec = owner["spec"]
        now = self.core.clock.now()
        min_ready = int(spec.get("minReadySeconds") or 0)
        labels = labels_of(spec.get("template") or {})
        status: dict[str, Any] = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in active)
            or None,
            "readyReplicas": sum(map(is_ready, active)) or None,
            "availableReplicas": sum(is_available(pod, min_ready, now) for pod in active) or None,
            "terminatingReplicas": terminating if self.counts_terminating else None,
            "observedGeneration": owner["metadata"].get("generation"),
            "conditions": self._conditions(owner, len(active), error) or None,
        }
        await self.set_status(owner, status)
        return seconds_until_next_available(active, min_ready, now)

    def _conditions(self, owner: Object, count: int, error: StatusError | None) -> list[Object]:
        """Return the conditions; the first rejection is reported until pods are created again."""
        conditions: list[Object] = list((owner.get("status") or {}).get("conditions") or ())
        if error is None:
            return [one for one in conditions if one.get("type") != REPLICA_FAILURE]
        if find_condition(conditions, REPLICA_FAILURE) is None:
            failure = {
                "type": REPLICA_FAILURE,
                "status": "True",
                "reason": "FailedCreate"
                if count < int(owner["spec"].get("replicas", 1))
                else "FailedDelete",
                "message": error.message,
                "lastTransitionTime": self.client.now(),
            }
            return [*conditions, failure]
        return conditions


class ReplicationControllers(ReplicaSets):
    """Reconciles ReplicationControllers, whose selector is a map of labels."""

    account = "replication-controller"
    resource: ClassVar[GroupResource] = GroupResource("", "replicationcontrollers")
    kind: ClassVar[str] = "ReplicationController"
    api_version: ClassVar[str] = "v1"
    counts_terminating: ClassVar[bool] = False

    def _selector(self, spec: Object) -> Mapping[str, Any]:
        return {"matchLabels": spec.get("selector") or {}}
