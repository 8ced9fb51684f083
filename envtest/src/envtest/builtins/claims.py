"""Strategy and validation of persistent volume claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    key,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import claim_spec_difference
from envtest.builtins.pod_warnings import claim_warnings
from envtest.builtins.resource_names import is_native
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import label_selector_errors
from envtest.builtins.volume_sources import VOLUME_MODES, access_mode_errors
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = ["PersistentVolumeClaimStrategy", "claim_errors"]

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_COPIED_SOURCES = frozenset(
    {("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")}
)
"""Group and kind of the sources that ``dataSource`` is limited to; ``dataSourceRef`` accepts others."""
_RESIZE_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


class PersistentVolumeClaimStrategy(BuiltinStrategy):
    """Strategy of v1 PersistentVolumeClaim."""

    stores_defaults_late = True  # a new claim is stored without its phase, which is a default

    def set_defaults(self, obj: Object) -> None:
        """Set the phase ``Pending`` and the volume mode ``Filesystem``."""
        obj["status"].setdefault("phase", "Pending")
        obj["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the phase ``Pending``, and make ``dataSource`` and ``dataSourceRef`` agree."""
        obj["status"] = {"phase": "Pending"}
        _normalize_sources(obj["spec"], {})

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: ``dataSource`` and ``dataSourceRef`` agree here, too."""
        super().prepare_update(new, old, ctx)
        if not ctx.subresource:
            _normalize_sources(new["spec"], old["spec"])

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about a deprecated annotation and a fraction of a byte."""
        if ctx.subresource:
            return ()
        texts = list(claim_warnings(obj["spec"], "spec"))
        if _BETA_CLASS in (obj["metadata"].get("annotations") or {}):
            text = 'deprecated since v1.8; use "storageClassName" attribute instead'
            texts.insert(0, f"{key('metadata.annotations', _BETA_CLASS)}: {text}")
        return texts

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the access modes and the size, and in changes to the immutable part of the spec."""
        if ctx.subresource:
            yield from _claim_status_errors(obj["status"])
            return
        yield from claim_errors(obj["spec"], "spec")
        if old is not None:
            yield from _claim_change_errors(obj, old)


def claim_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the spec of a claim, or of a StatefulSet's claim template."""
    yield from access_mode_errors(spec, path, "at least 1 access mode is required")
    yield from label_selector_errors(spec.get("selector"), f"{path}.selector")
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield required(f"{path}.resources[storage]")
    elif parse_quantity(requests["storage"]).value <= 0:
        yield invalid(
            f"{path}.resources[storage]", requests["storage"], "must be greater than zero"
        )
    name = spec.get("storageClassName")
    if name:
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.storageClassName", name, problem)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield not_supported(f"{path}.volumeMode", mode, VOLUME_MODES)
    source = spec.get("dataSource")
    reference = spec.get("dataSourceRef")
    for name in ("dataSource", "dataSourceRef"):
        yield from _data_source_errors(spec.get(name), f"{path}.{name}")
    if source is not None and reference is not None:
        if reference.get("namespace"):
            yield invalid(
                path, {}, "may not be specified when dataSourceRef.namespace is specified"
            )
        elif _identity(source) != _identity(reference):
            yield invalid(path, {}, "must match dataSourceRef")
    attributes = spec.get("volumeAttributesClassName")
    if attributes:
        for problem in dns_subdomain(attributes):
            yield invalid(f"{path}.volumeAttributesClassName", attributes, problem)


def _identity(source: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return source.get("apiGroup"), source.get("kind"), source.get("name")


def _normalize_sources(spec: Object, before: Mapping[str, Any]) -> None:
    """Make ``dataSource`` and ``dataSourceRef`` agree where both can express the source of a claim.

    ``before`` is the former spec, whose source is kept.
    """
    reference = spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace"):
        del spec["dataSourceRef"]  # CrossNamespaceVolumeDataSource is disabled by default
        reference = None
    source = spec.get("dataSource")
    if source is not None and reference is None:
        if not _is_copied(source) and before.get("dataSource") is None:
            del spec["dataSource"]
            return
        spec["dataSourceRef"] = {**source}
    elif source is None and reference is not None and _is_copied(reference):
        spec["dataSource"] = {
            name: reference[name] for name in ("apiGroup", "kind", "name") if name in reference
        }


def _is_copied(source: Mapping[str, Any]) -> bool:
    return (source.get("apiGroup") or "", source.get("kind") or "") in _COPIED_SOURCES


def _data_source_errors(source: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    if source is None:
        return
    for name in ("name", "kind"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind") or "", text)
    if group:
        for problem in dns_subdomain(group):
            yield invalid(f"{path}.apiGroup", group, problem)
    if source.get("namespace"):
        for problem in dns_label(source["namespace"]):
            yield invalid(f"{path}.namespace", source["namespace"], problem)


def _claim_status_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    for name, quantity in (status.get("capacity") or {}).items():
        yield from _quantity_errors(quantity, key("status.capacity", name))
    path = "status.allocatedResourceStatus"  # kube-apiserver's name of the field
    for name, state in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _resource_name_errors(name, path)
        if state not in _RESIZE_STATES:
            yield not_supported(path, name, _RESIZE_STATES)
    path = "status.allocatedResources"
    for name, quantity in (status.get("allocatedResources") or {}).items():
        problems = list(_resource_name_errors(name, path))
        yield from problems or _quantity_errors(quantity, key(path, name))


def _quantity_errors(quantity: str, path: str) -> Iterator[FieldError]:
    value = parse_quantity(quantity).value
    if value < 0:
        yield invalid(path, -ceil(-value), "must be a valid resource quantity")


def _resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    problems = qualified_name(name)
    for problem in problems:
        yield invalid(path, name, problem)
    if not problems and is_native(name) and name != "storage":
        yield not_supported(path, name, ("storage",))


def _claim_change_errors(obj: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of changes.

    A bound claim may grow and change its attributes class. A claim is bound only once, and gets a storage class only if
    it has none.
    """
    spec = {**obj["spec"]}
    before = {**old["spec"]}
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        spec.pop("volumeName", None)
    has_legacy_class = _BETA_CLASS in (old["metadata"].get("annotations") or {})
    if before.get("storageClassName") is None and not has_legacy_class:
        spec.pop("storageClassName", None)
    if (old.get("status") or {}).get("phase") == "Bound":
        resources = _copied_resources(spec)
        old_resources = _copied_resources(before)
        resources["requests"]["storage"] = old_resources["requests"].get("storage")
        spec["resources"] = resources
        before["resources"] = old_resources
        if spec.get("volumeAttributesClassName") is not None:
            spec.pop("volumeAttributesClassName")
            before.pop("volumeAttributesClassName", None)
    if spec != before:
        text = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", f"{text}\n{claim_spec_difference(before, spec)}")
    old_size = _quantity(_requests(old))
    new_size = _quantity(_requests(obj))
    if new_size < old_size and new_size <= _quantity((old.get("status") or {}).get("capacity")):
        yield forbidden(
            "spec.resources.requests.storage", "field can not be less than status.capacity"
        )
    if obj["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        yield invalid("volumeMode", obj["spec"].get("volumeMode"), "field is immutable")
    name = obj["spec"].get("volumeAttributesClassName")
    if old["spec"].get("volumeAttributesClassName") is not None and not name:
        target = "nil" if name is None else "an empty string"
        yield forbidden(
            "spec.volumeAttributesClassName", f"update from non-nil value to {target} is forbidden"
        )


def _copied_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    resources = spec.get("resources") or {}
    return {**resources, "requests": dict(resources.get("requests") or {})}


def _requests(claim: Mapping[str, Any]) -> Mapping[str, str] | None:
    requests: Mapping[str, str] | None = (claim["spec"].get("resources") or {}).get("requests")
    return requests


def _quantity(sizes: Mapping[str, str] | None) -> Any:
    return parse_quantity((sizes or {}).get("storage", "0")).value
