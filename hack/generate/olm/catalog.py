"""The catalog: the template for opm, and the file-based catalog with all bundles.

The format is a `file-based catalog`_.

.. _file-based catalog: https://olm.operatorframework.io/docs/reference/file-based-catalogs/
"""

from __future__ import annotations

from typing import Any

from cfo.manifests import overlays
from cfo.version import __version__
from hack import ROOT
from hack.files import ToolError
from hack.generate.kustomize import HEADER, dump
from hack.generate.olm.bundle import cluster_service_version
from hack.generate.olm.channels import PACKAGE, Releases, channels, default_channel, releases
from hack.release import history
from hack.release.history import CHANNELS
from hack.release.semver import Version

BUNDLE_IMAGE = "quay.io/project-codeflare/codeflare-operator-bundle"
CATALOG_IMAGE = "quay.io/project-codeflare/codeflare-operator-catalog"


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    return {
        "deploy/catalog/template.yaml": HEADER + dump(template()),
        "deploy/catalog/codeflare-operator/catalog.yaml": HEADER + dump(*catalog()),
        "deploy/catalog.Dockerfile": catalog_dockerfile(
            "deploy/catalog/codeflare-operator", PACKAGE
        ),
        "deploy/catalog.Dockerfile.dockerignore": f"{HEADER}*\n!deploy/catalog\n",
    }


def template(image: str = BUNDLE_IMAGE, listed: Releases | None = None) -> dict[str, Any]:
    """Return the semver template, for ``opm alpha render-template semver``.

    ``image`` and ``listed`` are the repository of the bundles and the releases of another package.
    """
    content: dict[str, Any] = {
        "Schema": "olm.semver",
        "GenerateMajorChannels": True,
        "GenerateMinorChannels": False,
    }
    for index, name in enumerate(CHANNELS):
        bundles = [
            {"Image": f"{image}:v{version}"}
            for version, channel in listed or releases()
            if CHANNELS.index(channel) >= index
        ]
        if bundles:
            content[name.capitalize()] = {"Bundles": bundles}
    return content


def catalog() -> list[dict[str, Any]]:
    """Return the file-based catalog: the package, its channels, and every bundle that was ever in it.

    Raises :class:`~hack.files.ToolError` if the bundle of an earlier release is missing.
    """
    path = ROOT / history.CATALOG
    bundles = history.bundles(path.read_text()) if path.exists() else {}
    version = Version.parse(__version__)
    # Bundles in the catalog never change, because they may be installed.
    if version in dict(releases()):
        bundles.setdefault(f"{PACKAGE}.v{version}", _bundle(version))
    icon = cluster_service_version()["spec"]["icon"][0]
    package = {
        "schema": "olm.package",
        "name": PACKAGE,
        "defaultChannel": default_channel(),
        "icon": {"base64data": icon["base64data"], "mediatype": icon["mediatype"]},
        "description": "Secures Ray clusters, and queues any workload under quota as one unit.",
    }
    names = [f"{PACKAGE}.v{version}" for version, _ in releases()]
    missing = [name for name in names if name not in bundles]
    if missing:
        raise ToolError(
            f"catalog: the bundles of {', '.join(missing)} are missing; restore deploy/catalog/ from git"
        )
    return [package, *channels(), *(bundles[name] for name in names)]


def _bundle(version: Version) -> dict[str, Any]:
    csv = cluster_service_version()
    kinds: list[dict[str, str]] = []
    for crd in overlays.bundled_crds():
        group = crd["spec"]["group"]
        kind = crd["spec"]["names"]["kind"]
        for served in crd["spec"]["versions"]:
            kinds.append({"group": group, "kind": kind, "version": served["name"]})
    metadata = dict(csv["metadata"]["annotations"])
    metadata.pop("alm-examples", None)
    spec = csv["spec"]
    shown_fields = (
        "displayName",
        "keywords",
        "links",
        "maintainers",
        "maturity",
        "minKubeVersion",
        "provider",
    )
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
                    **{key: spec[key] for key in shown_fields},
                },
            },
        ],
        "relatedImages": [
            {"name": "", "image": f"{BUNDLE_IMAGE}:v{version}"},
            *spec["relatedImages"],
        ],
    }


def catalog_dockerfile(folder: str, package: str) -> str:
    """Return the Dockerfile of a catalog image with the catalog in ``folder``."""
    return f"""{HEADER}FROM quay.io/operator-framework/opm:v1.51.0

ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]

COPY {folder} /configs/{package}
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

LABEL operators.operatorframework.io.index.configs.v1=/configs
"""
