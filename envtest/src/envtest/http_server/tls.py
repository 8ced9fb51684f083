"""TLS of accepted connections, on asyncio's transports for TCP.

An event is written to the connection of each watch, which costs half as much here as with the SSL protocol of asyncio:
encrypt, then send. Besides, all connections share one receive buffer, where each of asyncio's has 256 KiB.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

__all__ = ["BUFFER_BYTES", "TLSTransport"]

BUFFER_BYTES: Final = 64 * 1024
"""Bytes of the receive buffer."""
CLOSE_SECONDS: Final = 30.0
"""Seconds in which a client must read the end of the last response before its connection is cut."""
_RECORD_BYTES: Final = 16 * 1024
"""Maximum bytes of data in a TLS record, so that one read leaves nothing of it."""


class TLSTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The TLS of one connection: the protocol of its TCP transport, and the transport of ``protocol``.

    ``protocol`` gets its connection after the handshake, which must end within ``handshake_seconds``. Connections can
    share ``buffer``: received data is taken out of it before anything else is received. Renegotiation, which would make
    writes wait for the client, must be disabled in ``context``.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: asyncio.Protocol,
        buffer: memoryview,
        handshake_seconds: float,
    ) -> None:
        super().__init__()
        self._context = context
        self._protocol = protocol
        self._buffer = buffer
        self._handshake_seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connected = False
        self._established = False
        self._closing = False
        self._paused = False

    # The protocol of the TCP transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake, which the client begins."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        self._connected = True
        self._timer = self._loop.call_later(self._handshake_seconds, transport.abort)
        if self._closing:  # aborted between the accept and this call
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end to the protocol, if it had begun."""
        self._closing = True
        self._timer.cancel()
        if self._established:
            self._protocol.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which the TCP transport receives."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what was received."""
        if not self._closing:
            self._incoming.write(self._buffer[:nbytes])
            if self._established:
                self._read()
            else:
                self._shake_hands()

    def eof_received(self) -> None:
        """Close the connection: the client has ended it without the message of TLS for this."""
        self._end()

    def pause_writing(self) -> None:
        """Make the protocol wait until the client has read."""
        if self._established:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Let the protocol write again."""
        if self._established:
            self._protocol.resume_writing()

    # TLS.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            self.close()  # sends the alert
            return
        self._flush()
        self._established = True
        self._timer.cancel()
        self._protocol.connection_made(self)
        self._read()

    def _read(self) -> None:
        """Pass all complete records to the protocol, until it pauses."""
        try:
            while self._incoming.pending and not self._paused and not self._closing:
                data = self._tls.read(_RECORD_BYTES)
                if data:
                    self._protocol.data_received(data)
                else:
                    self._end()
        except ssl.SSLWantReadError:  # the rest of the record has not been received
            pass
        except ssl.SSLError:
            self.close()
        self._flush()

    def _flush(self) -> None:
        """Send the messages of TLS itself, such as those of a handshake."""
        if self._outgoing.pending:
            self._tcp.write(self._outgoing.read())

    def _end(self) -> None:
        """Close the connection because the client has closed its side."""
        if self._established and not self._closing:
            self._protocol.eof_received()
        self.close()

    # The transport of the protocol.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what the client does not read at once is buffered."""
        if self._closing or not data:
            return
        written = self._tls.write(data)
        if written < len(data):  # TLS writes one record at a time
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[self._tls.write(rest) :]
        self._tcp.write(self._outgoing.read())

    def close(self) -> None:
        """Send what was written and TLS' own end, then disconnect without waiting for the end of the client."""
        if self._closing:
            return
        self._closing = True
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_SECONDS, self._tcp.abort)
        self._tcp.close()

    def abort(self) -> None:
        """Disconnect; what was not sent is lost."""
        self._closing = True
        if self._connected:
            self._tcp.abort()

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self._closing

    def pause_reading(self) -> None:
        """Receive nothing more."""
        self._paused = True
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        """Receive again, after the records that were received before the pause."""
        self._paused = False
        self._tcp.resume_reading()
        if self._incoming.pending:
            self._loop.call_soon(self._read)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass what follows to another protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about TLS or the TCP connection."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._context
        return self._tcp.get_extra_info(name, default)
