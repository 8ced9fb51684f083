"""Validation of the volumes of a pod, and of what persistent volumes have in common with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.container_rules import relative_path_errors
from envtest.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from envtest.metadata import dns_label, dns_subdomain
from envtest.schema.quantity import parse_quantity

__all__ = [
    "VOLUME_MODES",
    "access_mode_errors",
    "csi_driver_name_errors",
    "host_path_errors",
    "nfs_errors",
    "path_step_errors",
    "volume_errors",
]

VOLUME_MODES = ("Block", "Filesystem")
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

_HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_REQUIRED_FIELDS = {
    "csi": ("driver",),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}


def volume_errors(volumes: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of all volumes."""
    seen: set[str] = set()
    for position, volume in enumerate(volumes):
        field_path, name = f"{path}[{position}]", volume.get("name") or ""
        sources = [each for each in volume if each != "name"]
        for extra in sources[1:]:
            yield forbidden(f"{field_path}.{extra}", "may not specify more than 1 volume type")
        for source in sources[:1]:
            yield from _source_errors(source, volume[source] or {}, f"{field_path}.{source}")
        if not name:
            yield required(f"{field_path}.name")
        elif problems := dns_label(name):
            for problem in problems:
                yield invalid(f"{field_path}.name", name, problem)
        elif name in seen:
            yield duplicate(f"{field_path}.name", name)
        seen.add(name)


def _source_errors(kind: str, source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in _REQUIRED_FIELDS.get(kind, ()):
        if not source.get(name):
            yield required(f"{path}.{name}")
    match kind:
        case "emptyDir":
            limit = source.get("sizeLimit")
            if limit is not None and parse_quantity(limit).value < 0:
                yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")
        case "hostPath":
            yield from host_path_errors(source, path)
        case "nfs":
            yield from nfs_errors(source, path)
        case "secret" | "configMap":
            if kind == "configMap" and not source.get("name"):
                yield required(f"{path}.name")
            yield from _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
            yield from _item_errors(source.get("items") or (), f"{path}.items")
        case "downwardAPI":
            yield from _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
        case "projected":
            yield from _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
            for position, each in enumerate(source.get("sources") or ()):
                yield from _projection_errors(each, f"{path}.sources[{position}]")


def access_mode_errors(spec: Mapping[str, Any], path: str, missing: str = "") -> Iterator[FieldError]:
    """Yield the errors of the access modes of a volume or claim; ``missing`` explains that one is required."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", missing)
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode != "ReadWriteOncePod" and mode in _ACCESS_MODES for mode in modes):
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def csi_driver_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of the name of a CSI driver."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield too_long(path, name, 63)
    for problem in dns_subdomain(name.lower()):
        yield invalid(path, name, problem)


def host_path_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a path on the host and its type."""
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from path_step_errors(source["path"], f"{path}.path")
    if (source.get("type") or "") not in _HOST_PATHS:
        yield not_supported(f"{path}.type", source["type"], _HOST_PATHS)


def path_step_errors(target: str, path: str) -> Iterator[FieldError]:
    """Yield an error for a path with a step to the parent directory."""
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def nfs_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a directory on an NFS server."""
    for name in ("server", "path"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if source.get("path") and not source["path"].startswith("/"):
        yield invalid(f"{path}.path", source["path"], "must be an absolute path")


def _projection_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if len(source) > 1:
        yield forbidden(path, "may not specify more than 1 volume type")
    for kind in ("secret", "configMap"):
        if kind in source:
            if not source[kind].get("name"):
                yield required(f"{path}.{kind}.name")
            yield from _item_errors(source[kind].get("items") or (), f"{path}.{kind}.items")
    token = source.get("serviceAccountToken")
    if token is not None:
        seconds = token.get("expirationSeconds") or 0
        if seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(f"{path}.serviceAccountToken.expirationSeconds", seconds, text)
        elif seconds > 2**32:
            text = "may not specify a duration larger than 2^32 seconds"
            yield invalid(f"{path}.serviceAccountToken.expirationSeconds", seconds, text)
        if not token.get("path"):
            yield required(f"{path}.serviceAccountToken.path")


def _item_errors(items: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, item in enumerate(items):
        field_path, name, target = f"{path}[{position}]", item.get("key") or "", item.get("path") or ""
        if not name:
            yield required(f"{field_path}.key")
        if not target:
            yield required(f"{field_path}.path")
        else:
            yield from relative_path_errors(target, f"{field_path}.path")
            if target.startswith("..") and ".." not in target.split("/"):
                yield invalid(f"{field_path}.path", target, "must not start with '..'")
        yield from _mode_errors(item.get("mode"), f"{field_path}.mode")


def _mode_errors(mode: int | None, path: str) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, _MODE)
