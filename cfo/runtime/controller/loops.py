"""Finds objects that a controller reconciles again and again, such as after each of its own writes."""

from __future__ import annotations

from typing import Final

from cfo.runtime.controller.reconcile import Request

LIMIT: Final = 600
"""The number of successful reconciles of one object within :data:`WINDOW_SECONDS` that is reported."""
WINDOW_SECONDS: Final = 60.0

_MAX_OBJECTS: Final = 1024
"""How many objects are counted in a window, and how many are reported, at most."""


class ReconcileLoops:
    """Counts the successful reconciles of each object; failed ones are retried with a back-off.

    If a window has more objects than are counted, an object in a loop is one of the first of a later window.
    """

    def __init__(self) -> None:
        self._counts: dict[Request, int] = {}
        self._reported: set[Request] = set()
        self._ends = 0.0

    def record(self, request: Request, now: float) -> bool:
        """Count a reconcile at the monotonic time ``now``; return whether its object must be reported, once each."""
        if now >= self._ends:
            self._counts.clear()
            self._ends = now + WINDOW_SECONDS
        count = self._counts.get(request, 0) + 1
        if count == 1 and len(self._counts) >= _MAX_OBJECTS:
            return False
        self._counts[request] = count
        if count < LIMIT or request in self._reported or len(self._reported) >= _MAX_OBJECTS:
            return False
        self._reported.add(request)
        return True
