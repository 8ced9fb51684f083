"""Receives the body of a request: of a known length, or in chunks (RFC 9112, section 7.1)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

__all__ = ["BodyError", "RequestBody"]

BUFFER_BYTES: Final = 256 * 1024
"""Bytes that may wait for the handler before the connection stops reading."""
_LINE_BYTES: Final = 4096
"""Maximum length of the line of a chunk, and of all trailers."""
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}").fullmatch


class BodyError(Exception):
    """Raised for a body whose chunks cannot be read."""


class RequestBody:
    """The body of one request.

    The connection passes what it receives to :meth:`feed`; the handler iterates over :meth:`iter_any`. ``on_read`` is
    called when the handler waits for data, ``on_buffered`` when so much waits that the connection should stop reading.
    """

    __slots__ = (
        "_chunked",
        "_in_chunk",
        "_line",
        "_pieces",
        "_size",
        "_trailers",
        "_waiter",
        "complete",
        "discarding",
        "failure",
        "on_buffered",
        "on_read",
        "remaining",
    )

    def __init__(self, length: int | None) -> None:
        self._chunked = length is None
        self._in_chunk = False
        self._trailers = False
        self._line = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self.remaining = length or 0
        self.complete = length == 0
        self.discarding = False
        self.failure: Exception | None = None
        self.on_read: Callable[[], None] | None = None
        self.on_buffered: Callable[[], None] | None = None

    def feed(self, data: bytes) -> bytes:
        """Take received data; return what follows the body. Raises BodyError."""
        if self._chunked:
            data = self._feed_chunks(data)
        else:
            piece, data = data[: self.remaining], data[self.remaining :]
            self._add(piece)
            self.complete = self.remaining == 0
        self._wake()
        if self._size > BUFFER_BYTES and self.on_buffered is not None:
            self.on_buffered()
        return data

    def _add(self, piece: bytes) -> None:
        self.remaining -= len(piece)
        if piece and not self.discarding:
            self._pieces.append(piece)
            self._size += len(piece)

    def _feed_chunks(self, data: bytes) -> bytes:
        position = 0
        while not self.complete and position < len(data):
            if self.remaining:
                end = position + self.remaining
                self._add(data[position:end])
                position = min(end, len(data))
                continue
            end = data.find(b"\n", position)
            self._line += data[position : end + 1 if end >= 0 else len(data)]
            if len(self._line) > _LINE_BYTES:
                raise BodyError("the line of a chunk is too long")
            if end < 0:
                return b""
            position = end + 1
            line, self._line = self._line, b""
            if not line.endswith(b"\r\n"):
                raise BodyError("a line of a chunked body must end with CRLF")
            self._take_line(line[:-2])
        return data[position:]

    def _take_line(self, line: bytes) -> None:
        if self._trailers:
            self.complete = not line
        elif self._in_chunk:
            if line:
                raise BodyError("a chunk is longer than its size")
            self._in_chunk = False
        else:
            size = line.partition(b";")[0].strip(b" \t")
            if not _SIZE(size):
                raise BodyError("invalid size of a chunk")
            self.remaining = int(size, 16)
            self._in_chunk = self.remaining > 0
            self._trailers = not self._in_chunk

    def fail(self, error: Exception) -> None:
        """End the body with an error, which the handler receives."""
        self.failure = error
        self._wake()

    def discard(self) -> None:
        """Forget what waits, and all that follows."""
        self.discarding = True
        self._pieces, self._size = [], 0

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive. Raises ConnectionError or BodyError if it is incomplete."""
        while True:
            if self._pieces:
                pieces, self._pieces, self._size = self._pieces, [], 0
                for piece in pieces:
                    yield piece
            if self.complete:
                return
            if self.failure is not None:
                raise self.failure
            if self.on_read is not None:
                self.on_read()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
