"""Earlier releases: the releases listed in the tree, merged with those listed in all tags.

    python -m hack.release.history

writes the merged list and catalog into the tree. A hotfix of an older stream is released from a branch that does not
contain the newer releases, and main does not contain the hotfix. Each tag contains only part of the history, but the
catalog must contain all of it, because any released version may be installed on a cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from hack import ROOT
from hack.files import ToolError, parse, parse_all, read
from hack.release.repository import content, tags
from hack.release.semver import Version

RELEASES = "config/releases.yaml"
CATALOG = "deploy/catalog/codeflare-operator/catalog.yaml"
STACK_CATALOG = "deploy/inference-stack/catalog/catalog.yaml"
"""The catalog of the operators of InferenceStacks."""
CHANNELS = ("candidate", "fast", "stable")
"""The maturity of a release, in ascending order; a channel also offers the releases of the channels after it."""

Blob = dict[str, Any]
"""One document of a file-based catalog."""


def parse_releases(text: str, where: str = RELEASES) -> dict[Version, str]:
    """Return each release and its channel. Raises :class:`ToolError`."""
    document = parse(text, where)
    entries = document.get("releases") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ToolError(f"{where}: releases: must be a list")
    channels: dict[Version, str] = {}
    for index, entry in enumerate(entries):
        at = f"{where}: releases[{index}]"
        if not isinstance(entry, dict) or entry.keys() != {"version", "channel"}:
            raise ToolError(f"{at}: must have a version and a channel")
        try:
            version = Version.parse(str(entry["version"]))
        except ValueError as error:
            raise ToolError(f"{at}: version {error}") from None
        if entry["channel"] not in CHANNELS:
            raise ToolError(
                f"{at}: channel {entry['channel']!r}: must be one of {', '.join(CHANNELS)}"
            )
        if version in channels:
            raise ToolError(f"{at}: {version} is listed twice")
        channels[version] = entry["channel"]
    return channels


def releases(root: Path = ROOT) -> dict[Version, str]:
    """Return the releases that the tree lists and their channels, oldest first."""
    return dict(sorted(parse_releases(read(root / RELEASES, root)).items()))


def bundles(text: str, where: str = CATALOG) -> dict[str, Blob]:
    """Return the bundles of a catalog, by name."""
    return {
        str(blob.get("name")): blob
        for blob in parse_all(text, where)
        if blob.get("schema") == "olm.bundle"
    }


def tagged_bundles(root: Path, catalog: str = CATALOG) -> dict[str, Blob]:
    """Return the bundles in the file ``catalog`` of all tagged releases, by name."""
    found: dict[str, Blob] = {}
    for version in tags(root):
        for name, blob in bundles(content(root, version, catalog), f"v{version}:{catalog}").items():
            found.setdefault(name, blob)  # a bundle first appears in the catalog of its own release
    return found


def merge(root: Path, prepared: Version | None = None) -> None:
    """Write the releases and bundles of the tree and of all tags into the tree.

    ``prepared`` is a version that the tree lists but that was never released; it is omitted. Raises
    :class:`ToolError` if the tree lists any other version without a tag.
    """
    tagged = tags(root)
    listed = releases(root)
    untagged = [version for version in listed if version not in tagged and version != prepared]
    if untagged:
        raise ToolError(
            f"{RELEASES}: {untagged[0]}: tag v{untagged[0]} does not exist; fetch tags: git fetch --tags"
        )
    merged = dict(listed)
    if prepared is not None and prepared not in tagged:
        merged.pop(prepared, None)
    for tag in tagged:
        text = content(root, tag, RELEASES) or "releases: []"
        for version, channel in parse_releases(text, f"v{tag}:{RELEASES}").items():
            merged[version] = max(channel, merged.get(version, channel), key=CHANNELS.index)
    write_releases(root, merged)
    blobs = {**tagged_bundles(root)}
    for name, blob in bundles(read(root / CATALOG, root)).items():
        blobs.setdefault(name, blob)
    names = {f"v{version}" for version in merged}
    kept = [blob for name, blob in blobs.items() if name.partition(".")[2] in names]
    (root / CATALOG).write_text(yaml.dump_all(kept, Dumper=yaml.CSafeDumper, sort_keys=False))


def write_releases(root: Path, channels: dict[Version, str]) -> None:
    """Write the list of releases; the comment at its head is kept."""
    path = root / RELEASES
    lines = path.read_text().splitlines(keepends=True)
    head = "".join(line for line in lines if line.startswith("#"))
    entries = [
        {"version": str(version), "channel": channel}
        for version, channel in sorted(channels.items())
    ]
    path.write_text(head + yaml.safe_dump({"releases": entries}, sort_keys=False))


if __name__ == "__main__":
    try:
        tagged_versions = tags(ROOT) if (ROOT / ".git").exists() else []
        if tagged_versions:
            merge(ROOT)
            print(f"released so far: {', '.join(f'v{version}' for version in tagged_versions)}")
    except ToolError as error:
        sys.exit(f"hack.release.history: {error}")
