"""Text and YAML files of the repository, read with errors of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class ToolError(Exception):
    """An expected failure of a tool: one line that names the file or argument, the value and the allowed values."""


def parse(text: str, where: str) -> Any:
    """Parse the only YAML document of ``text``.

    Raises :class:`ToolError`, which names ``where`` and the line.
    """
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ToolError(_describe(error, where)) from None


def parse_all(text: str, where: str) -> list[dict[str, Any]]:
    """Parse all YAML documents of ``text``; each must be an object.

    Raises :class:`ToolError`, which names ``where``.
    """
    try:
        documents = [
            document
            for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
            if document is not None
        ]
    except yaml.YAMLError as error:
        raise ToolError(_describe(error, where)) from None
    for document in documents:
        if not isinstance(document, dict):
            raise ToolError(
                f"{where}: every document must be an object, not {str(document)[:40]!r}"
            )
    return documents


def read(path: Path, root: Path) -> str:
    """Read a text file of the tree ``root``. Raises :class:`ToolError` when it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ToolError(f"{path.relative_to(root)}: {reason}") from None


def _describe(error: yaml.YAMLError, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f": line {mark.line + 1}" if mark is not None else ""
    return f"{where}{line}: not valid YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"
