"""Reads files of users, which may be devices without an end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

__all__ = ["MAX_BYTES", "read_file"]

MAX_BYTES: Final = 64 << 20
"""Maximum size of a file."""


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, also for a file that is too large."""
    try:
        with path.open("rb") as content:
            data = content.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        if path.is_absolute():
            raise
        reason = f"{error.strerror} (relative to the working directory {Path.cwd()})"
        raise FileNotFoundError(error.errno, reason, str(path)) from None
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes", str(path))
    return data
