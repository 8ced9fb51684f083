"""The desired objects of each RayCluster: pure functions of a cluster and the configuration.

These functions do not depend on existing objects or other writers; the reconcilers handle those. Owner references are
added when an object is written, because the owner is always the cluster.

The routes through a Gateway are in the namespace of the RayCluster, like the Services that they target. Therefore no
ReferenceGrant is needed, and a tenant's namespace needs the Gateway's admission only (``allowedRoutes`` of its
listeners).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from cfo.api.gateway import HTTP_ROUTE, HTTPS_PORT, backend_reference, parent_reference, path_match
from cfo.api.raycluster.cluster import child_object, cluster_labels, pod_labels
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import ROUTE, label_value
from cfo.api.raycluster.ports import PROXY_PORT, PROXY_PORT_NAME
from cfo.config.network import GatewayConfiguration
from cfo.controllers.host_claims import DASHBOARD_PATHS
from cfo.controllers.raycluster.dashboard_access import Backend
from cfo.runtime import CONFIG_MAP, GVK, SECRET, SERVICE, SERVICE_ACCOUNT, Object
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, new_object

# --- OpenShift: the dashboard behind an OAuth proxy -------------------------------------------------------------------


def desired_dashboard_route(facts: RayClusterFacts, backend: Backend) -> Object:
    """Return the Route of the dashboard, which targets ``backend``, whose certificate is OpenShift's.

    A Route with another CA needs the permission for ``routes/custom-host``.
    """
    tls = {
        "termination": "reencrypt" if backend.tls else "edge",
        "insecureEdgeTerminationPolicy": "Redirect",
    }
    spec = {
        "to": {"kind": "Service", "name": backend.service},
        "port": {"targetPort": backend.port_name},
        "tls": tls,
    }
    return child_object(facts.cluster, ROUTE, facts.names.dashboard, spec=spec)


def desired_client_route(facts: RayClusterFacts) -> Object:
    """Return the Route of the Ray client; the head terminates its TLS."""
    spec = {
        "to": {"kind": "Service", "name": facts.head_service, "weight": 100},
        "port": {"targetPort": "client"},
        "tls": {"termination": "passthrough"},
    }
    return child_object(facts.cluster, ROUTE, facts.names.client, spec=spec)


def desired_proxy_service(
    facts: RayClusterFacts, *, is_oauth_proxy: bool, openshift_certificate: bool
) -> Object:
    """Return the Service in front of the proxy.

    With ``openshift_certificate``, OpenShift writes its serving certificate to the named Secret. The port of
    OpenShift's OAuth proxy is targeted by its name, as in the Go operator, and that of the operator's own proxies by
    its number: another container can have the name as well.
    """
    names = facts.names
    target = PROXY_PORT_NAME if is_oauth_proxy else PROXY_PORT
    port = {"name": PROXY_PORT_NAME, "port": 443, "protocol": "TCP", "targetPort": target}
    service = child_object(
        facts.cluster,
        SERVICE,
        names.proxy_service,
        spec={"ports": [port], "selector": pod_labels(facts.cluster, "head")},
    )
    if openshift_certificate:
        service["metadata"]["annotations"] = {
            "service.beta.openshift.io/serving-cert-secret-name": names.proxy_tls_secret
        }
    return service


def desired_proxy_service_account(facts: RayClusterFacts, *, openshift_client: bool) -> Object:
    """Return the ServiceAccount of the head pod.

    With ``openshift_client``, it is an OAuth client for OpenShift that redirects to the dashboard.
    """
    names = facts.names
    account = child_object(facts.cluster, SERVICE_ACCOUNT, names.proxy_service_account)
    if not openshift_client:
        return account
    reference = {
        "kind": "OAuthRedirectReference",
        "apiVersion": "v1",
        "reference": {"kind": "Route", "name": names.dashboard},
    }
    account["metadata"]["annotations"] = {
        "serviceaccounts.openshift.io/oauth-redirectreference.first": json.dumps(
            reference, separators=(",", ":")
        )
    }
    return account


def desired_cluster_role_binding(facts: RayClusterFacts, name: str) -> Object:
    """Return the ClusterRoleBinding called ``name`` that allows the proxy to check tokens.

    The OAuth reconciler explains why the name varies.
    """
    names = facts.names
    return new_object(
        CLUSTER_ROLE_BINDING,
        name,
        labels=cluster_labels(facts.cluster, with_namespace=True),
        roleRef={
            "apiGroup": CLUSTER_ROLE_BINDING.group,
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        subjects=[
            {
                "kind": "ServiceAccount",
                "name": names.proxy_service_account,
                "namespace": names.namespace,
            }
        ],
    )


# --- On both platforms: Secrets ---------------------------------------------------------------------------------------


def desired_secret(facts: RayClusterFacts, name: str, data: Mapping[str, bytes]) -> Object:
    """Return a Secret with ``data`` (``stringData`` cannot be compared: the API server does not return it)."""
    encoded = {key: b64encode(value).decode("ascii") for key, value in data.items()}
    return child_object(facts.cluster, SECRET, name, data=encoded)


# --- Routes through a Gateway -----------------------------------------------------------------------------------------

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


def desired_path_http_route(
    facts: RayClusterFacts, backend: Backend, config: GatewayConfiguration
) -> Object:
    """Return the HTTPRoute of a dashboard at its path on the host that all dashboards share.

    CodeFlare SDK 0.32 and later finds the route by its labels, and derives the address from the host of the Gateway's
    first listener and this path. The dashboard does not know the path, so the Gateway removes it; the dashboard's links
    are relative, so the path must end in a slash.
    """
    path = dashboard_path(facts)
    redirect = {
        "path": {"type": "ReplaceFullPath", "replaceFullPath": f"{path}/"},
        "statusCode": 302,
    }
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


def desired_tls_route(
    facts: RayClusterFacts, gvk: GVK, config: GatewayConfiguration, host: str
) -> Object:
    """Return the TLSRoute (of the version ``gvk``) of the Ray client, which verifies the certificates itself."""
    backend = backend_reference(
        {"name": facts.head_service, "port": facts.ports.service_port("client")}
    )
    port = {"port": config.client_port} if config.client_port != HTTPS_PORT else {}
    spec = {
        "parentRefs": [{**_parent(config, config.client_listener), **port}],
        "hostnames": [host],
        "rules": [{"backendRefs": [backend]}],
    }
    return child_object(facts.cluster, gvk, facts.names.client, spec=spec)


def target_services(route: Mapping[str, Any]) -> set[str]:
    """Return the names of the Services that the rules of a stored HTTPRoute target."""
    rules = (route.get("spec") or {}).get("rules") or ()
    return {
        str(reference.get("name")) for rule in rules for reference in rule.get("backendRefs") or ()
    }


def desired_ca_config_map(facts: RayClusterFacts, ca: str) -> Object:
    """Return the ConfigMap with the CA (PEM) of the proxy's certificate: every Gateway reads it from a ConfigMap."""
    return child_object(
        facts.cluster, CONFIG_MAP, facts.names.proxy_tls_secret, data={"ca.crt": ca}
    )


def desired_backend_tls_policy(facts: RayClusterFacts, gvk: GVK, backend: Backend) -> Object:
    """Return the policy (of the version ``gvk``) with which the Gateway connects to ``backend`` over TLS.

    The certificate of ``backend`` must be for the Service's DNS name.
    """
    target = {"group": "", "kind": "Service", "name": backend.service}
    ca = {"group": "", "kind": "ConfigMap", "name": facts.names.proxy_tls_secret}
    hostname = f"{backend.service}.{facts.names.namespace}.svc"
    spec = {"targetRefs": [target], "validation": {"caCertificateRefs": [ca], "hostname": hostname}}
    return child_object(facts.cluster, gvk, facts.names.dashboard, spec=spec)


def _dashboard_route(
    facts: RayClusterFacts, config: GatewayConfiguration, host: str, rules: list[dict[str, Any]]
) -> Object:
    spec = {
        "parentRefs": [_parent(config, config.dashboard_listener)],
        "hostnames": [host],
        "rules": rules,
    }
    return child_object(facts.cluster, HTTP_ROUTE, facts.names.dashboard, spec=spec)


def _parent(config: GatewayConfiguration, listener: str) -> Object:
    return parent_reference(
        {"namespace": config.namespace, "name": config.name, "sectionName": listener}
    )


def _reference(backend: Backend) -> Object:
    return backend_reference({"name": backend.service, "port": backend.port})
