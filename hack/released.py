"""What has been released, as this tree and all tags know it; ``python hack/released.py`` writes it into the tree.

A fix for an old stream is made on a branch that has not seen the newer releases, and the main branch has not seen the
fix. Each tag has a part of the whole, and nothing that any of them has may be missing in the catalog: somebody runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from documents import Refused, parse, parse_all, read
from repository import content, tags
from semver import Version

ROOT = Path(__file__).parent.parent
RELEASES = "config/releases.yaml"
CATALOG = "catalog/codeflare-operator/catalog.yaml"
CHANNELS = ("candidate", "fast", "stable")
"""How far a release has come, in this order; each includes those before."""

Blob = dict[str, Any]


def parse_releases(text: str, where: str = RELEASES) -> dict[Version, str]:
    """Each release and the channel that it has come to. Raises :class:`Refused`."""
    document = parse(text, where)
    entries = document.get("releases") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise Refused(f"{where}: releases: must be a list")
    found: dict[Version, str] = {}
    for index, entry in enumerate(entries):
        at = f"{where}: releases[{index}]"
        if not isinstance(entry, dict) or entry.keys() != {"version", "channel"}:
            raise Refused(f"{at}: must have a version and a channel")
        try:
            version = Version.parse(str(entry["version"]))
        except ValueError as error:
            raise Refused(f"{at}: version {error}") from None
        if entry["channel"] not in CHANNELS:
            raise Refused(f"{at}: channel {entry['channel']!r}: must be one of {', '.join(CHANNELS)}")
        if version in found:
            raise Refused(f"{at}: {version} is there twice")
        found[version] = entry["channel"]
    return found


def releases(root: Path = ROOT) -> dict[Version, str]:
    """Each release that the tree knows, oldest first."""
    return dict(sorted(parse_releases(read(root / RELEASES, root)).items()))


def bundles(text: str, where: str = CATALOG) -> dict[str, Blob]:
    """The bundles of a catalog, by name."""
    return {str(blob.get("name")): blob for blob in parse_all(text, where) if blob.get("schema") == "olm.bundle"}


def tagged_bundles(root: Path) -> dict[str, Blob]:
    """The bundles that any release's catalog has."""
    found: dict[str, Blob] = {}
    for version in tags(root):
        for name, blob in bundles(content(root, version, CATALOG), f"v{version}:{CATALOG}").items():
            found.setdefault(name, blob)  # as the first one had it: its own
    return found


def gather(root: Path, prepared: Version | None = None) -> None:
    """Writes the whole into the tree; without ``prepared``, a version that the tree names but nobody has released.

    Raises :class:`Refused` where the tree names another one that has no tag.
    """
    tagged = tags(root)
    here = releases(root)
    unknown = [version for version in here if version not in tagged and version != prepared]
    if unknown:
        raise Refused(
            f"{RELEASES}: {unknown[0]}: there is no tag v{unknown[0]}; git fetch --tags brings those there are"
        )
    everything = {version: channel for version, channel in here.items() if version != prepared or version in tagged}
    for tag in tagged:
        where = f"v{tag}:{RELEASES}"
        for version, channel in parse_releases(content(root, tag, RELEASES) or "releases: []", where).items():
            everything[version] = max(channel, everything.get(version, channel), key=CHANNELS.index)
    write_releases(root, everything)
    blobs = {**tagged_bundles(root)}
    for name, blob in bundles(read(root / CATALOG, root)).items():
        blobs.setdefault(name, blob)
    names = {f"v{version}" for version in everything}
    kept = [blob for name, blob in blobs.items() if name.partition(".")[2] in names]
    (root / CATALOG).write_text(yaml.safe_dump_all(kept, sort_keys=False))


def write_releases(root: Path, everything: dict[Version, str]) -> None:
    """Writes the list of releases, and keeps the words above it."""
    path = root / RELEASES
    above = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    entries = [{"version": str(version), "channel": channel} for version, channel in sorted(everything.items())]
    path.write_text(above + yaml.safe_dump({"releases": entries}, sort_keys=False))


if __name__ == "__main__":
    try:
        if (ROOT / ".git").exists() and tags(ROOT):
            known = tags(ROOT)
            gather(ROOT)
            print(f"released so far: {', '.join(f'v{version}' for version in known)}")
    except Refused as error:
        sys.exit(f"hack/released.py: {error}")
