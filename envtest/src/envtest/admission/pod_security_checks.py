"""The checks of the Pod Security Standards: pure functions of a pod, a level and a version.

The checks, their texts, the versions that each was introduced or changed in, and the order of the reasons are those of
``k8s.io/pod-security-admission/policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from envtest.apimachinery.objects import Object

__all__ = ["LATEST", "LEVELS", "Level", "Violation", "violations"]

LEVELS: Final = ("privileged", "baseline", "restricted")
LATEST: Final = 1_000_000
"""The minor version that ``latest`` means."""

_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_POD_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_SELINUX_TYPES: Final = {
    0: ("", "container_t", "container_init_t", "container_kvm_t"),
    31: ("container_engine_t",),
}
_SYSCTLS: Final = {
    0: (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_syncookies",
    ),
    27: ("net.ipv4.ip_local_reserved_ports",),
    29: (
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
    ),
    32: ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}
_OS_AWARE: Final = 25
"""Since this version the checks for Linux do not apply to Windows pods."""
_USER_NAMESPACES: Final = 35
"""Since this version pods in user namespaces may run as root in them."""


class Level(NamedTuple):
    """A level of the standards at a version: the minor version, or :data:`LATEST`."""

    name: str = "privileged"
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.name}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"


class Violation(NamedTuple):
    """A check that a pod fails: the reason, and what to change."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class _Pod(NamedTuple):
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    version: int

    @property
    def security(self) -> Mapping[str, Any]:
        return self.spec.get("securityContext") or {}

    @property
    def containers(self) -> Iterator[Mapping[str, Any]]:
        for kind in ("initContainers", "containers", "ephemeralContainers"):
            yield from self.spec.get(kind) or ()

    @property
    def is_windows(self) -> bool:
        return self.version >= _OS_AWARE and (self.spec.get("os") or {}).get("name") == "windows"

    @property
    def has_user_namespace(self) -> bool:
        return self.version >= _USER_NAMESPACES and self.spec.get("hostUsers") is False

    def containers_where(self, condition: Callable[[Mapping[str, Any]], Any]) -> list[str]:
        """Return the names of the containers whose security context meets ``condition``."""
        return [
            str(each.get("name"))
            for each in self.containers
            if condition(each.get("securityContext") or {})
        ]


_Check: TypeAlias = Callable[[_Pod], Violation | None]


def violations(
    level: Level, metadata: Mapping[str, Any], spec: Mapping[str, Any]
) -> list[Violation]:
    """Return the checks of ``level`` that a pod with this metadata and spec fails, in the order of their messages."""
    if level.name == "privileged":
        return []
    pod = _Pod(metadata.get("annotations") or {}, spec, level.version)
    checks = [*_BASELINE.values()]
    if level.name == "restricted":
        overridden = {name for _, names in _RESTRICTED.values() for name in names}
        if level.version < 22:
            overridden.discard("capabilities")
        if level.version < 19:
            overridden.discard("seccompProfile")
        checks = [check for name, check in _BASELINE.items() if name not in overridden]
        checks += [check for check, _ in _RESTRICTED.values()]
    found = (check(pod) for check in checks)
    return [each for each in found if each is not None]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(word: str, items: Collection[Any]) -> str:
    return word if len(items) == 1 else f"{word}s"


def _containers(names: Sequence[str]) -> str:
    return f"{_plural('container', names)} {_quoted(names)}"


def _setters(pod_is_bad: object, names: Sequence[str]) -> str:
    """Return who violates a rule that both pods and containers can violate."""
    setters = []
    if pod_is_bad:
        setters.append("pod")
    if names:
        setters.append(_containers(names))
    return " and ".join(setters)


def _since(table: Mapping[int, Sequence[str]], version: int) -> set[str]:
    return {name for first, names in table.items() if version >= first for name in names}


# --- Baseline -------------------------------------------------------------------------------------------------------


def _app_armor(pod: _Pod) -> Violation | None:
    def is_bad(security: Mapping[str, Any]) -> bool:
        profile = security.get("appArmorProfile")
        return profile is not None and profile.get("type") not in ("RuntimeDefault", "Localhost")

    names = pod.containers_where(is_bad)
    annotations = {
        name: value
        for name, value in pod.annotations.items()
        if name.startswith(_APP_ARMOR)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    }
    holders = [pod.security, *(each.get("securityContext") or {} for each in pod.containers)]
    values = {str(each["appArmorProfile"].get("type")) for each in holders if is_bad(each)}
    values |= {f'{name}="{value}"' for name, value in annotations.items()}
    if not values:
        return None
    setters = []
    own_setters = _setters(is_bad(pod.security), names)
    if own_setters:
        setters.append(own_setters)
    if annotations:
        setters.append("annotation")
    detail = (
        f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(sorted(values))}"
    )
    return Violation(_plural("forbidden AppArmor profile", values), detail)


def _baseline_capabilities(pod: _Pod) -> Violation | None:
    names = pod.containers_where(lambda each: set(_added(each)) - _CAPABILITIES)
    if not names:
        return None
    bad = {
        name for each in pod.containers for name in _added(each.get("securityContext") or {})
    } - _CAPABILITIES
    detail = f"{_containers(names)} must not include {_quoted(sorted(bad))} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def _added(security: Mapping[str, Any]) -> Sequence[str]:
    return (security.get("capabilities") or {}).get("add") or ()


def _host_namespaces(pod: _Pod) -> Violation | None:
    shared = [
        f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)
    ]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_path_volumes(pod: _Pod) -> Violation | None:
    names = [
        str(each.get("name"))
        for each in pod.spec.get("volumes") or ()
        if each.get("hostPath") is not None
    ]
    return (
        Violation("hostPath volumes", f"{_plural('volume', names)} {_quoted(names)}")
        if names
        else None
    )


def _host_ports(pod: _Pod) -> Violation | None:
    used = {str(each.get("name")): _host_ports_of(each) for each in pod.containers}
    names = [name for name, ports in used.items() if ports]
    if not names:
        return None
    numbers = sorted({str(number) for ports in used.values() for number in ports})
    verb = "uses" if len(names) == 1 else "use"
    return Violation(
        "hostPort",
        f"{_containers(names)} {verb} {_plural('hostPort', numbers)} {', '.join(numbers)}",
    )


def _host_ports_of(container: Mapping[str, Any]) -> list[int]:
    return [port["hostPort"] for port in container.get("ports") or () if port.get("hostPort")]


def _probe_hosts(pod: _Pod) -> Violation | None:
    if pod.version < 34:
        return None
    hosts = {str(each.get("name")): set(_hosts_of(each)) for each in pod.containers}
    names = sorted(name for name in hosts if hosts[name])
    found = sorted(set().union(*hosts.values()))
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    word = _plural("probe or lifecycle host", found)
    return Violation(
        "probe or lifecycle host", f"{_containers(names)} {verb} {word} {_quoted(found)}"
    )


def _hosts_of(container: Mapping[str, Any]) -> Iterator[str]:
    handlers = [container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
    handlers += [(container.get("lifecycle") or {}).get(kind) for kind in ("postStart", "preStop")]
    for handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            host = ((handler or {}).get(action) or {}).get("host")
            if host:
                yield host


def _privileged(pod: _Pod) -> Violation | None:
    names = pod.containers_where(lambda each: each.get("privileged"))
    return (
        Violation(
            "privileged", f"{_containers(names)} must not set securityContext.privileged=true"
        )
        if names
        else None
    )


def _proc_mount(pod: _Pod) -> Violation | None:
    types = {
        str((each.get("securityContext") or {}).get("procMount") or "Default")
        for each in pod.containers
    }
    types.discard("Default")
    if not types or pod.has_user_namespace:
        return None
    names = pod.containers_where(lambda each: each.get("procMount") not in (None, "Default"))
    return Violation(
        "procMount",
        f"{_containers(names)} must not set securityContext.procMount to {_quoted(sorted(types))}",
    )


def _selinux(pod: _Pod) -> Violation | None:
    allowed = _since(_SELINUX_TYPES, pod.version)

    def problems(security: Mapping[str, Any]) -> set[str]:
        options = security.get("seLinuxOptions") or {}
        found = {f"{name} may not be set" for name in ("user", "role") if options.get(name)}
        return found | ({"type"} if (options.get("type") or "") not in allowed else set())

    names = pod.containers_where(problems)
    setters = _setters(problems(pod.security), names)
    if not setters:
        return None
    holders = [pod.security, *(each.get("securityContext") or {} for each in pod.containers)]
    types = {
        str((each.get("seLinuxOptions") or {}).get("type") or "") for each in holders
    } - allowed
    parts = [f"{_plural('type', types)} {_quoted(sorted(types))}"] if types else []
    found = set().union(*(problems(each) for each in holders))
    parts += [text for text in ("user may not be set", "role may not be set") if text in found]
    return Violation(
        "seLinuxOptions",
        f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}",
    )


def _has_bad_seccomp(security: Mapping[str, Any]) -> bool:
    profile = security.get("seccompProfile")
    return profile is not None and profile.get("type") not in ("RuntimeDefault", "Localhost")


def _baseline_seccomp(pod: _Pod) -> Violation | None:
    if pod.version < 19:
        bad = sorted(
            f'{name}="{value}"'
            for name, value in pod.annotations.items()
            if (name == _POD_SECCOMP or name.startswith(_CONTAINER_SECCOMP))
            and value == "unconfined"
        )
        return (
            Violation("seccompProfile", f"forbidden {_plural('annotation', bad)} {', '.join(bad)}")
            if bad
            else None
        )
    return _explicit_seccomp(pod)


def _explicit_seccomp(pod: _Pod) -> Violation | None:
    setters = _setters(_has_bad_seccomp(pod.security), pod.containers_where(_has_bad_seccomp))
    if not setters:
        return None
    holders = [pod.security, *(each.get("securityContext") or {} for each in pod.containers)]
    types = sorted(
        {str(each["seccompProfile"].get("type")) for each in holders if _has_bad_seccomp(each)}
    )
    return Violation(
        "seccompProfile",
        f"{setters} must not set securityContext.seccompProfile.type to {_quoted(types)}",
    )


def _sysctls(pod: _Pod) -> Violation | None:
    allowed = _since(_SYSCTLS, pod.version)
    bad = [
        each["name"]
        for each in pod.security.get("sysctls") or ()
        if each.get("name") not in allowed
    ]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def _host_process(pod: _Pod) -> Violation | None:
    def is_bad(security: Mapping[str, Any]) -> bool:
        return bool((security.get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(is_bad(pod.security), pod.containers_where(is_bad))
    detail = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail) if setters else None


# --- Restricted -----------------------------------------------------------------------------------------------------


def _privilege_escalation(pod: _Pod) -> Violation | None:
    names = (
        []
        if pod.is_windows
        else pod.containers_where(lambda each: each.get("allowPrivilegeEscalation") is not False)
    )
    if pod.version < 8 or not names:
        return None
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def _restricted_capabilities(pod: _Pod) -> Violation | None:
    if pod.version < 22 or pod.is_windows:
        return None
    keeping = pod.containers_where(
        lambda each: "ALL" not in ((each.get("capabilities") or {}).get("drop") or ())
    )
    adding = pod.containers_where(lambda each: set(_added(each)) - {"NET_BIND_SERVICE"})
    details = []
    if keeping:
        details.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        added = {
            name for each in pod.containers for name in _added(each.get("securityContext") or {})
        }
        bad = _quoted(sorted(added - {"NET_BIND_SERVICE"}))
        details.append(
            f"{_containers(adding)} must not include {bad} in securityContext.capabilities.add"
        )
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _restricted_volumes(pod: _Pod) -> Violation | None:
    sources = {str(each.get("name")): _source_of(each) for each in pod.spec.get("volumes") or ()}
    names = [name for name, source in sources.items() if source not in _VOLUMES]
    if not names:
        return None
    types = sorted({sources[name] for name in names})
    verb = "uses" if len(names) == 1 else "use"
    word = _plural("restricted volume type", types)
    return Violation(
        "restricted volume types",
        f"{_plural('volume', names)} {_quoted(names)} {verb} {word} {_quoted(types)}",
    )


def _source_of(volume: Object) -> str:
    return next((name for name in volume if name != "name"), "unknown")


def _run_as_non_root(pod: _Pod) -> Violation | None:
    if pod.has_user_namespace:
        return None
    reason = "runAsNonRoot != true"
    is_set = pod.security.get("runAsNonRoot")
    explicit = pod.containers_where(lambda each: each.get("runAsNonRoot") is False)
    setters = _setters(is_set is False, explicit)
    if setters:
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    implicit = pod.containers_where(lambda each: each.get("runAsNonRoot") is None)
    if is_set or not implicit:
        return None
    return Violation(
        reason, f"pod or {_containers(implicit)} must set securityContext.runAsNonRoot=true"
    )


def _run_as_user(pod: _Pod) -> Violation | None:
    if pod.version < 23 or pod.has_user_namespace:
        return None
    setters = _setters(
        pod.security.get("runAsUser") == 0,
        pod.containers_where(lambda each: each.get("runAsUser") == 0),
    )
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _restricted_seccomp(pod: _Pod) -> Violation | None:
    if pod.version < 19 or pod.is_windows:
        return None
    explicit = _explicit_seccomp(pod)
    if explicit is not None:
        return explicit
    implicit = pod.containers_where(lambda each: each.get("seccompProfile") is None)
    if pod.security.get("seccompProfile") is not None or not implicit:
        return None
    text = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_containers(implicit)} {text}")


_BASELINE: Final[Mapping[str, _Check]] = {
    "appArmorProfile": _app_armor,
    "capabilities": _baseline_capabilities,
    "hostNamespaces": _host_namespaces,
    "hostPathVolumes": _host_path_volumes,
    "hostPorts": _host_ports,
    "hostProbesAndHostLifecycle": _probe_hosts,
    "privileged": _privileged,
    "procMount": _proc_mount,
    "seLinuxOptions": _selinux,
    "seccompProfile": _baseline_seccomp,
    "sysctls": _sysctls,
    "windowsHostProcess": _host_process,
}
_RESTRICTED: Final[Mapping[str, tuple[_Check, Sequence[str]]]] = {
    "allowPrivilegeEscalation": (_privilege_escalation, ()),
    "capabilities": (_restricted_capabilities, ("capabilities",)),
    "restrictedVolumes": (_restricted_volumes, ("hostPathVolumes",)),
    "runAsNonRoot": (_run_as_non_root, ()),
    "runAsUser": (_run_as_user, ()),
    "seccompProfile": (_restricted_seccomp, ("seccompProfile",)),
}
"""The checks that are only in ``restricted``, and the checks of ``baseline`` that each replaces."""
