"""The objects of the gateway, with those by which clients reach it: Service, Ingress, HTTPRoute and NetworkPolicy.

Lists in these kinds are atomic for server-side apply, so the API server's defaults inside them are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, backend_reference, parent_reference, path_match
from cfo.api.inferencestack.created_resources import (
    autoscaler_kind,
    disruption_limits,
    gateway_kinds,
)
from cfo.api.inferencestack.kinds import POD_DISRUPTION_BUDGET, SCALED_OBJECT, SERVICE_MONITOR
from cfo.api.inferencestack.names import (
    COMPONENT_LABEL,
    CONFIG_KEY,
    GATEWAY,
    GATEWAY_INTERNAL_PORT,
    INSTANCE_LABEL,
    NAME_LABEL,
)
from cfo.api.inferencestack.resolution import ResolvedStack, merge_env
from cfo.controllers.inferencestack.rendering.config_file import config_annotations, gateway_file
from cfo.controllers.inferencestack.rendering.facts import Facts, decide_replicas
from cfo.controllers.inferencestack.rendering.pods import (
    CONFIG_MOUNT,
    PodParts,
    container,
    deployment,
    new_object,
)
from cfo.controllers.inferencestack.rendering.vllm import gateway_server, targets_file
from cfo.runtime import CONFIG_MAP, GVK, INGRESS, NETWORK_POLICY, SERVICE, Object

DEFAULT_KEDA_NAMESPACE: Final = "keda"
_KEDA_PODS: Final = {NAME_LABEL: "keda-operator"}

ADD_SUFFIX: Final = {"name": "TAKEOFF_ADD_READER_ID_SUFFIX", "value": "true"}


def public_port(stack: ResolvedStack) -> Mapping[str, Any]:
    """Return the port of the gateway's Service for clients: the one named ``http``, else the first; empty if none."""
    ports: list[Mapping[str, Any]] = (stack.gateway.get("service") or {}).get("ports") or []
    for port in ports:
        if port.get("name") == "http":
            return port
    return ports[0] if ports else {}


def ingress(stack: ResolvedStack) -> Object:
    """Return the Ingress. The original writes the port's name as its number, which API servers reject."""
    section: Mapping[str, Any] = stack.gateway["ingress"]
    port = public_port(stack)
    service_port = {"number": port.get("port")}
    if port.get("name"):
        service_port = {"name": port["name"]}
    backend = {"service": {"name": stack.names.gateway, "port": service_port}}
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
        rule: Object = {}
        if host.get("host"):
            rule["host"] = host["host"]
        if paths:
            rule["http"] = {"paths": paths}
        rules.append(rule)
    spec = {
        "rules": rules,
        "ingressClassName": section.get("className") or None,
        "tls": section.get("tls") or None,
    }
    return new_object(
        stack, INGRESS, stack.names.gateway, GATEWAY, section.get("annotations"), spec=spec
    )


def _http_route(stack: ResolvedStack) -> Object:
    """Return the HTTPRoute. The gateway is the backend of all rules that have none."""
    section: Mapping[str, Any] = stack.gateway["httpRoute"]
    backend = backend_reference(
        {"name": stack.names.gateway, "port": public_port(stack).get("port")}
    )
    spec = {
        "parentRefs": [
            parent_reference(reference) for reference in section.get("parentRefs") or ()
        ],
        "rules": [_route_rule(rule, backend) for rule in section.get("rules") or [{}]],
        "hostnames": section.get("hostnames") or None,
    }
    return new_object(
        stack, HTTP_ROUTE, stack.names.gateway, GATEWAY, section.get("annotations"), spec=spec
    )


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


def _network_policy(stack: ResolvedStack) -> Object:
    """Return the NetworkPolicy: the gateway's internal port is only for the stack's applications and KEDA.

    If the gateway calls the applications, no one else does.
    """
    names = stack.names
    stack_labels = {NAME_LABEL: names.name_label, INSTANCE_LABEL: names.stack}
    if stack.engine.is_called:
        others = {"key": COMPONENT_LABEL, "operator": "NotIn", "values": [GATEWAY]}
        spec: Object = {
            "podSelector": {"matchLabels": stack_labels, "matchExpressions": [others]},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": names.selector(GATEWAY)}}]}],
        }
        return new_object(stack, NETWORK_POLICY, names.gateway, GATEWAY, spec=spec)
    internal = (stack.gateway.get("config") or {}).get("internalPort", GATEWAY_INTERNAL_PORT)
    peers: list[Object] = [{"podSelector": {"matchLabels": stack_labels}}]
    if any(
        autoscaler_kind(application) == SCALED_OBJECT for application in stack.applications.values()
    ):
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


def gateway_objects(stack: ResolvedStack, facts: Facts) -> Iterator[Object]:
    """Yield the objects of the gateway: always a ConfigMap, a Deployment and a Service."""
    names = stack.names
    gateway = stack.gateway
    content = targets_file(stack) if stack.engine.is_called else gateway_file(stack)
    live = facts.deployments.get(names.gateway)
    config = config_annotations(content, live, facts.config_maps.get(names.gateway))
    yield new_object(
        stack, CONFIG_MAP, names.gateway, GATEWAY, config.metadata, data={CONFIG_KEY: content}
    )
    pod = PodParts(
        containers=[_container(stack)],
        volumes=[{"name": "config", "configMap": {"name": names.gateway}}],
    )
    replicas = decide_replicas(
        gateway.get("replicaCount", 1), live, suspended=bool(stack.spec.get("suspend"))
    )
    yield deployment(stack, GATEWAY, gateway, pod, config=config, replicas=replicas, live=live)
    kinds = gateway_kinds(stack)
    yield from (create(stack) for kind, create in _OBJECTS.items() if kind in kinds)
    yield from disruption_budget(stack, names.gateway, GATEWAY, gateway)


def _container(stack: ResolvedStack) -> Object:
    gateway = stack.gateway
    # the variables of the user have precedence, as the original documents; there, the required ones have
    required = [] if stack.engine.is_called else [ADD_SUFFIX]
    merged = sorted(
        merge_env(gateway.get("env") or (), required),
        key=lambda variable: variable.get("name") or "",
    )
    env = [variable for variable in merged if variable.get("value") or variable.get("valueFrom")]
    tag = stack.profile.gateway_tag
    server = container(
        stack, stack.names.gateway, gateway, default_tag=tag, env=env, mounts=[CONFIG_MOUNT]
    )
    if stack.engine.is_called:
        return gateway_server(server)
    return server


def _service(stack: ResolvedStack) -> Object:
    section: Mapping[str, Any] = stack.gateway.get("service") or {}
    spec = {
        "type": section.get("type") or None,
        "ports": section.get("ports") or None,
        "selector": stack.names.selector(GATEWAY),
    }
    return new_object(
        stack, SERVICE, stack.names.gateway, GATEWAY, section.get("annotations"), spec=spec
    )


def _service_monitor(stack: ResolvedStack) -> Object:
    spec = {
        "endpoints": [
            {"interval": "15s", "targetPort": stack.engine.metrics_port, "path": "/metrics"}
        ],
        # the original selects only the component, and so the gateways of all stacks in the namespace
        "selector": {"matchLabels": stack.names.selector(GATEWAY)},
    }
    return new_object(stack, SERVICE_MONITOR, stack.names.gateway, GATEWAY, spec=spec)


def disruption_budget(
    stack: ResolvedStack, name: str, component: str, section: Mapping[str, Any]
) -> Iterator[Object]:
    """Yield the PodDisruptionBudget of a component, if it has one."""
    limits = disruption_limits(section)
    if limits:
        spec = {**limits, "selector": {"matchLabels": stack.names.selector(component)}}
        yield new_object(stack, POD_DISRUPTION_BUDGET, name, component, spec=spec)


_OBJECTS: Final[Mapping[GVK, Callable[[ResolvedStack], Object]]] = {
    SERVICE: _service,
    INGRESS: ingress,
    HTTP_ROUTE: _http_route,
    SERVICE_MONITOR: _service_monitor,
    NETWORK_POLICY: _network_policy,
}
"""The functions that return the gateway's objects, in the order in which these are written."""
