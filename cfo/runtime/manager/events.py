"""Recording of Kubernetes Events, which ``kubectl describe`` shows.

:meth:`EventRecorder.event` returns immediately and does not fail on API errors: a bounded queue feeds one sender, which
writes ``events.k8s.io/v1`` Events, or core ``v1`` Events in namespaces where the former are forbidden. Namespaces take
turns, and a full queue drops Events of the namespace that has the most. Repeated events are combined into a series: one
object whose count is written each time it doubles, so a reconcile that fails a thousand times costs ten requests. As in
client-go's correlator, events that differ only in their message become one series after ten of them within ten minutes,
and each object has a rate limit (a burst of 25 events, then one every five minutes). Events are best effort: those that
cannot be written are dropped and logged.

Sources: `Event v1`_ (field lengths, ``series``, ``reportingController``), client-go's ``tools/record`` (the limits).

.. _Event v1: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict, deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, Forbidden, NotFound, TransportError, UnknownKind
from cfo.runtime.client.ratelimit import BucketRateLimiters
from cfo.runtime.objects.kinds import CORE_EVENT, EVENT
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    TypedObject,
    gvk_of,
    key_of,
    uid_of,
)
from cfo.runtime.process.arguments import InvalidArgument, require_type
from cfo.runtime.process.clock import Clock, SystemClock, micro_time, rfc3339, sleep_unless
from cfo.runtime.process.printable import printable

__all__ = ["CORE_EVENT", "EVENT", "EVENT_RULES", "EventBroadcaster", "EventRecorder", "EventType"]

_log = structlog.get_logger(__name__)


EVENT_RULES = (Rule("events.k8s.io", "events", ("create", "patch")),)
"""The permissions that recording requires; the same permissions on core ``events`` are also sufficient."""

EventType = Literal["Normal", "Warning"]

# Limits of the API.
_NOTE_BYTES = 1024
_REASON_LENGTH = 128
_INSTANCE_LENGTH = 128
_NAME_LENGTH = 253

# Limits of this process.
_QUEUE_LENGTH = 1000
_MAX_TRACKED = 4096
_RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0)

# client-go's limits of repeated and similar events.
_SERIES_IDLE = timedelta(minutes=6)
_MAX_SIMILAR = 10
_SIMILAR_INTERVAL = timedelta(minutes=10)
_COMBINED_PREFIX = "(combined from similar events): "
_BURST = 25
_REFILL_PER_SECOND = 1 / 300


class _Key(NamedTuple):
    """The identity of an event: events with equal keys form one series."""

    component: str
    regarding: str
    type: str
    reason: str
    action: str
    note: str


class _Similar(msgspec.Struct):
    """The recent messages of events that differ only in their message."""

    last: datetime
    notes: set[str]
    combined: _Key | None = None


class _Reference(NamedTuple):
    """An ObjectReference, without the resourceVersion."""

    kind: GVK
    key: NamespacedName
    uid: str

    @classmethod
    def to(cls, obj: Mapping[str, Any] | TypedObject) -> _Reference:
        require_type("event", obj, Mapping | TypedObject, "an object: a dict or a typed resource")
        return cls(gvk_of(obj), key_of(obj), uid_of(obj))

    def as_object(self) -> Object:
        fields = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "uid": self.uid,
        }
        return {name: value for name, value in fields.items() if value}


class _Series(msgspec.Struct):
    """An event, the number of its occurrences, and the number that was written."""

    regarding: _Reference
    related: _Reference | None
    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    queued: bool = False
    event: NamespacedName | None = None


class EventRecorder:
    """Records events reported by ``component``. Created by :meth:`EventBroadcaster.recorder`."""

    def __init__(self, broadcaster: EventBroadcaster, component: str) -> None:
        self._broadcaster = broadcaster
        self.component = component

    def event(
        self,
        obj: Mapping[str, Any] | TypedObject,
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
        *,
        action: str = "Reconcile",
        related: Mapping[str, Any] | TypedObject | None = None,
    ) -> None:
        """Record an event about ``obj``; return immediately, before it is written.

        ``reason`` and ``action`` are CamelCase words for machines, ``message`` is a sentence for users (truncated to
        1024 bytes); never include secrets. ``related`` is a second object that the event concerns. Raises
        :class:`ValueError` for a type other than Normal and Warning, and for a reason that is empty or longer than 128
        characters; :class:`TypeError` if ``obj`` is not an object.
        """
        if type not in ("Normal", "Warning"):
            raise InvalidArgument(f"event type {type!r}: must be Normal or Warning")
        if not reason or len(reason) > _REASON_LENGTH:
            raise InvalidArgument(f"reason {reason!r}: must be 1 to {_REASON_LENGTH} characters")
        regarding = _Reference.to(obj)
        identity = regarding.uid or f"{regarding.kind} {regarding.key}"
        note = _truncate(printable(message, _NOTE_BYTES), _NOTE_BYTES)
        key = _Key(self.component, identity, type, reason, action, note)
        related_reference = _Reference.to(related) if related is not None else None
        self._broadcaster.record(key, regarding, related_reference)


class EventBroadcaster:
    """Aggregates and writes the events of all recorders; a runnable of the manager.

    ``client`` writes them; ``instance`` identifies this process (default: the hostname).
    """

    name = "events"

    def __init__(self, client: Client, *, clock: Clock | None = None, instance: str = "") -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._instance = instance or socket.gethostname()

        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._budgets = BucketRateLimiters(_REFILL_PER_SECOND, _BURST, self._clock)
        self._similar: OrderedDict[_Key, _Similar] = OrderedDict()
        self._core_namespaces: set[str] = set()
        """The namespaces in which only core Events can be written."""

        self._queues: OrderedDict[str, deque[tuple[_Key, _Series]]] = OrderedDict()
        """The Events that wait, by namespace: namespaces take turns."""
        self._queued = 0
        self._woken = asyncio.Event()
        self._stopping = anyio.Event()
        self._last_stamp = 0
        self.dropped = 0
        """The number of events not written: rate limit of the object exceeded, queue full, or write failed."""

    def recorder(self, component: str) -> EventRecorder:
        """Return a recorder for ``component``, which becomes ``reportingController``."""
        return EventRecorder(self, component)

    def record(self, key: _Key, regarding: _Reference, related: _Reference | None) -> None:
        """Queue an event; see :meth:`EventRecorder.event`."""
        now = self._clock.now()
        key = self._aggregate(key, now)
        series = self._series.get(key)
        if series is None or now - series.last > _SERIES_IDLE:
            if not self._budgets.try_take((key.component, key.regarding)):
                self._drop(key, "the object exceeded its event rate limit")
                return
            series = _Series(regarding, related, now, now)
            self._series[key] = series
        else:
            series.count += 1
            series.last = now
        self._series.move_to_end(key)
        if len(self._series) > _MAX_TRACKED:
            self._series.popitem(last=False)
        if not series.queued and series.count >= 2 * series.written:
            self._enqueue(key, series)

    def stop(self) -> None:
        """Stop retrying; :meth:`run` returns when each queued event was written or attempted once."""
        self._stopping.set()
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write events until :meth:`stop`."""
        task_status.started()
        while True:
            while self._queues:
                namespace, queue = self._queues.popitem(last=False)
                key, series = queue.popleft()
                if queue:
                    self._queues[namespace] = queue
                self._queued -= 1
                series.queued = False
                await self._write_with_retries(key, series)
            if self._stopping.is_set():
                return
            self._woken.clear()
            await self._woken.wait()

    def _aggregate(self, key: _Key, now: datetime) -> _Key:
        """Return the key of the series: the event's own key, or the key of all similar events if there are too many."""
        similar_key = key._replace(note="")
        similar = self._similar.get(similar_key)
        if similar is None or now - similar.last > _SIMILAR_INTERVAL:
            similar = _Similar(now, set())
            self._similar[similar_key] = similar
            if len(self._similar) > _MAX_TRACKED:
                self._similar.popitem(last=False)
        self._similar.move_to_end(similar_key)
        similar.last = now
        if len(similar.notes) < _MAX_SIMILAR:
            similar.notes.add(key.note)
        if key.note in similar.notes:
            return key
        if similar.combined is None:
            note = _truncate(_COMBINED_PREFIX + key.note, _NOTE_BYTES)
            similar.combined = key._replace(note=note)
        return similar.combined

    def _enqueue(self, key: _Key, series: _Series) -> None:
        queue = self._queues.setdefault(series.regarding.key.namespace, deque())
        queue.append((key, series))
        series.queued = True
        self._queued += 1
        if self._queued > _QUEUE_LENGTH:
            self._drop_latest_of_longest_queue()
        self._woken.set()

    def _drop_latest_of_longest_queue(self) -> None:
        """Drop an event of the namespace that has the most, so that it cannot displace those of others."""
        namespace, longest = max(self._queues.items(), key=lambda item: len(item[1]))
        key, series = longest.pop()
        if not longest:
            del self._queues[namespace]
        series.queued = False
        self._queued -= 1
        self._drop(key, "the event queue is full")

    def _drop(self, key: _Key, cause: str) -> None:
        self.dropped += 1
        _log.debug("Dropped event", cause=cause, reason=key.reason, regarding=key.regarding)

    async def _write_with_retries(self, key: _Key, series: _Series) -> None:
        delays = iter(_RETRY_DELAYS)
        while True:
            try:
                await self._write(key, series)
            except Exception as error:  # noqa: BLE001 - events are best effort
                if isinstance(error, APIError) and error.is_from_terminating_namespace:
                    self._drop(key, "the namespace is being deleted")
                    return
                delay = next(delays, None)
                if delay is None or not _is_transient(error) or self._stopping.is_set():
                    self.dropped += 1
                    _log.warning(
                        "Failed to write event", error=str(error), reason=key.reason, note=key.note
                    )
                    return
                await sleep_unless(self._clock, delay, self._stopping)
            else:
                return

    async def _write(self, key: _Key, series: _Series) -> None:
        """Write an ``events.k8s.io/v1`` Event, or a core Event if the former is forbidden in the namespace."""
        namespace = series.regarding.key.namespace or "default"
        if namespace in self._core_namespaces:
            await self._write_as(CORE_EVENT, key, series)
            return
        try:
            await self._write_as(EVENT, key, series)
        except (Forbidden, UnknownKind) as error:
            try:
                await self._write_as(CORE_EVENT, key, series)
            except (Forbidden, UnknownKind):
                raise error from None
            self._core_namespaces.add(namespace)
            _log.info("Falling back to core v1 Events", namespace=namespace, cause=str(error))

    async def _write_as(self, gvk: GVK, key: _Key, series: _Series) -> None:
        """Write the current count of the series: update its Event, or create it."""
        count = series.count  # it may grow while the request is sent
        is_core = gvk == CORE_EVENT
        series_state = {"count": count, "lastObservedTime": micro_time(series.last)}
        if series.event is not None:
            repeated: Object = {"series": series_state}
            if is_core:
                repeated = {"count": count, "lastTimestamp": rfc3339(series.last)}
            try:
                await self._client.patch(gvk, series.event, repeated)
            except NotFound:
                _log.debug("Event expired, creating a new one", expired=str(series.event))
            else:
                series.written = count
                return
        event = self._event(key, series)
        if count > 1:
            event["series"] = series_state
        if is_core:
            await self._client.create(_as_core(event, series, self._instance))
        else:
            await self._client.create(event)
        series.event = key_of(event)
        series.written = count

    def _event(self, key: _Key, series: _Series) -> Object:
        """Return a new ``events.k8s.io/v1`` Event, whose name ends with the time in nanoseconds, as in client-go."""
        regarding = series.regarding
        nanoseconds = int(self._clock.now().timestamp() * 1e9)
        self._last_stamp = max(nanoseconds, self._last_stamp + 1)  # unique in this process
        suffix = f".{self._last_stamp:x}"
        prefix = regarding.key.name[: _NAME_LENGTH - len(suffix)].rstrip("-.")
        event: Object = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {
                "namespace": regarding.key.namespace or "default",
                "name": prefix + suffix,
            },
            "eventTime": micro_time(series.first),
            "reportingController": key.component,
            "reportingInstance": f"{key.component}-{self._instance}"[:_INSTANCE_LENGTH],
            "regarding": regarding.as_object(),
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "note": key.note,
        }
        if series.related is not None:
            event["related"] = series.related.as_object()
        return event


def _as_core(event: Object, series: _Series, host: str) -> Object:
    """Convert an ``events.k8s.io/v1`` Event to core ``v1``, which has a count instead of a series."""
    core = {
        "apiVersion": CORE_EVENT.api_version,
        "kind": CORE_EVENT.kind,
        "metadata": event["metadata"],
        "involvedObject": event["regarding"],
        "reason": event["reason"],
        "message": event["note"],
        "type": event["type"],
        "action": event["action"],
        "source": {"component": event["reportingController"], "host": host},
        "reportingComponent": event["reportingController"],
        "reportingInstance": event["reportingInstance"],
        "firstTimestamp": rfc3339(series.first),
        "lastTimestamp": rfc3339(series.last),
        "count": series.count,
    }
    if "related" in event:
        core["related"] = event["related"]
    return core


def _is_transient(error: Exception) -> bool:
    if isinstance(error, TransportError):
        return True
    return isinstance(error, APIError) and error.code >= 429


def _truncate(message: str, limit: int) -> str:
    """Truncate ``message`` to at most ``limit`` bytes of UTF-8."""
    raw = message.encode()
    if len(raw) <= limit:
        return message
    return raw[: limit - 3].decode(errors="ignore") + "..."
