"""The bundle of this version: its manifests, annotations, scorecard and image, in the format `registry+v1`_.

.. _registry+v1: https://olm.operatorframework.io/docs/tasks/creating-operator-bundle/
"""

from __future__ import annotations

import base64
import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from cfo import operator
from cfo.config.model import OperatorConfiguration
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import overlays, workload
from cfo.manifests.names import DEFAULT_NAMESPACE, DEPLOYMENT, SERVICE_ACCOUNT, default_image
from cfo.manifests.rbac import optional_access, user_roles
from cfo.runtime.objects.rbac import Rule, policy_rules
from cfo.version import __version__
from hack import ROOT
from hack.generate.kustomize import HEADER, crd_file_name, dump
from hack.generate.olm.channels import PACKAGE, channel_names, channel_of, default_channel, releases
from hack.release import stack
from hack.release.history import CHANNELS
from hack.release.semver import Version

_ICON = Path(__file__).with_name("icon.svg")


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    manifests = {
        f"deploy/bundle/manifests/{name}": content for name, content in _manifests().items()
    }
    return {
        **manifests,
        "deploy/bundle/metadata/annotations.yaml": HEADER
        + dump({"annotations": bundle_annotations()}),
        "deploy/bundle/tests/scorecard/config.yaml": HEADER + dump(_scorecard()),
        "deploy/bundle.Dockerfile": _bundle_dockerfile(),
        "deploy/bundle.Dockerfile.dockerignore": f"{HEADER}*\n!deploy/bundle\n",
    }


def _manifests() -> dict[str, str]:
    manifests = {f"{PACKAGE}.clusterserviceversion.yaml": cluster_service_version()}
    for crd in overlays.bundled_crds():
        manifests[crd_file_name(crd)] = crd
    others = [
        workload.metrics_service(""),
        workload.disruption_budget(""),
        *user_roles(),
        *_optional_roles(),
    ]
    for obj in others:
        manifests[f"{obj['metadata']['name']}_{obj['kind'].lower()}.yaml"] = obj
    return {name: HEADER + dump(obj) for name, obj in manifests.items()}


def bundle_annotations() -> dict[str, str]:
    """Return the annotations that registries read from the bundle's image."""
    version = Version.parse(__version__)
    names = channel_names(version, channel_of(version))
    prefix = "operators.operatorframework.io"
    return {
        f"{prefix}.bundle.mediatype.v1": "registry+v1",
        f"{prefix}.bundle.manifests.v1": "manifests/",
        f"{prefix}.bundle.metadata.v1": "metadata/",
        f"{prefix}.bundle.package.v1": PACKAGE,
        f"{prefix}.bundle.channels.v1": ",".join(names),
        f"{prefix}.bundle.channel.default.v1": default_channel(),
        f"{prefix}.test.mediatype.v1": "scorecard+v1",
        f"{prefix}.test.config.v1": "tests/scorecard/",
    }


def cluster_service_version() -> dict[str, Any]:
    """Return the ClusterServiceVersion of this version."""
    version = Version.parse(__version__)
    image = default_image()
    maturity = CHANNELS.index(channel_of(version))
    older = [
        each
        for each, channel in releases()
        if each < version and each.major == version.major and CHANNELS.index(channel) >= maturity
    ]
    deployment = _deployment(image)
    spec: dict[str, Any] = {
        "displayName": "CodeFlare Operator",
        "description": _description(),
        "version": str(version),
        **({"replaces": f"{PACKAGE}.v{older[-1]}"} if older else {}),
        "maturity": "alpha" if version.major == 0 else "stable",
        "minKubeVersion": "1.28.0",
        "keywords": [
            "ray",
            "raycluster",
            "appwrapper",
            "kueue",
            "flux",
            "hpc",
            "machine learning",
            "batch",
        ],
        "maintainers": [{"name": "Project CodeFlare", "email": "maintainers@codeflare.dev"}],
        "provider": {"name": "Project CodeFlare", "url": "https://github.com/project-codeflare"},
        "links": [{"name": "Source", "url": "https://github.com/project-codeflare/cfo"}],
        "icon": icon(),
        "installModes": install_modes(),
        "customresourcedefinitions": {"owned": _owned(), "required": _required()},
        "install": {
            "strategy": "deployment",
            "spec": {
                "clusterPermissions": [_permissions(cluster_wide=True)],
                "permissions": [_permissions(cluster_wide=False)],
                "deployments": [deployment],
            },
        },
        "webhookdefinitions": webhook_definitions(),
        "relatedImages": [{"name": "manager", "image": image}],
    }
    metadata = {
        "name": f"{PACKAGE}.v{version}",
        "namespace": "placeholder",
        "annotations": {
            "alm-examples": json.dumps(_examples(), indent=2),
            "capabilities": "Seamless Upgrades",
            "categories": "AI/Machine Learning, Big Data",
            "containerImage": image,
            # upgrades in place when a Subscription changes to the channel of the next major version
            "olm.skipRange": f">={max(version.major - 1, 0)}.0.0 <{version}",
            "operatorframework.io/suggested-namespace": DEFAULT_NAMESPACE,
            "repository": "https://github.com/project-codeflare/cfo",
            "support": "Community",
        },
        "labels": {
            f"operatorframework.io/arch.{architecture}": "supported"
            for architecture in ("amd64", "arm64")
        },
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": metadata,
        "spec": spec,
    }


def icon() -> list[dict[str, str]]:
    """Return the icon of the packages."""
    return [
        {"base64data": base64.b64encode(_ICON.read_bytes()).decode(), "mediatype": "image/svg+xml"}
    ]


def install_modes() -> list[dict[str, Any]]:
    """Return the install modes: only all namespaces, which is also the only one of OLM v1."""
    return [
        {"type": mode, "supported": mode == "AllNamespaces"}
        for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
    ]


def _description() -> str:
    rows = "\n".join(f"* {each['name']} {each['version']}" for each in stack.load())
    return f"""Secures Ray clusters on Kubernetes and OpenShift: dashboards behind authentication, mutual TLS between
nodes, NetworkPolicies. Adds AppWrappers, which put any workload under Kueue's quota as one unit, and Flux:
MiniClusters, and FluxJobs that wait for the quota of a FluxSetup.

This version is built for:

{rows}
"""


def _deployment(image: str) -> dict[str, Any]:
    """Return the Deployment for OLM, which mounts the webhooks' certificate."""
    obj = workload.deployment("", image)
    directory = OperatorConfiguration().webhook.cert_dir
    overlays.patch(
        obj,
        [
            {
                "op": "add",
                "path": "/spec/template/spec/containers/0/args",
                "value": [f"--webhook-cert-dir={directory}"],
            }
        ],
    )
    return {"name": DEPLOYMENT, "label": obj["metadata"]["labels"], "spec": obj["spec"]}


def _permissions(*, cluster_wide: bool) -> dict[str, Any]:
    """Return the permissions in the cluster or in the operator's namespace; OLM manages Secret and webhooks itself."""
    webhook = OperatorConfiguration().webhook
    managed = {
        operator.WEBHOOK_SECRET_NAME,
        webhook.mutating_configuration_name,
        webhook.validating_configuration_name,
    }
    rules: list[Rule] = [
        rule
        for rule in [*operator.rules("own"), *_openshift_rules()]
        if bool(rule.namespace) is not cluster_wide
        and not managed & set(rule.resource_names)
        and not (rule.namespace and rule.resources == ("secrets",))
    ]
    return {"serviceAccountName": SERVICE_ACCOUNT, "rules": policy_rules(rules)}


def _openshift_rules() -> list[Rule]:
    """Return the rules for OpenShift, which most clusters with OLM are."""
    (openshift,) = [role for role in OPTIONAL_ROLES if role.name == "openshift"]
    return list(openshift.rules())


def _optional_roles() -> list[dict[str, Any]]:
    """Return the other optional ClusterRoles: a bundle has no options, so an administrator binds them."""
    found: list[dict[str, Any]] = []
    for role in OPTIONAL_ROLES:
        if role.name != "openshift":
            found += (obj for obj in optional_access(role, "") if obj["kind"] == "ClusterRole")
    return found


def _owned() -> list[dict[str, str]]:
    owned: list[dict[str, str]] = []
    for crd in overlays.bundled_crds():
        kind = crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            owned.append(
                {
                    "name": crd["metadata"]["name"],
                    "kind": kind,
                    "version": version["name"],
                    "displayName": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind),
                    "description": version["schema"]["openAPIV3Schema"]["description"],
                }
            )
    return owned


def _required() -> list[dict[str, str]]:
    """Return no required CRDs: the RayCluster controllers wait until KubeRay is installed."""
    return []


def webhook_definitions() -> list[dict[str, Any]]:
    """Return the webhooks in the form from which OLM creates webhook configurations."""
    webhooks = []
    for configuration in operator.webhook_configurations(DEFAULT_NAMESPACE):
        name = configuration["kind"].removesuffix("Configuration")
        kind = name.replace("Webhook", "AdmissionWebhook")
        for webhook in configuration["webhooks"]:
            webhooks.append(webhook_definition(webhook, kind, DEPLOYMENT))
    return webhooks


def _examples() -> list[dict[str, Any]]:
    """Return one sample for each of our kinds, and for RayCluster."""
    kinds = {"RayCluster", *(crd["spec"]["names"]["kind"] for crd in overlays.bundled_crds())}
    samples: list[dict[str, Any]] = []
    for path in sorted((ROOT / "config/samples").rglob("*.yaml")):
        objects = yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        samples += (obj for obj in objects if obj and obj["kind"] in kinds)
    by_kind = groupby(sorted(samples, key=lambda obj: obj["kind"]), lambda obj: obj["kind"])
    return [_without_demo(next(group)) for _, group in by_kind]


def _without_demo(value: Any) -> Any:
    """Return ``value`` without the annotations that are for the embedded control plane."""
    if isinstance(value, list):
        return [_without_demo(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: _without_demo(item)
        for key, item in value.items()
        if not key.startswith("envtest.cfo/")
    }
    return {key: item for key, item in kept.items() if item != {} or value[key] == {}}


def webhook_definition(webhook: dict[str, Any], kind: str, deployment: str) -> dict[str, Any]:
    """Return ``webhook``, which ``deployment`` serves, in the form of a ClusterServiceVersion."""
    rest = {key: value for key, value in webhook.items() if key not in ("name", "clientConfig")}
    return {
        "type": kind,
        "generateName": webhook["name"],
        "deploymentName": deployment,
        "containerPort": 443,
        "targetPort": workload.WEBHOOK_PORT,
        "webhookPath": webhook["clientConfig"]["service"]["path"],
        **rest,
    }


def _scorecard() -> dict[str, Any]:
    image = "quay.io/operator-framework/scorecard-test:v1.39.2"
    suites = {
        "basic": ["basic-check-spec"],
        "olm": ["olm-bundle-validation", "olm-crds-have-validation", "olm-crds-have-resources"],
    }
    tests: list[dict[str, Any]] = []
    for suite, names in suites.items():
        for test in names:
            labels = {"suite": suite, "test": f"{test}-test"}
            tests.append({"entrypoint": ["scorecard-test", test], "image": image, "labels": labels})
    return {
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
    }


def _bundle_dockerfile() -> str:
    labels = "\n".join(f"LABEL {key}={value}" for key, value in bundle_annotations().items())
    return f"""{HEADER}FROM scratch

{labels}

COPY deploy/bundle/manifests /manifests/
COPY deploy/bundle/metadata /metadata/
COPY deploy/bundle/tests/scorecard /tests/scorecard/
"""
