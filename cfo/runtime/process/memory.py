"""The memory limit of the container in which the process runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LIMIT_FILES: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The file of cgroup v2, and that of v1."""

_NO_LIMIT: Final = 1 << 50
"""Cgroup v1 has a number above all memory instead of no limit."""


def memory_limit(files: Iterable[Path] = _LIMIT_FILES) -> int | None:
    """Return the limit in bytes, or ``None`` if there is none, or none can be read."""
    for file in files:
        try:
            text = file.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if not text.isdecimal() or int(text) >= _NO_LIMIT:
            return None
        return int(text)
    return None
