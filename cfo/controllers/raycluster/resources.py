"""The desired objects of each RayCluster: pure functions of a cluster and the configuration.

These functions do not depend on existing objects or other writers; the reconcilers handle those. Owner references are
added when an object is written, because the owner is always the cluster.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.cluster import cluster_labels, pod_labels
from cfo.api.raycluster.kinds import ROUTE
from cfo.api.raycluster.naming import client_host, dashboard_host, head_service_name, names_of
from cfo.api.raycluster.ports import service_port_of
from cfo.config import IngressConfiguration
from cfo.controllers.raycluster.child_object import child_object
from cfo.runtime import (
    CLUSTER_ROLE_BINDING,
    INGRESS,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
    namespace_of,
)

__all__ = [
    "COOKIE_KEY",
    "desired_client_ingress",
    "desired_client_route",
    "desired_cluster_role_binding",
    "desired_dashboard_ingress",
    "desired_dashboard_route",
    "desired_proxy_service",
    "desired_proxy_service_account",
    "desired_secret",
]

COOKIE_KEY = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""

_PROXY = "oauth-proxy"
# nginx annotations that pass a client's TLS through to Ray, which verifies the certificate itself
_CLIENT_INGRESS_CLASS = "nginx"
_CLIENT_INGRESS_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/rewrite-target": "/",
    "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
    "nginx.ingress.kubernetes.io/ssl-redirect": "true",
}


# --- OpenShift: the dashboard behind an OAuth proxy -------------------------------------------------------------------


def desired_dashboard_route(cluster: Mapping[str, Any]) -> Object:
    """Return the Route of the dashboard, which targets the proxy."""
    names = names_of(cluster)
    spec = {
        "to": {"kind": "Service", "name": names.proxy_service},
        "port": {"targetPort": _PROXY},
        "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Redirect"},
    }
    return child_object(cluster, ROUTE, names.dashboard, spec=spec)


def desired_client_route(cluster: Mapping[str, Any]) -> Object:
    """Return the Route of the Ray client; the head terminates its TLS."""
    spec = {
        "to": {"kind": "Service", "name": head_service_name(cluster), "weight": 100},
        "port": {"targetPort": "client"},
        "tls": {"termination": "passthrough"},
    }
    return child_object(cluster, ROUTE, names_of(cluster).client, spec=spec)


def desired_proxy_service(cluster: Mapping[str, Any]) -> Object:
    """Return the Service in front of the proxy; OpenShift writes its serving certificate to the named Secret."""
    names = names_of(cluster)
    port = {"name": _PROXY, "port": 443, "protocol": "TCP", "targetPort": _PROXY}
    service = child_object(
        cluster, SERVICE, names.proxy_service, spec={"ports": [port], "selector": pod_labels(cluster, "head")}
    )
    service["metadata"]["annotations"] = {
        "service.beta.openshift.io/serving-cert-secret-name": names.proxy_tls_secret,
    }
    return service


def desired_proxy_service_account(cluster: Mapping[str, Any]) -> Object:
    """Return the ServiceAccount of the head pod, an OAuth client for OpenShift that redirects to the dashboard."""
    names = names_of(cluster)
    reference = {
        "kind": "OAuthRedirectReference",
        "apiVersion": "v1",
        "reference": {"kind": "Route", "name": names.dashboard},
    }
    account = child_object(cluster, SERVICE_ACCOUNT, names.proxy_service_account)
    account["metadata"]["annotations"] = {
        "serviceaccounts.openshift.io/oauth-redirectreference.first": json.dumps(reference, separators=(",", ":")),
    }
    return account


def desired_cluster_role_binding(cluster: Mapping[str, Any], name: str) -> Object:
    """Return the ClusterRoleBinding called ``name`` that allows the proxy to check tokens.

    The OAuth reconciler explains why the name varies.
    """
    return {
        "apiVersion": CLUSTER_ROLE_BINDING.api_version,
        "kind": CLUSTER_ROLE_BINDING.kind,
        "metadata": {"name": name, "labels": cluster_labels(cluster, with_namespace=True)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": names_of(cluster).proxy_service_account,
                "namespace": namespace_of(cluster),
            }
        ],
    }


# --- On both platforms: Secrets ---------------------------------------------------------------------------------------


def desired_secret(cluster: Mapping[str, Any], name: str, data: Mapping[str, bytes]) -> Object:
    """Return a Secret with ``data`` (``stringData`` cannot be compared: the API server does not return it)."""
    encoded = {key: b64encode(value).decode("ascii") for key, value in data.items()}
    return child_object(cluster, SECRET, name, data=encoded)


# --- Vanilla Kubernetes: Ingresses ------------------------------------------------------------------------------------


def desired_dashboard_ingress(
    cluster: Mapping[str, Any], domain: str, config: IngressConfiguration, suffix: str = ""
) -> Object:
    """Return the Ingress of the dashboard, which requires no authentication."""
    host = dashboard_host(cluster, domain, suffix)
    ingress = _ingress(
        cluster, names_of(cluster).dashboard, host, path_type="Prefix", port={"name": "dashboard"}, config=config
    )
    if config.tls_secret_name:
        ingress["spec"]["tls"] = [{"hosts": [host], "secretName": config.tls_secret_name}]
    return ingress


def desired_client_ingress(
    cluster: Mapping[str, Any], domain: str, config: IngressConfiguration, suffix: str = ""
) -> Object:
    """Return the Ingress of the Ray client. Clients find it by the port number of its backend."""
    return _ingress(
        cluster,
        names_of(cluster).client,
        client_host(cluster, domain, suffix),
        path_type="ImplementationSpecific",
        port={"number": service_port_of(cluster, "client")},
        config=config,
        class_name=_CLIENT_INGRESS_CLASS,
        annotations=_CLIENT_INGRESS_ANNOTATIONS,
    )


def _ingress(
    cluster: Mapping[str, Any],
    name: str,
    host: str,
    *,
    path_type: str,
    port: Mapping[str, Any],
    config: IngressConfiguration,
    class_name: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    backend = {"service": {"name": head_service_name(cluster), "port": dict(port)}}
    path = {"path": "/", "pathType": path_type, "backend": backend}
    ingress = child_object(cluster, INGRESS, name, spec={"rules": [{"host": host, "http": {"paths": [path]}}]})
    effective_class = class_name if config.class_name is None else config.class_name
    if effective_class:
        ingress["spec"]["ingressClassName"] = effective_class
    effective_annotations = annotations if config.annotations is None else config.annotations
    if effective_annotations:
        ingress["metadata"]["annotations"] = dict(effective_annotations)
    return ingress
