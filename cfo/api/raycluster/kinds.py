"""The kinds that the RayCluster controllers read and write."""

from __future__ import annotations

from cfo.runtime.objects import GVK

__all__ = [
    "CLUSTER_ROLE",
    "CLUSTER_ROLE_BINDING",
    "DSC_INITIALIZATION",
    "INGRESS",
    "INGRESS_CONFIG",
    "NETWORK_POLICY",
    "POD",
    "RAY_CLUSTER",
    "ROUTE",
    "SECRET",
    "SERVICE",
    "SERVICE_ACCOUNT",
]

RAY_CLUSTER = GVK("ray.io", "v1", "RayCluster")
POD = GVK("", "v1", "Pod")
SECRET = GVK("", "v1", "Secret")
SERVICE = GVK("", "v1", "Service")
SERVICE_ACCOUNT = GVK("", "v1", "ServiceAccount")
INGRESS = GVK("networking.k8s.io", "v1", "Ingress")
NETWORK_POLICY = GVK("networking.k8s.io", "v1", "NetworkPolicy")
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
CLUSTER_ROLE_BINDING = GVK("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding")
ROUTE = GVK("route.openshift.io", "v1", "Route")
INGRESS_CONFIG = GVK("config.openshift.io", "v1", "Ingress")
"""OpenShift's cluster-wide ingress settings; the one object is called ``cluster``."""
DSC_INITIALIZATION = GVK("dscinitialization.opendatahub.io", "v1", "DSCInitialization")
"""Open Data Hub's installation settings; the one that counts is called ``default-dsci``."""
