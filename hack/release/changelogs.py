"""The changelogs of the distributions: ``CHANGELOG.md``, and one each of ``envtest`` and ``cfo-handlers``."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from hack.files import ToolError, read
from hack.release.semver import Version

OPERATOR = "CHANGELOG.md"
_OTHERS = {"envtest": "envtest/CHANGELOG.md", "cfo-handlers": "handlers/CHANGELOG.md"}
"""The changelogs of the other distributions."""
FILES = (OPERATOR, *_OTHERS.values())


def unreleased(root: Path, name: str) -> str:
    """Return the section Unreleased of the changelog ``name``. Raises :class:`ToolError` if there is none."""
    match = re.search(
        r"^## Unreleased\n(.*?)(?=^## |\Z)", read(root / name, root), re.MULTILINE | re.DOTALL
    )
    if match is None:
        raise ToolError(f"{name}: the heading `## Unreleased` is missing")
    return match[1]


def breaking_section(root: Path) -> tuple[str, str] | None:
    """Return the changelog and the title of an unreleased section that announces a breaking change."""
    for name in FILES:
        match = re.search(r"^### (Removed|Breaking)", unreleased(root, name), re.MULTILINE)
        if match is not None:
            return name, match[1]
    return None


def is_empty(root: Path) -> bool:
    """Return whether no changelog has anything under Unreleased."""
    return not any(unreleased(root, name).strip() for name in FILES)


def has_heading(root: Path, version: Version) -> bool:
    """Return whether a changelog has a section of ``version``."""
    heading = re.compile(rf"^## {re.escape(str(version))}\b", re.MULTILINE)
    return any(heading.search(read(root / name, root)) for name in FILES)


def write_heading(root: Path, version: Version, today: date) -> None:
    """Rename the section Unreleased to ``version`` in each changelog in which it is not empty."""
    for name in FILES:
        if unreleased(root, name).strip():
            path = root / name
            heading = f"## Unreleased\n\n{_heading(version, today)}"
            path.write_text(path.read_text().replace("## Unreleased", heading, 1))


def notes(root: Path, version: Version, today: date) -> str:
    """Return the sections of ``version`` in all changelogs; other distributions have their own headings."""
    heading = _heading(version, today)
    parts = []
    operator = _section(read(root / OPERATOR, root), heading)
    if operator:
        parts.append(operator)
    for distribution, name in _OTHERS.items():
        section = _section(read(root / name, root), heading)
        if section:
            parts.append(f"## {distribution}\n\n{section}")
    return "\n\n".join(parts)


def _heading(version: Version, today: date) -> str:
    return f"## {version} - {today.isoformat()}"


def _section(text: str, heading: str) -> str:
    _, _, rest = text.partition(f"{heading}\n")
    return rest.partition("\n## ")[0].strip()
