"""The audit log: one event for each finished request, at Metadata level, as JSON lines and in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from io import BufferedWriter
from pathlib import Path
from typing import Any

import orjson

from envtest.apimachinery.file_errors import reason_of
from envtest.apimachinery.user import user_info
from envtest.auth.attributes import Attributes
from envtest.endpoints.request import Request

__all__ = ["AuditLog", "AuditLogError", "current_request"]

current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The audit ID of the request that the current task processes."""

KEEP = 10_000
"""Number of events that are kept in memory."""


def _micros(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


class AuditLogError(ValueError):
    """Raised when the file of the audit log cannot be written; the message contains the file and the reason."""


class AuditLog:
    """Collects audit events (``audit.k8s.io/v1``).

    :attr:`events` are the latest events, for tests; each event is also written to ``file`` as one line, and passed to
    all ``listeners``. Raises AuditLogError.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._latest: deque[bytes] = deque(maxlen=KEEP)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self._out: BufferedWriter | None = None
        if file is None:
            return
        try:
            self._out = file.open("ab")
        except OSError as error:
            raise AuditLogError(
                f"audit log {file}: cannot be written: {reason_of(error)}"
            ) from error

    @property
    def events(self) -> list[dict[str, Any]]:
        """The latest events, oldest first."""
        return [orjson.loads(line) for line in self._latest]

    def clear(self) -> None:
        """Clear the events that :attr:`events` returns."""
        self._latest.clear()

    def record(
        self,
        request: Request,
        attributes: Attributes,
        code: int,
        received: datetime,
        completed: datetime,
    ) -> None:
        """Record a request, its response code, and when it was received and completed."""
        impersonator = request.audit.get("impersonator")
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": request.audit_id,
            "stage": "ResponseComplete",
            "requestURI": str(request.raw.rel_url),
            "verb": attributes.verb,
            "user": user_info(impersonator or request.user),
            "sourceIPs": [request.raw.remote or ""],
            "userAgent": request.headers.get("User-Agent", ""),
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": _micros(received),
            "stageTimestamp": _micros(completed),
        }
        if attributes.is_resource_request:
            reference = {
                "resource": attributes.resource,
                "namespace": attributes.namespace,
                "name": attributes.name or request.audit.get("name", ""),
                "apiGroup": attributes.group,
                "apiVersion": attributes.version,
                "subresource": attributes.subresource,
            }
            event["objectRef"] = {key: value for key, value in reference.items() if value}
        if impersonator is not None:
            event["impersonatedUser"] = user_info(request.user)
        annotations = dict(request.audit.get("annotations") or {})
        decision = request.audit.get("decision")
        if decision is not None:
            annotations["authorization.k8s.io/decision"] = "allow" if decision.allowed else "forbid"
            annotations["authorization.k8s.io/reason"] = decision.reason
        if annotations:
            event["annotations"] = annotations
        line = orjson.dumps(event) + b"\n"
        self._latest.append(line)
        if self._out is not None:
            self._out.write(line)
            self._out.flush()
        for listener in self.listeners:
            listener(event)

    def close(self) -> None:
        """Close the file."""
        if self._out is not None:
            self._out.close()
            self._out = None
