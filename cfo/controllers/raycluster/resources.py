"""The desired objects of each RayCluster: pure functions of a cluster and the configuration.

These functions do not depend on existing objects or other writers; the reconcilers handle those. Owner references are
added when an object is written, because the owner is always the cluster.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from cfo.api.raycluster.cluster import cluster_labels, has_injected_tls, pod_labels, uses_kuberay_tls
from cfo.api.raycluster.kinds import ROUTE
from cfo.api.raycluster.naming import head_service_name, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.child_object import child_object
from cfo.runtime import (
    CLUSTER_ROLE_BINDING,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
    namespace_of,
)

__all__ = [
    "CLIENT_PORT",
    "COOKIE_KEY",
    "desired_client_route",
    "desired_cluster_role_binding",
    "desired_dashboard_route",
    "desired_head_policy",
    "desired_proxy_service",
    "desired_proxy_service_account",
    "desired_secret",
    "desired_workers_policy",
]

COOKIE_KEY = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""

CLIENT_PORT = 10001
DASHBOARD_PORT = 8265
METRICS_PORT = 8080
PROXY_PORT = 8443

_PROXY = "oauth-proxy"
_KUBERAY_LABELS = {"app.kubernetes.io/component": "kuberay-operator"}
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


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


# --- Network policies -------------------------------------------------------------------------------------------------


def desired_head_policy(
    cluster: Mapping[str, Any], config: KubeRayConfiguration, operator_namespaces: Sequence[str]
) -> Object:
    """Return the policy of the head.

    It admits the cluster itself, its namespace, KubeRay, monitoring and, on ports that require authentication, any
    client. ``operator_namespaces`` are the namespaces of the KubeRay operator.
    """
    kuberay = {**_namespaces(operator_namespaces), "podSelector": {"matchLabels": _KUBERAY_LABELS}}
    rules: list[dict[str, Any]] = [
        {"from": [{"podSelector": {"matchLabels": pod_labels(cluster)}}]},
        {"from": [{"podSelector": {}}], "ports": _ports(CLIENT_PORT, DASHBOARD_PORT)},
        {"from": [kuberay], "ports": _ports(DASHBOARD_PORT, CLIENT_PORT)},
        {"from": [_namespaces(["openshift-monitoring"])], "ports": _ports(METRICS_PORT)},
    ]
    if config.ingress.namespaces:
        rules.append({"from": [_namespaces(config.ingress.namespaces)], "ports": _ports(DASHBOARD_PORT, CLIENT_PORT)})
    # Only ports that require credentials are open to everyone: the proxy's, and the client's if Ray requires our
    # certificates. Enabling mTLS changes no existing pod template, and whether KubeRay acts on tlsOptions is unknown.
    requires_certificates = config.mtls_enabled and not uses_kuberay_tls(cluster) and has_injected_tls(cluster)
    rules.append({"ports": _ports(PROXY_PORT, CLIENT_PORT) if requires_certificates else _ports(PROXY_PORT)})
    return _policy(cluster, names_of(cluster).head_policy, "head", rules)


def desired_workers_policy(cluster: Mapping[str, Any]) -> Object:
    """Return the policy of the workers, which admits the cluster itself."""
    rules = [{"from": [{"podSelector": {"matchLabels": pod_labels(cluster)}}]}]
    return _policy(cluster, names_of(cluster).workers_policy, "worker", rules)


def _policy(cluster: Mapping[str, Any], name: str, node_type: str, rules: list[dict[str, Any]]) -> Object:
    spec = {
        "podSelector": {"matchLabels": pod_labels(cluster, node_type)},
        "ingress": rules,
        "policyTypes": ["Ingress"],
    }
    return child_object(cluster, NETWORK_POLICY, name, spec=spec)


def _namespaces(names: Sequence[str]) -> dict[str, Any]:
    expression = {"key": _NAMESPACE_NAME, "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": number} for number in numbers]
