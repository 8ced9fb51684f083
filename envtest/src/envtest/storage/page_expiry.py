"""When the pages of a list expire: kube-apiserver discards the history of each revision after 5 to 10 minutes."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["PAGE_SECONDS", "PageExpiry"]

PAGE_SECONDS: Final = 300.0
"""Seconds for which a list can be continued at the revision of its first page."""

_INTERVAL: Final = 1.0
"""Seconds between two entries, which bounds their number."""


class PageExpiry:
    """The revisions of lists that have more pages, and the revision up to which all lists have expired."""

    def __init__(self) -> None:
        self.expired = 0
        self._begun: deque[tuple[float, int]] = deque()

    def begin(self, revision: int, now: float) -> None:
        """Record the first page of a list."""
        # without a write since, the revision has not expired
        self.expired = min(self.check(now), revision - 1)
        if self._begun and now - self._begun[-1][0] < _INTERVAL:
            begun, other = self._begun.pop()
            self._begun.append((begun, max(other, revision)))
        else:
            self._begun.append((now, revision))

    def check(self, now: float) -> int:
        """Return the revision up to which lists have expired at the time ``now``."""
        while self._begun and now - self._begun[0][0] >= PAGE_SECONDS:
            self.expired = max(self.expired, self._begun.popleft()[1])
        return self.expired
