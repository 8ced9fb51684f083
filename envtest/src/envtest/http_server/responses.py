"""Responses: complete ones, and those that are sent in parts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

__all__ = [
    "CompleteResponse",
    "Sender",
    "SentResponse",
    "StreamResponse",
    "encode_chunk",
    "encode_head",
]

_REASONS: Final = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    301: "Moved Permanently",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    410: "Gone",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_UNSAFE: Final = re.compile(r"[\r\n\0]+")


class CompleteResponse(NamedTuple):
    """A response whose body is known. ``headers`` do not contain its length; ``has_body`` is false for HEAD."""

    status: int
    headers: Iterable[tuple[str, str]]
    body: bytes
    has_body: bool = True


class _Date:
    """The value of the header Date, formatted once a second."""

    second = 0
    text = ""

    def now(self) -> str:
        second = int(time.time())
        if second != self.second:
            at = time.gmtime(second)
            day = _DAYS[at.tm_wday]
            month = _MONTHS[at.tm_mon - 1]
            clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
            self.second = second
            self.text = f"{day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT"
        return self.text


_DATE = _Date()


def encode_head(status: int, headers: Iterable[tuple[str, str]], framing: str) -> bytes:
    """Return the status line and the headers; ``framing`` are complete lines that say where the body ends."""
    lines = "".join([f"{name}: {_safe(value)}\r\n" for name, value in headers])
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n{lines}{framing}Date: {_DATE.now()}\r\n\r\n".encode(
        errors="surrogateescape"  # bytes of relayed headers that are not UTF-8
    )


def encode_chunk(data: bytes) -> bytes:
    """Return a part of a chunked body, which is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _safe(value: str) -> str:
    """Return a header's value without line breaks, which would begin another header."""
    return value if value.isprintable() else _UNSAFE.sub(" ", value)


class Sender(Protocol):
    """The connection of a response that is sent in parts."""

    async def send(self, data: bytes) -> None:
        """Send a part. Raises ConnectionError."""

    def framing(self, length: int | None) -> tuple[str, bool]:
        """Return the lines that say where the body ends, and whether it must be chunked."""
        ...

    def end_with_client(self) -> None:
        """Cancel the handler when the client disconnects, as is done while a response is sent in parts."""


class SentResponse(Protocol):
    """A response that its handler has sent; the connection ends unless it is ``finished``."""

    @property
    def status(self) -> int:
        """The response code."""
        ...


class StreamResponse:
    """A response that is sent in parts: chunked, or with ``content_length`` bytes."""

    def __init__(self, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status = status
        self.headers = list(headers)
        self.content_length: int | None = None
        self._sender: Sender | None = None
        self.is_chunked = False
        self.finished = False

    async def prepare(self, sender: Sender) -> None:
        """Send the headers. Raises ConnectionError."""
        self._sender = sender
        framing, self.is_chunked = sender.framing(self.content_length)
        await sender.send(encode_head(self.status, self.headers, framing))

    async def write(self, data: bytes) -> None:
        """Send a part; wait while the client does not read. Raises ConnectionError if the client has disconnected."""
        assert self._sender is not None
        if data:
            if self.is_chunked:
                data = encode_chunk(data)
            await self._sender.send(data)

    async def write_eof(self) -> None:
        """Send the end. Raises ConnectionError."""
        assert self._sender is not None
        self.finished = True
        if self.is_chunked:
            await self._sender.send(b"0\r\n\r\n")
