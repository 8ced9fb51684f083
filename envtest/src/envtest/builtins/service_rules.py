"""Validation of Services: the rules of kube-apiserver's ValidateService, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    invalid,
    key,
    not_supported,
    not_supported_string,
    required,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, label_value, qualified_name
from envtest.apimachinery.objects import Object
from envtest.apimachinery.repetition import repeated_positions
from envtest.builtins.go_rendering import internal
from envtest.builtins.ip_rules import (
    cidr_errors,
    cidr_warnings,
    ip_errors,
    ip_problem,
    ip_warnings,
    special_address_errors,
)
from envtest.builtins.string_validation import (
    load_balancer_errors,
    port_name,
    port_number,
)

__all__ = [
    "address_errors",
    "change_errors",
    "family_errors",
    "is_external",
    "needs_health_check",
    "service_errors",
    "service_warnings",
    "status_errors",
]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_POLICIES = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_MAX_AFFINITY_SECONDS = 86400
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"


def is_external(spec: Mapping[str, Any]) -> bool:
    """Return whether clients outside the cluster can reach the Service."""
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def needs_health_check(spec: Mapping[str, Any]) -> bool:
    """Return whether load balancers check on a node port if the node has endpoints."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def address_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the cluster IPs and families, which must be valid before addresses are allocated."""
    if spec.get("type") == "ExternalName":
        return
    address = spec.get("clusterIP") or ""
    addresses = list(spec.get("clusterIPs") or ())
    families = spec.get("ipFamilies") or ()
    policy = spec.get("ipFamilyPolicy")
    if address and not addresses:
        yield required("spec.clusterIPs")
    elif address and addresses[0] != address:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif addresses and not address:
        yield invalid(
            "spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"
        )
    repeated = repeated_positions(families)
    for position, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(f"spec.ipFamilies[{position}]", family, _FAMILIES)
        if position in repeated:
            yield duplicate(f"spec.ipFamilies[{position}]", family)
    if policy is not None and policy not in _FAMILY_POLICIES:
        yield not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    is_valid = True
    for position, each in enumerate(addresses):
        is_none = not position and each == "None"
        problem = "" if is_none else ip_problem(each)
        if is_none and len(addresses) > 1:
            is_valid = False
            yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
        elif problem:
            is_valid = False
            yield invalid(f"spec.clusterIPs[{position}]", each, problem)
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    if not is_valid or address == "None":
        return
    versions = [ip_address(each).version for each in addresses]
    if len(versions) > 1 and len(set(versions)) != 2:
        yield invalid(
            "spec.clusterIPs", addresses, "may specify no more than one IP for each IP family"
        )
    for position, (family, version) in enumerate(zip(families, versions, strict=False)):
        if family in _FAMILIES and family != f"IPv{version}":
            text = f"expected an {family} value as indicated by `ipFamilies[{position}]`"
            yield invalid(f"spec.clusterIPs[{position}]", addresses[position], text)


def family_errors(spec: Object) -> Iterator[FieldError]:
    """Set the IP families and their policy, in place; yield the errors that a cluster with IPv4 only has."""
    if spec.get("type") == "ExternalName":
        return
    addresses = [each for each in spec.get("clusterIPs") or () if each != "None"]
    # its endpoints may be of both families
    is_bare = spec.get("clusterIP") == "None" and not spec.get("selector")
    families = list(spec.get("ipFamilies") or ())
    default_policy = "RequireDualStack" if is_bare else "SingleStack"
    policy = spec.setdefault("ipFamilyPolicy", default_policy)
    errors = []
    if policy == "SingleStack":
        for values, what in ((addresses, "cluster IPs"), (families, "IP families")):
            if len(values) > 1:
                text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                errors.append(invalid("spec.ipFamilyPolicy", policy, text))
    for position, each in enumerate(addresses[len(families) :], len(families)):
        family = f"IPv{ip_address(each).version}"
        if family == "IPv4":
            families.append(family)
        else:
            text = f"{family} is not configured on this cluster"
            errors.append(invalid(f"spec.clusterIPs[{position}]", addresses, text))
    if not errors and not is_bare:
        if policy == "RequireDualStack":
            errors.append(
                invalid(
                    "spec.ipFamilyPolicy",
                    policy,
                    "this cluster is not configured for dual-stack services",
                )
            )
        errors += [
            invalid(f"spec.ipFamilies[{position}]", family, "not configured on this cluster")
            for position, family in enumerate(families)
            if family != "IPv4"
        ]
    yield from errors
    families = families or ["IPv4"]
    if is_bare and len(families) < 2 and policy != "SingleStack":
        second = "IPv6" if families[0] == "IPv4" else "IPv4"
        families.append(second)
    spec["ipFamilies"] = families


def service_errors(obj: Object) -> Iterator[FieldError]:
    """Yield the errors of a Service whose addresses and ports are allocated."""
    spec = obj["spec"]
    kind = spec.get("type") or ""
    ports = spec.get("ports") or ()
    is_headless = spec.get("clusterIP") == "None"
    annotations = obj["metadata"].get("annotations") or {}
    mode = annotations.get(_TOPOLOGY_MODE)
    hints = annotations.get(_TOPOLOGY_HINTS)
    if mode is not None and hints is not None and mode != hints:
        text = f"must match annotations[{_TOPOLOGY_HINTS}] when both are specified"
        yield invalid(key("metadata.annotations", _TOPOLOGY_MODE), mode, text)
    if not ports and kind != "ExternalName" and not is_headless:
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless:
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name_errors(spec)
    yield from _port_errors(ports)
    for name, value in (spec.get("selector") or {}).items():
        for problem in qualified_name(name):
            yield invalid("spec.selector", name, problem)
        for problem in label_value(value):
            yield invalid("spec.selector", value, problem)
    yield from _affinity_errors(spec)
    yield from address_errors(spec)
    for position, each in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{position}]"
        yield from list(ip_errors(path, each)) or special_address_errors(each, path)
    if kind not in _TYPES:
        yield not_supported("spec.type", kind, _TYPES)
    yield from _node_port_errors(kind, ports)
    yield from _repeated_port_errors(ports)
    yield from _load_balancer_field_errors(obj)
    yield from _traffic_errors(spec)


def _external_name_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        for problem in dns_subdomain(name):
            yield invalid("spec.externalName", name, problem)


def _affinity_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    affinity = spec.get("sessionAffinity") or ""
    path = "spec.sessionAffinityConfig"
    if not affinity:
        yield required("spec.sessionAffinity")
    elif affinity not in ("ClientIP", "None"):
        yield not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "None" and spec.get("sessionAffinityConfig") is not None:
        yield forbidden(path, "must not be set when session affinity is None")
    if affinity != "ClientIP":
        return
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get(
        "timeoutSeconds"
    )
    path = f"{path}.clientIP.timeoutSeconds"
    if seconds is None:
        yield required(path, "when session affinity type is ClientIP")
    elif not 0 < seconds <= _MAX_AFFINITY_SECONDS:
        yield invalid(
            path, seconds, f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}"
        )


def _node_port_errors(kind: str, ports: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    seen: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        number = port.get("nodePort") or 0
        if number and kind == "ClusterIP":
            yield forbidden(
                f"spec.ports[{position}].nodePort", "may not be used when `type` is 'ClusterIP'"
            )
        identity = port.get("protocol"), number
        if number and identity in seen:
            yield duplicate(f"spec.ports[{position}].nodePort", number)
        seen.add(identity)


def _repeated_port_errors(ports: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    seen: set[tuple[str, int]] = set()
    for position, port in enumerate(ports):
        identity = port.get("protocol") or "", port.get("port") or 0
        if identity in seen:
            shown = {"name": "", "protocol": identity[0], "appProtocol": None, "port": identity[1]}
            yield duplicate(
                f"spec.ports[{position}]",
                Verbatim(internal({**shown, "targetPort": 0, "nodePort": 0})),
            )
        seen.add(identity)


def _load_balancer_field_errors(obj: Object) -> Iterator[FieldError]:
    spec = obj["spec"]
    annotations = obj["metadata"].get("annotations") or {}
    is_load_balancer = spec.get("type") == "LoadBalancer"
    path = "spec.LoadBalancerSourceRanges"
    ranges = [each.strip() for each in spec.get("loadBalancerSourceRanges") or ()]
    if not ranges and _SOURCE_RANGES in annotations:
        path = f"metadata.annotations[{_SOURCE_RANGES}]"
        if not is_load_balancer:
            yield forbidden(path, _ONLY_LOAD_BALANCER)
        text = annotations[_SOURCE_RANGES].strip()
        if text:
            for each in text.split(","):
                yield from cidr_errors(path, each.strip())
    elif ranges:
        if not is_load_balancer:
            yield forbidden(path, _ONLY_LOAD_BALANCER)
        for position, each in enumerate(ranges):
            yield from cidr_errors(f"{path}[{position}]", each)
    allocates = spec.get("allocateLoadBalancerNodePorts")
    name = spec.get("loadBalancerClass")
    if allocates is not None and not is_load_balancer:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_LOAD_BALANCER)
    if name is not None and not is_load_balancer:
        yield forbidden("spec.loadBalancerClass", _ONLY_LOAD_BALANCER)
    if name is not None and is_load_balancer:
        for problem in qualified_name(name):
            yield invalid("spec.loadBalancerClass", name, problem)


def _traffic_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    external = spec.get("externalTrafficPolicy") or ""
    inner = spec.get("internalTrafficPolicy")
    if not is_external(spec):
        if external:
            yield invalid(
                "spec.externalTrafficPolicy",
                external,
                "may only be set for externally-accessible services",
            )
    elif not external:
        yield required("spec.externalTrafficPolicy")
    elif external not in _POLICIES:
        yield not_supported("spec.externalTrafficPolicy", external, _POLICIES)
    port = spec.get("healthCheckNodePort") or 0
    if needs_health_check(spec):
        for problem in port_number(port):
            yield invalid("spec.healthCheckNodePort", port, problem)
    elif port:
        text = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        yield invalid("spec.healthCheckNodePort", port, text)
    if inner is not None and inner not in _POLICIES:
        yield not_supported("spec.internalTrafficPolicy", inner, _POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield not_supported_string("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def status_errors(obj: Object) -> Iterator[FieldError]:
    """Yield the errors of the status: only load balancers have addresses."""
    ingress = (obj["status"].get("loadBalancer") or {}).get("ingress")
    if ingress and obj["spec"].get("type") != "LoadBalancer":
        yield forbidden(
            "status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'"
        )
        return
    yield from load_balancer_errors(obj["status"])
    for position, each in enumerate(ingress or ()):
        path = f"status.loadBalancer.ingress[{position}].ipMode"
        mode = each.get("ipMode")
        if each.get("ip") and mode is None:
            yield required(path, "must be specified when `ip` is set")
        elif mode is not None and not each.get("ip"):
            yield forbidden(path, "may not be specified when `ip` is not set")
        elif mode is not None and mode not in ("Proxy", "VIP"):
            yield not_supported(path, mode, ("Proxy", "VIP"))


def _port_errors(ports: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, port in enumerate(ports):
        path = f"spec.ports[{position}]"
        name = port.get("name") or ""
        number = port.get("port") or 0
        if len(ports) > 1 and not name:
            yield required(f"{path}.name")
        elif name:
            for problem in dns_label(name):
                yield invalid(f"{path}.name", name, problem)
            if name in names:
                yield duplicate(f"{path}.name", name)
            names.add(name)
        for problem in port_number(number):
            yield invalid(f"{path}.port", number, problem)
        protocol = port.get("protocol") or ""
        if not protocol:
            yield required(f"{path}.protocol")
        elif protocol not in _PROTOCOLS:
            yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
        target = port.get("targetPort", 0)
        problems = port_number(target) if isinstance(target, int) else port_name(target)
        for problem in problems:
            yield invalid(f"{path}.targetPort", target, problem)
        if port.get("appProtocol") is not None:
            for problem in qualified_name(port["appProtocol"]):
                yield invalid(f"{path}.appProtocol", port["appProtocol"], problem)


def service_warnings(obj: Object) -> Iterator[str]:
    """Yield the warnings, with the messages of ``GetWarningsForService``."""
    spec = obj["spec"]
    kind = spec.get("type")
    if _TOPOLOGY_HINTS in (obj["metadata"].get("annotations") or {}):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use {_TOPOLOGY_MODE} instead"
    for position, address in enumerate(spec.get("clusterIPs") or ()):
        yield from ip_warnings(f"spec.clusterIPs[{position}]", address)
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for position, address in enumerate(spec.get("externalIPs") or ()):
        yield from ip_warnings(f"spec.externalIPs[{position}]", address)
    is_headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if spec.get("externalIPs") and not is_headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    yield from ip_warnings("spec.loadBalancerIP", spec.get("loadBalancerIP") or "")
    for position, network in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from cidr_warnings(f"spec.loadBalancerSourceRanges[{position}]", network)
    if kind == "ExternalName":
        if spec.get("externalIPs"):
            yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    elif spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def change_errors(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of changes to allocated values."""
    if spec.get("type") == "ExternalName" or before.get("type") == "ExternalName":
        return
    old = before.get("clusterIPs") or []
    new = spec.get("clusterIPs") or []
    if old and new and old[0] != new[0]:
        yield invalid("spec.clusterIPs[0]", new, "may not change once set")
    elif old and not new:
        yield invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")
    is_load_balancer = spec.get("type") == before.get("type") == "LoadBalancer"
    if is_load_balancer and spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
        yield invalid(
            "spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"
        )
