"""Go durations, as used in the configuration and in annotations."""

from __future__ import annotations

import re
from datetime import timedelta

import durationpy

__all__ = ["format_duration", "parse_duration"]

# durationpy also accepts days, months and years; Go, and so the Go operator, does not.
_GO_DURATION = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")


def parse_duration(text: str) -> timedelta:
    """Parse a Go duration such as ``90s`` or ``1h30m``; raises :class:`ValueError` for any other string."""
    if not _GO_DURATION.fullmatch(text):
        raise ValueError("must be a duration such as 90s or 5m")
    parsed: timedelta = durationpy.from_str(text)
    return parsed


def format_duration(value: timedelta) -> str:
    """Format ``value`` as a Go duration (``1m30s``)."""
    text: str = durationpy.to_str(value)
    return text
