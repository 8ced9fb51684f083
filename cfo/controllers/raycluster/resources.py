"""The desired objects of each RayCluster: pure functions of a cluster and the configuration.

These functions do not depend on existing objects or other writers; the reconcilers handle those. Owner references are
added when an object is written, because the owner is always the cluster.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from cfo.api.raycluster.authentication import PROXY_PORT_NAME, Backend
from cfo.api.raycluster.cluster import cluster_labels, pod_labels
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.kinds import ROUTE
from cfo.api.raycluster.ports import PROXY_PORT
from cfo.runtime import GVK, SECRET, SERVICE, SERVICE_ACCOUNT, Object
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

__all__ = [
    "COOKIE_KEY",
    "child_object",
    "desired_client_route",
    "desired_cluster_role_binding",
    "desired_dashboard_route",
    "desired_proxy_service",
    "desired_proxy_service_account",
    "desired_secret",
]

COOKIE_KEY = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""


def child_object(facts: RayClusterFacts, gvk: GVK, name: str, **fields: Any) -> Object:
    """Return an object called ``name`` in the namespace of the cluster, with its label and further ``fields``."""
    metadata = {"name": name, "namespace": facts.names.namespace, "labels": cluster_labels(facts.cluster)}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **fields}


# --- OpenShift: the dashboard behind an OAuth proxy -------------------------------------------------------------------


def desired_dashboard_route(facts: RayClusterFacts, backend: Backend, destination_ca: str = "") -> Object:
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
    return child_object(facts, ROUTE, facts.names.dashboard, spec=spec)


def desired_client_route(facts: RayClusterFacts) -> Object:
    """Return the Route of the Ray client; the head terminates its TLS."""
    spec = {
        "to": {"kind": "Service", "name": facts.head_service, "weight": 100},
        "port": {"targetPort": "client"},
        "tls": {"termination": "passthrough"},
    }
    return child_object(facts, ROUTE, facts.names.client, spec=spec)


def desired_proxy_service(facts: RayClusterFacts, *, openshift_certificate: bool = True) -> Object:
    """Return the Service in front of the proxy.

    With ``openshift_certificate``, OpenShift writes its serving certificate to the named Secret. The port is then
    targeted by its name, as in the Go operator, otherwise by its number: another container can have the name as well.
    """
    names = facts.names
    target = PROXY_PORT_NAME if openshift_certificate else PROXY_PORT
    port = {"name": PROXY_PORT_NAME, "port": 443, "protocol": "TCP", "targetPort": target}
    service = child_object(
        facts, SERVICE, names.proxy_service, spec={"ports": [port], "selector": pod_labels(facts.cluster, "head")}
    )
    if openshift_certificate:
        service["metadata"]["annotations"] = {
            "service.beta.openshift.io/serving-cert-secret-name": names.proxy_tls_secret,
        }
    return service


def desired_proxy_service_account(facts: RayClusterFacts, *, openshift_client: bool = True) -> Object:
    """Return the ServiceAccount of the head pod.

    With ``openshift_client``, it is an OAuth client for OpenShift that redirects to the dashboard.
    """
    names = facts.names
    account = child_object(facts, SERVICE_ACCOUNT, names.proxy_service_account)
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


def desired_cluster_role_binding(facts: RayClusterFacts, name: str) -> Object:
    """Return the ClusterRoleBinding called ``name`` that allows the proxy to check tokens.

    The OAuth reconciler explains why the name varies.
    """
    return {
        "apiVersion": CLUSTER_ROLE_BINDING.api_version,
        "kind": CLUSTER_ROLE_BINDING.kind,
        "metadata": {"name": name, "labels": cluster_labels(facts.cluster, with_namespace=True)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": facts.names.proxy_service_account,
                "namespace": facts.names.namespace,
            }
        ],
    }


# --- On both platforms: Secrets ---------------------------------------------------------------------------------------


def desired_secret(facts: RayClusterFacts, name: str, data: Mapping[str, bytes]) -> Object:
    """Return a Secret with ``data`` (``stringData`` cannot be compared: the API server does not return it)."""
    encoded = {key: b64encode(value).decode("ascii") for key, value in data.items()}
    return child_object(facts, SECRET, name, data=encoded)
