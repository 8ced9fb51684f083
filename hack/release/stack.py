"""The components of the stack and their versions, from ``config/stack.yaml``.

``python -m hack.release.stack KubeRay`` prints the version of KubeRay.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hack import ROOT
from hack.files import ToolError, parse, read
from hack.release.semver import Version

STACK = "config/stack.yaml"
OPERATOR = "CodeFlare Operator"
FIELDS = ("name", "version", "releases")


def load(root: Path = ROOT) -> list[dict[str, str]]:
    """Return the components: name, version, URL of the releases. Raises :class:`ToolError`."""
    document = parse(read(root / STACK, root), STACK)
    entries = document.get("components") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ToolError(f"{STACK}: components: must be a list of components")
    for index, entry in enumerate(entries):
        at = f"{STACK}: components[{index}]"
        if not isinstance(entry, dict) or entry.keys() != set(FIELDS):
            raise ToolError(f"{at}: must have {', '.join(FIELDS)}")
        for field in FIELDS:
            if not isinstance(entry[field], str):
                raise ToolError(f"{at}.{field}: {entry[field]!r}: must be a string")
        try:
            Version.parse(entry["version"])
        except ValueError as error:
            raise ToolError(f"{at}.version: {error}") from None
    names = [entry["name"] for entry in entries]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise ToolError(f"{STACK}: components: {', '.join(sorted(duplicates))}: is listed twice")
    return entries


def main() -> None:
    """Print the version of the component that the arguments name."""
    try:
        versions = {component["name"]: component["version"] for component in load()}
    except ToolError as error:
        sys.exit(f"hack.release.stack: {error}")
    name = " ".join(sys.argv[1:])
    if name not in versions:
        sys.exit(f"hack.release.stack: unknown component {name!r}; must be one of {', '.join(versions)}")
    print(versions[name])


if __name__ == "__main__":
    main()
