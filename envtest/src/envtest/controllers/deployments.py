"""The Deployment controller: one ReplicaSet per pod template, and rollouts from old to new ReplicaSets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    controller_of,
    find_condition,
)
from envtest.controllers.deployment_status import (
    PROGRESSING,
    TIMED_OUT,
    counts,
    has_deadline,
    is_complete,
    rollout_conditions,
    seconds_to_deadline,
    with_condition,
)
from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_control import is_namespace_terminating
from envtest.controllers.replica_set_revisions import (
    REVISION,
    current_of,
    next_revision,
    replica_set_for,
    revision_of,
    updated_annotations,
)
from envtest.controllers.replicasets import REPLICA_SETS
from envtest.controllers.rollouts import (
    available_of,
    creation_order,
    desired_replicas,
    is_recreate,
    is_scaling_event,
    new_size,
    old_sizes,
    replicas_of,
    scaled_sizes,
    size_annotations,
)

__all__ = ["Deployments"]

DEPLOYMENTS: Final = GroupResource("apps", "deployments")

_AFTER_DEADLINE: Final = timedelta(seconds=1)


class Deployments(OwnerController):
    """Reconciles Deployments."""

    account = "deployment-controller"
    resource: ClassVar[GroupResource] = DEPLOYMENTS
    kind: ClassVar[str] = "Deployment"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (REPLICA_SETS,)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Advance the rollout by one step, and update the status."""
        owner = await self.owner(key)
        if owner is None:
            return None
        all_sets = await self.controlled(owner, REPLICA_SETS, owner["spec"].get("selector") or {})
        if owner["metadata"].get("deletionTimestamp"):
            await self._update_status(owner, current_of(owner, all_sets), all_sets, rollout=False)
            return None
        owner = await self._report_pause(owner)
        recreate = is_recreate(owner["spec"])
        only_scale = bool(owner["spec"].get("paused")) or is_scaling_event(owner["spec"], all_sets)
        owner, new, old = await self._with_new(owner, all_sets, create=not (recreate or only_scale))
        if only_scale:
            await self._scale(owner, new, old)
            if owner["spec"].get("paused"):
                await self._clean_up(owner, old)
        elif recreate:
            owner, new, old = await self._recreate(owner, new, old)
        elif new is not None:
            await self._roll(owner, new, old)
        every = [*old, new] if new else old
        return await self._update_status(owner, new, every, rollout=not only_scale)

    async def _report_pause(self, owner: Object) -> Object:
        """Set the condition Progressing when the Deployment was paused or resumed."""
        conditions = (owner.get("status") or {}).get("conditions") or ()
        reason = (find_condition(conditions, PROGRESSING) or {}).get("reason")
        paused = bool(owner["spec"].get("paused"))
        if (
            not has_deadline(owner["spec"])
            or reason == TIMED_OUT
            or paused == (reason == "DeploymentPaused")
        ):
            return owner
        if paused:
            new_reason = "DeploymentPaused"
            word = "paused"
        else:
            new_reason = "DeploymentResumed"
            word = "resumed"
        return await self._set_progressing(owner, "Unknown", new_reason, f"Deployment is {word}")

    async def _set_progressing(
        self, owner: Object, status: str, reason: str, message: str
    ) -> Object:
        conditions = (owner.get("status") or {}).get("conditions") or ()
        now = self.core.clock.now()
        changed = with_condition(conditions, PROGRESSING, status, reason, message, now)
        return await self.set_status(owner, {"conditions": changed}) or owner

    async def _with_new(
        self, owner: Object, all_sets: Sequence[Object], *, create: bool
    ) -> tuple[Object, Object | None, list[Object]]:
        """Return the Deployment, the ReplicaSet of its template (updated or created), and the other ReplicaSets."""
        new = current_of(owner, all_sets)
        old = [each for each in all_sets if each is not new]
        revision = next_revision(old)
        if new is None:
            if create:
                owner, new = await self._create(owner, old, revision)
            return owner, new, old
        new = await self._synchronize(owner, new, revision) or new
        owner = await self._record_revision(owner, revision_of(new) or revision)
        conditions = (owner.get("status") or {}).get("conditions")
        if has_deadline(owner["spec"]) and find_condition(conditions, PROGRESSING) is None:
            message = f'Found new replica set "{new["metadata"]["name"]}"'
            owner = await self._set_progressing(owner, "True", "FoundNewReplicaSet", message)
        return owner, new, old

    async def _create(
        self, owner: Object, old: Sequence[Object], revision: int
    ) -> tuple[Object, Object | None]:
        """Create the ReplicaSet of the current template. Raises StatusError after reporting a rejection."""
        size = new_size(owner["spec"], 0, sum(map(replicas_of, old)))
        desired = replica_set_for(owner, self.reference(owner), size, revision)
        metadata = desired["metadata"]
        try:
            new = await self.client.create(REPLICA_SETS, desired)
        except StatusError as error:
            if not is_namespace_terminating(error):
                message = f'Failed to create new replica set "{metadata["name"]}": {error.message}'
                if has_deadline(owner["spec"]):
                    await self._set_progressing(owner, "False", "ReplicaSetCreateError", message)
                await self.events.warning(owner, "ReplicaSetCreateError", message)
            raise
        if new is None:
            new = await self.client.read(REPLICA_SETS, metadata["namespace"], metadata["name"])
            if new is None or (controller_of(new) or {}).get("uid") != owner["metadata"]["uid"]:
                collisions = int((owner.get("status") or {}).get("collisionCount") or 0) + 1
                return await self.set_status(owner, {"collisionCount": collisions}) or owner, None
            return await self._record_revision(owner, revision), new
        if size:
            await self.events.normal(
                owner,
                "ScalingReplicaSet",
                f"Scaled up replica set {metadata['name']} from 0 to {size}",
            )
        owner = await self._record_revision(owner, revision)
        if has_deadline(owner["spec"]):
            message = f'Created new replica set "{metadata["name"]}"'
            owner = await self._set_progressing(owner, "True", "NewReplicaSetCreated", message)
        return owner, new

    async def _synchronize(self, owner: Object, new: Object, revision: int) -> Object | None:
        """Give the ReplicaSet of the current template the annotations and ``minReadySeconds`` of the Deployment."""
        min_ready = int(owner["spec"].get("minReadySeconds") or 0)

        def change(obj: Object) -> bool:
            annotations = updated_annotations(owner, obj, revision)
            if (
                annotations == annotations_of(obj)
                and int(obj["spec"].get("minReadySeconds") or 0) == min_ready
            ):
                return False
            obj["metadata"]["annotations"] = annotations
            obj["spec"]["minReadySeconds"] = min_ready
            return True

        return await self._modify_set(new, change)

    async def _record_revision(self, owner: Object, revision: int) -> Object:
        metadata = owner["metadata"]

        def change(obj: Object) -> bool:
            if annotations_of(obj).get(REVISION) == str(revision):
                return False
            obj["metadata"].setdefault("annotations", {})[REVISION] = str(revision)
            return True

        # an update of the annotations by any other way would count as a change of the spec
        changed = await self.client.modify(
            DEPLOYMENTS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )
        return changed or owner

    async def _modify_set(self, replica_set: Object, change: Any) -> Object | None:
        metadata = replica_set["metadata"]
        return await self.client.modify(
            REPLICA_SETS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"]
        )

    async def _resize(self, owner: Object, replica_set: Object, replicas: int) -> bool:
        """Scale a ReplicaSet; return whether its size changed."""
        before = replicas_of(replica_set)
        annotations = size_annotations(owner["spec"])

        def change(obj: Object) -> bool:
            if replicas_of(obj) == replicas and annotations.items() <= annotations_of(obj).items():
                return False
            obj["spec"]["replicas"] = replicas
            obj["metadata"].setdefault("annotations", {}).update(annotations)
            return True

        await self._modify_set(replica_set, change)
        replica_set["spec"]["replicas"] = replicas
        if before == replicas:
            return False
        name = replica_set["metadata"]["name"]
        word = "up" if replicas > before else "down"
        await self.events.normal(
            owner,
            "ScalingReplicaSet",
            f"Scaled {word} replica set {name} from {before} to {replicas}",
        )
        return True

    async def _scale(self, owner: Object, new: Object | None, old: Sequence[Object]) -> None:
        """Scale the ReplicaSets to the size of the Deployment, without a rollout."""
        spec = owner["spec"]
        every = sorted(old, key=creation_order)
        if new:
            every.append(new)
        active = [each for each in every if replicas_of(each)] or every[-1:]
        if len(active) == 1:
            await self._resize(owner, active[0], desired_replicas(spec))
        elif new is not None and replicas_of(new) == available_of(new) == desired_replicas(spec):
            for each in old:
                await self._resize(owner, each, 0)
        elif not is_recreate(spec):
            sizes = scaled_sizes(spec, owner.get("status") or {}, active)
            for each in active:
                await self._resize(owner, each, sizes[each["metadata"]["name"]])

    async def _recreate(
        self, owner: Object, new: Object | None, old: list[Object]
    ) -> tuple[Object, Object | None, list[Object]]:
        """Stop all old pods, then start the new ones."""
        resized = [await self._resize(owner, each, 0) for each in old if replicas_of(each)]
        statuses = (each.get("status") or {} for each in old)
        if any(resized) or any(
            each.get("replicas") or each.get("terminatingReplicas") for each in statuses
        ):
            return owner, new, old
        if new is None:
            owner, new, old = await self._with_new(owner, old, create=True)
        elif not await self._resize(owner, new, desired_replicas(owner["spec"])):
            await self._clean_up_if_complete(owner, old)
        return owner, new, old

    async def _roll(self, owner: Object, new: Object, old: Sequence[Object]) -> None:
        """Scale the new ReplicaSet up or the old ones down, as far as surge and unavailability allow."""
        size = new_size(owner["spec"], replicas_of(new), sum(map(replicas_of, old)))
        if replicas_of(new) != desired_replicas(owner["spec"]) and await self._resize(
            owner, new, size
        ):
            return
        sizes = old_sizes(owner["spec"], new, old)
        resized = False
        for each in old:
            name = each["metadata"]["name"]
            if name in sizes and sizes[name] != replicas_of(each):
                resized |= await self._resize(owner, each, sizes[name])
        if not resized:
            await self._clean_up_if_complete(owner, old)

    async def _clean_up_if_complete(self, owner: Object, old: Sequence[Object]) -> None:
        if is_complete(owner, owner.get("status") or {}):
            await self._clean_up(owner, old)

    async def _clean_up(self, owner: Object, old: Sequence[Object]) -> None:
        """Delete old ReplicaSets beyond the revision history limit."""
        surplus = len(old) - int(owner["spec"].get("revisionHistoryLimit", 10))
        for each in sorted(old, key=revision_of)[: max(0, surplus)]:
            status = each.get("status") or {}
            generation = int(each["metadata"].get("generation") or 0)
            is_unused = not status.get("replicas") and not replicas_of(each)
            if is_unused and generation <= int(status.get("observedGeneration") or 0):
                await self.delete_all(REPLICA_SETS, [each])

    async def _update_status(
        self, owner: Object, new: Object | None, all_sets: Sequence[Object], *, rollout: bool
    ) -> float | None:
        """Write the status; return the seconds until the progress deadline."""
        now = self.core.clock.now()
        status = counts(owner, new, all_sets, now)
        if rollout:
            status["conditions"] = rollout_conditions(owner, status, new, all_sets, now)
        await self.set_status(owner, status)
        remaining = seconds_to_deadline(owner, status["conditions"], now) if rollout else None
        return None if remaining is None else max(remaining, 0.0) + _AFTER_DEADLINE.total_seconds()
