"""Events about RayClusters, without repetitions: a RayCluster is reconciled for many causes."""

from __future__ import annotations

from typing import ClassVar

from cfo.runtime import Clock, EventRecorder, EventType, Object, uid_of


class RecentEvents:
    """Records Events, but none that was recorded within the last minute.

    Of those with messages that other clients can change (``about``), only the first of ten minutes is recorded. The
    conditions of the RayCluster have the latest message.
    """

    _SECONDS: ClassVar[float] = 60.0
    _ABOUT_SECONDS: ClassVar[float] = 600.0
    _LIMIT: ClassVar[int] = 4096
    """How many are remembered at most; one that is forgotten is only recorded again."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._recorded: dict[int, float] = {}

    def event(
        self, obj: Object, type_: EventType, reason: str, message: str, about: str = ""
    ) -> None:
        """Record an Event about ``obj``; ``about`` identifies its repetitions instead of the message."""
        key = hash((uid_of(obj), reason, about or message))
        now = self._clock.monotonic()
        last = self._recorded.get(key)
        interval = self._ABOUT_SECONDS if about else self._SECONDS
        if last is not None and now - last < interval:
            return
        self._recorded.pop(key, None)  # the order of the others is that of their times
        self._recorded[key] = now
        if len(self._recorded) > self._LIMIT:
            del self._recorded[next(iter(self._recorded))]
        self._recorder.event(obj, type_, reason, message)
