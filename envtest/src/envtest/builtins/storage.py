"""Strategies of persistent volumes and claims, storage classes and CSI drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.go_rendering import difference, internal_volume_source
from envtest.builtins.pods import source_defaults
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import label_selector_errors
from envtest.context import RequestContext
from envtest.field_errors import FieldError, forbidden, invalid, key, not_supported, required
from envtest.metadata import dns_subdomain
from envtest.objects import Object
from envtest.schema.quantity import parse_quantity

__all__ = [
    "CSIDriverStrategy",
    "PersistentVolumeClaimStrategy",
    "PersistentVolumeStrategy",
    "StorageClassStrategy",
    "claim_errors",
]

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
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
            shown = difference(*(internal_volume_source(each) for each in (before, after)))
            text = f"spec.persistentvolumesource is immutable after creation\n{shown}"
            yield forbidden("spec.persistentvolumesource", text)
        if spec.get("volumeMode") != old["spec"].get("volumeMode"):
            yield invalid("spec.volumeMode", spec.get("volumeMode"), "field is immutable")

    @staticmethod
    def _spec_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
        if not spec.get("accessModes"):
            yield required("spec.accessModes")
        for mode in spec.get("accessModes") or ():
            if mode not in _ACCESS_MODES:
                yield not_supported("spec.accessModes", mode, _ACCESS_MODES)
        capacity = spec.get("capacity")
        if not capacity:
            yield required("spec.capacity")
        if not capacity or "storage" not in capacity or len(capacity) > 1:
            yield not_supported("spec.capacity", capacity, ("storage",))
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
        if ctx.subresource:
            return
        yield from claim_errors(obj["spec"], "spec")
        if old is not None:
            yield from _claim_change_errors(obj, old)


def claim_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the spec of a claim, or of a StatefulSet's template of a claim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{path}.accessModes", text)
    yield from label_selector_errors(spec.get("selector"), f"{path}.selector")
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield required(f"{path}.resources[storage]")
    elif parse_quantity(requests["storage"]).value <= 0:
        yield invalid(f"{path}.resources[storage]", requests["storage"], "must be greater than zero")
    name = spec.get("storageClassName")
    for problem in dns_subdomain(name) if name else ():
        yield invalid(f"{path}.storageClassName", name, problem)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        yield not_supported(f"{path}.volumeMode", mode, _VOLUME_MODES)
    yield from _data_source_errors(spec.get("dataSource"), f"{path}.dataSource")
    yield from _data_source_errors(spec.get("dataSourceRef"), f"{path}.dataSourceRef")


def _data_source_errors(source: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    if source is None:
        return
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind") or "", text)


def _claim_change_errors(obj: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of changes: a bound claim may grow and change its attributes class; it is bound only once."""
    mutable = {"resources", "volumeAttributesClassName"}
    if not old["spec"].get("volumeName"):
        mutable.add("volumeName")
    before, after = ({name: each["spec"][name] for name in each["spec"] if name not in mutable} for each in (old, obj))
    is_bound = (old.get("status") or {}).get("phase") == "Bound"
    sizes = [(each["spec"].get("resources") or {}).get("requests") or {} for each in (old, obj)]
    resources = [each["spec"].get("resources") or {} for each in (old, obj)]
    grows = [{name: value for name, value in each.items() if name != "requests" or not is_bound} for each in resources]
    if before != after or grows[0] != grows[1]:
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", f"{text}\n{difference(old['spec'], obj['spec'])}")
    old_size, new_size = (parse_quantity(each.get("storage", "0")).value for each in sizes)
    if new_size < old_size:
        capacity = parse_quantity(((old.get("status") or {}).get("capacity") or {}).get("storage", "0")).value
        if not is_bound or new_size <= capacity:
            yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


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
