"""Prints the image tags for a branch or git tag: ``python -m hack.release.image_tags REPO REF``.

``main`` is pushed as ``:dev``, a tag ``vX.Y.Z`` as itself. ``python -m hack.release.image_tags --stable REPO TAG``
prints the image to which ``:stable`` moves when the pull request with the bundle is merged, and fails if ``TAG`` is not
the newest release of the channel stable, for example a hotfix of an older stream. This module imports only the standard
library, because it runs before anything is installed.
"""

import re
import sys

from hack import ROOT

RELEASES = ROOT / "config" / "releases.yaml"
_STABLE_RELEASE = re.compile(r"- version: (\d+)\.(\d+)\.(\d+)\n +channel: stable\n")


def name(ref: str) -> str:
    """Return the image tag of the branch or git tag ``ref``."""
    return ref if re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", ref) else "dev"


def is_stable(tag: str, releases: str) -> bool:
    """Return whether ``:stable`` becomes ``tag``; ``releases`` is the content of config/releases.yaml."""
    stable = [
        tuple(map(int, match.groups())) for match in _STABLE_RELEASE.finditer(releases + "\n")
    ]
    return bool(stable) and tag == f"v{'.'.join(map(str, max(stable)))}"


if __name__ == "__main__":
    *options, repository, reference = sys.argv[1:]
    if options == ["--stable"] and not is_stable(reference, RELEASES.read_text()):
        sys.exit(f"{reference} is not the newest release of the channel stable in {RELEASES}")
    print(f"{repository}:{name(reference)}")
