"""What installs the operators of InferenceStacks from their catalog: samples in ``config/olm``, the chart ``catalog``.

The chart contains the CRDs and the roles of users, which the operators of all major versions share. The CRDs are
templates with ``helm.sh/resource-policy: keep``, so that `helm upgrade` updates them and `helm uninstall`, which would
delete all InferenceStacks with them, keeps them.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from cfo.runtime.objects.rbac import CRUD, Rule, policy_rules
from hack.generate.helm import conditional, escaped
from hack.generate.kustomize import HEADER, dump
from hack.generate.olm.channels import default_channel
from hack.generate.olm.stack_operator import STACK_OPERATOR, StackOperator, shared_objects
from hack.generate.olm.stack_package import CATALOG_IMAGE, channel_names, current_versions, releases
from hack.release.semver import Version

CHART: Final = "deploy/charts/catalog"
NAMESPACE: Final = f"{STACK_OPERATOR}-system"
CATALOG_NAME: Final = "inference-stack-catalog"
INSTALLER: Final = f"{STACK_OPERATOR}-installer"
_RBAC: Final = "rbac.authorization.k8s.io"


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    crds = [obj for obj in shared_objects() if obj["kind"] == "CustomResourceDefinition"]
    roles = [obj for obj in shared_objects() if obj["kind"] == "ClusterRole"]
    for crd in crds:
        crd["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    templates = {
        "clustercatalog": conditional("clusterCatalog.enabled", _CLUSTER_CATALOG),
        "clusterextensions": conditional("clusterExtension.enabled", _CLUSTER_EXTENSIONS),
        "customresourcedefinitions": conditional("customResourceDefinition.enabled", escaped(crds)),
        "roles": conditional("customResourceDefinition.enabled", escaped(roles)),
        "installer": conditional("serviceAccount.create", _installer_template()),
    }
    return {
        "config/olm/inference-stack-clustercatalog.yaml": HEADER + dump(cluster_catalog()),
        "config/olm/inference-stack-clusterextensions.yaml": HEADER + dump(*_samples()),
        f"{CHART}/Chart.yaml": HEADER + dump(_chart()),
        f"{CHART}/values.yaml": _values(),
        **{f"{CHART}/templates/{name}.yaml": HEADER + text for name, text in templates.items()},
    }


def cluster_catalog() -> dict[str, Any]:
    """Return the ClusterCatalog."""
    return {
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": CATALOG_NAME},
        "spec": _catalog_spec(),
    }


def _catalog_spec() -> dict[str, Any]:
    return {
        "source": {
            "type": "Image",
            "image": {"ref": f"{CATALOG_IMAGE}:latest", "pollIntervalMinutes": 10},
        }
    }


def extension_spec(version: Version) -> dict[str, Any]:
    """Return the spec of a ClusterExtension that installs the operator with the major version of ``version``."""
    return {
        "namespace": NAMESPACE,
        "source": {
            "sourceType": "Catalog",
            "catalog": {
                "packageName": STACK_OPERATOR,
                "channels": [channel_names(version)[0]],
                "upgradeConstraintPolicy": "CatalogProvided",
                "selector": {
                    "matchLabels": {"olm.operatorframework.io/metadata.name": CATALOG_NAME}
                },
            },
        },
    }


def _samples() -> list[dict[str, Any]]:
    """Return the namespace, and a ClusterExtension for each major version."""
    extensions = [
        {
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": {"name": _extension_name(version)},
            "spec": extension_spec(version),
        }
        for version in current_versions()
    ]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *extensions]


def _extension_name(version: Version) -> str:
    return f"{STACK_OPERATOR}-v{version.major}"


def installer_rules(versions: list[Version]) -> tuple[list[Rule], list[Rule]]:
    """Return the rules of the installer in its namespace, and those in the cluster.

    They allow it to manage the objects of the bundles of ``versions`` by name, and contain all rules that it grants to
    the operators: Kubernetes lets a client grant only the permissions that it has itself. OLM creates a Service and
    certificates for webhooks, Secrets with its releases, and roles with names that contain a hash.
    """
    operators = [StackOperator(f"v{version.major}") for version in versions]
    names = [operator.name for operator in operators]
    services: list[str] = []
    for name in names:
        services += (f"{name}-metrics", f"{name}-service")
    webhooks: list[str] = []
    for operator in operators:
        webhooks += (webhook["name"] for webhook in operator.webhooks(NAMESPACE))
    own = [
        *_managed("", "services", services),
        *_managed("", ("configmaps", "serviceaccounts"), names),
        *_managed("apps", "deployments", names),
        *_managed("policy", "poddisruptionbudgets", names),
        Rule("", "secrets", CRUD),
        Rule("cert-manager.io", ("issuers", "certificates"), CRUD),
    ]
    cluster = [
        *_managed("admissionregistration.k8s.io", "validatingwebhookconfigurations", webhooks),
        Rule(_RBAC, ("clusterroles", "clusterrolebindings", "roles", "rolebindings"), CRUD),
        # OLM adds it to the permissions in the namespace.
        Rule("", "namespaces", ("get", "list", "watch")),
        Rule(
            "olm.operatorframework.io",
            "clusterextensions/finalizers",
            "update",
            [_extension_name(version) for version in versions],
        ),
    ]
    for operator in operators:
        cluster += operator.rules("")
    return own, cluster


def _managed(group: str, resources: str | tuple[str, ...], names: list[str]) -> list[Rule]:
    """Return rules to manage objects with ``names``; requests to create, list and watch cannot be limited by name."""
    return [
        Rule(group, resources, ("create", "list", "watch")),
        Rule(group, resources, ("delete", "get", "patch", "update"), names),
    ]


def _installer_template() -> str:
    namespace = "{{ .Release.Namespace }}"
    account = "{{ .Values.serviceAccount.name }}"
    own, cluster = installer_rules(current_versions())
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace},
        }
    ]
    for kind, rules in (("Role", own), ("ClusterRole", cluster)):
        reference = {"apiGroup": _RBAC, "kind": kind, "name": INSTALLER}
        metadata = {"name": INSTALLER}
        if kind == "Role":
            metadata["namespace"] = namespace
        objects += [
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": kind,
                "metadata": metadata,
                "rules": policy_rules(rules),
            },
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    return dump(*objects)


def _chart() -> dict[str, Any]:
    newest = max(current_versions())
    return {
        "apiVersion": "v2",
        "name": "catalog",
        "description": "The catalog of the operators of InferenceStacks, their CRDs, and the operators themselves",
        "type": "application",
        "version": str(newest),
        "appVersion": str(newest),
        "kubeVersion": ">=1.28.0-0",
        "home": "https://github.com/project-codeflare/cfo",
    }


def _values() -> str:
    catalog = yaml.safe_dump(
        {"clusterCatalog": {"enabled": True, "annotations": {}, "spec": _catalog_spec()}}
    )
    versions = [
        {"name": _extension_name(version), "annotations": {}, "spec": extension_spec(version)}
        for version in current_versions()
    ]
    extensions = dump({"clusterExtension": {"enabled": False, "versions": versions}})
    return f"""{HEADER}# The image with the catalog.
{catalog}# The operators that OLM installs: one entry for each major version that has InferenceStacks. In the channel
# {default_channel(releases())} OLM installs each new minor and patch version; limit it with `version` in `catalog`.
# OLM before version 1.11 also needs `serviceAccount: {{name: {INSTALLER}}}` in each spec.
{extensions}# The CRDs and the roles of users. `helm uninstall` keeps the CRDs, and with them all InferenceStacks.
customResourceDefinition:
  enabled: true
# The service account with which OLM before version 1.11 installs; later versions ignore it.
serviceAccount:
  create: true
  name: {INSTALLER}
"""


_CLUSTER_CATALOG: Final = f"""apiVersion: olm.operatorframework.io/v1
kind: ClusterCatalog
metadata:
  name: {CATALOG_NAME}
  {{{{- with .Values.clusterCatalog.annotations }}}}
  annotations:
    {{{{- toYaml . | nindent 4 }}}}
  {{{{- end }}}}
spec:
  {{{{- toYaml .Values.clusterCatalog.spec | nindent 2 }}}}
"""

_CLUSTER_EXTENSIONS: Final = """{{- range .Values.clusterExtension.versions }}
---
apiVersion: olm.operatorframework.io/v1
kind: ClusterExtension
metadata:
  name: {{ .name }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- toYaml .spec | nindent 2 }}
{{- end }}
"""
