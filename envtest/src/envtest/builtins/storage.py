"""Strategies of persistent volumes and claims, storage classes and CSI drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.pods import source_defaults
from envtest.builtins.strategy import BuiltinStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, forbidden, invalid, key, not_supported, required
from envtest.objects import Object
from envtest.schema.quantity import parse_quantity

__all__ = [
    "CSIDriverStrategy",
    "PersistentVolumeClaimStrategy",
    "PersistentVolumeStrategy",
    "StorageClassStrategy",
]

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SOURCES = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "csi",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "glusterfs",
        "hostPath",
        "iscsi",
        "local",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_ANNOTATIONS = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}


class PersistentVolumeStrategy(BuiltinStrategy):
    """Strategy of v1 PersistentVolume."""

    def set_defaults(self, obj: Object) -> None:
        """Set the phase ``Pending``, the reclaim policy ``Retain``, the volume mode and the defaults of the source."""
        obj["status"].setdefault("phase", "Pending")
        obj["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        obj["spec"].setdefault("volumeMode", "Filesystem")
        source_defaults(obj["spec"])

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the phase ``Pending`` and the time of this transition."""
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": ctx.now}

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: updates the time of the last phase transition."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource == "status" and new["status"].get("phase") != old["status"].get("phase"):
            old_time = old["status"].get("lastPhaseTransitionTime")
            if new["status"].get("lastPhaseTransitionTime") in (None, old_time):
                new["status"]["lastPhaseTransitionTime"] = ctx.now

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the access modes, the capacity, the reclaim policy and the source.

        A volume has exactly one source, and an immutable volume mode.
        """
        spec = obj["spec"]
        yield from self._spec_errors(spec)
        if old is None:
            return
        yield from self._spec_errors(spec)  # kube-apiserver validates a changed volume twice
        before, after = ({name: each[name] for name in _SOURCES if name in each} for each in (old["spec"], spec))
        if before != after:
            yield forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
        if spec.get("volumeMode") != old["spec"].get("volumeMode"):
            yield invalid("spec.volumeMode", spec.get("volumeMode"), "field is immutable")

    @staticmethod
    def _spec_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
        if not spec.get("accessModes"):
            yield required("spec.accessModes")
        for mode in spec.get("accessModes") or ():
            if mode not in _ACCESS_MODES:
                yield not_supported("spec.accessModes", mode, _ACCESS_MODES)
        if not spec.get("capacity"):
            yield required("spec.capacity")
        elif "storage" not in spec["capacity"] or len(spec["capacity"]) > 1:
            yield not_supported("spec.capacity", {**spec["capacity"]}, ("storage",))
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy not in _RECLAIM_POLICIES:
            yield not_supported("spec.persistentVolumeReclaimPolicy", policy or "", _RECLAIM_POLICIES)
        sources = [name for name in spec if name in _SOURCES]
        if not sources:
            yield required("spec", "must specify a volume type")
        for extra in sources[1:]:
            yield forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
        if "hostPath" in spec and not spec["hostPath"].get("path"):
            yield required("spec.hostPath.path")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warns about deprecated annotations and the deprecated reclaim policy."""
        texts = []
        for name, text in _ANNOTATIONS.items():
            if name in (obj["metadata"].get("annotations") or {}):
                texts.append(f"{key('metadata.annotations', name)}: {text}")
        if obj["spec"].get("persistentVolumeReclaimPolicy") == "Recycle":
            text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic "
            texts.append(f"spec.persistentVolumeReclaimPolicy: {text}provisioning.")
        return texts


class PersistentVolumeClaimStrategy(BuiltinStrategy):
    """Strategy of v1 PersistentVolumeClaim."""

    def set_defaults(self, obj: Object) -> None:
        """Set the phase ``Pending`` and the volume mode ``Filesystem``."""
        obj["status"].setdefault("phase", "Pending")
        obj["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the phase ``Pending``."""
        obj["status"] = {"phase": "Pending"}

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the access modes and the size, and of changes to the immutable part of the spec."""
        spec = obj["spec"]
        if not spec.get("accessModes"):
            yield required("spec.accessModes", "at least 1 access mode is required")
        requests = (spec.get("resources") or {}).get("requests") or {}
        if "storage" not in requests:
            yield required("spec.resources[storage]")
        elif parse_quantity(requests["storage"]).value <= 0:
            yield invalid("spec.resources[storage]", requests["storage"], "must be greater than zero")
        if old is not None and not ctx.subresource:
            mutable = {"resources", "volumeAttributesClassName", "volumeName"}
            before = {name: value for name, value in old["spec"].items() if name not in mutable}
            after = {name: value for name, value in spec.items() if name not in mutable}
            if before != after:
                text = (
                    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
                    "bound claims"
                )
                yield forbidden("spec", text)


class StorageClassStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 StorageClass."""

    def set_defaults(self, obj: Object) -> None:
        """Set the reclaim policy ``Delete`` and the binding mode ``Immediate``."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the provisioner, reclaim policy, binding mode and parameters, which are all immutable."""
        if not obj.get("provisioner"):
            yield required("provisioner")
        if obj.get("reclaimPolicy") not in ("Delete", "Retain"):
            yield not_supported("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Retain"))
        mode = obj.get("volumeBindingMode")
        if mode not in ("Immediate", "WaitForFirstConsumer"):
            yield not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
        if old is None:
            return
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            yield invalid("parameters", obj.get("parameters"), "field is immutable")
        for name in ("provisioner", "reclaimPolicy"):
            if obj.get(name) != old.get(name):
                yield invalid(name, obj.get(name) or "", "field is immutable")
        if mode != old.get("volumeBindingMode"):
            yield invalid("volumeBindingMode", mode, "field is immutable")


class CSIDriverStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 CSIDriver."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: volumes are attached and persistent, with the group policy ``ReadWriteOnceWithFSType``."""
        spec = obj["spec"]
        spec.setdefault("attachRequired", True)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
            spec.setdefault(name, False)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the policies and modes; ``attachRequired`` and ``volumeLifecycleModes`` are immutable."""
        spec = obj["spec"]
        policies = ("File", "None", "ReadWriteOnceWithFSType")
        if spec.get("fsGroupPolicy") not in policies:
            yield not_supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), policies)
        for mode in spec.get("volumeLifecycleModes") or ():
            if mode not in ("Ephemeral", "Persistent"):
                yield not_supported("spec.volumeLifecycleModes", mode, ("Ephemeral", "Persistent"))
        if old is not None:
            for name in ("attachRequired", "volumeLifecycleModes"):
                if spec.get(name) != old["spec"].get(name):
                    yield invalid(f"spec.{name}", spec.get(name), "field is immutable")
