"""The StatefulSet controller: pods with stable names and volumes, created in order."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import orjson

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, labels_of
from envtest.controllers.controller_revisions import (
    REVISIONS,
    current_revision,
    delete_old_revisions,
)
from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_state import (
    PODS,
    is_available,
    is_finished,
    is_ready,
    phase,
    pod_from_template,
    seconds_until_next_available,
)
from envtest.controllers.replica_set_revisions import template_hash

__all__ = ["StatefulSets"]

STATEFUL_SETS: Final = GroupResource("apps", "statefulsets")
CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
REVISION_LABEL: Final = "controller-revision-hash"
NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


def ordinal(pod: Object) -> int:
    """Return the number at the end of a pod's name, or -1."""
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdigit() else -1


class StatefulSets(OwnerController):
    """Reconciles StatefulSets."""

    account = "statefulset-controller"
    resource: ClassVar[GroupResource] = STATEFUL_SETS
    kind: ClassVar[str] = "StatefulSet"
    api_version: ClassVar[str] = "apps/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS, REVISIONS)
    unwatched: ClassVar[tuple[GroupResource, ...]] = (REVISIONS,)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Advance the pods by one step towards the desired ones, and update the status.

        Raises StatusError, after the update, if a pod or claim was rejected.
        """
        owner = await self.owner(key)
        if owner is None:
            return None
        pods = await self.controlled(owner, PODS, owner["spec"].get("selector") or {})
        by_number = {ordinal(pod): pod for pod in pods if ordinal(pod) >= 0}
        name = f"{key.name}-{template_hash(owner['spec'].get('template') or {})}"
        revision = await current_revision(self, owner, {REVISION_LABEL: name})
        update_revision = str(revision["metadata"]["name"])
        error = None
        if not owner["metadata"].get("deletionTimestamp"):
            try:
                await self._step(owner, by_number, update_revision)
            except StatusError as rejected:
                error = rejected
        live = {labels_of(pod).get(REVISION_LABEL) for pod in pods} | {update_revision}
        live.add((owner.get("status") or {}).get("currentRevision"))
        await delete_old_revisions(self, owner, live)
        delay = await self._update_status(owner, list(by_number.values()), update_revision)
        if error is not None:
            raise error
        return delay

    def _range(self, owner: Object) -> range:
        first = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
        return range(first, first + int(owner["spec"].get("replicas", 1)))

    async def _step(self, owner: Object, pods: dict[int, Object], update_revision: str) -> None:
        """Create or replace pods in ascending order, then delete surplus ones in descending order."""
        ordered = owner["spec"].get("podManagementPolicy") != "Parallel"
        desired = self._range(owner)
        for number in desired:
            pod = pods.get(number)
            if pod is None:
                created_pod = await self._create_pod(
                    owner, number, self._revision_for(owner, number, update_revision)
                )
                if created_pod is not None:
                    pods[number] = created_pod
                if ordered:
                    return
            elif pod["metadata"].get("deletionTimestamp") or is_finished(pod):
                if is_finished(pod):
                    await self._replace_finished(owner, pod)
                if ordered:
                    return
            elif ordered and not is_ready(pod):
                return
        surplus = sorted((number for number in pods if number not in desired), reverse=True)
        for number in surplus:
            await self._delete_pod(owner, pods[number])
            if ordered:
                return
        if not surplus:
            await self._replace_outdated(owner, pods, update_revision)

    async def _replace_finished(self, owner: Object, pod: Object) -> None:
        """Delete a pod that succeeded or failed, so that it is created again."""
        if pod["metadata"].get("deletionTimestamp"):
            return
        metadata = owner["metadata"]
        word = phase(pod)
        text = f"StatefulSet {metadata['namespace']}/{metadata['name']} is recreating"
        if word == "Failed":
            await self.events.warning(
                owner, "RecreatingFailedPod", f"{text} failed Pod {pod['metadata']['name']}"
            )
        else:
            await self.events.normal(
                owner, "RecreatingTerminatedPod", f"{text} terminated Pod {pod['metadata']['name']}"
            )
        await self._delete_pod(owner, pod)

    async def _delete_pod(self, owner: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        text = f"Delete Pod {metadata['name']} in StatefulSet {owner['metadata']['name']}"
        try:
            await self.client.delete(
                PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        except StatusError as error:
            await self.events.warning(
                owner, "FailedDelete", f"{text} failed error: {error.message}"
            )
            raise
        await self.events.normal(owner, "SuccessfulDelete", f"{text} successful")

    def _revision_for(self, owner: Object, number: int, update_revision: str) -> str:
        """Return the revision of a pod: pods below the partition keep the previous one."""
        current = (owner.get("status") or {}).get("currentRevision") or update_revision
        return current if number < self._first_updated(owner) else update_revision

    def _first_updated(self, owner: Object) -> int:
        """Return the lowest number of a pod that gets the current template."""
        strategy = owner["spec"].get("updateStrategy") or {}
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        return self._range(owner).start + partition

    async def _replace_outdated(
        self, owner: Object, pods: dict[int, Object], update_revision: str
    ) -> None:
        """Delete the last pod of an old revision, so that it is recreated."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        first_updated = self._first_updated(owner)
        for number in sorted(self._range(owner), reverse=True):
            pod = pods.get(number)
            if pod is None or number < first_updated:
                return
            if labels_of(pod).get(REVISION_LABEL) != update_revision:
                await self._delete_pod(owner, pod)
                return
            if not is_ready(pod):
                return

    async def _revision_template(self, owner: Object, revision: str) -> Object:
        record = await self.client.read(REVISIONS, owner["metadata"]["namespace"], revision)
        template = ((record or {}).get("data") or {}).get("spec", {}).get("template") or owner[
            "spec"
        ].get("template")
        copied: Object = orjson.loads(orjson.dumps(template or {}))
        copied.pop("$patch", None)
        return copied

    async def _create_pod(self, owner: Object, number: int, revision: str) -> Object | None:
        metadata = owner["metadata"]
        name = f"{metadata['name']}-{number}"
        pod = pod_from_template(
            await self._revision_template(owner, revision),
            metadata["namespace"],
            self.reference(owner),
        )
        pod["metadata"] |= {"name": name, "generateName": f"{metadata['name']}-"}
        pod["metadata"].setdefault("labels", {}).update(
            {NAME_LABEL: name, INDEX_LABEL: str(number), REVISION_LABEL: revision}
        )
        pod["spec"].setdefault("hostname", name)
        service = owner["spec"].get("serviceName")
        if service:
            pod["spec"].setdefault("subdomain", service)
        text = f"Create Pod {name} in StatefulSet {metadata['name']}"
        try:
            await self._create_claims(owner, pod)
            created = await self.client.create(PODS, pod)
        except StatusError as error:
            await self.events.warning(
                owner, "FailedCreate", f"{text} failed error: {error.message}"
            )
            raise
        if created is not None:
            await self.events.normal(owner, "SuccessfulCreate", f"{text} successful")
        return created

    async def _create_claims(self, owner: Object, pod: Object) -> None:
        volumes = list(pod["spec"].get("volumes") or ())
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            claim: Object = orjson.loads(orjson.dumps(template))
            template_name = claim["metadata"]["name"]
            name = f"{template_name}-{pod['metadata']['name']}"
            labels = {
                **labels_of(claim),
                **((owner["spec"].get("selector") or {}).get("matchLabels") or {}),
            }
            metadata_copy = {
                "name": name,
                "namespace": pod["metadata"]["namespace"],
                "labels": labels,
            }
            annotations = claim["metadata"].get("annotations")
            if annotations:
                metadata_copy["annotations"] = annotations
            await self._create_claim(
                owner, pod, {"metadata": metadata_copy, "spec": claim.get("spec") or {}}
            )
            volumes = [one for one in volumes if one.get("name") != template_name]
            volumes.append({"name": template_name, "persistentVolumeClaim": {"claimName": name}})
        if volumes:
            pod["spec"]["volumes"] = volumes

    async def _create_claim(self, owner: Object, pod: Object, claim: Object) -> None:
        created_claim = f"Create Claim {claim['metadata']['name']}"
        place = f"Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']}"
        try:
            created = await self.client.create(CLAIMS, claim)
        except StatusError as error:
            await self.events.warning(
                owner,
                "FailedCreate",
                f"{created_claim} for {place} failed error: {error.message}",
            )
            raise
        if created is not None:
            await self.events.normal(owner, "SuccessfulCreate", f"{created_claim} {place} success")

    async def _update_status(
        self, owner: Object, pods: list[Object], update_revision: str
    ) -> float | None:
        now = self.core.clock.now()
        min_ready = int(owner["spec"].get("minReadySeconds") or 0)
        current_revision = (owner.get("status") or {}).get("currentRevision") or update_revision
        created = [pod for pod in pods if not is_finished(pod)]

        def replicas_of_revision(revision: str) -> int:
            return sum(
                labels_of(pod).get(REVISION_LABEL) == revision
                and not pod["metadata"].get("deletionTimestamp")
                for pod in created
            )

        updated = replicas_of_revision(update_revision)
        ready = sum(map(is_ready, created))
        rollout_complete = updated == len(created) == ready == int(owner["spec"].get("replicas", 1))
        current = update_revision if rollout_complete else current_revision
        status: dict[str, Any] = {
            "observedGeneration": owner["metadata"].get("generation"),
            "replicas": len(created),
            "readyReplicas": ready or None,
            "availableReplicas": sum(is_available(pod, min_ready, now) for pod in created),
            "currentReplicas": replicas_of_revision(current) or None,
            "updatedReplicas": updated or None,
            "currentRevision": current,
            "updateRevision": update_revision,
            "collisionCount": 0,
        }
        await self.set_status(owner, status)
        return seconds_until_next_available(created, min_ready, now)
