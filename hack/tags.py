"""``tags.py REPOSITORY REF``: the names under which the image of a branch or tag is pushed.

``main`` is ``:dev``. A tag ``vX.Y.Z`` is itself, and ``:stable`` too if it is the newest release of the channel stable:
a fix for an old stream does not take that name away. It needs no package, for it runs before anything is installed.
"""

import re
import sys
from pathlib import Path

RELEASES = Path(__file__).parent.parent / "config" / "releases.yaml"
_RELEASE = re.compile(r"- version: (\d+)\.(\d+)\.(\d+)\n +channel: stable\n")


def names(ref: str, releases: str) -> list[str]:
    """The tags of an image."""
    if re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", ref) is None:
        return ["dev"]
    stable = [tuple(map(int, match.groups())) for match in _RELEASE.finditer(releases + "\n")]
    newest = f"v{'.'.join(map(str, max(stable)))}" if stable else ""
    return [ref, *(["stable"] if ref == newest else [])]


if __name__ == "__main__":
    repository, reference = sys.argv[1:]
    print(*(f"{repository}:{name}" for name in names(reference, RELEASES.read_text())))
