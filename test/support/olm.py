"""The permissions that OLM needs to install a bundle."""

from __future__ import annotations

from typing import Any

MANAGE = ("create", "get", "list", "watch", "update", "patch", "delete")
RESOURCES = {
    "ClusterRole": ("rbac.authorization.k8s.io", "clusterroles"),
    "ConfigMap": ("", "configmaps"),
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
    "Secret": ("", "secrets"),
    "Service": ("", "services"),
}
"""The resources of the kinds in the bundle."""
CREATED_BY_OLM = (
    ("", "serviceaccounts"),
    ("", "services"),  # of the webhooks
    ("", "secrets"),
    ("apps", "deployments"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("cert-manager.io", "issuers"),  # for the certificates of the webhooks
    ("cert-manager.io", "certificates"),
)
"""The resources that OLM creates for a CSV with permissions and webhooks."""
Permission = tuple[str, str, str, str]
"""Group and resource (or a URL), name (empty: any), verb."""


def permissions(rules: list[dict[str, Any]]) -> set[Permission]:
    """Return the permissions that RBAC ``rules`` grant."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule.get("apiGroups", ["URL"])
        for resource in (rule["resources"] if "resources" in rule else rule["nonResourceURLs"])
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    }


def missing(granted: set[Permission], wanted: set[Permission]) -> set[Permission]:
    """Return the permissions of ``wanted`` that ``granted`` does not contain."""
    return {
        (group, resource, name, verb)
        for group, resource, name, verb in wanted
        if not {(group, resource, name, verb), (group, resource, "", verb)} & granted
    }
