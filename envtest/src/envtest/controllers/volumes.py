"""The volume binder: binds PersistentVolumeClaims to PersistentVolumes, and provides volumes of its own class.

A claim gets a volume that exists, or one that is provisioned if the provisioner of its StorageClass is
``envtest.cfo/provisioner``. With ``WaitForFirstConsumer`` it waits until a pod that uses it has a node.
"""

from __future__ import annotations

from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import NamespacedName, Object
from envtest.controllers.controller import Controller
from envtest.controllers.pod_state import PODS
from envtest.controllers.volume_matching import (
    BIND_COMPLETED,
    BOUND_BY,
    PROVISIONED_BY,
    best_volume,
    class_of,
    is_bound_to,
    volume_phase,
)
from envtest.storage import Change, Record
from envtest.writes.server_core import Core

__all__ = ["PROVISIONER", "VolumeBinding"]

VOLUMES: Final = GroupResource("", "persistentvolumes")
CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
CLASSES: Final = GroupResource("storage.k8s.io", "storageclasses")
PROVISIONER: Final = "envtest.cfo/provisioner"

_DRIVER: Final = "envtest.cfo"
_STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"


def claims_of(pod: Object) -> set[str]:
    """Return the names of the claims that a pod uses, also for its ephemeral volumes."""
    names = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            names.add(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            names.add(f"{pod['metadata']['name']}-{volume['name']}")
    return names


class VolumeBinding(Controller[NamespacedName]):
    """Reconciles claims (keys with a namespace) and volumes (keys without)."""

    account = "persistent-volume-binder"
    component = "persistentvolume-controller"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._users: dict[NamespacedName, dict[str, str]] = {}
        self._waiting: dict[str, set[NamespacedName]] = {}
        self._free: dict[str, dict[str, Object]] = {}
        self._reserved: dict[NamespacedName, set[str]] = {}

    def enqueue_all(self) -> None:
        """Index pods, claims and volumes, and enqueue all claims and volumes."""
        for record in self.client.records(PODS):
            self._observe_pod(record, deleted=False)
        for record in self.client.records(CLAIMS):
            self.queue.add(NamespacedName(record.namespace, record.name))
        for record in self.client.records(VOLUMES):
            self._observe_volume(record, deleted=False)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue what changed, the claims that wait for a volume or class, and the claims of a pod with a node."""
        record = change.record
        deleted = change.type == "DELETED"
        if resource == PODS:
            self._observe_pod(record, deleted=deleted)
        elif resource == CLAIMS:
            key = NamespacedName(record.namespace, record.name)
            self.queue.add(key)
            names = self._reserved.get(key, ())
            for name in names:
                self.queue.add(NamespacedName("", name))
        elif resource == VOLUMES:
            if change.previous is not None:
                self._forget_volume(change.previous)
            self._observe_volume(record, deleted=deleted)
        elif resource == CLASSES:
            for key in self._waiting.get(record.name, ()):
                self.queue.add(key)

    def _observe_pod(self, record: Record, *, deleted: bool) -> None:
        if b'"persistentVolumeClaim"' not in record.data and b'"ephemeral"' not in record.data:
            return
        pod = record.obj()
        node = pod["spec"].get("nodeName") or ""
        for name in claims_of(pod):
            key = NamespacedName(record.namespace, name)
            users = self._users.setdefault(key, {})
            before = users.pop(record.uid, "")
            if not deleted:
                users[record.uid] = node
            elif not users:
                del self._users[key]
            if node and before != node:
                self.queue.add(key)

    def _forget_volume(self, record: Record) -> None:
        volume = record.obj()
        self._free.get(class_of(volume), {}).pop(record.name, None)
        reference = volume["spec"].get("claimRef")
        if reference:
            self._reserved.get(_key_of(reference), set()).discard(record.name)

    def _observe_volume(self, record: Record, *, deleted: bool) -> None:
        volume = record.obj()
        reference = volume["spec"].get("claimRef")
        name = class_of(volume)
        if reference:
            self.queue.add(_key_of(reference))
        if deleted:
            return
        self.queue.add(NamespacedName("", record.name))
        if reference:
            self._reserved.setdefault(_key_of(reference), set()).add(record.name)
        else:
            self._free.setdefault(name, {})[record.name] = volume
            for key in self._waiting.get(name, ()):
                self.queue.add(key)

    async def reconcile(self, key: NamespacedName) -> None:
        """Bind a claim, or update the phase of a volume."""
        if not key.namespace:
            await self._reconcile_volume(key.name)
            return
        claim = await self.client.read(CLAIMS, key.namespace, key.name)
        for names in self._waiting.values():
            names.discard(key)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return
        name = claim["spec"].get("volumeName")
        if name:
            volume = await self.client.read(VOLUMES, "", name)
            await self._complete(claim, volume)
            return
        self._waiting.setdefault(class_of(claim), set()).add(key)
        storage_class = await self._class(claim)
        mode = (storage_class or {}).get("volumeBindingMode")
        if mode == "WaitForFirstConsumer" and not any(self._users.get(key, {}).values()):
            message = "waiting for first consumer to be created before binding"
            await self.events.normal(claim, "WaitForFirstConsumer", message)
            return
        volume = await self._find(claim)
        if volume is None and storage_class is not None:
            volume = await self._provision(claim, storage_class)
        if volume is not None:
            await self._bind(claim, volume)
            self._waiting.get(class_of(claim), set()).discard(key)
        elif storage_class is None:
            text = "no persistent volumes available for this claim and no storage class is set"
            if class_of(claim):
                text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            if class_of(claim):
                await self.events.record(claim, "Warning", "ProvisioningFailed", text)
            else:
                await self.events.record(claim, "Normal", "FailedBinding", text)

    async def _class(self, claim: Object) -> Object | None:
        name = class_of(claim)
        return await self.client.read(CLASSES, "", name) if name else None

    async def _find(self, claim: Object) -> Object | None:
        key = NamespacedName(claim["metadata"]["namespace"], claim["metadata"]["name"])
        records = (
            self.client.record(VOLUMES, "", name) for name in sorted(self._reserved.get(key, ()))
        )
        reserved = [record.obj() for record in records if record is not None]
        return best_volume(claim, [*reserved, *self._free.get(class_of(claim), {}).values()])

    async def _provision(self, claim: Object, storage_class: Object) -> Object | None:
        """Create a volume for a claim, if this is the provisioner of its class."""
        provisioner = storage_class.get("provisioner")
        if provisioner == "kubernetes.io/no-provisioner":
            return None
        await self._annotate(claim, _STORAGE_PROVISIONER, str(provisioner))
        if provisioner != PROVISIONER:
            text = (
                f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by "
                "the system administrator. If volume creation is delayed, please verify that the provisioner is "
                "running and correctly registered."
            )
            await self.events.normal(claim, "ExternalProvisioning", text)
            return None
        metadata = claim["metadata"]
        name = f"pvc-{metadata['uid']}"
        wanted = claim["spec"]
        volume = {
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
                "accessModes": list(wanted.get("accessModes") or ()),
                "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
                "storageClassName": storage_class["metadata"]["name"],
                "volumeMode": wanted.get("volumeMode") or "Filesystem",
                "claimRef": _reference_of(claim),
                "csi": {"driver": _DRIVER, "volumeHandle": name},
            },
        }
        await self.client.create(VOLUMES, volume)
        return await self.client.read(VOLUMES, "", name)

    async def _annotate(self, claim: Object, name: str, value: str) -> None:
        def change(obj: Object) -> bool:
            annotations = obj["metadata"].setdefault("annotations", {})
            if annotations.get(name) == value:
                return False
            annotations[name] = value
            return True

        await self._modify(claim, change)

    async def _modify(self, claim: Object, change: Any, subresource: str = "") -> Object | None:
        metadata = claim["metadata"]
        return await self.client.modify(
            CLAIMS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource=subresource,
        )

    async def _bind(self, claim: Object, volume: Object) -> None:
        """Bind a claim and a volume to each other: first the volume, which only one claim can get."""
        reference = _reference_of(claim)
        name = volume["metadata"]["name"]

        def reserve(obj: Object) -> bool:
            current = obj["spec"].get("claimRef")
            if current and not is_bound_to(obj, claim):
                return False
            if current and current.get("uid") == reference["uid"]:
                return False
            if not current:
                obj["metadata"].setdefault("annotations", {})[BOUND_BY] = "yes"
            obj["spec"]["claimRef"] = reference
            return True

        bound = await self.client.modify(VOLUMES, "", name, reserve, uid=volume["metadata"]["uid"])
        if bound is None or not is_bound_to(bound, claim):
            return

        def choose(obj: Object) -> bool:
            if obj["spec"].get("volumeName"):
                return False
            obj["spec"]["volumeName"] = name
            obj["metadata"].setdefault("annotations", {}).update(
                {BIND_COMPLETED: "yes", BOUND_BY: "yes"}
            )
            return True

        await self._modify(claim, choose)

    async def _complete(self, claim: Object, volume: Object | None) -> None:
        """Update the status of a claim that names its volume; bind the volume if the user chose it."""
        if volume is None:
            if BIND_COMPLETED in (claim["metadata"].get("annotations") or {}):
                await self._set_status(claim, {"phase": "Lost"})
                await self.events.warning(
                    claim,
                    "ClaimLost",
                    "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
                )
            return
        reference = volume["spec"].get("claimRef")
        if reference and not is_bound_to(volume, claim):
            return
        if not reference or not reference.get("uid"):
            await self._bind(claim, volume)
        await self._annotate(claim, BIND_COMPLETED, "yes")
        spec = volume["spec"]
        status = {
            "phase": "Bound",
            "accessModes": spec.get("accessModes"),
            "capacity": spec.get("capacity"),
        }
        await self._set_status(claim, status)

    async def _set_status(self, claim: Object, status: dict[str, Any]) -> None:
        def change(obj: Object) -> bool:
            current = obj.get("status") or {}
            if all(current.get(name) == value for name, value in status.items()):
                return False
            obj["status"] = {**current, **status}
            return True

        await self._modify(claim, change, "status")

    async def _reconcile_volume(self, name: str) -> None:
        """Update the phase of a volume; a released one is deleted if it was provisioned here to be deleted."""
        volume = await self.client.read(VOLUMES, "", name)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef")
        claim = None
        if reference:
            claim = await self.client.read(CLAIMS, *_key_of(reference))
        phase = volume_phase(volume, claim)
        provisioned = (volume["metadata"].get("annotations") or {}).get(
            PROVISIONED_BY
        ) == PROVISIONER
        policy = volume["spec"].get("persistentVolumeReclaimPolicy")

        def change(obj: Object) -> bool:
            if obj["status"].get("phase") == phase:
                return False
            obj["status"]["phase"] = phase
            return True

        await self.client.modify(
            VOLUMES, "", name, change, uid=volume["metadata"]["uid"], subresource="status"
        )
        if (
            phase == "Released"
            and provisioned
            and policy == "Delete"
            and not volume["metadata"].get("deletionTimestamp")
        ):
            await self.client.delete(VOLUMES, "", name, uid=volume["metadata"]["uid"])


def _key_of(reference: dict[str, Any]) -> NamespacedName:
    return NamespacedName(reference.get("namespace") or "", reference.get("name") or "")


def _reference_of(claim: Object) -> dict[str, Any]:
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }
