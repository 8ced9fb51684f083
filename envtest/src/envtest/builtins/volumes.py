"""Strategy and validation of persistent volumes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    forbidden,
    invalid,
    key,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import difference, internal_terms, internal_volume_source
from envtest.builtins.node_labels import has_stable_names, term_warnings
from envtest.builtins.path_rules import backstep_errors
from envtest.builtins.pod_warnings import source_warnings
from envtest.builtins.pods import source_defaults
from envtest.builtins.scheduling_rules import node_selector_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.volume_sources import (
    VOLUME_MODES,
    access_mode_errors,
    csi_driver_name_errors,
    is_portal_too_long,
    source_errors,
)
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = ["PersistentVolumeStrategy", "inline_volume_errors"]

_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SOURCES: Final = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
"""A volume's sources in the order of their validation."""
_EXPANSION = "controllerExpandSecretRef"
_SECRETS = ("controllerPublishSecretRef", _EXPANSION, "nodePublishSecretRef", "nodeExpandSecretRef")
_ANNOTATIONS = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_WITHOUT_WARNING = ("flocker", "quobyte")  # kube-apiserver warns about them only in pods
_INLINE = "may not be specified in the context of inline volumes"


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
        """See :meth:`Strategy.prepare_update`: keeps the time of the last phase transition, or updates it."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource != "status":
            return
        old_time = old["status"].get("lastPhaseTransitionTime")
        time = new["status"].get("lastPhaseTransitionTime")
        is_same_phase = new["status"].get("phase") == old["status"].get("phase")
        if not is_same_phase and time in (None, old_time):
            new["status"]["lastPhaseTransitionTime"] = ctx.now
        elif is_same_phase and time is None and old_time is not None:
            new["status"]["lastPhaseTransitionTime"] = old_time

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the spec, whose source, volume mode and node affinity are immutable."""
        spec = obj["spec"]
        name = obj["metadata"].get("name") or ""
        yield from _spec_errors(spec, name)
        if old is None:
            return
        yield from _spec_errors(spec, name)  # kube-apiserver validates a changed volume twice
        before = {name: old["spec"][name] for name in _SOURCES if name in old["spec"]}
        after = {name: spec[name] for name in _SOURCES if name in spec}
        if "csi" in before and before["csi"].get(_EXPANSION) is None and "csi" in after:
            after["csi"] = {
                name: value for name, value in after["csi"].items() if name != _EXPANSION
            }
        if before != after:
            shown = difference(*(internal_volume_source(each) for each in (before, after)))
            text = f"spec.persistentvolumesource is immutable after creation\n{shown}"
            yield forbidden("spec.persistentvolumesource", text)
        if spec.get("volumeMode") != old["spec"].get("volumeMode"):
            yield invalid("volumeMode", spec.get("volumeMode"), "field is immutable")
        if old["spec"].get("nodeAffinity") is not None:
            yield from _affinity_change_errors(
                spec.get("nodeAffinity"), old["spec"]["nodeAffinity"]
            )
        if (
            old["spec"].get("volumeAttributesClassName") is not None
            and spec.get("volumeAttributesClassName") is None
        ):
            yield forbidden(
                "spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"
            )

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warns about deprecated annotations and the deprecated reclaim policy."""
        texts = []
        for name, text in _ANNOTATIONS.items():
            if name in (obj["metadata"].get("annotations") or {}):
                texts.append(f"{key('metadata.annotations', name)}: {text}")
        if obj["spec"].get("persistentVolumeReclaimPolicy") == "Recycle":
            text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic "
            texts.append(f"spec.persistentVolumeReclaimPolicy: {text}provisioning.")
        terms = ((obj["spec"].get("nodeAffinity") or {}).get("required") or {}).get(
            "nodeSelectorTerms"
        ) or ()
        for position, term in enumerate(terms):
            texts += term_warnings(
                term, f"spec.nodeAffinity.required.nodeSelectorTerms[{position}]"
            )
        sources = {
            name: source for name, source in obj["spec"].items() if name not in _WITHOUT_WARNING
        }
        return [*texts, *source_warnings(sources, "spec")]


def _spec_errors(spec: Mapping[str, Any], volume_name: str) -> Iterator[FieldError]:
    yield from access_mode_errors(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    if set(capacity) != {"storage"}:
        yield not_supported("spec.capacity", spec.get("capacity"), ("storage",))
    for name, quantity in capacity.items():
        value = parse_quantity(quantity).value
        if value < 0:
            text = "must be a valid resource quantity"
            yield invalid(f"spec.capacity[{name}]", floor(value), text)
        if value <= 0:
            yield invalid(f"spec.capacity[{name}]", quantity, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy not in _RECLAIM_POLICIES:
        yield not_supported("spec.persistentVolumeReclaimPolicy", policy or "", _RECLAIM_POLICIES)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            yield required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from node_selector_errors(affinity["required"], "spec.nodeAffinity.required")
    yield from _source_errors(spec, "spec", volume_name)
    path = (spec.get("hostPath") or {}).get("path")
    if path and posixpath.normpath(path) in ("/", "//") and policy == "Recycle":
        yield forbidden(
            "spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'"
        )
    if spec.get("storageClassName"):
        for problem in dns_subdomain(spec["storageClassName"]):
            yield invalid("spec.storageClassName", spec["storageClassName"], problem)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield not_supported("spec.volumeMode", mode, VOLUME_MODES)
    yield from _attributes_class_errors(spec, "spec")


def _affinity_change_errors(
    new: Mapping[str, Any] | None, old: Mapping[str, Any]
) -> Iterator[FieldError]:
    after = ((new or {}).get("required") or {}).get("nodeSelectorTerms")
    before = ((old or {}).get("required") or {}).get("nodeSelectorTerms")
    new_terms = after or ()
    old_terms = before or ()
    same_count = len(new_terms) == len(old_terms)
    is_same = same_count and all(map(has_stable_names, new_terms, old_terms))
    if new is None or not is_same:
        shown = None
        if new is not None:
            terms = (
                "null"
                if new.get("required") is None
                else f'{{"NodeSelectorTerms":{internal_terms(after)}}}'
            )
            shown = Verbatim(f'{{"Required":{terms}}}')
        yield invalid(
            "nodeAffinity", shown, "field is immutable, except for updating from beta label to GA"
        )


def _attributes_class_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return
    if not name:
        yield required(f"{path}.volumeAttributesClassName", "an empty string is disallowed")
    else:
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.volumeAttributesClassName", name, problem)
    if spec.get("csi") is None:
        yield required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def inline_volume_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the spec of a volume that is part of a VolumeAttachment."""
    for name in ("claimRef", "capacity", "nodeAffinity", "storageClassName"):
        if spec.get(name):
            yield forbidden(f"{path}.{name}", _INLINE)
    if spec.get("csi") is None:
        yield required(f"{path}.csi", "has to be specified in the context of inline volumes")
    yield from access_mode_errors(spec, path)
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        yield forbidden(
            f"{path}.persistentVolumeReclaimPolicy",
            "may only be Retain in the context of inline volumes",
        )
    yield from _source_errors(spec, path, "")
    if spec.get("volumeMode") not in (None, "Filesystem"):
        text = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        yield forbidden(f"{path}.volumeMode", text)


def _source_errors(spec: Mapping[str, Any], path: str, volume_name: str) -> Iterator[FieldError]:
    sources = [name for name in _SOURCES if name in spec]
    if not sources:
        yield required(path, "must specify a volume type")
    for position, kind in enumerate(sources):
        # kube-apiserver accepts a flexVolume as a second source
        if position and kind != "flexVolume":
            extra = "cephFS" if kind == "cephfs" else kind
            yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
            continue
        source = spec[kind] or {}
        source_path = f"{path}.{'persistentDisk' if kind == 'gcePersistentDisk' else kind}"
        yield from source_errors(kind, source, source_path, persistent=True)
        if kind == "iscsi" and is_portal_too_long(volume_name, source):
            text = "must be under 64 characters if iscsi.initiatorName is specified."
            portal = source.get("targetPortal") or ""
            yield invalid(
                f"{source_path}.targetportal",
                portal,
                f"Total length of <volume name>:<iscsi.targetPortal> {text}",
            )
        elif kind == "local":
            yield from _local_errors(source, source_path)
            if spec.get("nodeAffinity") is None:
                yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
        elif kind == "csi":
            yield from _csi_errors(source, source_path)


def _local_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
    else:
        yield from backstep_errors(source["path"], f"{path}.path")


def _csi_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from csi_driver_name_errors(source.get("driver") or "", f"{path}.driver")
    if not source.get("volumeHandle"):
        yield required(f"{path}.volumeHandle")
    for secret in _SECRETS:
        reference = source.get(secret)
        if reference is None:
            continue
        for name, problems in (("name", dns_subdomain), ("namespace", dns_label)):
            if not reference.get(name):
                yield required(f"{path}.{secret}.{name}")
            if reference.get(name):
                for problem in problems(reference[name]):
                    yield invalid(f"{path}.{secret}.{name}", reference[name], problem)
