"""The objects on which the summary of an object depends, as they were read: they can have fields of any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cfo.console.summaries.reading import mapping, number, path, text, time_of
from cfo.console.summaries.summary import MAX_WARNINGS, WarningEvent
from cfo.runtime import GVK, Object

MAX_PODS: Final = 200
MAX_EVENTS: Final = 50
"""The maximum number of each that the summary of one object depends on."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """What belongs to one object, and what else its summary depends on.

    ``children`` are the objects that it owns, by kind, and ``pods`` the pods; a kind that is missing (``None``) cannot
    be read, so nothing is said about it. ``events`` are Warning Events. ``now`` is the time of the summary.
    """

    children: Mapping[GVK, Sequence[Object]] = field(default_factory=dict)
    pods: Sequence[Object] | None = None
    events: Sequence[Object] = ()
    now: datetime = _NEVER


def have_succeeded(related: Related) -> bool:
    """Return whether there are pods, and all of them have succeeded."""
    return bool(related.pods) and all(path(pod, "status", "phase") == "Succeeded" for pod in related.pods or ())


def number_of_pods(related: Related) -> str:
    """Return the number of pods; empty if it is not known."""
    if related.pods is None:
        return ""
    return str(len(related.pods)) if len(related.pods) < MAX_PODS else f"{MAX_PODS} or more"


def warnings_of(events: Sequence[Mapping[str, Any]]) -> tuple[WarningEvent, ...]:
    """Return what Warning Events say, the newest first, each reason and message once."""
    found: dict[tuple[str, str], WarningEvent] = {}
    for event in sorted(events, key=lambda event: last_occurrence(event) or _NEVER, reverse=True):
        last = last_occurrence(event)
        warning = WarningEvent(
            reason=text(event.get("reason"), 80),
            message=text(event.get("message") or event.get("note")),
            last=last.isoformat(timespec="seconds").replace("+00:00", "Z") if last else "",
            count=max(1, number(event.get("count")), number(path(event, "series", "count"))),
        )
        found.setdefault((warning.reason, warning.message), warning)
        if len(found) == MAX_WARNINGS:
            break
    return tuple(found.values())


def last_occurrence(event: Mapping[str, Any]) -> datetime | None:
    """Return when the Event last occurred: both Event APIs have several fields for it."""
    times = (
        path(event, "series", "lastObservedTime"),
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        mapping(event.get("metadata")).get("creationTimestamp"),
    )
    return max((time for time in map(time_of, times) if time is not None), default=None)
