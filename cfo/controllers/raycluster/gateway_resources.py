"""The desired routes of a RayCluster through a Gateway: pure functions.

All of them are in the namespace of the RayCluster, like the Services that they target. Therefore no ReferenceGrant is
needed, and a tenant's namespace needs the Gateway's admission only (``allowedRoutes`` of its listeners).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, backend_reference, parent_reference, path_match
from cfo.api.raycluster.authentication import Backend
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.naming import label_value
from cfo.config import GatewayConfiguration
from cfo.controllers.raycluster.host_collisions import DASHBOARD_PATHS
from cfo.controllers.raycluster.resources import child_object
from cfo.runtime import CONFIG_MAP, GVK, Object

__all__ = [
    "dashboard_path",
    "desired_backend_tls_policy",
    "desired_ca_config_map",
    "desired_dashboard_http_route",
    "desired_path_http_route",
    "desired_tls_route",
    "target_services",
]

_SDK_NAME_LABEL: Final = "ray.io/cluster-name"
_SDK_NAMESPACE_LABEL: Final = "ray.io/cluster-namespace"


def dashboard_path(facts: RayClusterFacts) -> str:
    """Return the path of the dashboard on the host that all dashboards share."""
    return f"{DASHBOARD_PATHS}{facts.names.namespace}/{facts.names.cluster}"


def desired_dashboard_http_route(
    facts: RayClusterFacts, backend: Backend, config: GatewayConfiguration, host: str
) -> Object:
    """Return the HTTPRoute of a dashboard that has a ``host`` of its own."""
    rule = {"matches": [{"path": path_match()}], "backendRefs": [_reference(backend)]}
    return _dashboard_route(facts, config, host, [rule])


def desired_path_http_route(facts: RayClusterFacts, backend: Backend, config: GatewayConfiguration) -> Object:
    """Return the HTTPRoute of a dashboard at its path on the host that all dashboards share.

    CodeFlare SDK 0.32 and later finds the route by its labels, and derives the address from the host of the Gateway's
    first listener and this path. The dashboard does not know the path, so the Gateway removes it; the dashboard's links
    are relative, so the path must end in a slash.
    """
    path = dashboard_path(facts)
    redirect = {"path": {"type": "ReplaceFullPath", "replaceFullPath": f"{path}/"}, "statusCode": 302}
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
    rules = [
        {
            "matches": [{"path": path_match({"type": "Exact", "value": path})}],
            "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}],
        },
        {
            "matches": [{"path": path_match({"value": path})}],
            "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
            "backendRefs": [_reference(backend)],
        },
    ]
    route = _dashboard_route(facts, config, config.dashboard_host, rules)
    route["metadata"]["labels"] |= {
        _SDK_NAME_LABEL: label_value(facts.names.cluster),
        _SDK_NAMESPACE_LABEL: facts.names.namespace,
    }
    return route


def desired_tls_route(facts: RayClusterFacts, gvk: GVK, config: GatewayConfiguration, host: str) -> Object:
    """Return the TLSRoute (of the version ``gvk``) of the Ray client, which verifies the certificates itself."""
    backend = backend_reference({"name": facts.head_service, "port": facts.service_port("client")})
    spec = {
        "parentRefs": [_parent(config, config.client_listener)],
        "hostnames": [host],
        "rules": [{"backendRefs": [backend]}],
    }
    return child_object(facts, gvk, facts.names.client, spec=spec)


def target_services(route: Mapping[str, Any]) -> set[str]:
    """Return the names of the Services that the rules of a stored HTTPRoute target."""
    rules = (route.get("spec") or {}).get("rules") or ()
    return {str(reference.get("name")) for rule in rules for reference in rule.get("backendRefs") or ()}


def desired_ca_config_map(facts: RayClusterFacts, ca: str) -> Object:
    """Return the ConfigMap with the CA (PEM) of the proxy's certificate: every Gateway reads it from a ConfigMap."""
    return child_object(facts, CONFIG_MAP, facts.names.proxy_tls_secret, data={"ca.crt": ca})


def desired_backend_tls_policy(facts: RayClusterFacts, gvk: GVK, backend: Backend) -> Object:
    """Return the policy (of the version ``gvk``) with which the Gateway connects to ``backend`` over TLS.

    The certificate of ``backend`` must be for the Service's DNS name.
    """
    target = {"group": "", "kind": "Service", "name": backend.service}
    ca = {"group": "", "kind": "ConfigMap", "name": facts.names.proxy_tls_secret}
    hostname = f"{backend.service}.{facts.names.namespace}.svc"
    spec = {"targetRefs": [target], "validation": {"caCertificateRefs": [ca], "hostname": hostname}}
    return child_object(facts, gvk, facts.names.dashboard, spec=spec)


def _dashboard_route(
    facts: RayClusterFacts, config: GatewayConfiguration, host: str, rules: list[dict[str, Any]]
) -> Object:
    spec = {"parentRefs": [_parent(config, config.dashboard_listener)], "hostnames": [host], "rules": rules}
    return child_object(facts, HTTP_ROUTE, facts.names.dashboard, spec=spec)


def _parent(config: GatewayConfiguration, listener: str) -> Object:
    return parent_reference({"namespace": config.namespace, "name": config.name, "sectionName": listener})


def _reference(backend: Backend) -> Object:
    return backend_reference({"name": backend.service, "port": backend.port})
