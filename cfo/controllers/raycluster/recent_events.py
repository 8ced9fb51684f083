"""Events about RayClusters, without repetitions: a RayCluster is reconciled for many causes."""

from __future__ import annotations

from typing import ClassVar

from cfo.runtime import Clock, EventRecorder, EventType, Object, uid_of


class RecentEvents:
    """Records Events, but none that was recorded within the last minute."""

    _SECONDS: ClassVar[float] = 60.0
    _LIMIT: ClassVar[int] = 4096
    """How many are remembered at most; one that is forgotten is only recorded again."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._recorded: dict[int, float] = {}

    def event(self, obj: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an Event about ``obj``."""
        key = hash((uid_of(obj), reason, message))
        now = self._clock.monotonic()
        if now - self._recorded.get(key, -self._SECONDS) < self._SECONDS:
            return
        self._recorded.pop(key, None)  # the order of the others is that of their times
        self._recorded[key] = now
        if len(self._recorded) > self._LIMIT:
            del self._recorded[next(iter(self._recorded))]
        self._recorder.event(obj, type_, reason, message)
