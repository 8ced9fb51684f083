"""What the page shows of each object: JSON from its summary. Pure functions.

The page receives a row for every object, so a row has no conditions and Events. The page requests them as
:func:`details` when a user opens the object.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cfo.console.summaries import KindView, Summary, WarningEvent
from cfo.console.summaries.reading import milliseconds

__all__ = ["details", "events_of", "identity_of", "row_of"]


def identity_of(summary: Summary) -> str:
    """Return what identifies an object: its uid, or its kind and name if it has none."""
    return summary.uid or f"{summary.gvk.kind}/{summary.key}"


def row_of(summary: Summary, view: KindView) -> dict[str, Any]:
    """Return the row of an object."""
    return {
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
        **(view.row(summary) if view.row is not None else {}),
    }


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
