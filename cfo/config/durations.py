"""Durations as Go writes them, in the configuration and in annotations."""

from __future__ import annotations

import re
from datetime import timedelta

import durationpy

__all__ = ["format_duration", "parse_duration"]

# durationpy also takes days, months and years, which Go (and so the Go operator) does not
_GO_DURATION = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")


def parse_duration(text: str) -> timedelta:
    """The duration that ``text`` (``90s``, ``1h30m``) says; raises :class:`ValueError`."""
    if not _GO_DURATION.fullmatch(text):
        raise ValueError("must be a duration such as 90s or 5m")
    parsed: timedelta = durationpy.from_str(text)
    return parsed


def format_duration(value: timedelta) -> str:
    """``value`` as Go reads it (``1m30s``)."""
    text: str = durationpy.to_str(value)
    return text
