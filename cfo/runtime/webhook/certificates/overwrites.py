"""Limits how often an object that another client overwrites is written again, so that no write loop can exist."""

from __future__ import annotations

from typing import Any, Final

OVERWRITE_WINDOW: Final = 60.0
"""Seconds after an overwrite was repaired, in which another overwrite is reported and not repaired."""


class OverwriteLimit:
    """Remembers what was written to one object, and when an overwrite of it was repaired last.

    A value is what the writer imposes on the object, so that equal values mean that another client has overwritten the
    first one. Other values, as of a renewed certificate, are never delayed. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._value: Any = None
        self._repaired_at: float | None = None
        self._reported = False

    def delay(self, value: Any, now: float) -> float:
        """Return for how many seconds ``value`` must not be written; 0 if it may be written now."""
        if value != self._value or self._repaired_at is None:
            return 0.0
        return max(self._repaired_at + OVERWRITE_WINDOW - now, 0.0)

    def claim_report(self) -> bool:
        """Return whether to report the refused repair: only the first one since the last write is reported."""
        is_first = not self._reported
        self._reported = True
        return is_first

    def wrote(self, value: Any, now: float) -> None:
        """Record that ``value`` was written."""
        if value == self._value:
            self._repaired_at = now
        self._value = value
        self._reported = False
