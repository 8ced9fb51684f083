"""Words for files that cannot be used."""

from __future__ import annotations

__all__ = ["reason_of"]


def reason_of(error: Exception) -> str:
    """Return why a file cannot be used, without the number of the error and the path: messages contain it already."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error)
