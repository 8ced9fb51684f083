"""Validation of the volume mounts and block devices of containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from envtest.builtins.path_rules import relative_path_errors

__all__ = ["Volumes", "device_errors", "mount_errors"]

Volumes = Mapping[str, Mapping[str, Any]]
"""The valid volumes of a pod, by name."""

_PROPAGATION: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
_CLAIM_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


def mount_errors(container: Mapping[str, Any], path: str, volumes: Volumes) -> Iterator[FieldError]:
    """Yield the errors of the volume mounts of a container; each path is used once."""
    devices: Sequence[Mapping[str, Any]] = container.get("volumeDevices") or ()
    device_names = {each.get("name") or "" for each in devices}
    device_paths = {each.get("devicePath") or "" for each in devices}
    seen: set[str] = set()
    for position, mount in enumerate(container.get("volumeMounts") or ()):
        field_path = f"{path}[{position}]"
        name = mount.get("name") or ""
        target = mount.get("mountPath") or ""
        if not name:
            yield required(f"{field_path}.name")
        if name not in volumes:
            yield not_found(f"{field_path}.name", name)
        if not target:
            yield required(f"{field_path}.mountPath")
        if target in seen:
            yield invalid(f"{field_path}.mountPath", target, "must be unique")
        seen.add(target)
        if name in device_names:
            yield invalid(f"{field_path}.name", name, "must not already exist in volumeDevices")
        if target in device_paths:
            yield invalid(
                f"{field_path}.mountPath",
                target,
                "must not already exist as a path in volumeDevices",
            )
        yield from _option_errors(mount, path, field_path, container)


def _option_errors(
    mount: Mapping[str, Any], path: str, field_path: str, container: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Yield the errors in a mount's options, most of which kube-apiserver reports without its position."""
    if mount.get("subPath"):
        yield from relative_path_errors(mount["subPath"], f"{path}.subPath")
    if mount.get("subPathExpr"):
        if mount.get("subPath"):
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{field_path}.subPathExpr", mount["subPathExpr"], text)
        yield from relative_path_errors(mount["subPathExpr"], f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None and propagation not in _PROPAGATION:
        yield not_supported(f"{path}.mountPropagation", propagation, _PROPAGATION)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get(
        "privileged"
    ):
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield forbidden(f"{path}.mountPropagation", text)
    recursive = mount.get("recursiveReadOnly")
    if recursive is not None and recursive not in _RECURSIVE:
        yield not_supported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE)
    elif recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield forbidden(
                f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"
            )
        if propagation not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            yield forbidden(f"{path}.recursiveReadOnly", text)


def device_errors(
    container: Mapping[str, Any], path: str, volumes: Volumes
) -> Iterator[FieldError]:
    """Yield the errors in a container's block devices, which are volumes of persistent volume claims."""
    mounts: Sequence[Mapping[str, Any]] = container.get("volumeMounts") or ()
    mount_names = {each.get("name") or "" for each in mounts}
    mount_paths = {each.get("mountPath") or "" for each in mounts}
    names: set[str] = set()
    targets: set[str] = set()
    for position, device in enumerate(container.get("volumeDevices") or ()):
        field_path = f"{path}[{position}]"
        name = device.get("name") or ""
        target = device.get("devicePath") or ""
        if not name:
            yield required(f"{field_path}.name")
        if name in names:
            yield invalid(f"{field_path}.name", name, "must be unique")
        if name not in volumes:
            yield not_found(f"{field_path}.name", name)
        elif volumes[name].keys().isdisjoint(_CLAIM_SOURCES):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{field_path}.name", name, text)
        if not target:
            yield required(f"{field_path}.devicePath")
        if target in targets:
            yield invalid(f"{field_path}.devicePath", target, "must be unique")
        if ".." in target.split("/"):
            yield invalid(f"{field_path}.devicePath", target, "can not contain backsteps ('..')")
        else:
            targets.add(target)
        if name in mount_names:
            yield invalid(f"{field_path}.name", name, "must not already exist in volumeMounts")
        if target in mount_paths:
            yield invalid(
                f"{field_path}.devicePath",
                target,
                "must not already exist as a path in volumeMounts",
            )
        if name:
            names.add(name)
