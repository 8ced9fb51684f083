"""GVK constants of the kinds that the RayCluster controllers read and write."""

from __future__ import annotations

from cfo.runtime import GVK

RAY_CLUSTER = GVK("ray.io", "v1", "RayCluster")
ROUTE = GVK("route.openshift.io", "v1", "Route")
INGRESS_CLASS = GVK("networking.k8s.io", "v1", "IngressClass")
INGRESS_CONFIG = GVK("config.openshift.io", "v1", "Ingress")
"""OpenShift's cluster-wide ingress settings, a single object named ``cluster``."""
AUTHENTICATION_CONFIG = GVK("config.openshift.io", "v1", "Authentication")
"""How OpenShift logs users in, a single object named ``cluster``."""
DSC_INITIALIZATION = GVK("dscinitialization.opendatahub.io", "v1", "DSCInitialization")
"""Open Data Hub's installation settings; the operator reads the one named ``default-dsci``."""
