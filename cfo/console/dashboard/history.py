"""What changed and when: the phases of AppWrappers, and the order in which jobs wait. Both are bounded.

The past before the page was opened is known as far as the conditions of an object tell it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = ["MAX_TRACKED", "History", "Orders", "Phases"]

MAX_TRACKED: Final = 1_000
"""The maximum number of objects whose phases are kept."""
_MAX_CHANGES: Final = 32
_MAX_SAMPLES: Final = 120
_MAX_QUEUES: Final = 64
_MAX_WAITING: Final = 10

Change = tuple[int, str, str]
"""The time in milliseconds, the state from then on, and its level."""
Sample = tuple[int, tuple[str, ...]]
"""The time in milliseconds, and the first jobs that wait from then on, in their order."""


class Phases:
    """The changes of the phase of each object, by its uid."""

    def __init__(self) -> None:
        self._changes: OrderedDict[str, deque[Change]] = OrderedDict()

    def record(
        self, uid: str, now: int, state: str, level: str, past: Callable[[], Sequence[Change]]
    ) -> Sequence[Change]:
        """Record the state of the object at the time ``now``, and return the new changes.

        ``past`` returns the changes that are known of an object that is recorded for the first time.
        """
        known = self._changes.get(uid)
        if known is None:
            if len(self._changes) >= MAX_TRACKED:
                self._changes.popitem(last=False)
            known = self._changes[uid] = deque(past(), _MAX_CHANGES)
            if not known or known[-1][1] != state:
                known.append((now, state, level))
            return list(known)
        if known[-1][1] == state and known[-1][2] == level:
            return []
        known.append((now, state, level))
        return [known[-1]]

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._changes.pop(uid, None)

    def snapshot(self) -> dict[str, list[Change]]:
        """Return all changes."""
        return {uid: list(changes) for uid, changes in self._changes.items()}


class Orders:
    """The order in which jobs wait, by the uid of their queue."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def record(self, uid: str, now: int, waiting: Sequence[str]) -> list[Sample]:
        """Record which jobs wait at the time ``now``, and return the new sample, if the order has changed."""
        order = tuple(waiting[:_MAX_WAITING])
        samples = self._samples.get(uid)
        if samples is None:
            if len(self._samples) >= _MAX_QUEUES:
                return []
            samples = self._samples[uid] = deque(maxlen=_MAX_SAMPLES)
        if samples and samples[-1][1] == order:
            return []
        samples.append((now, order))
        return [samples[-1]]

    def forget(self, uid: str) -> None:
        """Forget a queue that was deleted."""
        self._samples.pop(uid, None)

    def snapshot(self) -> dict[str, list[Sample]]:
        """Return all samples."""
        return {uid: list(samples) for uid, samples in self._samples.items()}


class History:
    """Phases and orders."""

    def __init__(self) -> None:
        self.phases = Phases()
        self.orders = Orders()

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self.phases.forget(uid)
        self.orders.forget(uid)

    def snapshot(self) -> dict[str, Any]:
        """Return everything for a page that is opened now."""
        return {"phases": self.phases.snapshot(), "orders": self.orders.snapshot()}
