"""What changed and when: the phases of objects, and the order in which they wait in queues. Both are bounded.

The past before the page was opened is known as far as the conditions of an object tell it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from cfo.console.summaries import PhaseChange

MAX_TRACKED: Final = 1_000
"""The maximum number of objects whose phases are kept."""
_MAX_CHANGES: Final = 32
_MAX_SAMPLES: Final = 120
_MAX_QUEUES: Final = 64
_MAX_WAITING: Final = 10

Sample = tuple[int, tuple[str, ...]]
"""The time in milliseconds, and the names of the first objects that wait from then on, in their order."""


class History:
    """The changes of the phase of each object, and the order in which objects wait in each queue, by uid."""

    def __init__(self) -> None:
        self._phases: OrderedDict[str, deque[PhaseChange]] = OrderedDict()
        self._orders: dict[str, deque[Sample]] = {}

    def record_phase(
        self, uid: str, now: int, state: str, level: str, past: Callable[[], Sequence[PhaseChange]]
    ) -> Sequence[PhaseChange]:
        """Record the state of the object at the time ``now``, and return the new changes.

        ``past`` returns the changes that are known of an object that is recorded for the first time.
        """
        known = self._phases.get(uid)
        if known is None:
            if len(self._phases) >= MAX_TRACKED:
                self._phases.popitem(last=False)
            known = self._phases[uid] = deque(past(), _MAX_CHANGES)
            if not known or known[-1][1] != state:
                known.append((now, state, level))
            return list(known)
        if known[-1][1] == state and known[-1][2] == level:
            return []
        known.append((now, state, level))
        return [known[-1]]

    def record_order(self, uid: str, now: int, waiting: Sequence[str]) -> list[Sample]:
        """Record what waits in a queue at the time ``now``, and return the new sample, if the order has changed."""
        order = tuple(waiting[:_MAX_WAITING])
        samples = self._orders.get(uid)
        if samples is None:
            if len(self._orders) >= _MAX_QUEUES:
                return []
            samples = self._orders[uid] = deque(maxlen=_MAX_SAMPLES)
        if samples and samples[-1][1] == order:
            return []
        samples.append((now, order))
        return [samples[-1]]

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._phases.pop(uid, None)
        self._orders.pop(uid, None)

    def snapshot(self) -> dict[str, Any]:
        """Return everything for a page that is opened now."""
        return {
            "phases": {uid: list(changes) for uid, changes in self._phases.items()},
            "orders": {uid: list(samples) for uid, samples in self._orders.items()},
        }
