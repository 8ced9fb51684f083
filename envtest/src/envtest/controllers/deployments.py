"""The Deployment controller: one ReplicaSet per pod template, and rollouts from old to new ReplicaSets."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

import orjson

from envtest.controllers.ownership import OwnerController
from envtest.controllers.replicasets import REPLICA_SETS
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object, annotations_of, find_condition, labels_of, set_condition

__all__ = ["Deployments"]

DEPLOYMENTS: Final = GroupResource("apps", "deployments")
HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Object, collisions: int = 0) -> str:
    """Return a short hash of a pod template, valid in labels and names, in the alphabet that Kubernetes uses."""
    digest = hashlib.sha256(orjson.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


def resolve_int_or_percent(value: Any, total: int, *, up: bool) -> int:
    """Resolve an integer, or a percentage of ``total`` rounded up or down."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total
        return -(-share // 100) if up else share // 100
    return int(value or 0)


def surge_and_unavailable(spec: Object) -> tuple[int, int]:
    """Return the allowed surge above the desired number of pods, and the allowed number of unavailable pods."""
    desired = int(spec.get("replicas", 1))
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return 0, desired
    surge = resolve_int_or_percent(rolling.get("maxSurge", "25%"), desired, up=True)
    unavailable = resolve_int_or_percent(rolling.get("maxUnavailable", "25%"), desired, up=False)
    return surge, unavailable if surge or unavailable else 1


def replicas_of(replica_set: Object) -> int:
    """Return the desired number of pods of a ReplicaSet."""
    return int(replica_set["spec"].get("replicas", 1))


def available_of(replica_set: Object) -> int:
    """Return the number of available pods of a ReplicaSet."""
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)


def _template_without_hash(template: Object) -> Object:
    """Return a copy of a template without the hash label of ReplicaSets."""
    copy: Object = orjson.loads(orjson.dumps(template))
    labels_of(copy).pop(HASH_LABEL, None)
    return copy


class Deployments(OwnerController):
    """Reconciles Deployments."""

    account = "deployment-controller"
    resource: ClassVar[GroupResource] = DEPLOYMENTS
    kind: ClassVar[str] = "Deployment"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (REPLICA_SETS,)

    async def reconcile(self, key: NamespacedName) -> None:
        """Advance the rollout by one step, and update the status."""
        owner = await self.owner(key)
        if owner is None:
            return
        spec = owner["spec"]
        all_sets = await self.controlled(owner, REPLICA_SETS, spec.get("selector") or {})
        new = next((each for each in all_sets if self._is_current(owner, each)), None)
        old = [each for each in all_sets if each is not new]
        if not owner["metadata"].get("deletionTimestamp"):
            if spec.get("paused"):
                await self._scale_active(owner, all_sets)
            else:
                new = await self._ensure_new_replica_set(owner, new, old)
                if new is not None:
                    await self._roll_out(owner, new, old)
                    await self._clean_up(owner, new, old)
        await self._update_status(owner, new, all_sets)

    def _is_current(self, owner: Object, replica_set: Object) -> bool:
        current = _template_without_hash(owner["spec"].get("template") or {})
        return _template_without_hash(replica_set["spec"].get("template") or {}) == current

    async def _ensure_new_replica_set(self, owner: Object, new: Object | None, old: list[Object]) -> Object | None:
        """Return the ReplicaSet of the current template, created or updated to the latest revision."""
        revision = max((int(annotations_of(each).get(REVISION, "0")) for each in old), default=0) + 1
        spec, metadata = owner["spec"], owner["metadata"]
        if new is None:
            template = _template_without_hash(spec.get("template") or {})
            hash_suffix = template_hash(template, int((owner.get("status") or {}).get("collisionCount") or 0))
            labels = {**labels_of(template), HASH_LABEL: hash_suffix}
            template.setdefault("metadata", {})["labels"] = labels
            selector = orjson.loads(orjson.dumps(spec.get("selector") or {}))
            selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_suffix}
            name = f"{metadata['name']}-{hash_suffix}"
            replica_set = {
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "annotations": self._annotations(owner, revision),
                    "ownerReferences": [self.reference(owner)],
                },
                "spec": {
                    "replicas": self._initial_replicas(owner, old),
                    "selector": selector,
                    "template": template,
                    "minReadySeconds": int(spec.get("minReadySeconds") or 0),
                },
            }
            created = await self.client.create(REPLICA_SETS, replica_set)
            new = created or await self.client.read(REPLICA_SETS, metadata["namespace"], name)
        if new is not None:
            new = await self._annotate(owner, new, max(revision, int(annotations_of(new).get(REVISION, "0"))))
            await self._record_revision(owner, annotations_of(new or {}).get(REVISION, str(revision)))
        return new

    def _initial_replicas(self, owner: Object, old: list[Object]) -> int:
        desired, (surge, _) = int(owner["spec"].get("replicas", 1)), surge_and_unavailable(owner["spec"])
        if (owner["spec"].get("strategy") or {}).get("type") == "Recreate":
            return 0 if any(map(replicas_of, old)) else desired
        return max(0, min(desired, desired + surge - sum(map(replicas_of, old))))

    def _annotations(self, owner: Object, revision: int) -> dict[str, str]:
        desired = int(owner["spec"].get("replicas", 1))
        return {
            REVISION: str(revision),
            DESIRED_REPLICAS: str(desired),
            MAX_REPLICAS: str(desired + surge_and_unavailable(owner["spec"])[0]),
        }

    async def _annotate(self, owner: Object, replica_set: Object, revision: int) -> Object | None:
        desired_annotations = self._annotations(owner, revision)

        def change(obj: Object) -> bool:
            annotations = obj["metadata"].setdefault("annotations", {})
            if desired_annotations.items() <= annotations.items():
                return False
            annotations.update(desired_annotations)
            return True

        return await self._modify_set(replica_set, change)

    async def _record_revision(self, owner: Object, revision: str) -> None:
        metadata = owner["metadata"]

        def change(obj: Object) -> bool:
            if annotations_of(obj).get(REVISION) == revision:
                return False
            obj["metadata"].setdefault("annotations", {})[REVISION] = revision
            return True

        # an update of the annotations by any other way would count as a change of the spec
        await self.client.modify(
            DEPLOYMENTS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"], subresource="status"
        )

    async def _modify_set(self, replica_set: Object, change: Any) -> Object | None:
        metadata = replica_set["metadata"]
        return await self.client.modify(
            REPLICA_SETS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"]
        )

    async def _resize(self, replica_set: Object, replicas: int) -> None:
        if replicas_of(replica_set) == replicas:
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = replicas

        await self._modify_set(replica_set, change)
        replica_set["spec"]["replicas"] = replicas

    async def _scale_active(self, owner: Object, all_sets: list[Object]) -> None:
        """Scale to the desired number of replicas without a rollout, while the Deployment is paused."""
        active = [each for each in all_sets if replicas_of(each)] or all_sets[-1:]
        if len(active) == 1:
            await self._resize(active[0], int(owner["spec"].get("replicas", 1)))

    async def _roll_out(self, owner: Object, new: Object, old: list[Object]) -> None:
        """Scale the new ReplicaSet up or the old ones down, as far as surge and unavailability allow."""
        desired, (surge, unavailable) = int(owner["spec"].get("replicas", 1)), surge_and_unavailable(owner["spec"])
        if (owner["spec"].get("strategy") or {}).get("type") == "Recreate":
            for each in old:
                await self._resize(each, 0)
            if not any((each.get("status") or {}).get("replicas") for each in old):
                await self._resize(new, desired)
            return
        total = replicas_of(new) + sum(map(replicas_of, old))
        if replicas_of(new) > desired:
            await self._resize(new, desired)
        elif replicas_of(new) < desired and total < desired + surge:
            await self._resize(new, replicas_of(new) + min(desired + surge - total, desired - replicas_of(new)))
        await self._scale_down_old(desired - unavailable, new, old)

    async def _scale_down_old(self, min_available: int, new: Object, old: list[Object]) -> None:
        """Scale down old ReplicaSets: unavailable pods first, then available ones, to ``min_available`` in total."""
        total = replicas_of(new) + sum(map(replicas_of, old))
        surplus = total - min_available - max(0, replicas_of(new) - available_of(new))
        for each in old:
            unhealthy = min(max(0, replicas_of(each) - available_of(each)), max(0, surplus))
            await self._resize(each, replicas_of(each) - unhealthy)
            surplus -= unhealthy
        surplus = available_of(new) + sum(min(available_of(each), replicas_of(each)) for each in old) - min_available
        for each in old:
            removed = min(replicas_of(each), max(0, surplus))
            await self._resize(each, replicas_of(each) - removed)
            surplus -= removed

    async def _clean_up(self, owner: Object, new: Object, old: list[Object]) -> None:
        """Delete old ReplicaSets beyond the revision history limit, once the rollout is complete."""
        if available_of(new) < int(owner["spec"].get("replicas", 1)) or any(map(replicas_of, old)):
            return
        keep = int(owner["spec"].get("revisionHistoryLimit", 10))
        unused = [each for each in old if not (each.get("status") or {}).get("replicas")]
        unused.sort(key=lambda each: int(annotations_of(each).get(REVISION, "0")))
        await self.delete_all(REPLICA_SETS, unused[: max(0, len(unused) - keep)])

    async def _update_status(self, owner: Object, new: Object | None, all_sets: list[Object]) -> None:
        if new is not None and new not in all_sets:
            all_sets = [*all_sets, new]
        desired, (_, unavailable) = int(owner["spec"].get("replicas", 1)), surge_and_unavailable(owner["spec"])

        def count(name: str, replica_sets: list[Object]) -> int:
            return sum(int((each.get("status") or {}).get(name) or 0) for each in replica_sets)

        available, updated = count("availableReplicas", all_sets), count("replicas", [new] if new else [])
        total = count("replicas", all_sets)
        status: dict[str, Any] = {
            "observedGeneration": owner["metadata"].get("generation"),
            "replicas": total or None,
            "updatedReplicas": updated or None,
            "readyReplicas": count("readyReplicas", all_sets) or None,
            "availableReplicas": available or None,
            "unavailableReplicas": max(0, desired - available) or None,
        }
        conditions = [dict(one) for one in (owner.get("status") or {}).get("conditions") or ()]
        has_minimum = available >= desired - unavailable
        self._set_condition(
            conditions,
            "Available",
            has_minimum,
            "MinimumReplicasAvailable" if has_minimum else "MinimumReplicasUnavailable",
            f"Deployment {'has' if has_minimum else 'does not have'} minimum availability.",
        )
        self._set_progress_condition(owner, conditions, new, complete=updated == total == available == desired)
        status["conditions"] = conditions
        await self.set_status(owner, status)

    def _set_progress_condition(
        self, owner: Object, conditions: list[Object], new: Object | None, *, complete: bool
    ) -> None:
        if owner["spec"].get("paused"):
            if (find_condition(conditions, "Progressing") or {}).get("reason") != "DeploymentPaused":
                self._set_condition(conditions, "Progressing", None, "DeploymentPaused", "Deployment is paused")
        elif new is not None:
            name = new["metadata"]["name"]
            reason = "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"
            text = f'ReplicaSet "{name}" {"has successfully progressed" if complete else "is progressing"}.'
            self._set_condition(conditions, "Progressing", True, reason, text)

    def _set_condition(
        self, conditions: list[Object], kind: str, status: bool | None, reason: str, message: str
    ) -> None:
        now = self.client.now()
        text = "Unknown" if status is None else "True" if status else "False"
        condition = {"type": kind, "status": text, "reason": reason, "message": message}
        existing = find_condition(conditions, kind)
        if existing is not None and condition.items() <= existing.items():
            return
        set_condition(conditions, {**condition, "lastUpdateTime": now}, now=now)
