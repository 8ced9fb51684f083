"""Prints the image tags for a branch or git tag: ``python -m hack.release.image_tags REPO REF``.

``main`` is pushed as ``:dev``. A tag ``vX.Y.Z`` is pushed as itself, and also as ``:stable`` if it is the newest
release of the channel stable; a hotfix of an older stream is not tagged as stable. This module imports only the
standard library, because it runs before anything is installed.
"""

import re
import sys

from hack import ROOT

RELEASES = ROOT / "config" / "releases.yaml"
_STABLE_RELEASE = re.compile(r"- version: (\d+)\.(\d+)\.(\d+)\n +channel: stable\n")


def names(ref: str, releases: str) -> list[str]:
    """Return the image tags of the branch or git tag ``ref``; ``releases`` is the content of config/releases.yaml."""
    if re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", ref) is None:
        return ["dev"]
    stable = [tuple(map(int, match.groups())) for match in _STABLE_RELEASE.finditer(releases + "\n")]
    newest = f"v{'.'.join(map(str, max(stable)))}" if stable else ""
    return [ref, *(["stable"] if ref == newest else [])]


if __name__ == "__main__":
    repository, reference = sys.argv[1:]
    print(*(f"{repository}:{name}" for name in names(reference, RELEASES.read_text())))
