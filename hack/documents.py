"""The YAML files that releases are made of, read so that what is wrong with one is told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class Refused(Exception):
    """Something is not as it must be; one line that says what, and what to do."""


def parse(text: str, where: str) -> Any:
    """The one document of ``text``. Raises :class:`Refused`, which names ``where`` and the line."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Refused(_told(error, where)) from None


def parse_all(text: str, where: str) -> list[dict[str, Any]]:
    """All documents of ``text``, which must be objects. Raises :class:`Refused`."""
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise Refused(_told(error, where)) from None
    for each in documents:
        if not isinstance(each, dict):
            raise Refused(f"{where}: must hold objects, not {str(each)[:40]!r}")
    return documents


def read(path: Path, root: Path) -> str:
    """A file of the tree ``root``. Raises :class:`Refused` where it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise Refused(f"{path.relative_to(root)}: {reason}") from None


def _told(error: yaml.YAMLError, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f": line {mark.line + 1}" if mark is not None else ""
    return f"{where}{line}: is no YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"
