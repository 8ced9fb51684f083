"""The request and response types that handlers use.

A :class:`Request` wraps what the server received: the body is read once, up to a limit, and query parameters have the
semantics of Go's ``url.Values``. A :class:`Response` is bytes with a content type; a handler that streams returns a
response that it has sent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from envtest.apimachinery.errors import StatusError, request_entity_too_large
from envtest.apimachinery.user import User
from envtest.faults import Fault, Faults
from envtest.http_server.received import Received
from envtest.http_server.responses import SentResponse

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

__all__ = [
    "BODY_LIMIT",
    "Page",
    "PageResponse",
    "Request",
    "Response",
    "json_response",
    "not_found_page",
    "status_response",
    "timed_out_page",
]

BODY_LIMIT = 3 * 1024 * 1024
"""Maximum bytes of a request body, as in kube-apiserver."""

BODY_SECONDS = 60.0
"""Maximum seconds for sending a request body, as kube-apiserver's ``--request-timeout``."""

JSON = "application/json"


class PageResponse(NamedTuple):
    """The response of a page (discovery, OpenAPI, health, metrics), whose code does not use HTTP types."""

    code: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Response:
    """A response that is complete before it is sent; a large body is a sequence of pieces, to avoid copying it."""

    body: bytes | Sequence[bytes | memoryview]
    code: int = 200
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


class Request:
    """One HTTP request.

    ``raw`` is aiohttp's request if the connection leaves HTTP, as for exec over WebSocket. ``user`` is set after
    authentication. ``warnings`` become Warning headers of any response. ``faults`` are the server's faults, ``fault``
    is the rule that was injected into this request. ``flow_headers`` say how the request was classified. ``deadline``
    is the time of the event loop at which the request has timed out, if its client has set a timeout.
    """

    __slots__ = (
        "_body",
        "audit",
        "audit_id",
        "deadline",
        "fault",
        "faults",
        "flow_headers",
        "headers",
        "method",
        "moment",
        "path",
        "query",
        "raw",
        "user",
        "warnings",
    )

    def __init__(self, raw: Received | BaseRequest) -> None:
        self.raw = raw
        self.method = raw.method
        self.path = raw.path
        self.query = raw.query
        self.headers = raw.headers
        self.user = User("")
        self.moment: datetime | None = None
        self.warnings: list[str] = []
        self.audit: dict[str, Any] = {}
        self.audit_id = str(uuid.uuid4())
        self.fault: Fault | None = None
        self.faults: Faults | None = None
        self.flow_headers: tuple[tuple[str, str], ...] = ()
        self.deadline: float | None = None
        self._body: bytes | None = None

    async def body(self) -> bytes:
        """Read the body. Raises StatusError: 413 beyond :data:`BODY_LIMIT`, 504 after :data:`BODY_SECONDS`."""
        if self._body is None:
            length = self.raw.content_length
            if length is not None and length > BODY_LIMIT:
                raise request_entity_too_large(BODY_LIMIT)
            if length is not None and isinstance(self.raw, Received) and self.raw.content.complete:
                self._body = self.raw.content.take()  # most bodies arrive together with the headers
                return self._body
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    self._body = await self._read()
            except TimeoutError:
                message = "Timeout: request did not complete within the allotted timeout"
                raise StatusError(504, "Timeout", message, {}) from None
        return self._body

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.raw.content.iter_any():
            size += len(chunk)
            if size > BODY_LIMIT:
                raise request_entity_too_large(BODY_LIMIT)
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, or an empty string."""
        return self.query.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter: absent, ``0`` and ``false`` are false, any other value (also empty) is true."""
        value = self.query.get(name)
        return value is not None and value not in {"0", "false"}

    def warn(self, text: str) -> None:
        """Add a Warning header unless the response already has it."""
        if text and text not in self.warnings:
            self.warnings.append(text)


Page = Callable[[Request], Awaitable["Response | SentResponse | None"]]
"""Serves paths that are not resources (discovery, OpenAPI, health); returns ``None`` for a path that is not its own."""


def json_response(
    document: Any, code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON document as a response."""
    return Response(orjson.dumps(document), code, JSON, dict(headers or {}))


def status_response(error: StatusError) -> Response:
    """Return the response that reports ``error``."""
    return Response(orjson.dumps(error.status()), error.code, JSON, dict(error.headers))


def timed_out_page() -> Response:
    """Return kube-apiserver's response to a request that has taken longer than its client's timeout."""
    message = "Timeout: request did not complete within the allotted timeout"
    status = {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Timeout",
        "details": {},
        "code": 504,
    }
    return Response(orjson.dumps(status), 504, "text/plain; charset=utf-8")


def not_found_page() -> Response:
    """Return the response of Go's ``ServeMux`` for a path that is not served."""
    return Response(
        b"404 page not found\n",
        404,
        "text/plain; charset=utf-8",
        {"X-Content-Type-Options": "nosniff"},
    )
