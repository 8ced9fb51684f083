"""Validation of pods' and containers' security contexts, and of what they allow on Linux and Windows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import dns_subdomain
from envtest.builtins.go_rendering import internal_fields, internal_security_context
from envtest.builtins.path_rules import relative_path_errors

__all__ = ["all_containers", "container_security_errors", "os_errors", "pod_security_errors"]

_MAX_ID: Final = 2**31 - 1
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_IPC_SYSCTLS: Final = frozenset(
    f"kernel.{name}"
    for name in (
        "msgmax",
        "msgmnb",
        "msgmni",
        "sem",
        "shm_rmid_forced",
        "shmall",
        "shmmax",
        "shmmni",
    )
)
_NO_HOST_USERS: Final = "when `hostUsers` is false"
_OPERATING_SYSTEMS: Final = ("linux", "windows")
_CHOICES: Final = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("Recursive",),  # MountOption needs a feature gate that is off
}
_LINUX_ONLY: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
)
"""Fields of the security contexts of pods and containers that Windows does not have."""


def all_containers(spec: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield every container of a pod with its path."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{position}]"


def pod_security_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the security context of a pod."""
    security = spec.get("securityContext") or {}
    field_path = f"{path}.securityContext"
    yield from _common_errors(security, field_path)
    for position, group in enumerate(security.get("supplementalGroups") or ()):
        yield from _id_errors(group, f"{field_path}.supplementalGroups[{position}]")
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{field_path}.shareProcessNamespace", True, text)
    yield from _sysctl_errors(spec, security.get("sysctls") or (), f"{field_path}.sysctls")
    for name, choices in _CHOICES.items():
        if security.get(name) is not None and security[name] not in choices:
            yield not_supported(f"{field_path}.{name}", security[name], choices)
    if spec.get("hostUsers") is False:
        for name, shown in (
            ("hostNetwork", "hostNetwork"),
            ("hostPID", "HostPID"),
            ("hostIPC", "HostIPC"),
        ):
            if spec.get(name):
                yield forbidden(f"{path}.{shown}", _NO_HOST_USERS)
        for container, container_path in all_containers(spec, path):
            if container.get("volumeDevices"):
                yield forbidden(f"{container_path}.volumeDevices", _NO_HOST_USERS)
    yield from _host_process_errors(spec, path)


def container_security_errors(
    container: Mapping[str, Any], path: str, *, host_users: bool
) -> Iterator[FieldError]:
    """Yield the errors of the security context of a container.

    ``host_users`` is true if the pod shares the user namespace of the host.
    """
    security = container.get("securityContext")
    field_path = f"{path}.securityContext"
    if security is None:
        return
    yield from _common_errors(security, field_path)
    proc_mount = security.get("procMount")
    if proc_mount is not None and proc_mount not in ("Default", "Unmasked"):
        yield not_supported(f"{field_path}.procMount", proc_mount, ("Default", "Unmasked"))
    if proc_mount == "Unmasked" and host_users:
        yield invalid(
            f"{field_path}.procMount", proc_mount, "`hostUsers` must be false to use `Unmasked`"
        )
    if security.get("allowPrivilegeEscalation") is not False:
        return
    if security.get("privileged"):
        text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid(field_path, internal_security_context(security), text)
    if "CAP_SYS_ADMIN" in ((security.get("capabilities") or {}).get("add") or ()):
        text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        yield invalid(field_path, internal_security_context(security), text)


def os_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in a pod's operating system, and in fields that it does not have."""
    if spec.get("os") is None:
        return
    name = spec["os"].get("name") or ""
    if not name:
        yield required(f"{path}.os.name")
    elif name not in _OPERATING_SYSTEMS:
        yield not_supported(f"{path}.os", name, _OPERATING_SYSTEMS)
    elif name == "linux":
        for each, field_path in ((spec, path), *all_containers(spec, path)):
            if (each.get("securityContext") or {}).get("windowsOptions") is not None:
                text = "windows options cannot be set for a linux pod"
                yield forbidden(f"{field_path}.securityContext.windowsOptions", text)
    else:
        yield from _windows_errors(spec, path)


def _windows_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    text = "cannot be set for a windows pod"
    for each, field_path in ((spec, path), *all_containers(spec, path)):
        for name in _LINUX_ONLY:
            if (each.get("securityContext") or {}).get(name) is not None:
                yield forbidden(f"{field_path}.securityContext.{name}", text)
    for name in ("hostUsers", "shareProcessNamespace"):
        if spec.get(name) is not None:
            yield forbidden(f"{path}.{name}", text)
    for name in ("hostPID", "hostIPC"):
        if spec.get(name):
            yield forbidden(f"{path}.{name}", text)


def _id_errors(number: int | None, path: str) -> Iterator[FieldError]:
    if number is not None and not 0 <= number <= _MAX_ID:
        yield invalid(path, number, f"must be between 0 and {_MAX_ID}, inclusive")


def _common_errors(security: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the fields that the security contexts of pods and containers share."""
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        if name in security:
            yield from _id_errors(security[name], f"{path}.{name}")
    for name, rule in _PART_RULES:
        if security.get(name) is not None:
            yield from rule(security[name], f"{path}.{name}")


def _profile_type_errors(profile: Mapping[str, Any], path: str, word: str) -> Iterator[FieldError]:
    kind = profile.get("type") or ""
    if not kind:
        yield required(f"{path}.type", f"type is required when {word} is set")
    elif kind not in _PROFILES:
        yield not_supported(f"{path}.type", kind, _PROFILES)


def _seccomp_errors(profile: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _profile_type_errors(profile, path, "seccompProfile")
    file = profile.get("localhostProfile")
    if profile.get("type") == "Localhost":
        if file is None:
            yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from relative_path_errors(file, f"{path}.localhostProfile")
    elif file is not None:
        shown = internal_fields("Type! LocalhostProfile", profile)
        yield invalid(
            f"{path}.localhostProfile", shown, "can only be set when seccomp type is Localhost"
        )


def _app_armor_errors(profile: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _profile_type_errors(profile, path, "appArmorProfile")
    file = profile.get("localhostProfile")
    if profile.get("type") == "Localhost":
        if file is not None and file != file.strip():
            yield invalid(f"{path}.localhostProfile", file, "must not be padded with whitespace")
        elif not file:
            yield required(
                f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"
            )
        if len(file or "") > 4095:
            yield too_long(f"{path}.localhostProfile", "", 4095)
    elif profile.get("type") in _PROFILES and file is not None:
        yield invalid(
            f"{path}.localhostProfile", file, "can only be set when AppArmor type is Localhost"
        )


def _sysctl_errors(
    spec: Mapping[str, Any], sysctls: Sequence[Mapping[str, Any]], path: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, sysctl in enumerate(sysctls):
        field_path = f"{path}[{position}].name"
        name = sysctl.get("name") or ""
        if not name:
            yield required(field_path)
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            yield invalid(
                field_path, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$"
            )
        elif name in seen:
            yield duplicate(field_path, name)
        seen.add(name)
        dotted = name.replace("/", ".") if "/" in name.partition(".")[0] else name
        if spec.get("hostNetwork") and dotted.startswith("net."):
            yield invalid(field_path, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            yield invalid(field_path, name, "may not be specified when 'hostIPC' is true")


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_NAME: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_MAX_CREDENTIAL_SPEC: Final = 64 * 1024


def _windows_options_errors(options: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.gmsaCredentialSpecName", name, problem)
    credentials = options.get("gmsaCredentialSpec")
    if credentials is not None and not credentials:
        yield invalid(
            f"{path}.gmsaCredentialSpec",
            credentials,
            "gmsaCredentialSpec cannot be an empty string",
        )
    elif credentials is not None and len(credentials) > _MAX_CREDENTIAL_SPEC:
        yield invalid(
            f"{path}.gmsaCredentialSpec",
            credentials,
            "gmsaCredentialSpec size must be under 64 KiB",
        )
    name = options.get("runAsUserName")
    if name is not None:
        for problem in _user_name_problems(name):
            yield invalid(f"{path}.runAsUserName", name, f"runAsUserName{problem}")


def _user_name_problems(name: str) -> Iterator[str]:
    if not name:
        yield " cannot be an empty string"
    elif _CONTROL.search(name):
        yield " cannot contain control characters"
    elif name.count("\\") > 1:
        yield " cannot contain more than one backslash"
    else:
        domain, backslash, user = name.rpartition("\\")
        if len(domain) >= 256:
            yield "'s Domain length must be under 256 characters"
        if backslash and not (_NET_BIOS.fullmatch(domain) or _DNS_NAME.fullmatch(domain)):
            yield "'s Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "'s User cannot be empty"
        elif len(user) > 104:
            yield "'s User length must not be longer than 104 characters"
        if user and not user.strip(". "):
            yield "'s User cannot contain only periods or spaces"
        if set(user) & set('"/\\:;|=,+*?<>@[]'):
            yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


_PART_RULES: Final[
    Sequence[tuple[str, Callable[[Mapping[str, Any], str], Iterator[FieldError]]]]
] = (
    ("seccompProfile", _seccomp_errors),
    ("windowsOptions", _windows_options_errors),
    ("appArmorProfile", _app_armor_errors),
)


def _host_process_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of Windows HostProcess containers: all containers of a pod are, or none."""
    of_pod = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    values = []
    for container, field_path in all_containers(spec, path):
        value = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get(
            "hostProcess"
        )
        if of_pod is not None and value is not None and value != of_pod:
            text = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            yield invalid(f"{field_path}.securityContext.windowsOptions.hostProcess", value, text)
        if value is None:
            value = of_pod
        values.append(value)
    if not any(values):
        return
    if not all(values):
        text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(path, "", text)
    if not spec.get("hostNetwork"):
        text = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(f"{path}.hostNetwork", False, text)
