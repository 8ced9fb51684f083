"""The desired objects of each RayCluster: pure functions of a cluster and the configuration.

These functions do not depend on existing objects or other writers; the reconcilers handle those. Owner references are
added when an object is written, because the owner is always the cluster.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from cfo.api.raycluster.authentication import DASHBOARD_PORT, PROXY_PORT, PROXY_PORT_NAME, Backend
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
    "requires_certificates",
]

COOKIE_KEY = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""

CLIENT_PORT = 10001
METRICS_PORT = 8080

_KUBERAY_LABELS = {"app.kubernetes.io/component": "kuberay-operator"}
_JOB_LABEL = "batch.kubernetes.io/job-name"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


# --- OpenShift: the dashboard behind an OAuth proxy -------------------------------------------------------------------


def desired_dashboard_route(cluster: Mapping[str, Any], backend: Backend, destination_ca: str = "") -> Object:
    """Return the Route of the dashboard, which targets ``backend``.

    ``destination_ca`` (PEM) is the CA of its certificate; if empty, OpenShift's own CA.
    """
    tls = {"termination": "reencrypt" if backend.tls else "edge", "insecureEdgeTerminationPolicy": "Redirect"}
    if destination_ca:
        tls["destinationCACertificate"] = destination_ca
    spec = {
        "to": {"kind": "Service", "name": backend.service},
        "port": {"targetPort": backend.port_name},
        "tls": tls,
    }
    return child_object(cluster, ROUTE, names_of(cluster).dashboard, spec=spec)


def desired_client_route(cluster: Mapping[str, Any]) -> Object:
    """Return the Route of the Ray client; the head terminates its TLS."""
    spec = {
        "to": {"kind": "Service", "name": head_service_name(cluster), "weight": 100},
        "port": {"targetPort": "client"},
        "tls": {"termination": "passthrough"},
    }
    return child_object(cluster, ROUTE, names_of(cluster).client, spec=spec)


def desired_proxy_service(cluster: Mapping[str, Any], *, openshift_certificate: bool = True) -> Object:
    """Return the Service in front of the proxy.

    With ``openshift_certificate``, OpenShift writes its serving certificate to the named Secret.
    """
    names = names_of(cluster)
    port = {"name": PROXY_PORT_NAME, "port": 443, "protocol": "TCP", "targetPort": PROXY_PORT_NAME}
    service = child_object(
        cluster, SERVICE, names.proxy_service, spec={"ports": [port], "selector": pod_labels(cluster, "head")}
    )
    if openshift_certificate:
        service["metadata"]["annotations"] = {
            "service.beta.openshift.io/serving-cert-secret-name": names.proxy_tls_secret,
        }
    return service


def desired_proxy_service_account(cluster: Mapping[str, Any], *, openshift_client: bool = True) -> Object:
    """Return the ServiceAccount of the head pod.

    With ``openshift_client``, it is an OAuth client for OpenShift that redirects to the dashboard.
    """
    names = names_of(cluster)
    account = child_object(cluster, SERVICE_ACCOUNT, names.proxy_service_account)
    if not openshift_client:
        return account
    reference = {
        "kind": "OAuthRedirectReference",
        "apiVersion": "v1",
        "reference": {"kind": "Route", "name": names.dashboard},
    }
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


def requires_certificates(cluster: Mapping[str, Any], config: KubeRayConfiguration) -> bool:
    """Return whether Ray in ``cluster`` accepts only clients with our certificates.

    Enabling mTLS changes no existing pod template, and whether KubeRay acts on ``tlsOptions`` is unknown.
    """
    return config.mtls_enabled and not uses_kuberay_tls(cluster) and has_injected_tls(cluster)


def desired_head_policy(
    cluster: Mapping[str, Any],
    config: KubeRayConfiguration,
    operator_namespaces: Sequence[str],
    *,
    behind_proxy: bool = False,
    requires_token: bool = False,
) -> Object:
    """Return the policy of the head.

    It admits the cluster itself, its namespace, KubeRay, monitoring and, on ports that require authentication, any
    client. ``operator_namespaces`` are the namespaces of the KubeRay operator. With ``behind_proxy``, only KubeRay, the
    pods of Jobs (which submit RayJobs) and the cluster itself reach the dashboard without the proxy.
    ``requires_token`` is whether the dashboard requires Ray's token.
    """
    kuberay = {**_namespaces(operator_namespaces), "podSelector": {"matchLabels": _KUBERAY_LABELS}}
    rules: list[dict[str, Any]] = [
        {"from": [{"podSelector": {"matchLabels": pod_labels(cluster)}}]},
        *_namespace_rules(behind_proxy),
        {"from": [kuberay], "ports": _ports(DASHBOARD_PORT, CLIENT_PORT)},
        {"from": [_namespaces(["openshift-monitoring"])], "ports": _ports(METRICS_PORT)},
    ]
    if config.ingress.namespaces:
        ports = _ports(CLIENT_PORT) if behind_proxy else _ports(DASHBOARD_PORT, CLIENT_PORT)
        rules.append({"from": [_namespaces(config.ingress.namespaces)], "ports": ports})
    # Only ports that require credentials are open to everyone: the proxy's, the client's if Ray requires our
    # certificates, and the dashboard's if it requires Ray's token.
    open_ports = [PROXY_PORT]
    if requires_certificates(cluster, config):
        open_ports.append(CLIENT_PORT)
    if requires_token:
        open_ports.append(DASHBOARD_PORT)
    rules.append({"ports": _ports(*open_ports)})
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


def _namespace_rules(behind_proxy: bool) -> list[dict[str, Any]]:
    """Return the rules for the cluster's namespace."""
    if not behind_proxy:
        return [{"from": [{"podSelector": {}}], "ports": _ports(CLIENT_PORT, DASHBOARD_PORT)}]
    jobs = {"podSelector": {"matchExpressions": [{"key": _JOB_LABEL, "operator": "Exists"}]}}
    return [
        {"from": [{"podSelector": {}}], "ports": _ports(CLIENT_PORT)},
        {"from": [jobs], "ports": _ports(DASHBOARD_PORT)},
    ]


def _namespaces(names: Sequence[str]) -> dict[str, Any]:
    expression = {"key": _NAMESPACE_NAME, "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def _ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": number} for number in numbers]
