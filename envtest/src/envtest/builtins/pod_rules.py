"""Validation of pod specs and pod templates, shared by Pod and the kinds that create pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    go_quote,
    invalid,
    key,
    not_found,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import (
    dns_label,
    dns_subdomain,
    label_errors,
    label_value,
    qualified_name,
)
from envtest.builtins.container_resources import container_requirement_errors
from envtest.builtins.container_rules import PodContext, containers_errors, image_space_errors
from envtest.builtins.go_rendering import internal_fields
from envtest.builtins.ip_rules import ip_errors
from envtest.builtins.path_rules import relative_path_errors
from envtest.builtins.pod_resources import pod_resource_errors
from envtest.builtins.pod_updates import APP_ARMOR, MIRROR
from envtest.builtins.scheduling_rules import affinity_errors, spread_errors, toleration_errors
from envtest.builtins.security_rules import all_containers, os_errors, pod_security_errors
from envtest.builtins.string_validation import underscore_subdomain
from envtest.builtins.volume_rules import check_volumes

__all__ = ["pod_only_errors", "pod_spec_errors", "template_errors"]

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_NAME_SERVERS: Final = 3
_MAX_HOSTNAME: Final = 64
_SEARCHES: Final = 32
_SEARCH_CHARACTERS: Final = 2048
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_PROFILES: Final = ("runtime/default", "docker/default", "unconfined")
_APP_ARMOR_PROFILES: Final = ("", "runtime/default", "unconfined")
_LOCALHOST: Final = "localhost/"
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}")


def template_errors(template: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the metadata and spec of a pod template."""
    metadata = template.get("metadata") or {}
    for name, value in (metadata.get("labels") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.labels", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.labels", value, problem)
    for name in metadata.get("annotations") or {}:
        for problem in qualified_name(name.lower()):
            yield invalid(f"{path}.annotations", name, problem)
    spec = template.get("spec") or {}
    yield from pod_annotation_errors(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    yield from pod_spec_errors(spec, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", text)


def pod_spec_errors(
    spec: Mapping[str, Any], path: str, *, pod_name: str = ""
) -> Iterator[FieldError]:
    """Yield the errors of a PodSpec, in kube-apiserver's order; ``pod_name`` is empty for templates."""
    errors, volumes = check_volumes(spec.get("volumes") or (), f"{path}.volumes", pod_name)
    yield from errors
    claims = frozenset(
        each["name"] for each in spec.get("resourceClaims") or () if each.get("name")
    )
    yield from _claim_errors(spec.get("resourceClaims") or (), f"{path}.resourceClaims")
    pod = PodContext(
        volumes=volumes,
        claims=claims,
        grace=spec.get("terminationGracePeriodSeconds"),
        restart_policy=spec.get("restartPolicy") or "",
        host_users=spec.get("hostUsers") is not False,
    )
    yield from containers_errors(spec, path, pod)
    yield from pod_resource_errors(spec, f"{path}.resources", claims)
    yield from _host_network_errors(spec, path)
    policy = spec.get("restartPolicy") or ""
    dns = spec.get("dnsPolicy")
    if not policy:
        yield required(f"{path}.restartPolicy")
    elif policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    if dns and dns not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", dns, _DNS_POLICIES)
    yield from label_errors(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from pod_security_errors(spec, path)
    yield from affinity_errors(spec.get("affinity") or {}, f"{path}.affinity")
    yield from _dns_errors(spec, f"{path}.dnsConfig")
    yield from _gate_errors(spec, path)
    yield from spread_errors(
        spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints"
    )
    if spec.get("hostnameOverride") is not None:
        yield from _hostname_errors(spec["hostnameOverride"], spec, f"{path}.hostnameOverride")
    yield from _name_errors(spec, path)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid(
            f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"
        )
    yield from toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    yield from _alias_errors(spec.get("hostAliases") or (), f"{path}.hostAliases")
    preemption = spec.get("preemptionPolicy")
    if preemption is not None and preemption not in ("Never", "PreemptLowerPriority"):
        yield not_supported(
            f"{path}.preemptionPolicy", preemption, ("Never", "PreemptLowerPriority")
        )
    if spec.get("overhead") is not None:
        yield from container_requirement_errors({"limits": spec["overhead"]}, f"{path}.overhead")
    yield from os_errors(spec, path)
    if _has_file_references(spec):
        yield from _file_volume_errors(spec, path)


def pod_only_errors(pod: Mapping[str, Any], *, new: bool) -> Iterator[FieldError]:
    """Yield the errors that a pod has and a template does not; ``new`` if it is created."""
    spec = pod["spec"]
    annotations = pod["metadata"].get("annotations") or {}
    yield from pod_annotation_errors(annotations, spec, "metadata.annotations")
    yield from pod_spec_errors(spec, "spec", pod_name=pod["metadata"].get("name") or "")
    if not spec.get("serviceAccountName"):
        for position, volume in enumerate(spec.get("volumes") or ()):
            for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    field_path = (
                        f"spec.volumes[{position}].projected.sources[{number}].serviceAccountToken"
                    )
                    yield forbidden(
                        field_path, "must not be specified when serviceAccountName is not set"
                    )
    for kind in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(kind) or ()):
            yield from image_space_errors(container, f"spec.{kind}[{position}]")
    if new and spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if new and spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )
    if new and annotations:
        yield from _profile_errors(annotations, spec)


def _has_file_references(spec: Mapping[str, Any]) -> bool:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for variable in container.get("env") or ():
                source = variable.get("valueFrom")
                if source is not None and "fileKeyRef" in source:
                    return True
    return False


def _file_volume_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the volumes that files with environment variables are in: only an emptyDir can have them."""
    volumes = {each.get("name") or "": each for each in spec.get("volumes") or ()}
    for container, container_path in all_containers(spec, path):
        for position, variable in enumerate(container.get("env") or ()):
            reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if reference is None:
                continue
            field_path = f"{container_path}.env[{position}].valueFrom.fileKeyRef.volumeName"
            name = reference.get("volumeName") or ""
            if name not in volumes:
                yield not_found(field_path, name)
            elif "emptyDir" not in volumes[name]:
                yield invalid(field_path, name, "referenced volume must be of type emptyDir")


def _host_network_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not spec.get("hostNetwork"):
        return
    for position, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                text = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(
                    f"{path}.containers[{position}].ports[{number}].hostPort",
                    port["hostPort"],
                    text,
                )


def _claim_errors(claims: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors in a pod's resource claims, each of which exists or is created from a template."""
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        field_path = f"{path}[{position}]"
        name = claim.get("name") or ""
        if not name:
            yield required(f"{field_path}.name")
        elif name in seen:
            yield duplicate(f"{field_path}.name", name)
        else:
            for problem in dns_label(name):
                yield invalid(f"{field_path}.name", name, problem)
        seen.add(name)
        sources = [each for each in _CLAIM_SOURCES if claim.get(each) is not None]
        if len(sources) > 1:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            yield invalid(
                field_path,
                internal_fields("Name! ResourceClaimName ResourceClaimTemplateName", claim),
                text,
            )
        elif not sources:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(
                field_path,
                internal_fields("Name! ResourceClaimName ResourceClaimTemplateName", claim),
                text,
            )
        for each in sources:
            for problem in dns_subdomain(claim[each]):
                yield invalid(f"{field_path}.{each}", claim[each], problem)


def _name_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(name):
            for problem in dns_subdomain(spec[name]):
                yield invalid(f"{path}.{name}", spec[name], problem)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            for problem in dns_label(spec[name]):
                yield invalid(f"{path}.{name}", spec[name], problem)


def _hostname_errors(name: str, spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the hostname that replaces all others of a pod."""
    for other in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(other):
            yield forbidden(path, f"may not be specified when {other} is true")
    if len(name.encode()) > _MAX_HOSTNAME:
        yield too_long(path, name, _MAX_HOSTNAME)
    for problem in dns_subdomain(name):
        yield invalid(path, name, problem)


def _alias_errors(aliases: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, alias in enumerate(aliases):
        yield from ip_errors(f"{path}[{position}].ip", alias.get("ip") or "")
        for number, hostname in enumerate(alias.get("hostnames") or ()):
            for problem in dns_subdomain(hostname):
                yield invalid(f"{path}[{position}].hostnames[{number}]", hostname, problem)


def _dns_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    servers = (config or {}).get("nameservers") or []
    searches = (config or {}).get("searches") or []
    if spec.get("dnsPolicy") == "None" and config is None:
        yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif spec.get("dnsPolicy") == "None" and not servers:
        yield required(
            f"{path}.nameservers",
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        )
        return
    if config is None:
        return
    if len(servers) > _NAME_SERVERS:
        yield invalid(
            f"{path}.nameservers", servers, f"must not have more than {_NAME_SERVERS} nameservers"
        )
    for position, server in enumerate(servers):
        yield from ip_errors(f"{path}.nameservers[{position}]", server)
    if len(searches) > _SEARCHES:
        yield invalid(
            f"{path}.searches", searches, f"must not have more than {_SEARCHES} search paths"
        )
    if len(" ".join(searches)) > _SEARCH_CHARACTERS:
        text = f"must not have more than {_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, text)
    for position, search in enumerate(searches):
        name = search.removesuffix(".")
        if search != ".":
            for problem in underscore_subdomain(name):
                yield invalid(f"{path}.searches[{position}]", name, problem)
    for position, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{position}]", "must not be empty")


def _gate_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for position, gate in enumerate(spec.get("readinessGates") or ()):
        for problem in qualified_name(gate.get("conditionType") or ""):
            field_path = f"{path}.readinessGates[{position}].conditionType"
            yield invalid(field_path, gate.get("conditionType") or "", problem)
    seen: set[str] = set()
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        for problem in qualified_name(name):
            yield invalid(f"{path}.schedulingGates[{position}]", name, problem)
        if name in seen:
            yield duplicate(f"{path}.schedulingGates[{position}]", name)
        seen.add(name)


def pod_annotation_errors(
    annotations: Mapping[str, str], spec: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    """Yield the errors of the annotations at ``path`` of a pod or a pod template with this ``spec``."""
    if not annotations:
        return
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(key(path, MIRROR), annotations[MIRROR], text)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_int32(cost):
        yield invalid(key(path, _DELETION_COST), cost, "must be a 32bit integer")
    for name in sorted(annotations):
        if name == _SECCOMP or name.startswith(_CONTAINER_SECCOMP):
            yield from _seccomp_errors(annotations[name], f"{path}.{name}")
    for name in sorted(annotations):
        if name.startswith(APP_ARMOR):
            yield from _app_armor_errors(name, annotations[name], spec, path)


def _profile_errors(
    annotations: Mapping[str, str], spec: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Yield the errors of seccomp and AppArmor profiles that differ from those in the annotations of a new pod."""
    security = spec.get("securityContext") or {}
    profile = security.get("seccompProfile")
    if profile is not None and _SECCOMP in annotations:
        yield from _mismatch_errors(
            "seccomp", annotations[_SECCOMP], profile, "spec.securityContext.seccompProfile"
        )
    for container, path in all_containers(spec, "spec"):
        own = container.get("securityContext") or {}
        name = container.get("name") or ""
        annotation = annotations.get(_CONTAINER_SECCOMP + name)
        profile = own.get("seccompProfile")
        if profile is not None and annotation is not None:
            yield from _mismatch_errors(
                "seccomp", annotation, profile, f"{path}.securityContext.seccompProfile"
            )
        annotation = annotations.get(APP_ARMOR + name)
        profile = own.get("appArmorProfile")
        profile = security.get("appArmorProfile") if profile is None else profile
        if (
            profile is not None
            and annotation is not None
            and (spec.get("os") or {}).get("name") != "windows"
        ):
            yield from _mismatch_errors(
                "apparmor", annotation, profile, f"{path}.securityContext.appArmorProfile"
            )


def _mismatch_errors(
    kind: str, annotation: str, profile: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    file = profile.get("localhostProfile")
    match profile.get("type"):
        case "Unconfined":
            has_type = annotation == "unconfined"
        case "RuntimeDefault":
            has_type = annotation == "runtime/default" or (
                kind == "seccomp" and annotation == "docker/default"
            )
        case "Localhost":
            has_type = annotation.startswith(_LOCALHOST)
            if has_type and annotation != f"{_LOCALHOST}{file}":
                yield forbidden(
                    f"{path}.localhostProfile", f"{kind} profile in annotation and field must match"
                )
        case _:
            has_type = True
    if not has_type:
        yield forbidden(f"{path}.type", f"{kind} type in annotation and field must match")


def _is_int32(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def _seccomp_errors(profile: str, path: str) -> Iterator[FieldError]:
    if profile.startswith(_LOCALHOST):
        yield from relative_path_errors(profile.removeprefix(_LOCALHOST), path)
    elif profile not in _SECCOMP_PROFILES:
        yield invalid(path, profile, "must be a valid seccomp profile")


def _app_armor_errors(
    name: str, profile: str, spec: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    container = name.removeprefix(APP_ARMOR)
    kinds = ("initContainers", "containers", "ephemeralContainers")
    if not any(each.get("name") == container for kind in kinds for each in spec.get(kind) or ()):
        yield invalid(key(path, name), container, "container not found")
    if profile not in _APP_ARMOR_PROFILES and not profile.startswith(_LOCALHOST):
        yield invalid(
            key(path, name), profile, f"invalid AppArmor profile name: {go_quote(profile)}"
        )
