"""The ReplicaSet controller: as many pods as are asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from envtest.controllers.ownership import Owning
from envtest.controllers.podstate import (
    PODS,
    available_in,
    is_active,
    is_available,
    is_ready,
    pod_from_template,
    to_delete_first,
)
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object, labels_of

__all__ = ["ReplicaSets"]

REPLICA_SETS: Final = GroupResource("apps", "replicasets")


class ReplicaSets(Owning):
    """Keys are ReplicaSets."""

    account = "replicaset-controller"
    resource: ClassVar[GroupResource] = REPLICA_SETS
    kind: ClassVar[str] = "ReplicaSet"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS,)

    async def work(self, key: NamespacedName) -> float | None:
        """Makes or deletes pods until their number is right; tells what there is."""
        owner = await self.owner(key)
        if owner is None:
            return None
        spec = owner["spec"]
        pods = await self.controlled(owner, PODS, spec.get("selector") or {})
        active = [pod for pod in pods if is_active(pod)]
        if not owner["metadata"].get("deletionTimestamp"):
            await self._scale(owner, active, int(spec.get("replicas", 1)))
        return await self._report(owner, active)

    async def _scale(self, owner: Object, active: list[Object], wanted: int) -> None:
        if len(active) > wanted:
            await self.delete_all(PODS, to_delete_first(active)[: len(active) - wanted])
        for _ in range(wanted - len(active)):
            pod = pod_from_template(
                owner["spec"].get("template") or {}, owner["metadata"]["namespace"], self.reference(owner)
            )
            pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
            await self.actor.create(PODS, pod)

    async def _report(self, owner: Object, active: list[Object]) -> float | None:
        spec, now = owner["spec"], datetime.now(UTC)
        least = int(spec.get("minReadySeconds") or 0)
        labels = labels_of(spec.get("template") or {})
        status: dict[str, Any] = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in active) or None,
            "readyReplicas": sum(map(is_ready, active)) or None,
            "availableReplicas": sum(is_available(pod, least, now) for pod in active) or None,
            "observedGeneration": owner["metadata"].get("generation"),
        }
        await self.set_status(owner, status)
        waits = [left for pod in active if (left := available_in(pod, least, now)) is not None and left > 0]
        return min(waits) if waits else None
