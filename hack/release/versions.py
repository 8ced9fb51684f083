"""The version of all distributions, and the pins by which one requires another."""

from __future__ import annotations

import re
from pathlib import Path

from hack.files import ToolError, read
from hack.release.semver import Version

_OPERATOR = "cfo/version.py"
_VERSION = ("__version__", re.compile(r'(^__version__ = ")(.+)("$)', re.MULTILINE))
_PLACES = {
    _OPERATOR: _VERSION,
    "envtest/src/envtest/version.py": _VERSION,
    "handlers/src/cfo_handlers/version.py": _VERSION,
    "pyproject.toml": (
        "the pinned envtest",
        re.compile(r'(^    "envtest==)([^"]+)(")', re.MULTILINE),
    ),
    "handlers/pyproject.toml": (
        "the pinned codeflare-operator",
        re.compile(r'(^    "codeflare-operator==)([^"]+)(")', re.MULTILINE),
    ),
}
"""Locations of the version: file, description and pattern."""

FILES = tuple(_PLACES)


def read_version(root: Path) -> Version:
    """Return the version of the tree ``root``. Raises :class:`ToolError` unless all of :data:`FILES` have the same."""
    found = {name: _read(root, name) for name in FILES}
    for name, version in found.items():
        if version != found[_OPERATOR]:
            raise ToolError(
                f"{name}: {_PLACES[name][0]} {version}: must be {found[_OPERATOR]}, as in {_OPERATOR}"
            )
    return found[_OPERATOR]


def write_version(root: Path, version: Version) -> None:
    """Write the version to all of :data:`FILES`."""
    for name, (_, pattern) in _PLACES.items():
        path = root / name
        path.write_text(pattern.sub(rf"\g<1>{version}\g<3>", path.read_text()))


def _read(root: Path, name: str) -> Version:
    label, pattern = _PLACES[name]
    matches = pattern.findall(read(root / name, root))
    if len(matches) != 1:
        raise ToolError(f"{name}: {label} must be set exactly once")
    try:
        return Version.parse(matches[0][1])
    except ValueError as error:
        raise ToolError(f"{name}: {label} {error}") from None
