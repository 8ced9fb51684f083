"""Go durations, as used in the configuration and in annotations."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Final, Self

from cfo.runtime.objects import parse_duration

_ALLOWED: Final = "must be a duration such as 90s or 5m, or an integer of nanoseconds"


class Duration(timedelta):
    """A duration that is not negative."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a duration from a Go duration, or from an integer of nanoseconds.

        Raises :class:`ValueError` with what is allowed.
        """
        parsed = _duration_of(value)
        is_negative_integer = (
            isinstance(value, int) and value < 0
        )  # rounded to microseconds, it could be 0
        if is_negative_integer or parsed < timedelta(0):
            raise ValueError("must not be negative")
        return cls(parsed.days, parsed.seconds, parsed.microseconds)


def is_zero_duration(value: object) -> bool:
    """Return whether the value of a document is a duration of length zero."""
    try:
        return _duration_of(value) == timedelta(0)
    except ValueError:
        return False


def is_shorter_than_a_second(value: object) -> bool:
    """Return whether the value of a document is a duration below one second, but not zero.

    A duration of a few nanoseconds is rounded to zero microseconds, so its digits decide.
    """
    try:
        is_short = _duration_of(value) < timedelta(seconds=1)
    except ValueError:
        return False
    return is_short and any(digit in str(value) for digit in "123456789")


def _duration_of(value: object) -> timedelta:
    if isinstance(value, int) and not isinstance(value, bool):
        with suppress(OverflowError):
            return timedelta(microseconds=value / 1000)
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_duration(value.strip())
    raise ValueError(_ALLOWED)
