"""Admission of RayClusters: inject the OAuth proxy and mutual TLS into their pod templates, and validate them.

When a RayCluster is created, it gets an annotation with the operator's version, on OpenShift an OAuth proxy in front of
the dashboard, and mutual TLS between all Ray nodes. After that, users cannot change these parts.
"""

from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook, setup

__all__ = ["Images", "RayClusterWebhook", "setup"]
