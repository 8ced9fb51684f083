"""How clients reach the gateway: Ingress, HTTPRoute and NetworkPolicy.

Lists in these kinds are atomic for server-side apply, so the API server's defaults inside them are written out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, backend_reference, parent_reference, path_match
from cfo.api.inferencestack.names import GATEWAY, GATEWAY_INTERNAL_PORT, INSTANCE_LABEL, NAME_LABEL
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.controllers.inferencestack.rendering.metadata import new_object
from cfo.runtime import INGRESS, NETWORK_POLICY, Object

__all__ = ["http_route", "ingress", "network_policy", "public_port"]

DEFAULT_KEDA_NAMESPACE: Final = "keda"
_KEDA_PODS: Final = {NAME_LABEL: "keda-operator"}


def public_port(stack: ResolvedStack) -> Mapping[str, Any]:
    """Return the port of the gateway's Service for clients: the one named ``http``, else the first; empty if none."""
    ports = (stack.gateway.get("service") or {}).get("ports") or []
    return next((port for port in ports if port.get("name") == "http"), ports[0] if ports else {})


def ingress(stack: ResolvedStack) -> Object:
    """Return the Ingress. The original writes the port's name as its number, which API servers reject."""
    section: Mapping[str, Any] = stack.gateway["ingress"]
    port = public_port(stack)
    backend = {
        "service": {
            "name": stack.names.gateway,
            "port": {"name": port["name"]} if port.get("name") else {"number": port.get("port")},
        }
    }
    rules = []
    for host in section.get("hosts") or ():
        paths = [
            {
                "path": path.get("path") or "/",
                "pathType": path.get("pathType") or "ImplementationSpecific",
                "backend": backend,
            }
            for path in host.get("paths") or ()
        ]
        rule: Object = {"http": {"paths": paths}} if paths else {}
        rules.append({"host": host["host"], **rule} if host.get("host") else rule)
    spec: Object = {"rules": rules}
    if section.get("className"):
        spec["ingressClassName"] = section["className"]
    if section.get("tls"):
        spec["tls"] = section["tls"]
    return new_object(stack, INGRESS, stack.names.gateway, GATEWAY, section.get("annotations"), spec=spec)


def http_route(stack: ResolvedStack) -> Object:
    """Return the HTTPRoute. The gateway is the backend of all rules that have none."""
    section: Mapping[str, Any] = stack.gateway["httpRoute"]
    backend = backend_reference({"name": stack.names.gateway, "port": public_port(stack).get("port")})
    spec: Object = {
        "parentRefs": [parent_reference(reference) for reference in section.get("parentRefs") or ()],
        "rules": [_route_rule(rule, backend) for rule in section.get("rules") or [{}]],
    }
    if section.get("hostnames"):
        spec["hostnames"] = section["hostnames"]
    return new_object(stack, HTTP_ROUTE, stack.names.gateway, GATEWAY, section.get("annotations"), spec=spec)


def _route_rule(rule: Mapping[str, Any], gateway: Object) -> Object:
    matches = [_route_match(match) for match in rule.get("matches") or [{}]]
    backends = [backend_reference(own) for own in rule.get("backendRefs") or ()]
    return {**rule, "matches": matches, "backendRefs": backends or [gateway]}


def _route_match(match: Mapping[str, Any]) -> Object:
    result = {**match, "path": path_match(match.get("path"))}
    for name in ("headers", "queryParams"):
        if match.get(name):
            result[name] = [{"type": "Exact", **item} for item in match[name]]
    return result


def network_policy(stack: ResolvedStack) -> Object:
    """Return the NetworkPolicy of the gateway: its internal port is only for the stack's applications and KEDA."""
    names = stack.names
    internal = (stack.gateway.get("config") or {}).get("internalPort", GATEWAY_INTERNAL_PORT)
    peers: list[Object] = [
        {"podSelector": {"matchLabels": {NAME_LABEL: names.name_label, INSTANCE_LABEL: names.stack}}}
    ]
    if any(_uses_keda(application) for application in stack.applications.values()):
        namespace = stack.spec["networkPolicy"].get("kedaNamespace") or DEFAULT_KEDA_NAMESPACE
        namespaces = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        peers.append({"namespaceSelector": namespaces, "podSelector": {"matchLabels": _KEDA_PODS}})
    rules: list[Object] = [{"ports": [{"port": int(internal), "protocol": "TCP"}], "from": peers}]
    public = [
        {"port": port["containerPort"], "protocol": port.get("protocol") or "TCP"}
        for port in stack.gateway.get("ports") or ()
        if port.get("containerPort") != int(internal)
    ]
    if public:
        rules.append({"ports": public})
    spec = {
        "podSelector": {"matchLabels": names.selector(GATEWAY)},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return new_object(stack, NETWORK_POLICY, names.gateway, GATEWAY, spec=spec)


def _uses_keda(application: Mapping[str, Any]) -> bool:
    scaling = application.get("scaling") or {}
    return is_enabled(scaling) and scaling.get("type") != "HPA"
