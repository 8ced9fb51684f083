"""Strategies of networking.k8s.io: Ingress, IngressClass and NetworkPolicy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from envtest.apimachinery.field_errors import (
    Absent,
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, path_segment
from envtest.apimachinery.objects import Object
from envtest.builtins.ip_rules import cidr_errors, cidr_warnings, is_ip
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import (
    domain_prefixed_path_errors,
    label_selector_errors,
    load_balancer_errors,
    load_balancer_warnings,
    port_name,
    port_number,
    wildcard_subdomain,
)
from envtest.registry.resource import RequestContext

__all__ = ["IngressClassStrategy", "IngressStrategy", "NetworkPolicyStrategy"]

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_SUFFIXES = ("/..", "/.")
_MAX_CONTROLLER = 250
_CLASS = "kubernetes.io/ingress.class"


class IngressStrategy(BuiltinStrategy):
    """Strategy of networking.k8s.io/v1 Ingress."""

    has_spec_generation = True

    status_warns = True

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warns about the annotation that preceded ingress classes."""
        if ctx.subresource == "status":
            return list(load_balancer_warnings(obj))
        if old is not None or "kubernetes.io/ingress.class" not in (
            obj["metadata"].get("annotations") or {}
        ):
            return ()
        return [
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
        ]

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of an Ingress."""
        if ctx.subresource == "status":
            yield from load_balancer_errors(obj["status"])
            return
        spec = obj["spec"]
        rules = spec.get("rules") or ()
        backend = spec.get("defaultBackend")
        if not rules and backend is None:
            yield invalid(
                "spec", Absent("spec.rules"), "either `defaultBackend` or `rules` must be specified"
            )
        if backend is not None:
            yield from _backend_errors(backend, "spec.defaultBackend")
        for position, rule in enumerate(rules):
            yield from _rule_errors(rule, f"spec.rules[{position}]")
        for position, tls in enumerate(spec.get("tls") or ()):
            yield from _tls_errors(tls, f"spec.tls[{position}]")
        name = spec.get("ingressClassName")
        if name is not None:
            for problem in dns_subdomain(name):
                yield invalid("spec.ingressClassName", name, problem)
        annotation = (obj["metadata"].get("annotations") or {}).get(_CLASS)
        if old is None and annotation is not None and name is not None and annotation != name:
            text = "must match `ingressClassName` when both are specified"
            yield invalid(f"annotations.{_CLASS}", annotation, text)


def _tls_errors(tls: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for position, host in enumerate(tls.get("hosts") or ()):
        for problem in _host_problems(host):
            yield invalid(f"{path}.hosts[{position}]", host, problem)
    name = tls.get("secretName")
    if name:
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.secretName", name, problem)


def _host_problems(host: str) -> Sequence[str]:
    return wildcard_subdomain(host) if "*" in host else dns_subdomain(host)


def _rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    host = rule.get("host") or ""
    http = rule.get("http")
    if host:
        if is_ip(host):
            yield invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        for problem in _host_problems(host):
            yield invalid(f"{path}.host", host, problem)
    if http is None:
        return
    if not http.get("paths"):
        yield required(f"{path}.http.paths")
    for position, each in enumerate(http.get("paths") or ()):
        yield from _path_errors(each, f"{path}.http.paths[{position}]")


def _path_errors(each: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = each.get("pathType")
    text = each.get("path") or ""
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    if kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            yield invalid(f"{path}.path", text, "must be an absolute path")
        for sequence in _BAD_SEQUENCES:
            if sequence in text:
                yield invalid(f"{path}.path", text, f"must not contain '{sequence}'")
        for suffix in _BAD_SUFFIXES:
            if text.endswith(suffix):
                yield invalid(f"{path}.path", text, f"cannot end with '{suffix}'")
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            yield invalid(f"{path}.path", text, "must be an absolute path")
    else:
        yield not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    yield from _backend_errors(each.get("backend") or {}, f"{path}.backend")


def _backend_errors(backend: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    service = backend.get("service")
    resource = backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference_errors(resource, f"{path}.resource")
    elif service is not None:
        name = service.get("name") or ""
        port = service.get("port") or {}
        if not name:
            yield required(f"{path}.service.name")
        else:
            for problem in dns_label(name):
                yield invalid(f"{path}.service.name", name, problem)
        number = port.get("number") or 0
        port_text = port.get("name") or ""
        if number and port_text:
            yield invalid(path, "", "cannot set both port name & port number")
        elif port_text:
            for problem in port_name(port_text):
                yield invalid(f"{path}.service.port.name", port_text, problem)
        elif number:
            for problem in port_number(number):
                yield invalid(f"{path}.service.port.number", number, problem)
        else:
            yield required(path, "port name or number is required")
    else:
        yield invalid(path, "", "resource or service backend is required")


class IngressClassStrategy(BuiltinStrategy):
    """Strategy of networking.k8s.io/v1 IngressClass."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the scope of the parameters to ``Cluster``."""
        parameters = obj["spec"].get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the controller, which is required and immutable, and of the parameters."""
        controller = obj["spec"].get("controller") or ""
        if old is not None and controller != (old["spec"].get("controller") or ""):
            yield invalid("spec.controller", controller, "field is immutable")
        if len(controller.encode()) > _MAX_CONTROLLER:
            yield too_long("spec.controller", controller, _MAX_CONTROLLER)
        yield from domain_prefixed_path_errors(controller, "spec.controller")
        parameters = obj["spec"].get("parameters")
        if parameters is not None:
            yield from _parameters_errors(parameters)


def _reference_errors(reference: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the group, kind and name of a reference to an object."""
    group = reference.get("apiGroup")
    if group is not None:
        for problem in dns_subdomain(group):
            yield invalid(f"{path}.apiGroup", group, problem)
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            yield required(f"{path}.{name}")
        for problem in path_segment(value):
            yield invalid(f"{path}.{name}", value, problem)


def _parameters_errors(parameters: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.parameters"
    yield from _reference_errors(parameters, path)
    scope = parameters.get("scope")
    namespace = parameters.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        yield not_supported(f"{path}.scope", scope or "", ("Cluster", "Namespace"))
    elif namespace is None and scope == "Namespace":
        yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif namespace is not None and scope == "Cluster":
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    elif namespace is not None:
        for problem in dns_label(namespace):
            yield invalid(f"{path}.namespace", namespace, problem)


class NetworkPolicyStrategy(BuiltinStrategy):
    """Strategy of networking.k8s.io/v1 NetworkPolicy."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the protocol to TCP, and the policy types, which include ``Egress`` only if there are egress rules."""
        spec = obj["spec"]
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about the form of networks."""
        texts: list[str] = []
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for position, rule in enumerate(obj["spec"].get(direction) or ()):
                for number, peer in enumerate(rule.get(peers) or ()):
                    block = peer.get("ipBlock") or {}
                    path = f"spec.{direction}[{position}].{peers}[{number}].ipBlock"
                    texts += cidr_warnings(f"{path}.cidr", block.get("cidr") or "")
                    for index, each in enumerate(block.get("except") or ()):
                        texts += cidr_warnings(f"{path}.except[{index}]", each)
        return texts

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a NetworkPolicy."""
        spec = obj["spec"]
        yield from label_selector_errors(spec.get("podSelector"), "spec.podSelector")
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for position, rule in enumerate(spec.get(direction) or ()):
                path = f"spec.{direction}[{position}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    yield from _policy_port_errors(port, f"{path}.ports[{number}]")
                for number, peer in enumerate(rule.get(peers) or ()):
                    yield from _peer_errors(peer, f"{path}.{peers}[{number}]")
        types = spec.get("policyTypes") or ()
        if len(types) > 2:
            yield invalid(
                "spec.policyTypes", list(types), "may not specify more than two policyTypes"
            )
            return
        for position, kind in enumerate(types):
            if kind not in ("Ingress", "Egress"):
                yield not_supported(f"spec.policyTypes[{position}]", kind, ("Ingress", "Egress"))


def _policy_port_errors(port: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    protocol = port.get("protocol")
    number = port.get("port")
    end = port.get("endPort")
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        yield not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP"))
    if number is None:
        if end is not None:
            yield invalid(
                f"{path}.endPort", end, "may not be specified when `port` is not specified"
            )
    elif isinstance(number, int):
        for problem in port_number(number):
            yield invalid(f"{path}.port", number, problem)
        if end is not None:
            if end < number:
                yield invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
            for problem in port_number(end):
                yield invalid(f"{path}.endPort", end, problem)
    else:
        if end is not None:
            yield invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        for problem in port_name(number):
            yield invalid(f"{path}.port", number, problem)


def _peer_errors(peer: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    count = 0
    for name in ("podSelector", "namespaceSelector"):
        if name in peer:
            count += 1
            yield from label_selector_errors(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        count += 1
        yield from _block_errors(block, f"{path}.ipBlock")
    if not count:
        yield required(path, "must specify a peer")
    elif count > 1 and block is not None:
        yield forbidden(path, "may not specify both ipBlock and another peer")


def _block_errors(block: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        yield required(f"{path}.cidr")
        return
    errors = list(cidr_errors(f"{path}.cidr", cidr))
    yield from errors
    if errors:
        return
    network = ip_network(cidr, strict=False)
    for position, each in enumerate(block.get("except") or ()):
        field_path = f"{path}.except[{position}]"
        errors = list(cidr_errors(field_path, each))
        yield from errors
        if not errors:
            excluded = ip_network(each, strict=False)
            fits = excluded.version == network.version and excluded.subnet_of(network)  # type: ignore[arg-type]
            if not fits or excluded.prefixlen <= network.prefixlen:
                yield invalid(field_path, each, "must be a strict subset of `cidr`")
