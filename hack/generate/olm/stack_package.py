"""The OLM package of the operator of InferenceStacks: a bundle for each major version, and their catalog.

Operators of several major versions are installed in one cluster, so the bundles own no CRD, and all names in a bundle
contain the major version (:mod:`.stack_operator`). The files are in ``deploy/inference-stack/``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cfo.api.inferencestack import profiles
from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.runtime.objects.rbac import policy_rules
from hack import ROOT
from hack.files import ToolError, read
from hack.generate.kustomize import HEADER, dump
from hack.generate.olm.bundle import icon, install_modes, webhook_definition
from hack.generate.olm.catalog import catalog_dockerfile, template
from hack.generate.olm.channels import Releases, channels, default_channel
from hack.generate.olm.stack_operator import STACK_OPERATOR, StackOperator
from hack.release import history
from hack.release.history import CHANNELS, STACK_CATALOG
from hack.release.semver import Version
from hack.release.stack_releases import PROFILES, RELEASES

FOLDER = "deploy/inference-stack"
BUNDLE_IMAGE = "quay.io/project-codeflare/inference-stack-operator-bundle"
CATALOG_IMAGE = "quay.io/project-codeflare/inference-stack-operator-catalog"
_DESCRIPTION = (
    "Runs language models behind a gateway: InferenceStacks, with autoscaling and safe rollouts."
)


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    generated = {
        PROFILES: HEADER + dump(_profiles()),
        f"{FOLDER}/template.yaml": HEADER + dump(template(BUNDLE_IMAGE, releases())),
        STACK_CATALOG: HEADER + dump(*catalog()),
        f"{FOLDER}/catalog.Dockerfile": catalog_dockerfile(f"{FOLDER}/catalog", STACK_OPERATOR),
        f"{FOLDER}/catalog.Dockerfile.dockerignore": f"{HEADER}*\n!{FOLDER}/catalog\n",
    }
    for version in current_versions():
        folder = f"{FOLDER}/v{version.major}"
        generated |= {
            f"{folder}/manifests/{name}": HEADER + dump(obj)
            for name, obj in _manifests(version).items()
        }
        generated[f"{folder}/metadata/annotations.yaml"] = HEADER + dump(
            {"annotations": bundle_annotations(version)}
        )
        generated[f"{folder}/bundle.Dockerfile"] = _dockerfile(folder, version)
        generated[f"{folder}/bundle.Dockerfile.dockerignore"] = f"{HEADER}*\n!{folder}\n"
    return generated


def _profiles() -> dict[str, Any]:
    """Return the defaults of each profile, which the release tool compares with those of the previous release."""
    return {name: asdict(profile) for name, profile in profiles.PROFILES.items()}


def releases() -> Releases:
    """Return every release of the catalog, oldest first, and its channel."""
    return sorted(history.parse_releases(read(ROOT / RELEASES, ROOT), RELEASES).items())


def current_versions() -> list[Version]:
    """Return the newest release of each major version."""
    return list({version.major: version for version, _ in releases()}.values())


def channel_names(version: Version) -> list[str]:
    """Return the channels that offer ``version``, the most mature one first."""
    maturity = CHANNELS.index(dict(releases())[version])
    return [f"{name}-v{version.major}" for name in CHANNELS[: maturity + 1]][::-1]


def bundle_annotations(version: Version) -> dict[str, str]:
    """Return the annotations that registries read from the image of the bundle of ``version``."""
    prefix = "operators.operatorframework.io.bundle"
    return {
        f"{prefix}.mediatype.v1": "registry+v1",
        f"{prefix}.manifests.v1": "manifests/",
        f"{prefix}.metadata.v1": "metadata/",
        f"{prefix}.package.v1": STACK_OPERATOR,
        f"{prefix}.channels.v1": ",".join(channel_names(version)),
        f"{prefix}.channel.default.v1": default_channel(releases()),
    }


def cluster_service_version(version: Version) -> dict[str, Any]:
    """Return the ClusterServiceVersion of ``version``."""
    operator = StackOperator(f"v{version.major}")
    image = default_image()
    deployment = operator.deployment(image)
    rules = operator.rules("own")
    spec: dict[str, Any] = {
        "displayName": "Inference Stack Operator",
        "description": f"{_DESCRIPTION}\n\nThis version reconciles the InferenceStacks with the label "
        f"`operatorVersion: {operator.version}`. Their CRDs are in the Helm chart `catalog`.\n",
        "version": str(version),
        "maturity": "stable",
        "minKubeVersion": "1.28.0",
        "keywords": ["inference", "language models", "gpu", "machine learning"],
        "maintainers": [{"name": "Project CodeFlare", "email": "maintainers@codeflare.dev"}],
        "provider": {"name": "Project CodeFlare", "url": "https://github.com/project-codeflare"},
        "links": [{"name": "Source", "url": "https://github.com/project-codeflare/cfo"}],
        "icon": icon(),
        "installModes": install_modes(),
        "customresourcedefinitions": {},
        "install": {
            "strategy": "deployment",
            "spec": {
                "clusterPermissions": [
                    {
                        "serviceAccountName": operator.name,
                        "rules": policy_rules(rule for rule in rules if not rule.namespace),
                    }
                ],
                "permissions": [
                    {
                        "serviceAccountName": operator.name,
                        "rules": policy_rules(rule for rule in rules if rule.namespace),
                    }
                ],
                "deployments": [
                    {"name": operator.name, "label": operator.labels, "spec": deployment["spec"]}
                ],
            },
        },
        "webhookdefinitions": [
            webhook_definition(webhook, "ValidatingAdmissionWebhook", operator.name)
            for webhook in operator.webhooks(DEFAULT_NAMESPACE)
        ],
        "relatedImages": [{"name": "manager", "image": image}],
    }
    metadata = {
        "name": f"{STACK_OPERATOR}.v{version}",
        "namespace": "placeholder",
        "annotations": {
            "alm-examples": "[]",
            "capabilities": "Deep Insights",
            "categories": "AI/Machine Learning",
            "containerImage": image,
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


def _manifests(version: Version) -> dict[str, Any]:
    operator = StackOperator(f"v{version.major}")
    manifests = {f"{STACK_OPERATOR}.clusterserviceversion.yaml": cluster_service_version(version)}
    others = [operator.config_map(), operator.metrics_service(), operator.disruption_budget()]
    for obj in others:
        manifests[f"{obj['metadata']['name']}_{obj['kind'].lower()}.yaml"] = obj
    return manifests


def catalog() -> list[dict[str, Any]]:
    """Return the file-based catalog: the package, its channels, and every bundle that was ever in it.

    Raises :class:`~hack.files.ToolError` if the bundle of an earlier release is missing.
    """
    path = ROOT / STACK_CATALOG
    bundles = history.bundles(path.read_text(), STACK_CATALOG) if path.exists() else {}
    # Bundles in the catalog never change, because they may be installed.
    for version in current_versions():
        bundles.setdefault(f"{STACK_OPERATOR}.v{version}", _bundle(version))
    names = [f"{STACK_OPERATOR}.v{version}" for version, _ in releases()]
    missing = [name for name in names if name not in bundles]
    if missing:
        raise ToolError(
            f"{STACK_CATALOG}: the bundles of {', '.join(missing)} are missing; restore {FOLDER}/ from git"
        )
    removed = sorted(bundles.keys() - set(names))
    if removed:
        raise ToolError(
            f"{RELEASES}: {', '.join(removed)} is not listed; a release must never be removed"
        )
    (image,) = icon()
    package = {
        "schema": "olm.package",
        "name": STACK_OPERATOR,
        "defaultChannel": default_channel(releases()),
        "icon": image,
        "description": _DESCRIPTION,
    }
    return [package, *channels(STACK_OPERATOR, releases()), *(bundles[name] for name in names)]


def _bundle(version: Version) -> dict[str, Any]:
    csv = cluster_service_version(version)
    spec = csv["spec"]
    shown_fields = (
        "installModes",
        "displayName",
        "keywords",
        "links",
        "maintainers",
        "maturity",
        "minKubeVersion",
        "provider",
    )
    metadata = dict(csv["metadata"]["annotations"])
    metadata.pop("alm-examples", None)
    return {
        "schema": "olm.bundle",
        "name": csv["metadata"]["name"],
        "package": STACK_OPERATOR,
        "image": f"{BUNDLE_IMAGE}:v{version}",
        "properties": [
            {
                "type": "olm.package",
                "value": {"packageName": STACK_OPERATOR, "version": str(version)},
            },
            {
                "type": "olm.csv.metadata",
                "value": {"annotations": metadata, **{key: spec[key] for key in shown_fields}},
            },
        ],
        "relatedImages": [
            {"name": "", "image": f"{BUNDLE_IMAGE}:v{version}"},
            *spec["relatedImages"],
        ],
    }


def _dockerfile(folder: str, version: Version) -> str:
    labels = "\n".join(f"LABEL {key}={value}" for key, value in bundle_annotations(version).items())
    return f"""{HEADER}FROM scratch

LABEL org.opencontainers.image.version={version}
{labels}

COPY {folder}/manifests /manifests/
COPY {folder}/metadata /metadata/
"""
