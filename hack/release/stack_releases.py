"""Releases of the operators of InferenceStacks: their versions, and what must not change within a major version.

They are released with cfo, but have versions of their own, which continue those of the original: one for each major
version. All majors share the CRDs, so a breaking change of these is never allowed; it needs a new version of the API.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml

from hack.files import ToolError, parse, read
from hack.release.compatibility import changed_profiles
from hack.release.crd_changes import breaking_changes
from hack.release.history import CHANNELS, STACK_CATALOG, bundles, parse_releases
from hack.release.repository import content, git
from hack.release.request import Request
from hack.release.semver import Version

RELEASES = "config/inference-stack-releases.yaml"
PROFILES = "deploy/inference-stack/profiles.yaml"
CRDS = "config/crd/bases"
_SHARED = "inferencestacks"


def next_releases(
    listed: Mapping[Version, str], released: Collection[Version], channel: str, *, is_patch: bool
) -> dict[Version, str]:
    """Return ``listed`` with the next version of each major version whose newest one is ``released`` already.

    Any change of the operator changes the content of the bundles, and a released bundle must never change.
    """
    newest = {version.major: version for version in sorted(listed)}
    result = dict(listed)
    for version in newest.values():
        if version not in released:
            continue
        if is_patch:
            following = Version(version.major, version.minor, version.patch + 1)
        else:
            following = Version(version.major, version.minor + 1, 0)
        result[following] = channel
    return dict(sorted(result.items()))


def write_next(tree: Path, request: Request, tagged: list[Version]) -> None:
    """Add the next versions to the list in ``tree``; a hotfix of an older stream releases none."""
    if request.hotfix or request.version.pre:
        return
    path = tree / RELEASES
    listed = parse_releases(read(path, tree), RELEASES)
    released = _released(tree, tagged).keys()
    is_patch = any(version.stream == request.version.stream for version in tagged)
    releases = next_releases(listed, released, request.channel, is_patch=is_patch)
    lines = path.read_text().splitlines(keepends=True)
    head = "".join(line for line in lines if line.startswith("#"))
    entries = [
        {"version": str(version), "channel": channel} for version, channel in releases.items()
    ]
    path.write_text(head + yaml.safe_dump({"releases": entries}, sort_keys=False))
    _remove_unreleased(tree / STACK_CATALOG, released)


def _remove_unreleased(path: Path, released: Collection[Version]) -> None:
    """Remove the bundles that were never released from the catalog, so that they are generated for this release."""
    names = {f"v{version}" for version in released}
    kept = []
    for name, blob in bundles(path.read_text()).items():
        _, _, version_name = name.partition(".")
        if version_name in names:
            kept.append(blob)
    path.write_text(yaml.safe_dump_all(kept, sort_keys=False))


def _released(root: Path, tagged: Iterable[Version]) -> dict[Version, str]:
    """Return the releases in the lists of all tags, and the most mature channel of each."""
    found: dict[Version, str] = {}
    for tag in tagged:
        text = content(root, tag, RELEASES) or "releases: []"
        for version, channel in parse_releases(text, f"v{tag}:{RELEASES}").items():
            found[version] = max(channel, found.get(version, channel), key=CHANNELS.index)
    return found


def _check_channels(root: Path, tagged: Iterable[Version]) -> None:
    """Check that each released version stays in all of its channels: operators that have it must be upgradable."""
    listed = parse_releases(read(root / RELEASES, root), RELEASES)
    for version, channel in _released(root, tagged).items():
        if version not in listed:
            raise ToolError(f"{RELEASES}: {version} is not listed; a release must never be removed")
        if CHANNELS.index(listed[version]) < CHANNELS.index(channel):
            raise ToolError(
                f"{RELEASES}: {version} was released in {channel}, and must not leave it"
            )


def check_compatibility(root: Path, request: Request, tagged: list[Version]) -> None:
    """Check that the tree changes no CRD, profile or channel in a way that breaks existing objects and operators.

    A new major version of cfo may break its own CRDs, and so may any version before 1.0. Raises :class:`ToolError`.
    """
    older = [version for version in tagged if version < request.version]
    if not older:
        return
    _check_channels(root, older)
    last = older[-1]
    may_break = last.major == 0 or request.version.major > last.major
    problems = []
    for name in git(root, "ls-tree", "--name-only", f"v{last}:{CRDS}").splitlines():
        if not name.endswith(".yaml") or (may_break and _SHARED not in name):
            continue
        before = parse(content(root, last, f"{CRDS}/{name}"), name)
        path = root / CRDS / name
        found = ["the CRD was removed"]
        if path.exists():
            found = breaking_changes(before, parse(read(path, root), name))
        problems += [f"{name}: {problem}" for problem in found]
    old = content(root, last, PROFILES)
    if old:
        profiles = parse(read(root / PROFILES, root), PROFILES)
        problems += changed_profiles(parse(old, PROFILES), profiles)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ToolError(f"version {request.tag}: breaks objects of v{last}: {problems[0]}{more}")
