"""The ReplicaSet controller: keeps the desired number of pods."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_state import (
    PODS,
    deletion_order,
    is_active,
    is_available,
    is_ready,
    pod_from_template,
    seconds_until_available,
)
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object, labels_of

__all__ = ["ReplicaSets"]

REPLICA_SETS: Final = GroupResource("apps", "replicasets")


class ReplicaSets(OwnerController):
    """Reconciles ReplicaSets."""

    account = "replicaset-controller"
    resource: ClassVar[GroupResource] = REPLICA_SETS
    kind: ClassVar[str] = "ReplicaSet"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS,)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Create or delete pods until the desired number is reached, and update the status."""
        owner = await self.owner(key)
        if owner is None:
            return None
        spec = owner["spec"]
        pods = await self.controlled(owner, PODS, spec.get("selector") or {})
        active = [pod for pod in pods if is_active(pod)]
        if not owner["metadata"].get("deletionTimestamp"):
            await self._scale(owner, active, int(spec.get("replicas", 1)))
        return await self._update_status(owner, active)

    async def _scale(self, owner: Object, active: list[Object], desired: int) -> None:
        if len(active) > desired:
            await self.delete_all(PODS, deletion_order(active)[: len(active) - desired])
        for _ in range(desired - len(active)):
            pod = pod_from_template(
                owner["spec"].get("template") or {}, owner["metadata"]["namespace"], self.reference(owner)
            )
            pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
            await self.client.create(PODS, pod)

    async def _update_status(self, owner: Object, active: list[Object]) -> float | None:
        spec, now = owner["spec"], self.core.clock.now()
        min_ready = int(spec.get("minReadySeconds") or 0)
        labels = labels_of(spec.get("template") or {})
        status: dict[str, Any] = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in active) or None,
            "readyReplicas": sum(map(is_ready, active)) or None,
            "availableReplicas": sum(is_available(pod, min_ready, now) for pod in active) or None,
            "observedGeneration": owner["metadata"].get("generation"),
        }
        await self.set_status(owner, status)
        delays = [
            seconds
            for pod in active
            if (seconds := seconds_until_available(pod, min_ready, now)) is not None and seconds > 0
        ]
        return min(delays) if delays else None
