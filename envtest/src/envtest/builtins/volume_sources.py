"""Validation of what the volumes of pods, persistent volumes and claims have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_letters, digits
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    key,
    not_supported,
    not_supported_string,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain
from envtest.builtins.path_rules import backstep_errors

__all__ = [
    "VOLUME_MODES",
    "access_mode_errors",
    "csi_driver_name_errors",
    "is_portal_too_long",
    "source_errors",
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
_REQUIRED_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "glusterfs": ("endpoints", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "rbd": ("monitors", "image"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "storageos": ("volumeName",),
    "vsphereVolume": ("volumePath",),
}
_CACHING_MODES: Final = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")
_MANAGED_DISK: Final = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_REGISTRY: Final = "must be a host:port pair or multiple pairs separated by commas"
_MAX_TENANT: Final = 64
_MAX_PORTAL: Final = 64
_RESERVED_OPTIONS: Final = (".kubernetes.io", ".k8s.io")
_NO_FORMAT: Final = "must be valid format"
_NO_INITIATOR: Final = "must be valid format starting with iqn, eui, or naa"
_IQN_CHARACTERS: Final = f"{ascii_letters}{digits}-."
_IQN_DATE: Final = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\..")
_IQN_FORBIDDEN: Final = re.compile(r"[,;*&$|\t\n\f\r ]")
_EUI: Final = re.compile(r"eui.[0-9A-Za-z]{16}")
_NAA: Final = re.compile(r"naa.[0-9A-Za-z]{32}")


def access_mode_errors(
    spec: Mapping[str, Any], path: str, missing: str = ""
) -> Iterator[FieldError]:
    """Yield the errors of the access modes of a volume or claim; ``missing`` explains that one is required."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", missing)
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(
        mode != "ReadWriteOncePod" and mode in _ACCESS_MODES for mode in modes
    ):
        yield forbidden(
            f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"
        )


def csi_driver_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of the name of a CSI driver."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield too_long(path, name, 63)
    for problem in dns_subdomain(name.lower()):
        yield invalid(path, name, problem)


def source_errors(
    kind: str, source: Mapping[str, Any], path: str, *, persistent: bool
) -> Iterator[FieldError]:
    """Yield the errors of a source that volumes of pods and persistent volumes can have.

    ``kind`` is the name of the source's field. The secrets of a persistent volume (``persistent``) have a namespace.
    Yields nothing for sources that only one of the two can have.
    """
    for name in _REQUIRED_FIELDS.get(kind, ()):
        if not source.get(name):
            yield required(f"{path}.{name}")
    rule = _RULES.get(kind)
    if rule is not None:
        yield from rule(source, path, persistent)


def is_portal_too_long(volume_name: str, source: Mapping[str, Any]) -> bool:
    """Return whether an iSCSI volume with an initiator has a name and a target portal that are too long together."""
    if source.get("initiatorName") is None:
        return False
    return len(f"{volume_name}:{source.get('targetPortal') or ''}".encode()) > _MAX_PORTAL


def _host_path_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from backstep_errors(source["path"], f"{path}.path")
    if (source.get("type") or "") not in _HOST_PATHS:
        yield not_supported(f"{path}.type", source["type"], _HOST_PATHS)


def _nfs_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    for name in ("server", "path"):
        if not source.get(name):
            yield required(f"{path}.{name}")
    if not (source.get("path") or "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path") or "", "must be an absolute path")


def _partition_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    partition = source.get("partition") or 0
    if not 0 <= partition <= 255:
        yield invalid(f"{path}.partition", partition, "must be between 1 and 255, inclusive")


def _fc_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    names = source.get("targetWWNs") or []
    wwids = source.get("wwids") or []
    lun = source.get("lun")
    if not names and not wwids:
        yield required(
            f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"
        )
    if names and wwids:
        yield invalid(
            f"{path}.targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously"
        )
    if names and lun is None:
        yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
    if names and lun is not None and not 0 <= lun <= 255:
        yield invalid(f"{path}.lun", lun, "must be between 0 and 255, inclusive")


def _iscsi_errors(source: Mapping[str, Any], path: str, persistent: bool) -> Iterator[FieldError]:
    no_prefix = _NO_FORMAT if persistent else _NO_INITIATOR
    name = source.get("iqn") or ""
    initiator = source.get("initiatorName")
    lun = source.get("lun") or 0
    if name and not _is_iscsi_name(name):
        has_prefix = name.startswith(("iqn", "eui", "naa"))
        text = _NO_FORMAT if has_prefix else no_prefix
        yield invalid(f"{path}.iqn", name, text)
    if not 0 <= lun <= 255:
        yield invalid(f"{path}.lun", lun, "must be between 0 and 255, inclusive")
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        yield required(f"{path}.secretRef")
    if persistent and secret is not None and not secret.get("name"):
        yield required(f"{path}.secretRef.name")
    if initiator is not None and not _is_iscsi_name(initiator):
        text = _NO_FORMAT if initiator.startswith(("iqn", "eui", "naa")) else no_prefix
        yield invalid(f"{path}.initiatorname", initiator, text)


def _is_iscsi_name(name: str) -> bool:
    if name.startswith("iqn"):
        return _is_qualified_iscsi_name(name)
    return (_EUI.fullmatch(name) or _NAA.fullmatch(name)) is not None


def _is_qualified_iscsi_name(name: str) -> bool:
    r"""Return whether ``name`` ends with ``iqn.YYYY-MM.`` and a domain, a colon and a string without separators.

    Equals Go's ``iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`` in linear time.
    """
    start = 0
    for match in _IQN_FORBIDDEN.finditer(name):
        start = match.end()
    parts = name.split(":")
    position = -1
    for part in parts[:-1]:
        position += len(part) + 1  # of the colon behind the part
        if start <= position + 1 < len(name):
            domain = part[len(part.rstrip(_IQN_CHARACTERS)) :]
            if _IQN_DATE.search(domain):
                return True
    return False


def _secret_errors(
    secret: Mapping[str, Any] | None, path: str, persistent: bool
) -> Iterator[FieldError]:
    if secret is None:
        return
    if not secret.get("name"):
        yield required(f"{path}.secretRef.name")
    if persistent and not secret.get("namespace"):
        yield required(f"{path}.secretRef.namespace")


def _cinder_errors(source: Mapping[str, Any], path: str, persistent: bool) -> Iterator[FieldError]:
    yield from _secret_errors(source.get("secretRef"), path, persistent)


def _storage_os_errors(
    source: Mapping[str, Any], path: str, persistent: bool
) -> Iterator[FieldError]:
    for name in ("volumeName", "volumeNamespace"):
        if source.get(name):
            for problem in dns_label(source[name]):
                yield invalid(f"{path}.{name}", source[name], problem)
    yield from _secret_errors(source.get("secretRef"), path, persistent)


def _glusterfs_errors(
    source: Mapping[str, Any], path: str, persistent: bool
) -> Iterator[FieldError]:
    namespace = source.get("endpointsNamespace")
    if not persistent or namespace is None:
        return
    if not namespace:
        text = "if the endpointnamespace is set, it must be a valid namespace name"
        yield invalid(f"{path}.endpointsNamespace", namespace, text)
    if namespace:
        for problem in dns_label(namespace):
            yield invalid(f"{path}.endpointsNamespace", namespace, problem)


def _azure_file_errors(
    source: Mapping[str, Any], path: str, persistent: bool
) -> Iterator[FieldError]:
    if persistent and source.get("secretNamespace") == "":
        yield required(f"{path}.secretNamespace")


def _azure_disk_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    mode = source.get("cachingMode")
    kind = source.get("kind")
    uri = source.get("diskURI") or ""
    if mode is not None and mode not in _CACHING_MODES:
        yield not_supported(f"{path}.cachingMode", mode, _CACHING_MODES)
    if kind is not None and kind not in _DISK_KINDS:
        yield not_supported(f"{path}.kind", kind, _DISK_KINDS)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        yield not_supported_string(f"{path}.diskURI", uri, (_MANAGED_DISK,))
    if kind not in (None, "Managed") and not uri.startswith("https://"):
        yield not_supported_string(f"{path}.diskURI", uri, (_BLOB_DISK,))


def _flocker_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    name = source.get("datasetName") or ""
    uid = source.get("datasetUUID")
    if not name and not uid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        yield invalid(
            path, "resource", "datasetName and datasetUUID can not be specified simultaneously"
        )
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _quobyte_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    registry = source.get("registry") or ""
    if not registry:
        yield required(f"{path}.registry", _REGISTRY)
    elif len((source.get("tenant") or "").encode()) > _MAX_TENANT:
        text = f"must be a UUID and may not exceed a length of {_MAX_TENANT} characters"
        yield required(f"{path}.tenant", text)
    elif not all(map(_is_host_and_port, registry.split(","))):
        yield invalid(f"{path}.registry", registry, _REGISTRY)
    if not source.get("volume"):
        yield required(f"{path}.volume")


def _is_host_and_port(text: str) -> bool:
    """Return whether Go's ``net.SplitHostPort`` can split ``text``: an IPv6 address is in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return (
            bool(bracket)
            and rest.startswith(":")
            and not set("[]") & {*host, *rest}
            and ":" not in rest[1:]
        )
    return text.count(":") == 1 and not set("[]") & {*text}


def _flex_errors(source: Mapping[str, Any], path: str, _: bool) -> Iterator[FieldError]:
    for name in source.get("options") or ():
        namespace, _slash, _rest = name.partition("/")
        if f".{namespace.lower()}".endswith(_RESERVED_OPTIONS):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            yield invalid(key(f"{path}.options", name), name, text)


_RULES: Final[Mapping[str, Callable[[Mapping[str, Any], str, bool], Iterator[FieldError]]]] = {
    "awsElasticBlockStore": _partition_errors,
    "azureDisk": _azure_disk_errors,
    "azureFile": _azure_file_errors,
    "cinder": _cinder_errors,
    "fc": _fc_errors,
    "flexVolume": _flex_errors,
    "flocker": _flocker_errors,
    "gcePersistentDisk": _partition_errors,
    "glusterfs": _glusterfs_errors,
    "hostPath": _host_path_errors,
    "iscsi": _iscsi_errors,
    "nfs": _nfs_errors,
    "quobyte": _quobyte_errors,
    "storageos": _storage_os_errors,
}
