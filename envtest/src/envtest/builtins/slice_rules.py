"""Validation of ResourceSlices: the devices that a driver offers on some nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.builtins.go_rendering import internal
from envtest.builtins.scheduling_rules import node_selector_errors
from envtest.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from envtest.metadata import dns_label, dns_subdomain, label_value, qualified_name

__all__ = ["slice_errors"]

_MAX_DEVICES: Final = 128
_MAX_DRIVER: Final = 63
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def slice_errors(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """Yield the errors of a ResourceSliceSpec; driver, pool and node are immutable."""
    driver, pool = spec.get("driver") or "", spec.get("pool") or {}
    if not driver:
        yield required("spec.driver")
    elif len(driver) > _MAX_DRIVER:
        yield too_long("spec.driver", driver, _MAX_DRIVER)
    for problem in dns_subdomain(driver) if driver else ():
        yield invalid("spec.driver", driver, problem)
    yield from _pool_errors(pool)
    places = [name for name in _PLACES if spec.get(name)]
    if not places:
        yield required("spec", _ONE_PLACE)
    elif len(places) > 1:
        shown = "{" + ", ".join(f"`{name}`" for name in places) + "}"
        yield invalid("spec", shown, f"{_ONE_PLACE}, but multiple fields are set")
    for problem in dns_subdomain(spec["nodeName"]) if spec.get("nodeName") else ():
        yield invalid("spec.nodeName", spec["nodeName"], problem)
    if spec.get("nodeSelector"):
        yield from node_selector_errors(spec["nodeSelector"], "spec.nodeSelector")
    devices = spec.get("devices") or ()
    if len(devices) > _MAX_DEVICES:
        yield too_many("spec.devices", len(devices), _MAX_DEVICES)
    seen: set[str] = set()
    for position, device in enumerate(devices):
        path, name = f"spec.devices[{position}]", device.get("name") or ""
        yield from _device_errors(device, path)
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
    if old is not None:
        yield from _change_errors(spec, old)


def _pool_errors(pool: Mapping[str, Any]) -> Iterator[FieldError]:
    name, count, generation = pool.get("name") or "", pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if not name:
        yield required("spec.pool.name")
    for part in name.split("/") if name else ():
        for problem in dns_subdomain(part):
            yield invalid("spec.pool.name", part, problem)
    if count <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid("spec.pool.generation", generation, "must be greater than or equal to zero")


def _device_errors(device: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = device.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    for problem in dns_label(name) if name else ():
        yield invalid(f"{path}.name", name, problem)
    for key, value in (device.get("attributes") or {}).items():
        if len(value) != 1:
            shown = Verbatim(internal(value)) if value else ""
            yield invalid(f"{path}.attributes[{key}]", shown, "exactly one value must be specified")
    for position, taint in enumerate(device.get("taints") or ()):
        yield from _taint_errors(taint, f"{path}.taints[{position}]")


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
    pool, pool_before = ((each.get("pool") or {}).get("name") for each in (new, old))
    if pool != pool_before:
        yield invalid("spec.pool.name", pool, "field is immutable")
    for name in ("driver", "nodeName"):
        if new.get(name) != old.get(name):
            yield invalid(f"spec.{name}", new.get(name), "field is immutable")
