"""Receives the body of a request: of a known length, or in chunks (RFC 9112, section 7.1), which llhttp parses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from httptools import HttpParserError, HttpRequestParser

__all__ = ["BodyError", "RequestBody"]

BUFFER_BYTES: Final = 256 * 1024
"""Bytes that may wait for the handler before the connection stops reading."""
FRAMING_BYTES: Final = 16 * 1024
"""Bytes of chunk sizes, extensions and trailers that may follow each other without data."""
_HEAD: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_MAY_END: Final = re.compile(rb"\A(?:\r\n\r\n|\n\r\n|\r\n|\n)|\r\n\r\n")
"""Where a chunked body may end: after an empty line, of which the previous data may contain a part."""


class BodyError(Exception):
    """Raised for a body whose chunks cannot be read."""


class _Chunks:
    """Decodes a chunked body."""

    __slots__ = ("_framing", "_parser", "complete", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.complete = False
        self._framing = 0
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._parser.feed_data(_HEAD)

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> bytes:
        """Append the content to ``pieces``; return what follows the body. Raises BodyError.

        The parser does not report where the body ended, and would continue with the next request. Therefore it
        receives the data in parts that each end where the body may end.
        """
        assert self._parser is not None
        count = len(self.pieces)
        start = 0
        view = memoryview(data)
        try:
            while start < len(data):
                match = _MAY_END.search(data, start)
                end = match.end() if match else len(data)
                self._parser.feed_data(view[start:end])
                start = end
                if self.complete:
                    self._parser = None  # a cycle would keep both until the next garbage collection
                    return data[start:]
        except HttpParserError as error:
            raise BodyError(f"malformed chunk: {error}") from None
        self._framing = 0 if len(self.pieces) > count else self._framing + len(data)
        if self._framing > FRAMING_BYTES:
            raise BodyError("chunk extensions or trailers are too long")
        return b""


class RequestBody:
    """The body of one request.

    The connection passes what it receives to :meth:`feed`; the handler iterates over :meth:`iter_any`. ``on_read`` is
    called when the handler waits for data, ``on_buffered`` when so much waits that the connection should stop reading.
    """

    __slots__ = (
        "_chunks",
        "_pieces",
        "_size",
        "_waiter",
        "complete",
        "discarding",
        "failure",
        "on_buffered",
        "on_read",
        "remaining",
    )

    def __init__(self, length: int | None) -> None:
        self._chunks = _Chunks() if length is None else None
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
        if self._chunks is not None:
            data = self._chunks.feed(data)
            for piece in self._chunks.pieces:
                self._add(piece)
            self._chunks.pieces.clear()
            self.complete = self._chunks.complete
        else:
            piece = data[: self.remaining]
            data = data[self.remaining :]
            self.remaining -= len(piece)
            self._add(piece)
            self.complete = self.remaining == 0
        self._wake()
        if self._size > BUFFER_BYTES and self.on_buffered is not None:
            self.on_buffered()
        return data

    def _add(self, piece: bytes) -> None:
        if piece and not self.discarding:
            self._pieces.append(piece)
            self._size += len(piece)

    def fail(self, error: Exception) -> None:
        """End the body with an error, which the handler receives."""
        self.failure = error
        self._wake()

    def discard(self) -> None:
        """Forget what waits, and all that follows."""
        self.discarding = True
        self._pieces = []
        self._size = 0

    def _wake(self) -> None:
        waiter = self._waiter
        self._waiter = None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def take(self) -> bytes:
        """Return what has been received and not been read."""
        pieces = self._pieces
        self._pieces = []
        self._size = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive. Raises ConnectionError or BodyError if it is incomplete."""
        while True:
            if self._pieces:
                yield self.take()
            if self.complete:
                return
            if self.failure is not None:
                raise self.failure
            if self.on_read is not None:
                self.on_read()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
