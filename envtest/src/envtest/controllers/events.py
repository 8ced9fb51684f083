"""Writes the Events of controllers, with the correlation of client-go's recorder.

An Event that repeats increases the count of the first one. Of Events that differ only in their message, the tenth and
later ones within ten minutes are combined. Each object gets 25 Events of one component at once, then one in five
minutes; the rest are dropped, as client-go does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object
from envtest.controllers.loopback_client import LoopbackClient

__all__ = ["NORMAL", "WARNING", "EventRecorder"]

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

EVENTS: Final = GroupResource("", "events")

_CACHE_SIZE: Final = 4096
_SIMILAR_EVENTS: Final = 10
_SIMILAR_SECONDS: Final = 600.0
_BURST: Final = 25
_REFILL_SECONDS: Final = 300.0
_COMBINED: Final = "(combined from similar events): "
_NAME_ATTEMPTS: Final = 10

V = TypeVar("V")


class _Recent(Generic[V]):
    """A mapping of the 4096 entries that were used last."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _CACHE_SIZE:
            self._entries.popitem(last=False)


@dataclass(slots=True)
class _Similar:
    """The messages of Events that are otherwise the same."""

    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Bucket:
    """The Events that an object may still get."""

    last: float
    tokens: float = float(_BURST)


@dataclass(slots=True)
class _Stored:
    name: str
    count: int = 1


class EventRecorder:
    """Records the Events of one component (``source.component``), on ``host`` if it runs on a node."""

    def __init__(self, client: LoopbackClient, component: str, host: str = "") -> None:
        self._client = client
        self._clock: Clock = client.core.clock
        self._source = {"component": component, **({"host": host} if host else {})}
        self._similar: _Recent[_Similar] = _Recent()
        self._stored: _Recent[_Stored] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()
        self._last_number = 0

    async def normal(self, obj: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an Event of type Normal about ``obj``; see :meth:`record`."""
        await self.record(obj, NORMAL, reason, message)

    async def warning(self, obj: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an Event of type Warning about ``obj``; see :meth:`record`."""
        await self.record(obj, WARNING, reason, message)

    async def record(self, obj: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """Record an Event about ``obj``, an object with its ``apiVersion`` and ``kind``.

        An Event that the API server rejects, for example because the namespace is being deleted, is dropped.
        """
        reference = _reference(obj)
        subject = (reference["kind"], reference["namespace"], reference["name"], reference["uid"])
        key: tuple[str, ...] = (*subject, kind, reason)
        if self._is_similar(key, message):
            message = _COMBINED + message
        else:
            key = (*key, message)
        if not self._take_token(subject):
            return
        try:
            await self._write(key, reference, kind, reason, message)
        except StatusError:
            return

    def _is_similar(self, key: tuple[str, ...], message: str) -> bool:
        """Return whether the Event is combined with earlier ones that have other messages."""
        now = self._clock.time()
        similar = self._similar.get(key)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = _Similar(now)
        similar.last = now
        self._similar.put(key, similar)
        similar.messages.add(message)
        if len(similar.messages) < _SIMILAR_EVENTS:
            return False
        similar.messages.pop()
        return True

    def _take_token(self, subject: tuple[str, ...]) -> bool:
        now = self._clock.time()
        bucket = self._buckets.get(subject) or _Bucket(now)
        bucket.tokens = min(float(_BURST), bucket.tokens + (now - bucket.last) / _REFILL_SECONDS)
        bucket.last = now
        self._buckets.put(subject, bucket)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    async def _write(
        self, key: tuple[str, ...], reference: dict[str, str], kind: str, reason: str, message: str
    ) -> None:
        now = self._client.now()
        namespace = reference["namespace"] or "default"
        stored = self._stored.get(key)
        if stored is not None:
            count = stored.count + 1

            def repeat(event: Object) -> None:
                event.update(count=count, lastTimestamp=now, message=message)

            if await self._client.modify(EVENTS, namespace, stored.name, repeat) is not None:
                stored.count = count
                return
        for _ in range(_NAME_ATTEMPTS):
            name = f"{reference['name']}.{self._next_number():x}"
            event = {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {field: value for field, value in reference.items() if value},
                "reason": reason,
                "message": message,
                "source": dict(self._source),
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "type": kind,
                "reportingComponent": self._source["component"],
                "reportingInstance": self._source.get("host", ""),
            }
            if await self._client.create(EVENTS, event) is not None:
                self._stored.put(key, _Stored(name))
                return

    def _next_number(self) -> int:
        """Return the time in nanoseconds, or the next number if there was an Event at this time."""
        self._last_number = max(self._last_number + 1, int(self._clock.time() * 1e9))
        return self._last_number


def _reference(obj: Mapping[str, Any]) -> dict[str, str]:
    metadata = obj["metadata"]
    return {
        "kind": obj["kind"],
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
        "apiVersion": obj["apiVersion"],
        "resourceVersion": metadata.get("resourceVersion") or "",
    }
