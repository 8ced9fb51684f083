"""Protocols that read few bytes of a connection in each turn of the event loop.

The attack: a body in chunks of one byte, or in TLS records of one byte. Each takes as long as a large one, and asyncio
reads 256 KiB at once, which are 40,000 chunks or 8,700 records: 0.1 s, in which nothing else runs. Twenty connections
that do this delay each review by seconds. Of 4 KiB, these are 2 ms, so that 40 such connections delay others by some
0.1 s in each turn. Reading an honest body of 7 MiB takes 50 ms longer. A connection also needs less memory.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import Final

READ_BYTES: Final = 4 * 1024


class SmallReads(asyncio.BufferedProtocol):
    """Passes what a connection without TLS receives to ``protocol``, at most :data:`READ_BYTES` in each turn."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._buffer = memoryview(bytearray(READ_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the new connection on."""
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of the connection on."""
        self._protocol.connection_lost(exc)

    def get_buffer(self, _: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the first ``nbytes`` bytes of the buffer on."""
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        """Pass on that the client sends nothing more."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads too slowly."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read enough."""
        self._protocol.resume_writing()


class SmallTLSReads(sslproto.SSLProtocol):
    """asyncio's TLS, which decrypts at most :data:`READ_BYTES` in each turn.

    After the handshake, the read buffer of the connection's transport has to be limited to this size, too.
    """

    max_size = READ_BYTES
