"""The objects that install the operator from the catalog, with OLM v1 and with OLM v0: ``config/olm``."""

from __future__ import annotations

from typing import Any

from cfo import operator
from cfo.dashboard.in_cluster import PREFIX as DASHBOARD_PREFIX
from cfo.features import OPTIONAL_ROLES
from cfo.manifests.names import DEFAULT_NAMESPACE, PREFIX
from cfo.manifests.rbac import kind_roles
from cfo.runtime.objects.rbac import CRUD, Rule, policy_rules
from cfo.version import __version__
from hack.generate.kustomize import HEADER, dump
from hack.generate.olm.catalog import CATALOG_IMAGE
from hack.generate.olm.channels import PACKAGE, channel_names, channel_of, default_channel
from hack.release.semver import Version

INSTALLER = f"{PREFIX}-installer"
"""The service account with which OLM v1 installs."""


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    return {
        "config/olm/clustercatalog.yaml": HEADER + dump(_cluster_catalog()),
        "config/olm/clusterextension.yaml": HEADER + dump(*_extension()),
        "config/olm/subscription.yaml": HEADER + dump(*_subscription()),
    }


def _cluster_catalog() -> dict[str, Any]:
    source = {
        "type": "Image",
        "image": {"ref": f"{CATALOG_IMAGE}:latest", "pollIntervalMinutes": 60},
    }
    return {
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": f"{PREFIX}-catalog"},
        "spec": {"priority": 0, "availabilityMode": "Available", "source": source},
    }


def installer_rules() -> list[dict[str, Any]]:
    """Return the permissions of the installer: to create these objects, and all that it grants to the operator.

    Kubernetes lets a client grant only the permissions that it has itself.
    """
    own = [
        Rule("", ("services", "serviceaccounts"), CRUD),
        Rule("", "secrets", CRUD),
        Rule("apps", "deployments", CRUD),
        Rule("policy", "poddisruptionbudgets", CRUD),
        Rule(
            "rbac.authorization.k8s.io",
            ("clusterroles", "clusterrolebindings", "roles", "rolebindings"),
            CRUD,
        ),
        Rule("apiextensions.k8s.io", "customresourcedefinitions", CRUD),
        Rule(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            CRUD,
        ),
        Rule("cert-manager.io", ("issuers", "certificates"), CRUD),
        Rule("olm.operatorframework.io", "clusterextensions/finalizers", "update", [PACKAGE]),
    ]
    granted: list[Rule] = []
    for kind_role in kind_roles():
        granted += kind_role.rules
    for role in OPTIONAL_ROLES:
        for bound_rules in role.bound_roles().values():
            granted += bound_rules
    granted += operator.rules(DEFAULT_NAMESPACE)
    for role in OPTIONAL_ROLES:
        granted += role.rules()
    rules = policy_rules([*own, *granted])
    return [*rules, {"nonResourceURLs": [f"{DASHBOARD_PREFIX}/*", "/metrics"], "verbs": ["get"]}]


def _extension() -> list[dict[str, Any]]:
    version = Version.parse(__version__)
    account = {"kind": "ServiceAccount", "name": INSTALLER, "namespace": DEFAULT_NAMESPACE}
    api = "rbac.authorization.k8s.io/v1"
    catalog_source = {
        "packageName": PACKAGE,
        "channels": [channel_names(version, channel_of(version))[0]],
        "version": f"{version.major}.x",
        "upgradeConstraintPolicy": "CatalogProvided",
        "selector": {
            "matchLabels": {"olm.operatorframework.io/metadata.name": f"{PREFIX}-catalog"}
        },
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFAULT_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": INSTALLER, "namespace": DEFAULT_NAMESPACE},
        },
        {
            "apiVersion": api,
            "kind": "ClusterRole",
            "metadata": {"name": INSTALLER},
            "rules": installer_rules(),
        },
        {
            "apiVersion": api,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": INSTALLER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": INSTALLER,
            },
            "subjects": [account],
        },
        {
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": {"name": PACKAGE},
            "spec": {
                "namespace": DEFAULT_NAMESPACE,
                "serviceAccount": {"name": INSTALLER},
                "source": {"sourceType": "Catalog", "catalog": catalog_source},
            },
        },
    ]


def _subscription() -> list[dict[str, Any]]:
    """Return the objects for OLM v0; its global namespace already has an OperatorGroup."""
    return [
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": f"{PREFIX}-catalog", "namespace": "openshift-marketplace"},
            "spec": {
                "sourceType": "grpc",
                "image": f"{CATALOG_IMAGE}:latest",
                "displayName": "CodeFlare Operator",
            },
        },
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": {"name": PACKAGE, "namespace": DEFAULT_NAMESPACE},
            "spec": {
                "name": PACKAGE,
                "channel": default_channel(),
                "source": f"{PREFIX}-catalog",
                "sourceNamespace": "openshift-marketplace",
                "installPlanApproval": "Automatic",
            },
        },
    ]
