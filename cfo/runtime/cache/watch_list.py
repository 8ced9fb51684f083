"""Streamed lists: the initial objects as events of the watch (KEP-3157, WatchList).

A watch with ``sendInitialEvents`` first reports all objects as ADDED, then a bookmark with an annotation, and continues
as an ordinary watch. The API server need not build pages in memory. Kubernetes 1.34 and newer (and 1.32) serve it;
others refuse the request, or ignore the parameter and never send that bookmark. Then pages are requested, and the API
group is remembered for the life of the process: the APIs of one group have the same server, but an aggregated API can
have another server than the rest.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from cfo.runtime.client.errors import APIError

__all__ = [
    "INITIAL_EVENTS_SECONDS",
    "MAX_STREAM_FAILURES",
    "WatchListSupport",
    "ends_initial_events",
    "is_refusal",
    "watch_list_params",
]

_log = structlog.get_logger(__name__)

INITIAL_EVENTS_SECONDS: Final = 30.0
"""Seconds without any event before the end of the initial events, after which the server is not expected to send it."""

MAX_STREAM_FAILURES: Final = 3
"""After so many broken streams in sequence, the next list is read in pages, which can be resumed after each page."""

_END: Final = "k8s.io/initial-events-end"


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Metadata


_bookmark: Final = msgspec.json.Decoder(_Bookmark)


class WatchListSupport:
    """Remembers for which API groups the server does not stream lists."""

    def __init__(self) -> None:
        self._unsupported: set[str] = set()

    def is_supported(self, group: str) -> bool:
        """Return whether a streamed list can be requested."""
        return group not in self._unsupported

    def record_unsupported(self, group: str, cause: str) -> None:
        """Record that the server of this group does not stream lists."""
        if group not in self._unsupported:
            self._unsupported.add(group)
            _log.info("The API server does not stream lists, requesting pages", group=group or "core", cause=cause)


def watch_list_params(known_version: str) -> dict[str, str]:
    """Return the query parameters of a streamed list that is not older than a version (empty: a quorum list)."""
    return {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": known_version,
    }


def ends_initial_events(bookmark: msgspec.Raw) -> bool:
    """Return whether this bookmark is the end of the initial events."""
    return (_bookmark.decode(bookmark).metadata.annotations or {}).get(_END) == "true"


def is_refusal(error: APIError) -> bool:
    """Return whether the server refuses a streamed list, rather than this request.

    Without the feature, an API server rejects ``sendInitialEvents``, or for a watch also ``resourceVersionMatch``.
    """
    return error.code in (400, 422) and any(
        parameter in error.message for parameter in ("sendInitialEvents", "resourceVersionMatch")
    )
