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
FIELDS = ("name", "version", "releases", "tested")
PLATFORM_FIELDS = ("name", "version", "tested")


def load(root: Path = ROOT) -> list[dict[str, str]]:
    """Return the components: name, version, URL of the releases, how it was tested. Raises :class:`ToolError`."""
    entries = _entries(root, "components", FIELDS)
    for index, entry in enumerate(entries):
        try:
            Version.parse(entry["version"])
        except ValueError as error:
            raise ToolError(f"{STACK}: components[{index}].version: {error}") from None
    return entries


def platforms(root: Path = ROOT) -> list[dict[str, str]]:
    """Return the platforms: name, versions in words, how they were tested. Raises :class:`ToolError`."""
    return _entries(root, "platforms", PLATFORM_FIELDS)


def _entries(root: Path, section: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    document = parse(read(root / STACK, root), STACK)
    entries = document.get(section) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ToolError(f"{STACK}: {section}: must be a list of {section}")
    for index, entry in enumerate(entries):
        at = f"{STACK}: {section}[{index}]"
        if not isinstance(entry, dict) or entry.keys() != set(fields):
            raise ToolError(f"{at}: must have {', '.join(fields)}")
        for field in fields:
            if not isinstance(entry[field], str):
                raise ToolError(f"{at}.{field}: {entry[field]!r}: must be a string")
    names = [entry["name"] for entry in entries]
    duplicates = {name for name in names if names.count(name) > 1}
    if duplicates:
        raise ToolError(f"{STACK}: {section}: {', '.join(sorted(duplicates))}: is listed twice")
    return entries


def main() -> None:
    """Print the version of the component that the arguments name."""
    try:
        versions = {component["name"]: component["version"] for component in load()}
    except ToolError as error:
        sys.exit(f"hack.release.stack: {error}")
    name = " ".join(sys.argv[1:])
    if name not in versions:
        sys.exit(
            f"hack.release.stack: unknown component {name!r}; must be one of {', '.join(versions)}"
        )
    print(versions[name])


if __name__ == "__main__":
    main()
