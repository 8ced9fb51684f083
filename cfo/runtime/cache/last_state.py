"""What an object looked like when a wait for it timed out: its conditions, pods that do not run, and Warning Events.

The text is for a person who reads a failed test or a log: it has a limited number of short lines, in which characters
that are not printable are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.printable import printable

MAX_SHOWN: Final = 5
"""The maximum number of pods, and of Events."""

_MAX_CONDITIONS: Final = 20
_MAX_LINE: Final = 300


def last_state(
    obj: Object | None, pods: Sequence[Object] = (), warnings: Sequence[Object] = ()
) -> str:
    """Return the state of ``obj`` (``None``: it does not exist), of ``pods``, and the newest of ``warnings``.

    ``pods`` are those of its namespace that do not run, and ``warnings`` the Warning Events there. Each line begins
    with a line break and two spaces.
    """
    lines = [
        *_object_lines(obj),
        *_pod_lines(pods[:MAX_SHOWN]),
        *_event_lines(sorted(warnings, key=_time_of)[-MAX_SHOWN:]),
    ]
    return "".join(f"\n  {printable(line, _MAX_LINE)}" for line in lines)


def _object_lines(obj: Object | None) -> Iterator[str]:
    if obj is None:
        yield "the object does not exist"
        return
    metadata = _mapping(obj.get("metadata"))
    status = _mapping(obj.get("status"))
    if metadata.get("deletionTimestamp"):
        yield f"being deleted, finalizers: {metadata.get('finalizers')}"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        yield f"generation {metadata.get('generation')}, of which {observed} was observed"
    conditions = _items(status.get("conditions"))
    for condition in conditions[:_MAX_CONDITIONS]:
        reason = condition.get("reason")
        message = condition.get("message") or ""
        yield f"{condition.get('type')}: {condition.get('status')} ({reason}) {message}".rstrip()
    if not conditions:
        yield f"status without conditions: {_encoded(status)}"


def _pod_lines(pods: Sequence[Object]) -> Iterator[str]:
    for pod in pods:
        status = _mapping(pod.get("status"))
        name = _mapping(pod.get("metadata")).get("name")
        causes = [
            *_unscheduled(status),
            *_waiting(status, "initContainerStatuses"),
            *_waiting(status, "containerStatuses"),
        ]
        yield f"Pod {name}: {'; '.join([str(status.get('phase')), *causes])}"


def _unscheduled(status: Mapping[str, Any]) -> Iterator[str]:
    for condition in _items(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"


def _waiting(status: Mapping[str, Any], field: str) -> Iterator[str]:
    for container in _items(status.get(field)):
        waiting = _mapping(_mapping(container.get("state")).get("waiting"))
        if waiting:
            text = f"{waiting.get('reason')} {waiting.get('message') or ''}".rstrip()
            yield f"container {container.get('name')} waits: {text}"


def _event_lines(warnings: Sequence[Object]) -> Iterator[str]:
    for event in warnings:
        regarding = _mapping(event.get("involvedObject"))
        subject = f"{regarding.get('kind')} {regarding.get('name')}"
        yield f"Warning of {subject}: {event.get('reason')}: {event.get('message')}"


def _time_of(event: Object) -> str:
    """Return when an Event last occurred; RFC 3339 times in UTC are in the order of their strings."""
    created = _mapping(event.get("metadata")).get("creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or created or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _encoded(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()[:_MAX_LINE]
