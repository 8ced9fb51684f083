"""The OLM bundle, the catalog (template and file-based), and what OLM v1 needs to install from it.

Formats: the bundle and its annotations are `registry+v1`_; the catalog is a `file-based catalog`_, rendered from a
semver template as opm renders it: in each channel the newest patch of a minor version replaces that of the minor
version before, and skips all others that are older, so that one step leads to the newest.

.. _registry+v1: https://olm.operatorframework.io/docs/tasks/creating-operator-bundle/
.. _file-based catalog: https://olm.operatorframework.io/docs/reference/file-based-catalogs/
"""

from __future__ import annotations

import base64
import json
from itertools import groupby
from pathlib import Path
from typing import Any

import released
import stack
import yaml
from documents import Refused
from kustomize import HEADER, dump
from released import CHANNELS
from semver import Version

from cfo import operator
from cfo.config import OperatorConfiguration
from cfo.manifests import DEFAULT_NAMESPACE, default_image, options, workload
from cfo.manifests.names import DEPLOYMENT, PREFIX, SERVICE_ACCOUNT
from cfo.manifests.overlays import definitions
from cfo.manifests.rbac import user_roles
from cfo.runtime.reconcile import CRUD, Rule, policy_rules
from cfo.version import __version__

ROOT = Path(__file__).parent.parent
PACKAGE = PREFIX
BUNDLE_IMAGE = "quay.io/project-codeflare/codeflare-operator-bundle"
CATALOG_IMAGE = "quay.io/project-codeflare/codeflare-operator-catalog"
INSTALLER = f"{PREFIX}-installer"


def releases() -> list[tuple[Version, str]]:
    """Every release of the catalog, oldest first, and the channel that it has come to."""
    return list(released.releases(ROOT).items())


def files() -> dict[str, str]:
    """Every generated file, by its path from the repository's root."""
    made = {f"bundle/manifests/{name}": content for name, content in _manifests().items()}
    made["bundle/metadata/annotations.yaml"] = HEADER + dump({"annotations": bundle_annotations()})
    made["bundle/tests/scorecard/config.yaml"] = HEADER + dump(_scorecard())
    made["bundle.Dockerfile"] = _bundle_dockerfile()
    made["catalog/template.yaml"] = HEADER + dump(template())
    made["catalog/codeflare-operator/catalog.yaml"] = HEADER + dump(*catalog())
    made["catalog.Dockerfile"] = _catalog_dockerfile()
    made["config/olm/clustercatalog.yaml"] = HEADER + dump(_cluster_catalog())
    made["config/olm/clusterextension.yaml"] = HEADER + dump(*_extension())
    made["config/olm/subscription.yaml"] = HEADER + dump(*_subscription())
    return made


# The bundle


def _manifests() -> dict[str, str]:
    (definition,) = definitions()
    made = {
        f"{PACKAGE}.clusterserviceversion.yaml": cluster_service_version(),
        "workload.codeflare.dev_appwrappers.yaml": definition,
        **{
            f"{obj['metadata']['name']}_{obj['kind'].lower()}.yaml": obj
            for obj in (*workload.services(""), *user_roles())
        },
    }
    return {name: HEADER + dump(obj) for name, obj in made.items()}


def bundle_annotations() -> dict[str, str]:
    """What registries read of the bundle's image."""
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


def channel_of(version: Version) -> str:
    """The channel that a version has come to: candidate, where it is not released yet."""
    return dict(releases()).get(version, "candidate")


def channel_names(version: Version, channel: str) -> list[str]:
    """The channels that offer a version which has come to ``channel``: ``stable-v1``, ``fast-v1``, ..."""
    return [f"{name}-v{version.major}" for name in CHANNELS[: CHANNELS.index(channel) + 1]][::-1]


def default_channel() -> str:
    """The most mature channel, of the newest major version that has come so far: as opm chooses it."""
    best, major = max((CHANNELS.index(channel), version.major) for version, channel in releases())
    return f"{CHANNELS[best]}-v{major}"


def cluster_service_version() -> dict[str, Any]:
    """The ClusterServiceVersion of this version."""
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
        "keywords": ["ray", "raycluster", "appwrapper", "kueue", "machine learning", "batch"],
        "maintainers": [{"name": "Project CodeFlare", "email": "maintainers@codeflare.dev"}],
        "provider": {"name": "Project CodeFlare", "url": "https://github.com/project-codeflare"},
        "links": [{"name": "Source", "url": "https://github.com/project-codeflare/cfo"}],
        "icon": [
            {
                "base64data": base64.b64encode((ROOT / "hack/icon.svg").read_bytes()).decode(),
                "mediatype": "image/svg+xml",
            }
        ],
        "installModes": [
            {"type": mode, "supported": mode == "AllNamespaces"}
            for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
        ],
        "customresourcedefinitions": {"owned": _owned(), "required": _required()},
        "install": {
            "strategy": "deployment",
            "spec": {
                "clusterPermissions": [_permissions(everywhere=True)],
                "permissions": [_permissions(everywhere=False)],
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
            "olm.skipRange": f">={max(version.major - 1, 0)}.0.0 <{version}",  # who changes to the next major's channel
            "operatorframework.io/suggested-namespace": DEFAULT_NAMESPACE,
            "repository": "https://github.com/project-codeflare/cfo",
            "support": "Community",
        },
        "labels": {f"operatorframework.io/arch.{architecture}": "supported" for architecture in ("amd64", "arm64")},
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": metadata,
        "spec": spec,
    }


def _description() -> str:
    rows = "\n".join(f"* {each['name']} {each['version']}" for each in stack.load())
    return f"""Makes Ray clusters on Kubernetes and OpenShift safe and orderly: dashboards behind authentication, mutual
TLS between nodes, NetworkPolicies; and AppWrappers, which put any workload under Kueue's quota as one unit.

This version is made for:

{rows}
"""


def _deployment(image: str) -> dict[str, Any]:
    """The Deployment as OLM has it: with the certificate that OLM mounts."""
    obj = workload.deployment("", image)
    directory = OperatorConfiguration().webhook.cert_dir
    options.patch(
        obj,
        [{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": [f"--webhook-cert-dir={directory}"]}],
    )
    return {"name": DEPLOYMENT, "label": obj["metadata"]["labels"], "spec": obj["spec"]}


def _permissions(*, everywhere: bool) -> dict[str, Any]:
    """Rights in the cluster, or in the operator's namespace; none on what OLM looks after."""
    webhook = OperatorConfiguration().webhook
    managed = {
        operator.WEBHOOK_SECRET_NAME,
        webhook.mutating_configuration_name,
        webhook.validating_configuration_name,
    }
    wanted: list[Rule] = [
        rule
        for rule in operator.rules("own")
        if bool(rule.namespace) is not everywhere
        and not managed & set(rule.resource_names)
        and not (rule.namespace and rule.resources == ("secrets",))
    ]
    return {"serviceAccountName": SERVICE_ACCOUNT, "rules": policy_rules(wanted)}


def _owned() -> list[dict[str, str]]:
    return [
        {
            "name": definition["metadata"]["name"],
            "kind": definition["spec"]["names"]["kind"],
            "version": version["name"],
            "displayName": "App Wrapper",
            "description": "Any resources, wrapped as one unit that a queue admits, suspends, retries and cleans up.",
        }
        for definition in definitions()
        for version in definition["spec"]["versions"]
    ]


def _required() -> list[dict[str, str]]:
    """None: the controllers of RayClusters begin when KubeRay is installed, and do without until then."""
    return []


def webhook_definitions() -> list[dict[str, Any]]:
    """The webhooks in the form that OLM makes configurations of."""
    found = []
    for configuration in operator.webhook_configurations(DEFAULT_NAMESPACE):
        kind = configuration["kind"].removesuffix("Configuration").replace("Webhook", "AdmissionWebhook")
        for webhook in configuration["webhooks"]:
            rest = {key: value for key, value in webhook.items() if key not in ("name", "clientConfig")}
            found.append(
                {
                    "type": kind,
                    "generateName": webhook["name"],
                    "deploymentName": DEPLOYMENT,
                    "containerPort": 443,
                    "targetPort": workload.WEBHOOK_PORT,
                    "webhookPath": webhook["clientConfig"]["service"]["path"],
                    **rest,
                }
            )
    return found


def _examples() -> list[dict[str, Any]]:
    """One sample of each kind."""
    samples = [
        obj
        for path in sorted((ROOT / "config/samples").glob("*.yaml"))
        for obj in yaml.safe_load_all(path.read_text())
        if obj and obj["kind"] in ("RayCluster", "AppWrapper")
    ]
    return [next(group) for _, group in groupby(sorted(samples, key=lambda obj: obj["kind"]), lambda obj: obj["kind"])]


def _scorecard() -> dict[str, Any]:
    image = "quay.io/operator-framework/scorecard-test:v1.39.2"
    suites = {
        "basic": ["basic-check-spec"],
        "olm": ["olm-bundle-validation", "olm-crds-have-validation", "olm-crds-have-resources"],
    }
    tests = [
        {"entrypoint": ["scorecard-test", test], "image": image, "labels": {"suite": suite, "test": f"{test}-test"}}
        for suite, names in suites.items()
        for test in names
    ]
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

COPY bundle/manifests /manifests/
COPY bundle/metadata /metadata/
COPY bundle/tests/scorecard /tests/scorecard/
"""


# The catalog


def template() -> dict[str, Any]:
    """The semver template, for ``opm alpha render-template semver``."""
    content: dict[str, Any] = {"Schema": "olm.semver", "GenerateMajorChannels": True, "GenerateMinorChannels": False}
    for index, name in enumerate(CHANNELS):
        bundles = [
            {"Image": f"{BUNDLE_IMAGE}:v{version}"}
            for version, channel in releases()
            if CHANNELS.index(channel) >= index
        ]
        if bundles:
            content[name.capitalize()] = {"Bundles": bundles}
    return content


def catalog() -> list[dict[str, Any]]:
    """The file-based catalog: the package, its channels, and every bundle that ever was in it."""
    path = ROOT / released.CATALOG
    bundles = released.bundles(path.read_text()) if path.exists() else {}
    version = Version.parse(__version__)
    if version in dict(releases()):  # one that is there already is never changed: somebody may run it
        bundles.setdefault(f"{PACKAGE}.v{version}", _bundle(version))
    icon = cluster_service_version()["spec"]["icon"][0]
    package = {
        "schema": "olm.package",
        "name": PACKAGE,
        "defaultChannel": default_channel(),
        "icon": {"base64data": icon["base64data"], "mediatype": icon["mediatype"]},
        "description": "Makes Ray clusters safe and orderly, and puts any workload under quota as one unit.",
    }
    names = [f"{PACKAGE}.v{version}" for version, _ in releases()]
    missing = [name for name in names if name not in bundles]
    if missing:
        raise Refused(f"catalog: the bundles of {', '.join(missing)} are in no catalog; restore catalog/ from git")
    return [package, *channels(), *(bundles[name] for name in names)]


def channels() -> list[dict[str, Any]]:
    """The channels and their upgrade graph."""
    found = []
    for index, name in reversed(list(enumerate(CHANNELS))):
        members = [version for version, channel in releases() if CHANNELS.index(channel) >= index]
        for major, versions in groupby(members, key=lambda version: version.major):
            entries: list[dict[str, Any]] = []
            previous = ""
            for _, patches in groupby(versions, key=lambda version: version.minor):
                *older, head = [f"{PACKAGE}.v{version}" for version in patches]
                entries += [{"name": each} for each in older]
                edges: dict[str, Any] = {"replaces": previous} if previous else {}
                if skips := sorted(each["name"] for each in entries if each["name"] != previous):
                    edges["skips"] = skips
                entries.append({"name": head, **edges})
                previous = head
            found.append({"schema": "olm.channel", "name": f"{name}-v{major}", "package": PACKAGE, "entries": entries})
    return found


def _bundle(version: Version) -> dict[str, Any]:
    csv = cluster_service_version()
    kinds = [
        {"group": definition["spec"]["group"], "kind": definition["spec"]["names"]["kind"], "version": each["name"]}
        for definition in definitions()
        for each in definition["spec"]["versions"]
    ]
    metadata = {key: value for key, value in csv["metadata"]["annotations"].items() if key != "alm-examples"}
    spec = csv["spec"]
    shown = ("displayName", "keywords", "links", "maintainers", "maturity", "minKubeVersion", "provider")
    return {
        "schema": "olm.bundle",
        "name": f"{PACKAGE}.v{version}",
        "package": PACKAGE,
        "image": f"{BUNDLE_IMAGE}:v{version}",
        "properties": [
            {"type": "olm.package", "value": {"packageName": PACKAGE, "version": str(version)}},
            *({"type": "olm.gvk", "value": kind} for kind in kinds),
            {
                "type": "olm.csv.metadata",
                "value": {
                    "annotations": metadata,
                    "installModes": spec["installModes"],
                    "crdDescriptions": {"owned": spec["customresourcedefinitions"]["owned"]},
                    **{key: spec[key] for key in shown},
                },
            },
        ],
        "relatedImages": [
            {"name": "", "image": f"{BUNDLE_IMAGE}:v{version}"},
            *spec["relatedImages"],
        ],
    }


def _catalog_dockerfile() -> str:
    return f"""{HEADER}FROM quay.io/operator-framework/opm:v1.51.0

ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]

COPY catalog/codeflare-operator /configs/codeflare-operator
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

LABEL operators.operatorframework.io.index.configs.v1=/configs
"""


# What a cluster is told


def _cluster_catalog() -> dict[str, Any]:
    source = {"type": "Image", "image": {"ref": f"{CATALOG_IMAGE}:latest", "pollIntervalMinutes": 60}}
    return {
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": f"{PREFIX}-catalog"},
        "spec": {"priority": 0, "availabilityMode": "Available", "source": source},
    }


def installer_rules() -> list[dict[str, Any]]:
    """What the installer may do: install these very objects, and grant the operator's rights, which it needs itself."""
    own = [
        Rule("", ("services", "serviceaccounts"), CRUD),
        Rule("", "secrets", CRUD),
        Rule("apps", "deployments", CRUD),
        Rule("policy", "poddisruptionbudgets", CRUD),
        Rule("rbac.authorization.k8s.io", ("clusterroles", "clusterrolebindings", "roles", "rolebindings"), CRUD),
        Rule("apiextensions.k8s.io", "customresourcedefinitions", CRUD),
        Rule(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            CRUD,
        ),
        Rule("cert-manager.io", ("issuers", "certificates"), CRUD),
        Rule("olm.operatorframework.io", "clusterextensions/finalizers", "update", [PACKAGE]),
        Rule("workload.codeflare.dev", "appwrappers", CRUD),
        Rule("workload.codeflare.dev", "appwrappers/status", "get"),
    ]
    rules = policy_rules([*own, *operator.rules(DEFAULT_NAMESPACE)])
    return [*rules, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def _extension() -> list[dict[str, Any]]:
    version = Version.parse(__version__)
    account = {"kind": "ServiceAccount", "name": INSTALLER, "namespace": DEFAULT_NAMESPACE}
    api = "rbac.authorization.k8s.io/v1"
    catalog_source = {
        "packageName": PACKAGE,
        "channels": [channel_names(version, channel_of(version))[0]],
        "version": f"{version.major}.x",
        "upgradeConstraintPolicy": "CatalogProvided",
        "selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": f"{PREFIX}-catalog"}},
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
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": INSTALLER},
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
    """For OLM v0, whose global namespace has an OperatorGroup already."""
    return [
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": f"{PREFIX}-catalog", "namespace": "openshift-marketplace"},
            "spec": {"sourceType": "grpc", "image": f"{CATALOG_IMAGE}:latest", "displayName": "CodeFlare Operator"},
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
