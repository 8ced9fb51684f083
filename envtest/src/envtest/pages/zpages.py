"""``/statusz`` and ``/flagz``: state and settings of the server as plain text; what is served below ``/debug``.

The lines follow ``k8s.io/component-base/zpages``. kube-apiserver also serves both as JSON and YAML with the parameters
``g``, ``v`` and ``as`` of the media type; here they are plain text only. There are no profiles, and requests never
wait, so that the tables of priority and fairness consist of their titles.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from envtest.apimachinery.errors import not_acceptable
from envtest.configuration.kubernetes_version import KubernetesVersion
from envtest.endpoints.request import Response

__all__ = ["ServerPages"]

_ACCEPTED: Final = (
    "only the following media types are accepted: application/json, application/yaml, text/plain"
)
_TEXT: Final = ("*/*", "text/*", "text/plain")
_DUMPS: Final = {
    "dump_priority_levels": (
        "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, "
        "RejectedRequests, TimedoutRequests, CancelledRequests"
    ),
    "dump_queues": (
        "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, "
        "MaxSeatsSum, TotalWorkSum"
    ),
    "dump_requests": (
        "PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, ArriveTime, "
        "InitialSeats, FinalSeats, AdditionalLatency, StartTime"
    ),
}
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)


class ServerPages:
    """The pages of one server, which starts when this object is created.

    ``flags`` are the settings to show, by the name of kube-apiserver's flag; they must not contain secrets.
    """

    def __init__(self, version: KubernetesVersion, flags: Mapping[str, str]) -> None:
        self._version = version
        self._flags = flags
        self._started = datetime.now(UTC)
        self._since = time.monotonic()

    def respond(self, path: str, accept: str) -> Response | None:
        """Return the response to a GET, or ``None`` for another path. Raises StatusError (406)."""
        if path == "/debug/pprof":
            return Response(b"", 302, "", {"Location": "/debug/pprof/"})
        if path.startswith("/debug/api_priority_and_fairness/"):
            title = _DUMPS.get(path.rpartition("/")[2])
            if title:
                return Response(f"{title}\n".encode(), content_type="text/plain; charset=utf-8")
        if path not in ("/statusz", "/flagz"):
            return None
        if accept and not any(
            clause.partition(";")[0].strip() in _TEXT for clause in accept.split(",")
        ):
            raise not_acceptable(_ACCEPTED)
        lines = (
            self._status()
            if path == "/statusz"
            else [f"{name}={self._flags[name]}" for name in sorted(self._flags)]
        )
        title = f"kube-apiserver {'statusz' if path == '/statusz' else 'flags'}"
        text = "\n".join(["", title, _WARNING, "", *lines, ""])
        return Response(text.encode(), content_type="text/plain; charset=utf-8")

    def _status(self) -> list[str]:
        seconds = int(time.monotonic() - self._since)
        version = str(self._version).removeprefix("v")
        return [
            f"Started: {self._started:%a %b %e %H:%M:%S UTC %Y}",
            f"Up: {seconds // 3600} hr {seconds // 60 % 60:02} min {seconds % 60:02} sec",
            f"Go version: none ({platform.python_implementation()} {platform.python_version()})",
            f"Binary version: {version}",
            f"Emulation version: {version}",
        ]
