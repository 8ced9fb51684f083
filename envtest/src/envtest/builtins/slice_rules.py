"""Validation of ResourceSlices: the devices that a driver offers on some nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, label_value, qualified_name
from envtest.builtins.device_rules import binding_errors, qualified_device_name_errors
from envtest.builtins.go_rendering import internal, internal_terms
from envtest.builtins.scheduling_rules import node_selector_errors

__all__ = ["slice_errors"]

_MAX_DEVICES: Final = 128
_MAX_DRIVER: Final = 63
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_DEVICE_PLACES: Final = ("nodeName", "nodeSelector", "allNodes")
_ONE_DEVICE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NO_SELECTION: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_TRUE: Final = "must be either unset or set to true"
_MAX_LIMITED_DEVICES: Final = 64
"""Maximum number of devices of a slice in which devices have taints or consume counters."""
_MAX_COUNTER_SETS: Final = 8
_MAX_CONSUMED_SETS: Final = 2
_MAX_COUNTERS: Final = 32
_MAX_PROPERTIES: Final = 32
_MAX_VALUE: Final = 64
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRE_RELEASE: Final = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def slice_errors(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """Yield the errors of a ResourceSliceSpec; driver, pool and node are immutable."""
    driver = spec.get("driver") or ""
    pool = spec.get("pool") or {}
    if not driver:
        yield required("spec.driver")
    elif len(driver) > _MAX_DRIVER:
        yield too_long("spec.driver", driver, _MAX_DRIVER)
    if driver:
        for problem in dns_subdomain(driver.lower()):
            yield invalid("spec.driver", driver, problem)
    yield from _pool_errors(pool)
    yield from _node_errors(spec, "spec", "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        text = "must have exactly one node selector term"
        yield invalid("spec.nodeSelector.nodeSelectorTerms", internal_terms(terms), text)
    if spec.get("perDeviceNodeSelection") is False:
        yield invalid("spec.perDeviceNodeSelection", False, _TRUE)
    places = [name for name in _PLACES if spec.get(name)]
    if not places:
        yield required("spec", _ONE_PLACE)
    elif len(places) > 1:
        yield invalid("spec", _shown(places), f"{_ONE_PLACE}, but multiple fields are set")
    devices = spec.get("devices") or ()
    counters = spec.get("sharedCounters") or ()
    if devices and counters:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    is_limited = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    limit = _MAX_LIMITED_DEVICES if is_limited else _MAX_DEVICES
    if len(devices) > limit:
        yield too_many("spec.devices", len(devices), limit)
    seen: set[str] = set()
    for position, device in enumerate(devices):
        path = f"spec.devices[{position}]"
        name = device.get("name") or ""
        yield from _device_errors(device, path)
        yield from _device_node_errors(
            device, path, selects=bool(spec.get("perDeviceNodeSelection"))
        )
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
    yield from _counter_errors(counters, "spec.sharedCounters", "name", _MAX_COUNTER_SETS)
    if old is not None:
        yield from _change_errors(spec, old)


def _shown(names: Sequence[str]) -> str:
    return "{" + ", ".join(f"`{name}`" for name in names) + "}"


def _node_errors(place: Mapping[str, Any], path: str, empty: str) -> Iterator[FieldError]:
    """Yield the errors of the nodes that a slice or a device is on; ``empty`` is the text for an empty name."""
    name = place.get("nodeName")
    if name == "":
        yield invalid(f"{path}.nodeName", name, empty)
    if name:
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.nodeName", name, problem)
    if place.get("nodeSelector") is not None:
        yield from node_selector_errors(place["nodeSelector"], f"{path}.nodeSelector")
    if place.get("allNodes") is False:
        yield invalid(f"{path}.allNodes", False, _TRUE)


def _device_node_errors(
    device: Mapping[str, Any], path: str, *, selects: bool
) -> Iterator[FieldError]:
    if not selects:
        if any(device.get(name) is not None for name in _DEVICE_PLACES):
            yield invalid(path, None, _NO_SELECTION)
        return
    yield from _node_errors(device, path, "must not be empty")
    places = [name for name in _DEVICE_PLACES if device.get(name)]
    if not places:
        yield required(path, _ONE_DEVICE_PLACE)
    elif len(places) > 1:
        yield invalid(path, _shown(places), _ONE_DEVICE_PLACE)


def _counter_errors(
    counter_sets: Sequence[Mapping[str, Any]], path: str, name_field: str, limit: int
) -> Iterator[FieldError]:
    """Yield the errors of the counters that a slice shares, or that a device consumes."""
    if len(counter_sets) > limit:
        yield too_many(path, len(counter_sets), limit)
    seen: set[str] = set()
    for position, counter_set in enumerate(counter_sets):
        item = f"{path}[{position}]"
        name = counter_set.get(name_field) or ""
        if not name:
            yield required(f"{item}.{name_field}")
        else:
            for problem in dns_label(name):
                yield invalid(f"{item}.{name_field}", name, problem)
        counters = counter_set.get("counters") or {}
        if not counters:
            yield required(f"{item}.counters")
        elif len(counters) > _MAX_COUNTERS:
            yield too_many(f"{item}.counters", len(counters), _MAX_COUNTERS)
        for counter in counters:
            for problem in dns_label(counter):
                yield invalid(f"{item}.counters", counter, problem)
        if name in seen:
            yield duplicate(item, name)
        seen.add(name)


def _pool_errors(pool: Mapping[str, Any]) -> Iterator[FieldError]:
    name = pool.get("name") or ""
    count = pool.get("resourceSliceCount") or 0
    generation = pool.get("generation") or 0
    if not name:
        yield required("spec.pool.name")
    else:
        for part in name.split("/"):
            for problem in dns_subdomain(part):
                yield invalid("spec.pool.name", part, problem)
    if count <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid("spec.pool.generation", generation, "must be greater than or equal to zero")


def _device_errors(device: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = device.get("name") or ""
    for problem in dns_label(name):
        yield invalid(f"{path}.name", name, problem)
    attributes = device.get("attributes") or {}
    capacity = device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MAX_PROPERTIES:
        text = f"the total number of attributes and capacities must not exceed {_MAX_PROPERTIES}"
        yield invalid(path, len(attributes) + len(capacity), text)
    for key, value in attributes.items():
        yield from qualified_device_name_errors(key, f"{path}.attributes")
        yield from _attribute_errors(value, f"{path}.attributes[{key}]")
        if len(value) != 1:
            shown = Verbatim(internal(value)) if value else ""
            yield invalid(f"{path}.attributes[{key}]", shown, "exactly one value must be specified")
    is_shared = bool(device.get("allowMultipleAllocations"))
    for key, value in capacity.items():
        yield from qualified_device_name_errors(key, f"{path}.capacity")
        if not is_shared and value.get("requestPolicy") is not None:
            text = "allowMultipleAllocations must be true"
            yield forbidden(f"{path}.capacity[{key}].requestPolicy", text)
    yield from binding_errors(device, path)
    for position, taint in enumerate(device.get("taints") or ()):
        yield from _taint_errors(taint, f"{path}.taints[{position}]")
    consumed = device.get("consumesCounters") or ()
    yield from _counter_errors(
        consumed, f"{path}.consumesCounters", "counterSet", _MAX_CONSUMED_SETS
    )


def _attribute_errors(value: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    version = value.get("version")
    if version is not None and not _VERSION.fullmatch(version[: _MAX_VALUE + 1]):
        yield invalid(
            f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0"
        )
    for name in ("string", "version"):
        if len((value.get(name) or "").encode()) > _MAX_VALUE:
            yield too_long(f"{path}.{name}", "", _MAX_VALUE)


def _taint_errors(taint: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for problem in qualified_name(taint.get("key") or ""):
        yield invalid(f"{path}.key", taint.get("key") or "", problem)
    for problem in label_value(taint.get("value") or ""):
        yield invalid(f"{path}.value", taint.get("value") or "", problem)
    effect = taint.get("effect") or ""
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def _change_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    pool = (new.get("pool") or {}).get("name")
    pool_before = (old.get("pool") or {}).get("name")
    if pool != pool_before:
        yield invalid("spec.pool.name", pool, "field is immutable")
    for name in ("driver", "nodeName"):
        if new.get(name) != old.get(name):
            yield invalid(f"spec.{name}", new.get(name), "field is immutable")
