"""A request to the API server, which is the input of the transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["JSON", "APIRequest"]

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class APIRequest:
    """One request to the API server.

    ``path`` is percent-encoded; ``params`` are not. ``timeout`` is the limit in seconds for the whole request, rate
    limiting and retries included; the default is 75, and an explicit value is also sent to the server. ``compress``
    accepts a gzip response, which is worthwhile for long lists. ``idempotent`` allows a retry when the connection broke
    after the server may have received the request; ``None`` means that only a GET is retried. ``new_connection`` avoids
    the pool, because an idle connection may be dead. ``max_response_bytes`` limits the body of a successful response,
    decompressed (0: no limit). ``verb`` and ``resource`` identify the request in errors and metrics; the defaults are
    ``method`` and ``path``.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    compress: bool = False
    idempotent: bool | None = None
    new_connection: bool = False
    max_response_bytes: int = 0
    verb: str = ""
    resource: str = ""
