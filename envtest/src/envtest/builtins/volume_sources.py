"""Validation of what the volumes of pods, persistent volumes and claims have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long
from envtest.apimachinery.name_rules import dns_subdomain
from envtest.builtins.path_rules import backstep_errors

__all__ = [
    "VOLUME_MODES",
    "access_mode_errors",
    "csi_driver_name_errors",
    "host_path_errors",
    "nfs_errors",
]

VOLUME_MODES: Final = ("Block", "Filesystem")
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_HOST_PATHS: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


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
    yield from backstep_errors(source["path"], f"{path}.path")
    if (source.get("type") or "") not in _HOST_PATHS:
        yield not_supported(f"{path}.type", source["type"], _HOST_PATHS)


def nfs_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a directory on an NFS server."""
    for name in ("server", "path"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not (source.get("path") or "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path") or "", "must be an absolute path")
