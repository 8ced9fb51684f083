"""Reports that clients can cause, so that no number of requests fills the disk with logs."""

from __future__ import annotations


class RareReports:
    """Counts what could be reported, and says when: at once, and then at most once per ``interval`` seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._unreported = 0
        self._next_report = float("-inf")

    def count(self, now: float) -> int:
        """Count one more; return how many are to be reported at the time ``now`` in seconds, 0 for not yet."""
        self._unreported += 1
        if now < self._next_report:
            return 0
        number = self._unreported
        self._unreported = 0
        self._next_report = now + self._interval
        return number
