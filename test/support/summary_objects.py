"""Objects for the tests of summaries, and the summary of one object."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, Object
from cfo.summaries import kind_view
from cfo.summaries.kind_view import Related
from cfo.summaries.summary import Summary
from test.support.summaries import VIEWS

__all__ = [
    "HEAD",
    "NOT_OURS",
    "NOW",
    "NO_LIMITS",
    "OLD",
    "changed",
    "cluster",
    "condition",
    "event",
    "messages",
    "obj",
    "pod",
    "related",
    "summarize",
    "waits_for",
]

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
OLD: Final = "2026-05-31T23:59:00Z"
"""A minute before :data:`NOW`."""
HEAD: Final[Object] = {"containers": [{"name": "ray"}]}
NO_LIMITS: Final = 'pods "p" is forbidden: failed quota: compute: must specify limits.cpu for: main'
NOT_OURS: Final = "resource j exists, but is not controlled by appwrapper"


def summarize(gvk: GVK, one: Object, objects: Related | None = None) -> Summary:
    """Return the summary of an object, with the view of its kind."""
    return kind_view.summarize(VIEWS[gvk], one, objects)


def messages(summary: Summary) -> list[str]:
    """Return the messages of the problems."""
    return [problem.message for problem in summary.problems]


def related(**fields: Any) -> Related:
    """Return related objects at the time :data:`NOW`."""
    return Related(now=NOW, **fields)


def obj(gvk: GVK, *, spec: Any = None, status: Any = None, **metadata: Any) -> Object:
    """Return the object ``n/x``."""
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": {"name": "x", "namespace": "n", "uid": "u", **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def cluster(state: str = "ready", *, pod: Any = None, **spec: Any) -> Object:
    """Return a RayCluster with two of three workers; ``pod`` is the spec of the head."""
    status = {"state": state, "desiredWorkerReplicas": 3, "readyWorkerReplicas": 2}
    return obj(
        RAY_CLUSTER,
        spec={"headGroupSpec": {"template": {"spec": pod or HEAD}}, **spec},
        status=status,
    )


def pod(phase: str, name: str = "p", **status: Any) -> Object:
    """Return a pod without a spec."""
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def condition(kind: str, status: str, reason: str = "Reason", message: str = "message") -> Object:
    """Return a condition without a time."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def changed(kind: str, status: str, reason: str, since: str) -> Object:
    """Return a condition that changed at ``since``."""
    return {**condition(kind, status, reason), "lastTransitionTime": since}


def waits_for(reason: str) -> list[Object]:
    """Return the conditions of a FluxJob that waits for quota."""
    return [
        condition("JobWaitingForResources", "True"),
        condition("QuotaReserved", "False", reason),
    ]


def event(reason: str, last: str, message: str = "why", count: int = 1) -> Object:
    """Return an event of the type Warning."""
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": last,
        "count": count,
    }
