"""Go durations, as used in the configuration and in annotations."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import durationpy

from cfo.runtime.objects import parse_duration


def format_duration(value: timedelta) -> str:
    """Format ``value`` as a Go duration (``1m30s``)."""
    text: str = durationpy.to_str(value)
    return text


def duration_of(value: object) -> timedelta:
    """Return a duration of the document: a Go duration, or a number of nanoseconds.

    Raises :class:`ValueError`, with the allowed values, for anything else.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        with suppress(OverflowError):
            return timedelta(microseconds=value / 1000)
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_duration(value.strip())
    raise ValueError("must be a duration such as 90s or 5m, or an integer of nanoseconds")


def _non_negative_duration(value: object) -> object:
    parsed = duration_of(value)
    if (isinstance(value, int) and value < 0) or parsed < timedelta(0):
        raise ValueError("must not be negative")
    return parsed


Duration = Annotated[timedelta, _non_negative_duration]
