"""Validation of pod specs and pod templates, shared by Pod and the kinds that create pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.builtins.container_rules import containers_errors, security_errors
from envtest.builtins.scheduling_rules import affinity_errors, spread_errors, toleration_errors
from envtest.builtins.string_validation import INVALID_IP, is_ip
from envtest.builtins.volume_rules import volume_errors
from envtest.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from envtest.metadata import dns_label, dns_subdomain, label_value, qualified_name

__all__ = ["pod_spec_errors", "template_errors"]

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


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
    yield from pod_spec_errors(template.get("spec") or {}, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", text)


def pod_spec_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a PodSpec, in kube-apiserver's order."""
    yield from volume_errors(spec.get("volumes") or (), f"{path}.volumes")
    yield from containers_errors(spec, path)
    policy = spec.get("restartPolicy") or ""
    if not policy:
        yield required(f"{path}.restartPolicy")
    elif policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    dns = spec.get("dnsPolicy")
    if dns and dns not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", dns, _DNS_POLICIES)
    for name, value in (spec.get("nodeSelector") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.nodeSelector", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.nodeSelector", value, problem)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.securityContext.shareProcessNamespace", True, text)
    yield from _security_errors(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from affinity_errors(spec.get("affinity") or {}, f"{path}.affinity")
    yield from _dns_errors(spec, path)
    yield from _gate_errors(spec, path)
    yield from spread_errors(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    for name in ("serviceAccountName", "nodeName"):
        for problem in dns_subdomain(spec[name]) if spec.get(name) else ():
            yield invalid(f"{path}.{name}", spec[name], problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for name in ("hostname", "subdomain"):
        for problem in dns_label(spec[name]) if spec.get(name) else ():
            yield invalid(f"{path}.{name}", spec[name], problem)
    yield from toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    for position, alias in enumerate(spec.get("hostAliases") or ()):
        field_path = f"{path}.hostAliases[{position}]"
        if not is_ip(alias.get("ip") or ""):
            yield invalid(f"{field_path}.ip", alias.get("ip") or "", INVALID_IP)
        for hostname in alias.get("hostnames") or ():
            for problem in dns_subdomain(hostname):
                yield invalid(f"{field_path}.hostnames", hostname, problem)
    for name in ("priorityClassName", "runtimeClassName"):
        for problem in dns_subdomain(spec[name]) if spec.get(name) else ():
            yield invalid(f"{path}.{name}", spec[name], problem)
    preemption = spec.get("preemptionPolicy")
    if preemption is not None and preemption not in ("Never", "PreemptLowerPriority"):
        yield not_supported(f"{path}.preemptionPolicy", preemption, ("Never", "PreemptLowerPriority"))


def _security_errors(security: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from security_errors(security, path)
    for position, group in enumerate(security.get("supplementalGroups") or ()):
        if not 0 <= group <= 2**31 - 1:
            text = "must be between 0 and 2147483647, inclusive"
            yield invalid(f"{path}.supplementalGroups[{position}]", group, text)
    policy = security.get("fsGroupChangePolicy")
    if policy is not None and policy not in ("Always", "OnRootMismatch"):
        yield not_supported(f"{path}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch"))


def _dns_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    config = spec.get("dnsConfig") or {}
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if spec.get("dnsPolicy") == "None" and not servers:
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.dnsConfig.nameservers", text)
    if len(servers) > 3:
        yield invalid(f"{path}.dnsConfig.nameservers", list(servers), "must not have more than 3 nameservers")
    for position, server in enumerate(servers):
        if not is_ip(server):
            yield invalid(f"{path}.dnsConfig.nameservers[{position}]", server, INVALID_IP)
    if len(searches) > 32:
        yield invalid(f"{path}.dnsConfig.searches", list(searches), "must not have more than 32 search paths")
    for position, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.dnsConfig.options[{position}]", "must not be empty")


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
