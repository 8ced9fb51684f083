"""What the page shows of each object: JSON from its summary. Pure functions.

The page receives a row for every object, so a row has no conditions and Events. The page requests them as
:func:`details` when a user opens the object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cfo.api.appwrapper import APPWRAPPER, Phase
from cfo.api.flux import FLUX_JOB, FLUX_SETUP
from cfo.console.dashboard.history import Change
from cfo.console.summaries import Level, Summary, WarningEvent

__all__ = ["details", "events_of", "identity_of", "milliseconds", "past_phases", "row_of", "waiting_orders"]

_NUMBER: Final = re.compile(r"\d{1,9}")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(T[0-9:.]+Z?)?")


def milliseconds(time: str | datetime | None) -> int:
    """Return a time (also as RFC 3339) in milliseconds since 1970; 0 if there is none."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            return 0
    if time is None:
        return 0
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def identity_of(summary: Summary) -> str:
    """Return what identifies an object: its uid, or its kind and name if it has none."""
    return summary.uid or f"{summary.gvk.kind}/{summary.key}"


def row_of(summary: Summary) -> dict[str, Any]:
    """Return the row of an object."""
    row: dict[str, Any] = {
        "id": identity_of(summary),
        "kind": summary.gvk.kind,
        "namespace": summary.key.namespace,
        "name": summary.key.name,
        "state": summary.state,
        "level": summary.level.value,
        "ready": summary.ready,
        "created": milliseconds(summary.created),
        "facts": summary.facts,
        "problems": [(problem.message, problem.remedy) for problem in summary.problems],
    }
    if summary.gvk == FLUX_SETUP:
        row["quotas"] = _quotas(summary)
    elif summary.gvk == FLUX_JOB:
        row["position"] = position_of(summary)
        row["queue"] = summary.fact("queue")
    expiry = _DATE.search(summary.fact("CA expires"))
    if expiry is not None and (time := milliseconds(expiry[0])):
        row["expires"], row["certificate"] = time, "CA of the RayCluster"
    return row


def details(summary: Summary) -> dict[str, Any]:
    """Return what the page shows of an object that a user opens, in addition to its row."""
    return {
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in summary.conditions
        ],
        "warnings": [{"reason": one.reason, "message": one.message, "count": one.count} for one in summary.warnings],
    }


def events_of(summary: Summary, known: Collection[WarningEvent] = ()) -> list[dict[str, Any]]:
    """Return the Warning Events about an object, without those that are ``known``."""
    return [
        {
            "id": f"{identity_of(summary)}/{event.reason}/{event.message}",
            "time": milliseconds(event.last),
            "type": "Warning",
            "reason": event.reason,
            "note": event.message,
            "count": event.count,
            "kind": summary.gvk.kind,
            "namespace": summary.key.namespace,
            "name": summary.key.name,
        }
        for event in summary.warnings
        if event not in known
    ]


def _quotas(summary: Summary) -> list[tuple[str, int, int, str, str]]:
    """Return the quotas of a FluxSetup: title, used, limit, and both as they are shown."""
    found = []
    used, _, limit = summary.ready.partition("/")
    if used.isdecimal() and limit.isdecimal():
        found.append(("Pods", int(used), int(limit), used, limit))
    jobs, most = _first_number(summary.fact("jobs")), _first_number(summary.fact("max jobs"))
    if most:
        found.append(("Jobs", jobs, most, str(jobs), str(most)))
    return found


def _first_number(text: str) -> int:
    number = _NUMBER.search(text)
    return int(number[0]) if number else 0


def position_of(summary: Summary) -> int:
    """Return the position of a FluxJob in its queue; 0 if it does not wait."""
    return _first_number(summary.fact("position"))


def waiting_orders(setups: Mapping[str, Summary], jobs: Iterable[Summary]) -> dict[str, list[str]]:
    """Return for each FluxSetup, by its identity, the names of the jobs that wait for it, the next one first.

    The position in the status of a job is approximate (it is written when it has halved or doubled), so jobs of one
    position are in the order of their creation. A name includes the namespace if it is not that of the queue.
    """
    waiting: dict[str, list[tuple[int, str, str, str]]] = {}
    for job in jobs:
        if position := position_of(job):
            waiting.setdefault(job.fact("queue"), []).append((position, job.created, job.key.namespace, job.key.name))
    orders = {}
    for identity, setup in setups.items():
        own = setup.key.namespace
        found = sorted(waiting.get(str(setup.key), ()))
        orders[identity] = [name if namespace == own else f"{namespace}/{name}" for _, _, namespace, name in found]
    return orders


_REACHED: Final = (("QuotaReserved", Phase.RESUMING), ("PodsReady", Phase.RUNNING))
"""Conditions of an AppWrapper that are true since a phase began."""


def past_phases(summary: Summary) -> Sequence[Change]:
    """Return the phases of an AppWrapper until now, as far as its conditions tell."""
    if summary.gvk != APPWRAPPER:
        return ()
    changes: list[Change] = [(milliseconds(summary.created), Phase.SUSPENDED.value, Level.IDLE.value)]
    last = changes[0][0]
    for kind, phase in _REACHED:
        reached = (one.since for one in summary.conditions if one.type == kind and one.status == "True")
        since = milliseconds(next(reached, None))
        if since >= last:
            level = Level.OK if phase is Phase.RUNNING else Level.PROGRESSING
            changes.append((since, phase.value, level.value))
            last = since
    if summary.state != changes[-1][1]:
        latest = max((milliseconds(one.since) for one in summary.conditions), default=0)
        changes.append((max(latest, last), summary.state, summary.level.value))
    return changes
