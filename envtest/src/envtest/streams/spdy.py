"""The server side of SPDY/3.1, as far as Kubernetes clients use it: streams of bytes that the client opens.

Like moby/spdystream, which these clients use, it has no flow control of its own; the transport is paused while too many
bytes wait to be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from envtest.streams.byte_queue import MAX_WAITING, ByteQueue
from envtest.streams.spdy_dictionary import DICTIONARY

__all__ = ["MAX_FRAME", "ProtocolError", "SPDYConnection", "SPDYStream", "parse_headers"]

MAX_FRAME: Final = 1 << 20
"""Maximum bytes of a frame."""

_MAX_HEADERS: Final = 16 * 1024
_MAX_STREAMS: Final = 1000
_CHUNK: Final = 32 * 1024
_SYN_STREAM = 1
_SYN_REPLY = 2
_RST_STREAM = 3
_PING = 6
_GOAWAY = 7
_FIN: Final = 1
_VERSION: Final = 3
_CANCEL: Final = 5


class ProtocolError(Exception):
    """Raised for bytes that are not SPDY/3.1 frames; the connection must be closed."""


def parse_headers(block: bytes) -> dict[str, str]:
    """Return the headers of a decompressed block; names are in lower case. Raises ProtocolError."""
    position = 0

    def number() -> int:
        nonlocal position
        position += 4
        if position > len(block):
            raise ProtocolError("truncated headers")
        return int.from_bytes(block[position - 4 : position], "big")

    def text() -> str:
        nonlocal position
        size = number()
        position += size
        if position > len(block):
            raise ProtocolError("truncated headers")
        return block[position - size : position].decode("utf-8", "replace")

    headers: dict[str, str] = {}
    for _ in range(number()):
        name = text().lower()
        headers[name] = text()
    return headers


class SPDYStream:
    """One stream: ``incoming`` are the bytes of the client."""

    def __init__(self, connection: SPDYConnection, number: int, headers: dict[str, str]) -> None:
        self._connection = connection
        self.number = number
        self.headers = headers
        self.incoming = ByteQueue(connection.count_taken)
        self.is_closed = False

    def ignore(self) -> None:
        """Drop all bytes of the client, because nothing will read them: they must not pause the other streams."""
        self._connection.count_taken(self.incoming.drop())

    async def write(self, data: bytes) -> None:
        """Send bytes to the client; ignored after :meth:`close`."""
        for start in range(0, len(data), _CHUNK):
            if self.is_closed:
                return
            chunk = data[start : start + _CHUNK]
            await self._connection.send(
                self.number.to_bytes(4, "big") + len(chunk).to_bytes(4, "big") + chunk
            )

    async def close(self) -> None:
        """Tell the client that no more bytes follow."""
        if not self.is_closed:
            self.is_closed = True
            header = self.number.to_bytes(4, "big") + bytes([_FIN, 0, 0, 0])
            await self._connection.send(header)
            self._connection.forget(self)


class SPDYConnection:
    """Reads frames with :meth:`feed`, and calls ``accept`` for each stream that the client opens.

    ``send`` writes bytes to the transport. ``pause`` is called with true while more than 1 MiB waits to be read.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        accept: Callable[[SPDYStream], None],
        pause: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.send = send
        self._accept = accept
        self._pause = pause
        self._buffer = bytearray()
        self._streams: dict[int, SPDYStream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._waiting = 0

    def count_taken(self, size: int) -> None:
        """Count bytes that were read from a stream."""
        before = self._waiting
        self._waiting -= size
        if before > MAX_WAITING >= self._waiting:
            self._pause(False)

    def forget(self, stream: SPDYStream) -> None:
        """Forget a stream that this side closed; later bytes of the client are ignored."""
        if self._streams.pop(stream.number, None) is not None:
            stream.ignore()

    def end(self) -> None:
        """End all streams, because the transport was closed."""
        for stream in list(self._streams.values()):
            stream.incoming.end()

    async def feed(self, data: bytes) -> bool:
        """Process bytes of the transport; return false once the client ends the connection. Raises ProtocolError."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= 8:
                size = int.from_bytes(self._buffer[position + 5 : position + 8], "big")
                if size > MAX_FRAME:
                    raise ProtocolError(f"frame of {size} bytes: must have at most {MAX_FRAME}")
                if len(self._buffer) - position - 8 < size:
                    break
                header = bytes(self._buffer[position : position + 8])
                body = bytes(self._buffer[position + 8 : position + 8 + size])
                position += 8 + size
                if not await self._frame(header, body):
                    return False
        finally:
            del self._buffer[:position]
        return True

    async def _frame(self, header: bytes, body: bytes) -> bool:
        flags = header[4]
        if not header[0] & 0x80:
            self._data(int.from_bytes(header[:4], "big"), flags, body)
            return True
        if int.from_bytes(header[:2], "big") & 0x7FFF != _VERSION:
            raise ProtocolError("unsupported version of SPDY")
        kind = int.from_bytes(header[2:4], "big")
        if kind == _SYN_STREAM:
            await self._open(flags, body)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(_stream_number(body), None)
            if stream is not None:
                stream.is_closed = True
                stream.ignore()
        elif kind == _PING:
            await self.send(header + body)
        return kind != _GOAWAY

    def _data(self, number: int, flags: int, body: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        before = self._waiting
        self._waiting += stream.incoming.feed(body)
        if before <= MAX_WAITING < self._waiting:
            self._pause(True)
        if flags & _FIN:
            stream.incoming.end()

    async def _open(self, flags: int, body: bytes) -> None:
        number = _stream_number(body)
        try:
            block = self._inflate.decompress(body[10:], _MAX_HEADERS)
        except zlib.error as error:
            raise ProtocolError(f"compressed headers: {error}") from None
        if self._inflate.unconsumed_tail:
            raise ProtocolError(f"headers of more than {_MAX_HEADERS} bytes")
        if number in self._streams or len(self._streams) >= _MAX_STREAMS:
            await self.send(
                _control(_RST_STREAM, number.to_bytes(4, "big") + _CANCEL.to_bytes(4, "big"))
            )
            return
        stream = SPDYStream(self, number, parse_headers(block))
        self._streams[number] = stream
        empty = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send(_control(_SYN_REPLY, number.to_bytes(4, "big") + empty))
        if flags & _FIN:
            stream.incoming.end()
        self._accept(stream)


def _stream_number(body: bytes) -> int:
    if len(body) < 4:
        raise ProtocolError("truncated frame")
    return int.from_bytes(body[:4], "big") & 0x7FFFFFFF


def _control(kind: int, body: bytes) -> bytes:
    return (
        (0x80000000 | _VERSION << 16 | kind).to_bytes(4, "big")
        + len(body).to_bytes(4, "big")
        + body
    )
