"""Strategies of storage.k8s.io: classes of volumes, CSI drivers and their nodes, capacities and attachments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    go_json,
    invalid,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import dns_subdomain, qualified_name
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.go_rendering import ATTACHMENT_SOURCE, CSI_NODE_DRIVER, internal_fields
from envtest.builtins.node_labels import DEPRECATED_LABELS, selector_warnings
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import label_selector_errors
from envtest.builtins.volume_sources import csi_driver_name_errors
from envtest.builtins.volumes import inline_volume_errors
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = [
    "CSIDriverStrategy",
    "CSINodeStrategy",
    "CSIStorageCapacityStrategy",
    "StorageClassStrategy",
    "VolumeAttachmentStrategy",
    "VolumeAttributesClassStrategy",
]

_MAX_PARAMETERS: Final = 512
_MAX_PARAMETER_BYTES: Final = 256 << 10
_MAX_NODE_ID: Final = 256
_IMMUTABLE = "field is immutable"
_UPDATE_PERIOD = 10
_ATTACHMENT_METADATA = 256 * 1024
_ERROR_MESSAGE = 1024
"""Maximum numbers of bytes in the status of a VolumeAttachment."""


def _provisioner_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    for problem in qualified_name(name.lower()):
        yield invalid(path, name.lower(), problem)


def _parameter_errors(parameters: Mapping[str, str]) -> Iterator[FieldError]:
    if len(parameters) > _MAX_PARAMETERS:
        yield too_long("parameters", "", _MAX_PARAMETERS)
        return
    if "" in parameters:
        yield invalid("parameters", "", "field can not be empty.")
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in parameters.items())
        > _MAX_PARAMETER_BYTES
    ):
        yield too_long("parameters", "", _MAX_PARAMETER_BYTES)


class StorageClassStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 StorageClass."""

    def set_defaults(self, obj: Object) -> None:
        """Set the reclaim policy ``Delete`` and the binding mode ``Immediate``."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about deprecated labels of nodes."""
        return [
            f"allowedTopologies[{position}].matchLabelExpressions[{number}].key: {DEPRECATED_LABELS[each['key']]}"
            for position, term in enumerate(obj.get("allowedTopologies") or ())
            for number, each in enumerate(term.get("matchLabelExpressions") or ())
            if each.get("key") in DEPRECATED_LABELS
        ]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a class, whose provisioner, parameters, reclaim policy and binding mode are immutable."""
        yield from _provisioner_errors(obj.get("provisioner") or "", "provisioner")
        yield from _parameter_errors(obj.get("parameters") or {})
        if obj.get("reclaimPolicy") not in ("", "Delete", "Retain"):
            yield not_supported("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Retain"))
        mode = obj.get("volumeBindingMode")
        if mode not in ("Immediate", "WaitForFirstConsumer"):
            yield not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
        yield from _topology_errors(obj.get("allowedTopologies") or ())
        if old is None:
            return
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            yield invalid("parameters", obj.get("parameters"), _IMMUTABLE)
        for name in ("provisioner", "reclaimPolicy"):
            if obj.get(name) != old.get(name):
                yield invalid(name, obj.get(name) or "", _IMMUTABLE)
        if mode != old.get("volumeBindingMode"):
            yield invalid("volumeBindingMode", mode, _IMMUTABLE)


_MAX_DUPLICATES: Final = 100
"""How often a repeated term is reported; each is reported once for each equal term before it."""


def _topology_errors(terms: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    # kube-apiserver compares each term with the terms before it, and with as many empty ones as there are terms
    empty = repr([])
    seen = Counter({empty: len(terms)})
    for position, term in enumerate(terms):
        path = f"allowedTopologies[{position}]"
        labels: dict[str, tuple[str, ...]] = {}
        for number, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            field_path = f"{path}.matchLabelExpressions[{number}]"
            name = requirement.get("key") or ""
            values = tuple(requirement.get("values") or ())
            if not values:
                yield required(f"{field_path}.values")
            for index in sorted(repeated_positions(values)):
                yield duplicate(f"{field_path}.values[{index}]", values[index])
            for problem in qualified_name(name):
                yield invalid(f"{field_path}.key", name, problem)
            if name in labels:
                yield duplicate(f"{field_path}.key", name)
            labels[name] = values
        identity = repr(sorted((name, sorted(values)) for name, values in labels.items()))
        for _ in range(min(seen[identity], _MAX_DUPLICATES)):
            yield duplicate(f"{path}.matchLabelExpressions", "")
        seen[identity] += 1


class VolumeAttributesClassStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 VolumeAttributesClass."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the driver's name and the parameters, which are required and immutable."""
        if old is not None:
            for name in ("driverName", "parameters"):
                if obj.get(name) != old.get(name):
                    yield forbidden(name, f"updates to {name} are forbidden.")
        yield from _provisioner_errors(obj.get("driverName") or "", "driverName")
        yield from _parameter_errors(obj.get("parameters") or {})
        if not obj.get("parameters"):
            yield required("parameters", "must contain at least one key/value pair")


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

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: the generation counts changes of a spec, and is absent before."""
        super().prepare_update(new, old, ctx)
        if new["spec"] != old["spec"]:
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about tokens that a driver may write to its log."""
        spec = obj["spec"]
        before = old["spec"].get("tokenRequests") if old is not None else None
        if not spec.get("tokenRequests") or spec["tokenRequests"] == before:
            return ()
        if spec.get("serviceAccountTokenInSecrets") is not None:
            return ()
        text = (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
            "possible logging of tokens in volume attributes"
        )
        return [text]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the policies and modes; ``attachRequired`` and ``volumeLifecycleModes`` are immutable."""
        spec = obj["spec"]
        policies = ("File", "None", "ReadWriteOnceWithFSType")
        if spec.get("fsGroupPolicy") not in policies:
            yield not_supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), policies)
        for mode in spec.get("volumeLifecycleModes") or ():
            if mode not in ("Persistent", "Ephemeral"):
                yield not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
        yield from _token_request_errors(spec.get("tokenRequests") or ())
        period = spec.get("nodeAllocatableUpdatePeriodSeconds")
        if period is not None and period < _UPDATE_PERIOD:
            text = f"must be greater than or equal to {_UPDATE_PERIOD} seconds"
            yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text)
        if spec.get("serviceAccountTokenInSecrets") is not None and not spec.get("tokenRequests"):
            text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            yield invalid(
                "spec.serviceAccountTokenInSecrets", spec["serviceAccountTokenInSecrets"], text
            )
        name = obj["metadata"].get("name")
        if old is None and name:
            yield from csi_driver_name_errors(name, "name")
        if old is not None:
            # "attachedRequired" is how kube-apiserver spells the path of attachRequired
            paths = {
                "attachRequired": "spec.attachedRequired",
                "volumeLifecycleModes": "spec.volumeLifecycleModes",
            }
            for name, path in paths.items():
                if spec.get(name) != old["spec"].get(name):
                    yield invalid(path, spec.get(name), _IMMUTABLE)


def _token_request_errors(requests: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    audiences: set[str] = set()
    for position, request in enumerate(requests):
        path = f"spec.tokenRequests[{position}]"
        audience = request.get("audience") or ""
        if audience in audiences:
            yield duplicate(f"{path}.audience", audience)
            continue
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(f"{path}.expirationSeconds", seconds, text)
        elif seconds is not None and seconds > 2**32:
            yield invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            )


class CSINodeStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 CSINode."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the drivers, which have different names; only their allocatable counts are mutable."""
        yield from _node_driver_errors(obj["spec"].get("drivers") or ())
        earlier = {
            each.get("name"): each for each in (old or {"spec": {}})["spec"].get("drivers") or ()
        }
        for driver in obj["spec"].get("drivers") or ():
            fixed = {name: value for name, value in driver.items() if name != "allocatable"}
            before = earlier.get(driver.get("name"), driver)
            if fixed != {name: value for name, value in before.items() if name != "allocatable"}:
                yield invalid("spec.drivers", internal_fields(CSI_NODE_DRIVER, fixed), _IMMUTABLE)


def _node_driver_errors(drivers: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, driver in enumerate(drivers):
        path = f"spec.drivers[{position}]"
        name = driver.get("name") or ""
        yield from csi_driver_name_errors(name, f"{path}.name")
        if not driver.get("nodeID"):
            yield required(f"{path}.nodeID")
        elif len(driver["nodeID"].encode()) > _MAX_NODE_ID:
            yield invalid(
                f"{path}.nodeID", driver["nodeID"], f"must be {_MAX_NODE_ID} characters or less"
            )
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            yield invalid(f"{path}.allocatable.count", count, "must be greater than or equal to 0")
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        yield from _topology_key_errors(driver.get("topologyKeys") or (), path)


def _topology_key_errors(names: Sequence[str], path: str) -> Iterator[FieldError]:
    """Yield the errors of the keys, which kube-apiserver reports at the path of their driver."""
    seen: set[str] = set()
    for name in names:
        if not name:
            yield required(path)
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
        for problem in qualified_name(name):
            yield invalid(path, name, problem)


class CSIStorageCapacityStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 CSIStorageCapacity."""

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about deprecated labels of nodes."""
        return list(selector_warnings(obj.get("nodeTopology"), "nodeTopology"))

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the sizes, and of the class and the topology, which are immutable."""
        yield from label_selector_errors(obj.get("nodeTopology"), "nodeTopology")
        name = obj.get("storageClassName") or ""
        for problem in dns_subdomain(name):
            yield invalid("storageClassName", name, problem)
        capacity = obj.get("capacity")
        if capacity is not None and parse_quantity(capacity).value < 0:
            yield invalid("capacity", capacity, "must be greater than or equal to 0")
        if old is not None:
            for field in ("nodeTopology", "storageClassName"):
                if obj.get(field) != old.get(field):
                    yield invalid(field, obj.get(field), _IMMUTABLE)


class VolumeAttachmentStrategy(BuiltinStrategy):
    """Strategy of storage.k8s.io/v1 VolumeAttachment."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Clear the status: the volume is not attached."""
        obj["status"] = {"attached": False}

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the spec, which is immutable, and in the size that the status reports."""
        spec = obj["spec"]
        if old is None:
            yield from csi_driver_name_errors(spec.get("attacher") or "", "spec.attacher")
        elif not spec.get("attacher"):
            yield required("spec.attacher")
        elif spec["attacher"] != old["spec"].get("attacher"):
            for problem in dns_subdomain(spec["attacher"].lower()):
                yield invalid("spec.attacher", spec["attacher"], problem)
        name = spec["source"].get("persistentVolumeName")
        if name:
            for problem in dns_subdomain(name):
                yield invalid("spec.source.persistentVolumeName", name, problem)
        yield from _attachment_source_errors(spec["source"], "spec.source")
        for problem in dns_subdomain(spec.get("nodeName") or ""):
            yield invalid("spec.nodeName", spec.get("nodeName") or "", problem)
        if old is not None and spec != old["spec"]:
            shown = internal_fields(ATTACHMENT_SOURCE, spec["source"])
            names = go_json(spec.get("attacher") or ""), go_json(spec.get("nodeName") or "")
            yield invalid(
                "spec",
                Verbatim(f'{{"Attacher":{names[0]},"Source":{shown},"NodeName":{names[1]}}}'),
                _IMMUTABLE,
            )
        yield from _attachment_status_errors(obj["status"])


def _attachment_status_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    metadata = status.get("attachmentMetadata") or {}
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items())
        > _ATTACHMENT_METADATA
    ):
        yield too_long("status.attachmentMetadata", metadata, _ATTACHMENT_METADATA)
    for kind in ("attachError", "detachError"):
        error = status.get(kind) or {}
        if len((error.get("message") or "").encode()) > _ERROR_MESSAGE:
            yield too_long(f"status.{kind}.message", error["message"], _ERROR_MESSAGE)
        if (error.get("errorCode") or 0) < 0:
            text = "must be between 0 and 2147483647, inclusive"
            yield invalid(f"status.{kind}.errorCode", error["errorCode"], text)


def _attachment_source_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    volume = source.get("inlineVolumeSpec")
    name = source.get("persistentVolumeName")
    text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if volume is None and name is None:
        yield required(path, text)
    elif volume is not None and name is not None:
        yield forbidden(path, text)
    elif volume is not None:
        yield from inline_volume_errors(volume, f"{path}.inlineVolumeSpec")
    elif not name:
        for problem in dns_subdomain(""):
            yield invalid(f"{path}.persistentVolumeName", "", problem)
        yield required(
            f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName"
        )
