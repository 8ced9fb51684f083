"""GVK constants of the built-in kinds, and the names of resources."""

from __future__ import annotations

from typing import Final

from cfo.runtime.objects.unstructured import GVK

CLUSTER_ROLE: Final = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
CLUSTER_ROLE_BINDING: Final = GVK("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding")
CONFIG_MAP: Final = GVK("", "v1", "ConfigMap")
CORE_EVENT: Final = GVK("", "v1", "Event")
CUSTOM_RESOURCE_DEFINITION: Final = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
DEPLOYMENT: Final = GVK("apps", "v1", "Deployment")
ENDPOINT_SLICE: Final = GVK("discovery.k8s.io", "v1", "EndpointSlice")
EVENT: Final = GVK("events.k8s.io", "v1", "Event")
INGRESS: Final = GVK("networking.k8s.io", "v1", "Ingress")
JOB: Final = GVK("batch", "v1", "Job")
LEASE: Final = GVK("coordination.k8s.io", "v1", "Lease")
MUTATING_WEBHOOK_CONFIGURATION: Final = GVK(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"
)
NAMESPACE: Final = GVK("", "v1", "Namespace")
NETWORK_POLICY: Final = GVK("networking.k8s.io", "v1", "NetworkPolicy")
NODE: Final = GVK("", "v1", "Node")
POD: Final = GVK("", "v1", "Pod")
PRIORITY_CLASS: Final = GVK("scheduling.k8s.io", "v1", "PriorityClass")
SECRET: Final = GVK("", "v1", "Secret")
SERVICE: Final = GVK("", "v1", "Service")
SERVICE_ACCOUNT: Final = GVK("", "v1", "ServiceAccount")
VALIDATING_WEBHOOK_CONFIGURATION: Final = GVK(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"
)


def plural(kind: str) -> str:
    """Guess the English plural of a kind, which is the usual name of its resource: ``Ingress`` is ``ingresses``."""
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and not word.endswith(("ay", "ey", "oy", "uy")):
        return f"{word[:-1]}ies"
    return f"{word}s"
