"""Validation of what drivers report about the devices that are allocated to a claim."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    go_json,
    invalid,
    required,
    too_long,
    too_many,
)
from envtest.apimachinery.name_rules import dns_label
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.device_rules import driver_errors, pool_errors
from envtest.builtins.ip_rules import interface_address_errors
from envtest.builtins.string_validation import condition_errors

__all__ = ["device_status_errors", "without_deallocated"]

_MAX_CONDITIONS: Final = 8
_MAX_DATA: Final = 10 * 1024
_MAX_INTERFACE_NAME: Final = 256
_MAX_HARDWARE_ADDRESS: Final = 128
_MAX_ADDRESSES: Final = 16
_UUID_LENGTH: Final = 36
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class _DeviceId(NamedTuple):
    """What identifies an allocated device, or a share of it."""

    driver: str
    pool: str
    device: str
    share: str

    def shown(self) -> Verbatim:
        """Return the identity as errors show it."""
        names = ("Driver", "Pool", "Device", "ShareID")
        return Verbatim(go_json(dict(zip(names, self, strict=True)), sort_keys=False))


def _device_id(value: Mapping[str, Any]) -> _DeviceId:
    return _DeviceId(
        driver=value.get("driver") or "",
        pool=value.get("pool") or "",
        device=value.get("device") or "",
        share=value.get("shareID") or "",
    )


def _allocated(status: Mapping[str, Any]) -> set[_DeviceId]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return {_device_id(result) for result in devices.get("results") or ()}


def without_deallocated(
    status: Mapping[str, Any], old: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Return the reports of ``status`` without those about devices that only ``old`` has allocated.

    It is ``None`` if there are no reports.
    """
    devices = status.get("devices")
    if not devices:
        return None
    deallocated = _allocated(old) - _allocated(status)
    kept = [device for device in devices if _device_id(device) not in deallocated]
    return kept or None


def device_status_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the reports, each of which is about another device that is allocated to the claim."""
    devices = status.get("devices") or ()
    allocated = _allocated(status)
    identities = [_device_id(device) for device in devices]
    for position, device in enumerate(devices):
        path = f"status.devices[{position}]"
        yield from _report_errors(device, path)
        if identities[position] not in allocated:
            shown = identities[position].shown()
            yield invalid(path, shown, "must be an allocated device in the claim")
    for position in sorted(repeated_positions(identities)):
        yield duplicate(f"status.devices[{position}]", identities[position].shown())


def _report_errors(device: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = device.get("device") or ""
    yield from driver_errors(device.get("driver") or "", f"{path}.driver")
    yield from pool_errors(device.get("pool") or "", f"{path}.pool")
    for problem in dns_label(name):
        yield invalid(f"{path}.device", name, problem)
    if device.get("shareID") is not None:
        yield from _uuid_errors(device["shareID"], f"{path}.shareID")
    conditions = device.get("conditions") or ()
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(f"{path}.conditions", len(conditions), _MAX_CONDITIONS)
    yield from condition_errors(conditions, f"{path}.conditions")
    if "data" in device:
        yield from _data_errors(device["data"], f"{path}.data")
    if device.get("networkData") is not None:
        yield from _network_errors(device["networkData"], f"{path}.networkData")


def _uuid_errors(text: str, path: str) -> Iterator[FieldError]:
    if len(text) != _UUID_LENGTH:
        problem = f"error validating uid: invalid UUID length: {len(text)}"
        yield invalid(path, text, problem)
    elif not _UUID.fullmatch(text):
        yield invalid(path, text, "error validating uid: invalid UUID format")


def _data_errors(data: Any, path: str) -> Iterator[FieldError]:
    """Yield the errors of data that only the driver understands: an object of limited size."""
    if len(json.dumps(data, separators=(",", ":"))) > _MAX_DATA:
        yield too_long(path, "", _MAX_DATA)
    elif data is None:
        yield required(path)
    elif not isinstance(data, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def _network_errors(network: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    limits = {"interfaceName": _MAX_INTERFACE_NAME, "hardwareAddress": _MAX_HARDWARE_ADDRESS}
    for name, limit in limits.items():
        text = network.get(name) or ""
        if len(text.encode()) > limit:
            yield too_long(f"{path}.{name}", text, limit)
    addresses: Sequence[str] = network.get("ips") or ()
    if len(addresses) > _MAX_ADDRESSES:
        yield too_many(f"{path}.ips", len(addresses), _MAX_ADDRESSES)
        return
    for position, address in enumerate(addresses):
        yield from interface_address_errors(f"{path}.ips[{position}]", address)
    for position in sorted(repeated_positions(addresses)):
        yield duplicate(f"{path}.ips[{position}]", addresses[position])
