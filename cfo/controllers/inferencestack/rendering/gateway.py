"""The objects of the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.kinds import POD_DISRUPTION_BUDGET, SERVICE_MONITOR
from cfo.api.inferencestack.merging import merge_env
from cfo.api.inferencestack.names import CONFIG_KEY, GATEWAY
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.controllers.inferencestack.rendering.config_file import config_annotations, gateway_file
from cfo.controllers.inferencestack.rendering.facts import Facts
from cfo.controllers.inferencestack.rendering.metadata import new_object
from cfo.controllers.inferencestack.rendering.networking import http_route, ingress, network_policy
from cfo.controllers.inferencestack.rendering.pods import CONFIG_MOUNT, Pod, container, deployment
from cfo.controllers.inferencestack.rendering.replicas import decide_replicas
from cfo.runtime import CONFIG_MAP, SERVICE, Object

__all__ = ["disruption_budget", "gateway_objects"]

_REQUIRED_ENV: Final = [{"name": "TAKEOFF_ADD_READER_ID_SUFFIX", "value": "true"}]


def gateway_objects(stack: ResolvedStack, facts: Facts) -> Iterator[Object]:
    """Yield the objects of the gateway: always a ConfigMap, a Deployment and a Service."""
    names, gateway = stack.names, stack.gateway
    content = gateway_file(stack)
    live = facts.deployments.get(names.gateway)
    config = config_annotations(content, live, facts.config_maps.get(names.gateway))
    yield new_object(stack, CONFIG_MAP, names.gateway, GATEWAY, config.metadata, data={CONFIG_KEY: content})
    pod = Pod(
        containers=[_container(stack)],
        volumes=[{"name": "config", "configMap": {"name": names.gateway}}],
    )
    replicas = decide_replicas(gateway.get("replicaCount", 1), live, suspended=bool(stack.spec.get("suspend")))
    yield deployment(stack, GATEWAY, gateway, pod, config=config, replicas=replicas, live=live)
    yield _service(stack)
    if is_enabled(gateway.get("ingress")):
        yield ingress(stack)
    if gateway.get("httpRoute"):
        yield http_route(stack)
    if gateway.get("exportPrometheusMetrics"):
        yield _service_monitor(stack)
    if is_enabled(stack.spec.get("networkPolicy")):
        yield network_policy(stack)
    yield from disruption_budget(stack, names.gateway, GATEWAY, gateway)


def _container(stack: ResolvedStack) -> Object:
    gateway = stack.gateway
    # the variables of the user have precedence, as the original documents; there, the required ones have
    env = sorted(merge_env(gateway.get("env") or (), _REQUIRED_ENV), key=lambda variable: variable.get("name") or "")
    result = container(
        stack,
        stack.names.gateway,
        gateway,
        image=gateway.get("image") or {},
        default_tag=stack.profile.gateway_tag,
        env=[variable for variable in env if variable.get("value") or variable.get("valueFrom")],
        mounts=[CONFIG_MOUNT],
    )
    return {**result, "ports": gateway["ports"]} if gateway.get("ports") else result


def _service(stack: ResolvedStack) -> Object:
    section: Mapping[str, Any] = stack.gateway.get("service") or {}
    spec: Object = {
        "type": section.get("type"),
        "ports": section.get("ports"),
        "selector": stack.names.selector(GATEWAY),
    }
    return new_object(
        stack,
        SERVICE,
        stack.names.gateway,
        GATEWAY,
        section.get("annotations"),
        spec={key: value for key, value in spec.items() if value},
    )


def _service_monitor(stack: ResolvedStack) -> Object:
    spec = {
        "endpoints": [{"interval": "15s", "targetPort": 3001, "path": "/metrics"}],
        # the original selects only the component, and so the gateways of all stacks in the namespace
        "selector": {"matchLabels": stack.names.selector(GATEWAY)},
    }
    return new_object(stack, SERVICE_MONITOR, stack.names.gateway, GATEWAY, spec=spec)


def disruption_budget(stack: ResolvedStack, name: str, component: str, section: Mapping[str, Any]) -> Iterator[Object]:
    """Yield the PodDisruptionBudget of a component, if it has one."""
    budget: Mapping[str, Any] = section.get("podDisruptionBudget") or {}
    limits = {key: budget[key] for key in ("minAvailable", "maxUnavailable") if key in budget}
    if limits:
        spec = {**limits, "selector": {"matchLabels": stack.names.selector(component)}}
        yield new_object(stack, POD_DISRUPTION_BUDGET, name, component, spec=spec)
