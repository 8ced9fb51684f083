"""Checks bundle and catalog against the published rules of registries, OLM v0 and OLM v1.

``python -m hack.generate.olm.validate [--previous CATALOG]`` prints every problem; with the catalog of the previous
release it also reports bundles that were dropped.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from hack import ROOT
from hack.release.history import CATALOG, STACK_CATALOG, tagged_bundles
from hack.release.semver import Version

MODES = {"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"}
ICONS = {"image/svg+xml", "image/png", "image/jpeg", "image/gif"}
ANNOTATIONS = ("mediatype", "manifests", "metadata", "package", "channels")
WEBHOOK_TYPES = {"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ConversionWebhook"}

REQUIRED = {
    "olm.package": ("name", "defaultChannel"),
    "olm.channel": ("name", "package", "entries"),
    "olm.bundle": ("name", "package", "image", "properties"),
}
"""The required fields of each schema: https://olm.operatorframework.io/docs/reference/file-based-catalogs/"""

Blob = dict[str, Any]
"""A Kubernetes object, or one document of a file-based catalog."""


def read(path: Path) -> list[Blob]:
    """Return the documents in a file, or in all files of a folder."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found: list[Blob] = []
    for file in files:
        documents = yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
        found += (document for document in documents if document)
    return found


def _parse_version(value: object, where: str, problems: list[str]) -> Version | None:
    try:
        return Version.parse(str(value))
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return None


def bundle_problems(manifests: list[Blob], annotations: dict[str, str]) -> list[str]:
    """Return the problems of a bundle."""
    versions = [obj for obj in manifests if obj.get("kind") == "ClusterServiceVersion"]
    if len(versions) != 1:
        return [f"bundle: must contain exactly one ClusterServiceVersion, contains {len(versions)}"]
    (csv,) = versions
    problems = [*_annotation_problems(annotations), *_csv_problems(csv)]
    crds: set[tuple[str, str]] = set()
    for obj in manifests:
        if obj.get("kind") == "CustomResourceDefinition":
            name = obj["metadata"]["name"]
            crds.update((name, version["name"]) for version in obj["spec"]["versions"])
    entries = csv.get("spec", {}).get("customresourcedefinitions", {}).get("owned", [])
    owned = {(entry.get("name"), entry.get("version")) for entry in entries}
    problems += [
        f"CSV: owns {name} {version}, which is not in the bundle" for name, version in owned - crds
    ]
    problems += [
        f"bundle: contains {name} {version}, which the CSV does not own"
        for name, version in crds - owned
    ]
    return problems


def _annotation_problems(annotations: dict[str, str]) -> Iterator[str]:
    prefix = "operators.operatorframework.io.bundle"
    for name in ANNOTATIONS:
        if not annotations.get(f"{prefix}.{name}.v1"):
            yield f"annotations.yaml: {prefix}.{name}.v1 is missing"
    if annotations.get(f"{prefix}.mediatype.v1") not in (None, "registry+v1"):
        yield f"annotations.yaml: {prefix}.mediatype.v1: must be registry+v1"


_SPEC_FIELDS = (
    "displayName",
    "version",
    "install",
    "installModes",
    "description",
    "provider",
    "maintainers",
    "icon",
)
"""The fields that the spec of a ClusterServiceVersion must have."""


def _csv_problems(csv: Blob) -> list[str]:
    problems: list[str] = []
    spec: Blob = csv.get("spec") or {}
    metadata: Blob = csv.get("metadata") or {}
    problems += [
        f"CSV: metadata.{field} is missing"
        for field in ("name", "annotations")
        if not metadata.get(field)
    ]
    problems += [f"CSV: spec.{field} is missing" for field in _SPEC_FIELDS if not spec.get(field)]
    version = _parse_version(spec.get("version"), "CSV: spec.version", problems)
    if not str(metadata.get("name", "")).endswith(f".v{spec.get('version')}"):
        problems.append(
            f"CSV: metadata.name: {metadata.get('name')!r} must end in .v{spec.get('version')}"
        )
    replaced = spec.get("replaces")
    if replaced:
        _, _, number = str(replaced).partition(".v")
        before = _parse_version(number, "CSV: spec.replaces", problems)
        if version and before and not before < version:
            problems.append(f"CSV: spec.replaces: {replaced} is not older than {version}")
    if spec.get("minKubeVersion"):
        _parse_version(spec["minKubeVersion"], "CSV: spec.minKubeVersion", problems)
    modes = {each.get("type"): each.get("supported") for each in spec.get("installModes") or ()}
    if set(modes) != MODES:
        problems.append(f"CSV: spec.installModes: must name {', '.join(sorted(MODES))}")
    elif not any(modes.values()):
        problems.append("CSV: spec.installModes: one must be supported")
    problems += _deployment_problems(spec)
    problems += _webhook_problems(spec)
    problems += _display_problems(spec, metadata)
    return problems


def _display_problems(spec: Blob, metadata: Blob) -> list[str]:
    problems = []
    for icon in spec.get("icon") or ():
        try:
            base64.b64decode(icon.get("base64data", ""), validate=True)
        except binascii.Error:
            problems.append("CSV: spec.icon.base64data: is not valid base64")
        if icon.get("mediatype") not in ICONS:
            problems.append(f"CSV: spec.icon.mediatype: must be one of {', '.join(sorted(ICONS))}")
    try:
        examples = json.loads((metadata.get("annotations") or {}).get("alm-examples", "[]"))
    except ValueError as error:
        return [*problems, f"CSV: alm-examples: is not valid JSON: {error}"]
    example_kinds = {example.get("kind") for example in examples}
    owned = spec.get("customresourcedefinitions", {}).get("owned", [])
    for crd in owned:
        for field in ("name", "version", "kind"):
            if not crd.get(field):
                problems.append(f"CSV: owned {crd.get('name')}: {field} is missing")
    for crd in owned:
        if crd.get("kind") not in example_kinds:
            problems.append(f"CSV: alm-examples: must have an example of {crd.get('kind')}")
    return problems


def _deployments(spec: Blob) -> list[Blob]:
    install = (spec.get("install") or {}).get("spec") or {}
    deployments: list[Blob] = install.get("deployments") or []
    return deployments


def _deployment_problems(spec: Blob) -> list[str]:
    problems = []
    if (spec.get("install") or {}).get("strategy") != "deployment":
        problems.append("CSV: spec.install.strategy: must be deployment")
    deployments = _deployments(spec)
    if not deployments:
        problems.append("CSV: spec.install.spec.deployments: must not be empty")
    images = {each.get("image") for each in spec.get("relatedImages") or ()}
    for deployment in deployments:
        where = f"CSV: deployment {deployment.get('name')}"
        template = (deployment.get("spec") or {}).get("template") or {}
        if not deployment.get("name") or not (template.get("spec") or {}).get("containers"):
            problems.append(f"{where}: name, or spec.template.spec.containers, is missing")
            continue
        labels = (template.get("metadata") or {}).get("labels") or {}
        selected = deployment["spec"].get("selector", {}).get("matchLabels") or {}
        if not selected or not selected.items() <= labels.items():
            problems.append(f"{where}: its selector does not match its pods")
        for container in template["spec"]["containers"]:
            if container.get("image") not in images:
                problems.append(
                    f"{where}: image {container.get('image')} is not in spec.relatedImages"
                )
        accounts: set[str | None] = set()
        for kind in ("permissions", "clusterPermissions"):
            permissions = spec["install"]["spec"].get(kind) or ()
            accounts.update(entry.get("serviceAccountName") for entry in permissions)
        if template["spec"].get("serviceAccountName") not in accounts:
            problems.append(f"{where}: its service account has no permissions")
    return problems


def _webhook_problems(spec: Blob) -> list[str]:
    problems = []
    deployments = {each.get("name") for each in _deployments(spec)}
    names: list[str] = []
    for hook in spec.get("webhookdefinitions") or ():
        name = str(hook.get("generateName"))
        names.append(name)
        where = f"CSV: webhook {name}"
        if hook.get("type") not in WEBHOOK_TYPES:
            problems.append(f"{where}: type: must be one of {', '.join(sorted(WEBHOOK_TYPES))}")
        if hook.get("deploymentName") not in deployments:
            problems.append(
                f"{where}: deploymentName: deployment {hook.get('deploymentName')} does not exist"
            )
        if hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            problems.append(f"{where}: sideEffects: must be None or NoneOnDryRun")
        if not hook.get("admissionReviewVersions"):
            problems.append(f"{where}: admissionReviewVersions is missing")
        if not str(hook.get("webhookPath", "")).startswith("/"):
            problems.append(f"{where}: webhookPath: must start with /")
        for rule in hook.get("rules") or ():
            if "*" in rule.get("apiGroups", ()):
                problems.append(f"{where}: rules: OLM rejects webhooks for all API groups")
    duplicates = {name for name in names if names.count(name) > 1}
    problems += [f"CSV: webhook {name}: is duplicated" for name in sorted(duplicates)]
    return problems


def catalog_problems(blobs: list[Blob], previous: Iterable[Blob] = ()) -> list[str]:
    """Return the problems of a file-based catalog; ``previous`` is the catalog of the previous release."""
    problems = list(_blob_problems(blobs))
    packages = [blob for blob in blobs if blob.get("schema") == "olm.package"]
    channels = [blob for blob in blobs if blob.get("schema") == "olm.channel" and blob.get("name")]
    bundles: dict[str, Version] = {}
    kinds: dict[str, set[tuple[str, str, str]]] = {}
    for blob in blobs:
        if blob.get("schema") != "olm.bundle":
            continue
        name = str(blob.get("name"))
        properties = blob.get("properties") or []
        versions = [
            each["value"].get("version") for each in properties if each["type"] == "olm.package"
        ]
        if len(versions) != 1:
            problems.append(
                f"catalog: bundle {name}: must have one olm.package property, has {len(versions)}"
            )
            continue
        version = _parse_version(versions[0], f"catalog: bundle {name}", problems)
        if version is not None:
            bundles[name] = version
        kinds[name] = {
            (each["value"]["group"], each["value"]["version"], each["value"]["kind"])
            for each in properties
            if each["type"] == "olm.gvk"
        }
    if len(packages) != 1:
        problems.append(f"catalog: must have one olm.package, has {len(packages)}")
    for package in packages:
        if package.get("defaultChannel") not in {each["name"] for each in channels}:
            problems.append(
                f"catalog: defaultChannel: channel {package.get('defaultChannel')} does not exist"
            )
    for channel in channels:
        problems += _channel_problems(channel, bundles)
    in_channels: set[str | None] = set()
    for channel in channels:
        in_channels.update(entry.get("name") for entry in channel.get("entries") or ())
    problems += [
        f"catalog: bundle {name}: is in no channel" for name in sorted(bundles.keys() - in_channels)
    ]
    problems += dropped(previous, blobs)
    problems += _breaking(bundles, kinds)
    return problems


def _blob_problems(blobs: list[Blob]) -> Iterator[str]:
    """Yield missing fields of the documents, and references to packages that do not exist."""
    packages = {blob.get("name") for blob in blobs if blob.get("schema") == "olm.package"}
    for blob in blobs:
        if blob.get("schema") not in REQUIRED:
            yield f"catalog: schema {blob.get('schema')!r}: must be one of {', '.join(sorted(REQUIRED))}"
            continue
        schema = blob["schema"].removeprefix("olm.")
        where = f"catalog: {schema} {blob.get('name', 'without a name')}"
        for field in REQUIRED[blob["schema"]]:
            if not blob.get(field):
                yield f"{where}: {field} is missing"
        if blob.get("package") and blob["package"] not in packages:
            yield f"{where}: package: {blob['package']} does not exist"
        for index, entry in enumerate(blob.get("entries") or ()):
            if not entry.get("name"):
                yield f"{where}: entries[{index}]: name is missing"


def _channel_problems(channel: Blob, bundles: dict[str, Version]) -> list[str]:
    where = f"catalog: channel {channel['name']}"
    entries = {entry["name"]: entry for entry in channel.get("entries") or () if entry.get("name")}
    problems = [
        f"{where}: {name}: bundle does not exist" for name in entries if name not in bundles
    ]
    successors: dict[str, set[str]] = {name: set() for name in entries}
    for name, entry in entries.items():
        for older in (entry.get("replaces"), *(entry.get("skips") or ())):
            if not older:
                continue
            successors.setdefault(older, set()).add(name)
            if older in bundles and name in bundles and not bundles[older] < bundles[name]:
                problems.append(f"{where}: {name}: replaces or skips {older}, which is not older")
            if older not in bundles:
                problems.append(
                    f"{where}: {name}: replaces or skips {older}, which is not a bundle"
                )
    heads = sorted(name for name in entries if not successors[name])
    if len(heads) != 1:
        problems.append(f"{where}: must have one head, has {', '.join(heads) or 'none'}")
    major = channel["name"].rpartition("-v")[2]
    for name in entries:
        if name in bundles and major.isdigit() and bundles[name].major != int(major):
            problems.append(f"{where}: {name}: belongs to another major version")
        reached = {name}
        queue = [name]
        while queue:
            following = successors.get(queue.pop(), set()) - reached
            reached |= following
            queue += following
        if heads and not reached & set(heads):
            problems.append(f"{where}: {name}: cannot be upgraded to {heads[0]}")
    return problems


def dropped(previous: Iterable[Blob], blobs: Iterable[Blob]) -> list[str]:
    """Return the bundles of previous catalogs that are missing in this one."""
    bundles = {blob.get("name") for blob in blobs if blob.get("schema") == "olm.bundle"}
    return [
        f"catalog: bundle {blob.get('name')}: was in a previous catalog and must not be removed"
        for blob in previous
        if blob.get("schema") == "olm.bundle" and blob.get("name") not in bundles
    ]


def _breaking(
    bundles: dict[str, Version], kinds: dict[str, set[tuple[str, str, str]]]
) -> list[str]:
    """Report removed kinds, or versions of kinds, without a new major version."""
    problems = []
    ordered = sorted(bundles, key=lambda name: bundles[name])
    for older, newer in itertools.pairwise(ordered):
        removed = kinds[older] - kinds[newer]
        if removed and bundles[older].major == bundles[newer].major and bundles[newer].major > 0:
            names = ", ".join("/".join(filter(None, each)) for each in sorted(removed))
            problems.append(f"catalog: bundle {newer}: removes {names}: needs a new major version")
    return problems


def problems_of(root: Path, previous: Path | None = None) -> list[str]:
    """Return all problems of the tree ``root``; ``previous`` is the catalog of the previous release."""
    before = read(previous) if previous is not None else []
    folders = [root / "deploy/bundle", *sorted((root / "deploy/inference-stack").glob("v*"))]
    problems: list[str] = []
    for folder in folders:
        problems += _bundle_folder_problems(folder)
    catalog = read(root / "deploy/catalog/codeflare-operator/catalog.yaml")
    problems += catalog_problems(catalog, before)
    problems += catalog_problems(read(root / STACK_CATALOG))
    return problems


def _bundle_folder_problems(folder: Path) -> list[str]:
    (annotations,) = read(folder / "metadata/annotations.yaml")
    return bundle_problems(read(folder / "manifests"), annotations["annotations"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--previous", type=Path, help="the catalog of the previous release")
    parser.add_argument(
        "--released", action="store_true", help="also report missing bundles of tagged releases"
    )
    parser.add_argument(
        "--stacks", action="store_true", help="with --released: also in the InferenceStack catalog"
    )
    options = parser.parse_args()
    problems = problems_of(ROOT, options.previous)
    if options.released:
        catalogs = [CATALOG]
        if options.stacks:
            catalogs.append(STACK_CATALOG)
        for catalog in catalogs:
            problems += dropped(tagged_bundles(ROOT, catalog).values(), read(ROOT / catalog))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
